//! R11: small files that are read in many places. Where those before were, the next is fetched whole.
//!
//! An archive is read at its end, in its directory and at each member, and at each of them its reader waits. Where what lies between
//! two of them comes sooner than a read of its own, all of the file at once would have been cheaper; but what was read of it is
//! known when its reader goes on with another. So the files before say it of those behind, page for page, the later ones more:
//!
//! ```text
//! hdd (8 ms, 100 MB/s: a gap may have 200 pages), archives of 2048 pages, 13 places each
//! 1st to 3rd  430 pages read, 1618 between them: less than 13 x 200 = 2600, and so the sums of all three
//! 4th         its first read waits -> buy all of it: 8 ms + 84 ms, and no more waits
//!             its reader goes on with the 5th: every eighth page told when it was read, and so did 13 places: right again
//! ```
//!
//! A file that was read in fewer than four places has its pages counted as if none had been read: it is not what this rule is for, and
//! a reader who goes from one to the next gets what the other rules give him.

use crate::decision::Why;
use crate::table::PageBit;
use crate::units::{Extent, FileId, Nanos, PAGE_SIZE};
use crate::wave::streams::locate::Place;
use crate::wave::streams::stream::Course;
use crate::wave::{File, Wave};

/// A larger file is not bought whole: 64 MiB.
const WHOLE_MAX: u64 = 16_384;
/// Fewer places than this are not many.
const PLACES_MIN: u64 = 4;
/// Files that must have been left before they are believed.
const WITNESSES_MIN: u32 = 3;

/// What the files of a device that were left say together: a quarter of each sum is forgotten with each file.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Wholes {
    files: u32,
    /// Their pages, those of them that were not read, and as many as might have been fetched instead of going from place to place.
    pages: u64,
    between: u64,
    worth: u64,
}

impl Wholes {
    /// A file of `pages` pages was left; `between` of them were not read.
    fn left(&mut self, pages: u64, between: u64, worth: u64) {
        self.files = self.files.saturating_add(1);
        for (sum, new) in [(&mut self.pages, pages), (&mut self.between, between), (&mut self.worth, worth)] {
            *sum = *sum / 4 * 3 + new;
        }
    }

    /// Whether all of a file of `pages` pages is worth it. One much larger than those that were left, four times and more, is another
    /// kind of file.
    fn says_so(&self, pages: u64) -> bool {
        self.files >= WITNESSES_MIN && self.between <= self.worth && pages <= self.pages
    }
}

/// In how many places one file was read.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Visits {
    /// Reads told that went elsewhere than those before them.
    places: u64,
    /// Pages of the first read at its begin; 0 if there was none.
    first: u64,
    /// A reader of it went on with another file.
    left: bool,
}

impl Visits {
    /// In how many places it was read, as far as that was told.
    pub(in crate::wave) fn places(&self) -> u64 {
        self.places
    }
}

impl Wave {
    /// A read is told: it goes to another place of its file than the one before it, perhaps.
    pub(in crate::wave) fn count_place(&mut self, id: FileId, place: Place, pages: Extent) {
        let strides = |sid| self.streams.get(sid).is_some_and(|s| matches!(s.course, Course::Stride { .. }));
        let elsewhere = match place {
            Place::Stray => true,
            Place::Continues(sid) => strides(sid),
            _ => false,
        };
        if let Some(f) = self.files.get_mut(&id) {
            f.visits.places += u64::from(elsewhere);
            if elsewhere && pages.start.0 == 0 {
                f.visits.first = pages.count.0;
            }
        }
    }

    /// The reader of a file goes on with another, or it is closed: it says, once, whether all of it would have been cheaper.
    pub(in crate::wave) fn leave_file(&mut self, id: FileId) {
        let Some(f) = self.files.get_mut(&id).filter(|f| f.visits.places > 0 && f.end <= WHOLE_MAX) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(&f.device) else { return };
        if core::mem::replace(&mut f.visits.left, true) {
            return;
        }
        let read = f.table.count(PageBit::Used, Extent::new(0, f.end)).0;
        if (1..f.end).contains(&f.visits.first) {
            queue.through.left(f.end, read);
        }
        let places = f.visits.places;
        let read = if places < PLACES_MIN { 0 } else { read };
        queue.wholes.left(f.end, f.end - read, places * (queue.device.gap_max().0 / PAGE_SIZE));
    }

