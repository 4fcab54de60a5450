//! R8: a reader who goes upwards from run to run, so near to one another that a head reads what lies between sooner than it goes
//! there, reads on.
//!
//! ```text
//! hdd: 8 ms carry 195 pages, so 170 between two runs are cheaper than the way, with something to spare
//! members of an archive     6..29   160..178   320..370   487..508   654..700   808..
//! between them                   131        142        117        146        108
//! hops                            1          2          3          4  he reads on: one stream from 487 on
//! ```
//!
//! He hops over marks, too. So his window is pushed on by halves where others on a head bring a whole trip: else he is past the end of
//! it before anybody hears of him, and the head has gone.
//!
//! Three hops may be chance, and one that leads elsewhere begins the count anew: who reads at random in a cluster goes up and down. What
//! lies between is fetched with the windows of the stream, and counts as read. Files of which memory holds a few are bought whole instead,
//! once those before them have shown what they are (wholes.rs).

use super::Wave;
use super::locate::Place;
use super::stream::Course;
use crate::units::{Extent, FileId};

/// Hops in a row that may be chance.
const CHANCE: u8 = 3;
/// Of what a head carries in the time of going elsewhere, so much may lie between two runs, in eighths.
const CHEAP_EIGHTHS: u64 = 7;

impl Wave {
    /// Where a read belongs that was found to belong at `place`: to the stream that its reader comes from, if he hops.
    pub(super) fn hop(&mut self, id: FileId, actor: u32, place: Place, pages: Extent) -> Place {
        let Some(latest) = self.latest.get(&actor).filter(|l| l.file == id && !l.stays(place)) else {
            return place;
        };
        let Some((sid, s)) = latest.stream.and_then(|sid| Some((sid, self.streams.get(sid)?))) else {
            return place;
        };
        let Some(f) = self.files.get(&id).filter(|f| !self.fits_whole(f)) else { return place };
        let cheap = if self.is_head(f) { self.unit(f) * CHEAP_EIGHTHS / 8 } else { 0 };
        let upwards = matches!(s.course, Course::Forward | Course::Seed);
        let near = upwards && pages.start.0.checked_sub(s.next).is_some_and(|gap| gap <= cheap);
        let hops = if near { latest.hops.saturating_add(1) } else { 0 };
        if let Some(latest) = self.latest.get_mut(&actor) {
            latest.hops = hops;
        }
        if hops <= CHANCE || place != Place::Stray {
            return place;
        }
        if let Some(s) = self.streams.get_mut(sid) {
            s.hops = true;
        }
        Place::Continues(sid)
    }
}

#[cfg(test)]
mod tests {
    use super::super::device::tests::play;
    use super::super::{Action, Config, Input, Wave};
    use crate::units::{Bytes, Extent, FileId, Nanos};

    /// Where the stream began that the last of `runs` belongs to, on a device that takes so many at once, and whether its reader hops.
    fn last_began_at(slots: usize, runs: &[(u64, u64)]) -> (u64, bool) {
        let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
        wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 30) });
        wave.queue(0).device = play(slots, 8_000, 500);
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
        assert!(!stream.hops || slots == 1, "only heads are hopped on");
        (stream.first, stream.hops)
    }

    /// The picture at the top.
    #[test]
    fn who_hops_reads_on() {
        let members = [(6, 29), (160, 178), (320, 370), (487, 508), (654, 700), (808, 830)];
        assert_eq!(last_began_at(1, &members), (487, true));
        assert_eq!(last_began_at(1, &members[..4]), (487, false), "three may be chance");
        assert_eq!(
            last_began_at(16, &members),
            (808, false),
            "no head: what lies between is dearer than the way"
        );
        let mut too_far = members;
        too_far[3] = (487 + 60, 508 + 60);
        assert_eq!(
            last_began_at(1, &too_far),
            (808, false),
            "177 pages are farther than 170, and the count begins anew"
        );
    }
}
