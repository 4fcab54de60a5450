//! R8: a reader who goes from run to run, always upwards or always downwards, so near to one another that what lies between comes sooner than
//! his next read waits, reads on.
//!
//! ```text
//! hdd: 8 ms carry 195 pages, so 170 between two runs are cheaper than the way, with something to spare
//! members of an archive     6..29   160..178   320..370   487..508   654..700   808..
//! between them                   131        142        117        146        108
//! hops                            1          2          3          4  he reads on: one stream from 487 on
//!
//! s3: 30 ms carry 656 pages by one connection, so 574: what an index finds, 8 KiB here and there, 30 to 300 pages apart
//! ```
//!
//! Three hops may be chance, and one that leads elsewhere begins the count anew: who reads at random in a cluster goes up and down. One that leads on
//! over more than is cheap, up to four times as much, takes two to four off instead. Elsewhere than on a head what is fetched in vain keeps nobody
//! waiting: there it takes two off, and one of who is known to hop; but all where answers are late, for so much is dear there. To a head each hop
//! saves a way. Elsewhere it saves a wait, which rent (R11) would buy as well, so more are asked for, unless all that its reader read of late lies
//! in one order. What lies between is fetched with the windows of the stream, and counts as read.
//!
//! He hops over marks, too. So they are as wide as he has hopped, and his window is pushed on by halves where others on a head bring a whole trip:
//! else he is past the end of it before anybody hears of him, and the head has gone. Files of which memory holds a few are bought whole instead,
//! once those before them have shown what they are (wholes.rs), and only who goes on for longer than through an archive hops in them. Of several readers of a file one hops over what another reads; only where they
//! all wait for one head are they taken for hops even so.

use crate::units::{Extent, FileId};
use crate::wave::Wave;
use crate::wave::devices::device::PIECE_MIN;
use crate::wave::streams::locate::Place;
use crate::wave::streams::stream::Course;

/// Hops in a row that may be chance, where each saves a way of a head, or all that was read of late lies in one order.
const HOPS: u8 = 3;
/// Hops in a row that may be chance where neither is so.
const HOPS_ELSEWHERE: u8 = 5;
/// Hops in a row that may be chance, or an archive's, in files of which memory holds a few.
const HOPS_WHOLE: u8 = 12;
/// Reads that lie in one order, near or far, which is no chance.
const SCAN: usize = 6;
/// A hop over more than is cheap takes as many off as that is worth, or less where there is no head; one over more than so many times that, all.
const FAR: u64 = 4;
/// Of what the device carries while a read elsewhere waits, so much may lie between two runs, in eighths.
const CHEAP_EIGHTHS: u64 = 7;

impl Wave {
    /// Where a read belongs that was found to belong at `place`: to the stream that its reader comes from, if he hops.
    pub(in crate::wave) fn hop(&mut self, id: FileId, actor: u32, place: Place, pages: Extent) -> Place {
        let Some(latest) = self.latest.get(&actor).filter(|l| l.file == id && !l.stays(place)) else {
            return place;
        };
        let Some((sid, s)) = latest.stream.and_then(|sid| Some((sid, self.streams.get(sid)?))) else {
            return place;
        };
        let Some(f) = self.files.get(&id) else { return place };
        let head = self.is_head(f);
        let pays = head || f.has_one_reader();
        let cheap = if pays { self.unit(f) * CHEAP_EIGHTHS / 8 } else { 0 };
        let up = || pages.start.0.checked_sub(s.next);
        let down = |low: u64| low.checked_sub(pages.end().0);
        // Upwards counts up, downwards down.
        let (gap, step) = match s.course {
            Course::Forward => (up(), 1),
            Course::Backward => (down(s.next), -1),
            Course::Seed => up().map_or((down(s.first), -1), |gap| (Some(gap), 1)),
            // Three of them lay equally far apart, and this one does not; what goes on behind the last is none.
            Course::Stride { .. } => match pages.start.0.checked_sub(latest.pages.end().0) {
                Some(0) => return place,
                Some(gap) => (Some(gap), 1),
                None => (down(latest.pages.start.0), -1),
            },
        };
        let strides = matches!(s.course, Course::Stride { .. });
        let before = if latest.hops.signum() == step { latest.hops } else { 0 };
        let hops = match gap {
            Some(gap) if gap <= cheap => before.saturating_add(step),
            Some(gap) if gap <= FAR * cheap && !self.is_far(f) => {
                let known = before.unsigned_abs() > HOPS;
                let worth = if head { gap.div_ceil(cheap) } else { 2 - u64::from(known) };
                let left = u64::from(before.unsigned_abs()).saturating_sub(worth);
                i8::try_from(left).unwrap_or(i8::MAX) * step
            }
            _ => 0,
        };
        let gap = gap.filter(|&gap| gap <= cheap);
        // Where so little comes while a read waits, as from ssd, a hop saves less than what lies between may cost.
        let sorted = |later: &u64, before: &u64| if step > 0 { later > before } else { later < before };
        let scans = || {
            self.unit(f) >= PIECE_MIN.0 / 2
                && latest.strays.all().get(..SCAN).is_some_and(|reads| reads.is_sorted_by(sorted))
        };
        let chance = match self.fits_whole(f) {
            // He may have come from another such file.
            true if f.visits.places() <= u64::from(HOPS_WHOLE) => u8::MAX,
            true => HOPS_WHOLE,
            false if head || scans() => HOPS,
            false => HOPS_ELSEWHERE,
        };
        if let Some(latest) = self.latest.get_mut(&actor) {
            latest.hops = hops;
        }
        let hops = hops.unsigned_abs() > chance && place == Place::Stray && !strides;
        let Some(gap) = gap.filter(|_| hops) else { return place };
        if let Some(s) = self.streams.get_mut(sid) {
            s.manner.hopped(gap);
        }
        Place::Continues(sid)
    }
}