    /// Whether memory holds a few of such files.
    pub(in crate::wave) fn fits_whole(&self, f: &File) -> bool {
        f.end <= WHOLE_MAX.min(self.belief.pages() / 4)
    }

    /// The first read of a file waits: it is bought if those before were worth it, unless it is read in order, as the program said. Says
    /// whether it was.
    pub(in crate::wave) fn buy_whole(&mut self, now: Nanos, id: FileId, pages: Extent) -> bool {
        let Some(f) = self.files.get(&id) else { return false };
        let known = self.queues.get(&f.device).is_some_and(|queue| queue.wholes.says_so(f.end));
        if f.visits.places > 1 || f.said.in_order() || !self.fits_whole(f) || !known {
            return false;
        }
        let whole = Extent::new(0, f.end);
        self.buy(now, id, pages, whole, Why("R11 files like this are read in many places"));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;
    use crate::wave::{Action, Config, Input};

    /// A reader on a head of 8 ms goes from file to file, to `places` places of each, `apart` pages from one to the next; each file is of
    /// `pages` pages. Says what was bought: file and pages.
    fn read_files(files: u64, pages: u64, places: u64, apart: u64) -> alloc::vec::Vec<(u64, u64)> {
        let mut wave = Wave::new(Config::default());
        wave.queue(0).device = crate::wave::devices::device::tests::play(1, 8_000, 500);
        let mut now = Nanos(1);
        for file in 0..files {
            let id = FileId(file);
            wave.handle(now, Input::Open { file: id, device: 0, size: Bytes(pages * PAGE_SIZE) });
            for place in 0..places {
                // Not quite equally far apart.
                let read = Extent::new(place * apart + place * place % 7, 8);
                now += Nanos::from_ms(1);
                let missing = read.count.0 - wave.files[&id].table.resident(read).0;
                let marked = wave.files[&id].table.count(PageBit::Mark, read).0;
                if missing + marked > 0 {
                    wave.handle(now, Input::Read { file: id, pages: read, actor: 0 });
                } else {
                    wave.handle(now, Input::Used { file: id, pages: read });
                }
                if missing > 0 {
                    now += Nanos::from_ms(8);
                    wave.handle(
                        now,
                        Input::Waited {
                            file: id,
                            pages: read,
                            actor: 0,
                            took: Nanos::from_ms(8),
                            ended: now,
                        },
                    );
                }
                while let Some(Action::Fetch { id, .. }) = wave.poll(now) {
                    now += Nanos::from_ms(8);
                    wave.handle(now, Input::Arrived { fetch: id });
                }
                wave.check();
            }
        }
        let whole = |e: &crate::wave::Explained| e.decision.why.0.starts_with("R11 files");
        wave.take_trace().filter(whole).map(|e| (e.file.0, e.decision.window.size.0)).collect()
    }

    #[test]
    fn the_fourth_archive_is_bought_and_each_behind_it() {
        assert_eq!(read_files(6, 2048, 13, 155), [(3, 2048), (4, 2048), (5, 2048)]);
    }

    #[test]
    fn where_places_are_far_apart_or_few_nothing_is() {
        assert_eq!(read_files(12, 8192, 13, 620), []);
        assert_eq!(read_files(12, 400, 2, 180), []);
    }

    #[test]
    fn another_kind_of_file_is_not() {
        let mut wholes = Wholes::default();
        (0..9).for_each(|_| wholes.left(2048, 1618, 2600));
        assert!(wholes.says_so(4096) && !wholes.says_so(16_384));
        // Two that were hardly read take it back.
        (0..2).for_each(|_| wholes.left(2048, 2047, 200));
        assert!(!wholes.says_so(2048));
    }
}