#[cfg(test)]
mod tests {
    use crate::units::{Bytes, Extent, FileId, Nanos};
    use crate::wave::devices::device::tests::play;
    use crate::wave::{Action, Config, Input, Wave};

    /// Where the stream began that the last of `runs` belongs to, on a device that takes so many at once, and whether its reader hops. Somebody
    /// else reads one page of the file first where there are `others`.
    fn last_began_at(slots: usize, others: bool, runs: &[(u64, u64)]) -> (u64, bool) {
        let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
        wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 30) });
        wave.queue(0).device = play(slots, 8_000, 500);
        if others {
            let pages = Extent::new(200_000, 1);
            wave.handle(Nanos(0), Input::Read { file: id, pages, actor: 1 });
        }
        let mut now = Nanos(0);
        for &(start, end) in runs {
            for page in (start..end).step_by(8) {
                now.0 += 8_000_000;
                let pages = Extent::new(page, (end - page).min(8));
                wave.handle(now, Input::Read { file: id, pages, actor: 0 });
                while let Some(Action::Fetch { id, .. }) = wave.poll(now) {
                    wave.handle(now, Input::Skipped { fetch: id });
                }
                wave.check();
            }
        }
        let stream = wave.latest[&0].stream.expect("a stream");
        let stream = wave.streams.get(stream).expect("it is there");
        (stream.first, stream.manner.hops())
    }

    /// What an index finds, read upwards and downwards: reads of two pages, never equally far apart.
    #[test]
    fn what_an_index_finds_is_read_through() {
        let gaps = [60, 131, 45, 90, 20, 110, 75, 100];
        let up = |reads: usize| {
            let starts = gaps[..reads].iter().scan(1000, |at, gap| Some(core::mem::replace(at, *at + gap)));
            starts.map(|at| (at, at + 2)).collect::<alloc::vec::Vec<(u64, u64)>>()
        };
        let down = |reads| {
            up(reads).into_iter().map(|(from, to)| (9000 - to, 9000 - from)).collect::<alloc::vec::Vec<_>>()
        };
        assert_eq!([last_began_at(16, false, &up(6)).1, last_began_at(16, false, &up(7)).1], [false, true]);
        assert_eq!(
            [last_began_at(16, false, &down(6)).1, last_began_at(16, false, &down(7)).1],
            [false, true]
        );
        assert!(!last_began_at(16, true, &up(7)).1, "one may hop over what another reads");
        assert_eq!([last_began_at(1, false, &down(4)).1, last_began_at(1, false, &down(5)).1], [false, true]);
    }

    /// The picture at the top.
    #[test]
    fn who_hops_reads_on() {
        let members = [(6, 29), (160, 178), (320, 370), (487, 508), (654, 700), (808, 830)];
        assert_eq!(last_began_at(1, false, &members), (487, true));
        assert_eq!(last_began_at(1, false, &members[..4]), (487, false), "three may be chance");
        assert_eq!(last_began_at(1, true, &members), (487, true), "a head is one for all");
        assert_eq!(last_began_at(16, false, &members), (808, false), "elsewhere five may be");
        let mut too_far = members;
        too_far[3] = (487 + 60, 508 + 60);
        assert_eq!(last_began_at(1, false, &too_far), (808, false), "177 pages are farther than 170");
    }

    /// Of three hops one over 250 pages leaves one, so who hops three times more reads on. Of hops that are all so far none is counted, and one over
    /// four times too many leads elsewhere.
    #[test]
    fn a_hop_that_is_too_far_takes_some_off() {
        let hops_on = |slots: usize, gaps: &[u64]| {
            let starts = gaps.iter().scan(1000, |at, gap| Some(core::mem::replace(at, *at + gap + 2)));
            last_began_at(slots, false, &starts.map(|at| (at, at + 2)).collect::<alloc::vec::Vec<_>>()).1
        };
        let hops = |gaps: &[u64]| hops_on(1, gaps);
        assert!(!hops(&[90, 80, 75, 250, 95, 85, 1]) && hops(&[90, 80, 75, 250, 95, 85, 70, 1]));
        assert!(!hops(&[250, 220, 300, 190, 260, 240, 210, 230, 270, 280, 1]), "as far as it is");
        assert!(!hops(&[90, 80, 75, 700, 95, 85, 70, 1]), "it leads elsewhere");
        // Where there is no head it takes one off of four and more, and else two.
        let gaps = [90, 80, 75, 70, 65, 85, 95, 600, 600, 60, 70, 1];
        assert!(hops_on(16, &gaps) && !hops(&gaps));
        assert!(!hops_on(16, &gaps[3..]));
    }
}
