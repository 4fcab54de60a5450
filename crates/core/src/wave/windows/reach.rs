//! R3, R8, R9, R12, R13, R15: how far ahead of a stream to fetch, and by how much at once.
//!
//! ```text
//! what is wanted ahead of a stream, and what changes it, in this order (`target`):
//!
//!   ahead          grown by waits (R3); at first 4 pages for each page of the first read
//!     at least     while no run has ended, what a wait has paid for: one unit, or three upwards where the device is neither a head nor near
//!     at most      four times what the reader has come, or what its waits have paid for; for a reader alone on a head a quarter of what it has come
//!   R9             cut or raised to what runs that ended promise, or to where the reader has looked ahead;
//!                  where neither says anything cut to the stream's share of the speculation (R13)
//!   R13            cut to what keeps the device busy
//!   R13            cut to the stream's share of memory, and to what other streams have left of it, which came when they were fewer
//!   R15, R9, R12   cut to what the program said it needs, to what is enough from run to run, to what is proved while much is lost unread
//!
//! what changes a share:
//!
//!   on a head                                                     both of them 7/4, since half of a window is out on average
//!   answers are late, and streams more than requests in flight    speculation up to 7/4, as far as others have left that
//!   the reader reads most pages twice                             memory 3/4
//!   the reader takes pages from afar as soon as they arrive       memory 3/2
//! ```

use crate::decision::Why;
use crate::units::{Bytes, PageCount};
use crate::wave::devices::device::PIECE_MIN;
use crate::wave::memory::shares::{AHEAD_MIN, UNITS_FIRST};
use crate::wave::plan::LOOKED;
use crate::wave::requests::queue::{Queue, SLICE_TRIPS, piece_pages};
use crate::wave::streams::stream::{Course, Stream, StreamId};
use crate::wave::stride::strides::STRIDE_READS;
use crate::wave::windows::lengths::Lengths;
use crate::wave::{File, Wave};

/// Latencies in which that much should be ahead at least: a window is pushed on by its quarter, which comes in one.
const LATENCIES: u64 = 4;
/// A second read opens a window early only if fewer seeds than this were sown since its stream began.
const FOLLOWED_MAX: u64 = 8;
/// Pages that a window is pushed on by at least, where it is twice as long.
pub(in crate::wave) const FEW: u64 = 8;
/// So many reads in a row that were told were of one stream, if its reader reads nowhere else.
const STAYED_IN: u8 = 3;
/// A read is large if it is more than one part in so many of what its stream may have.
const LARGE: u64 = 4;
/// Requests that a stream has ahead of it at least, into however many all that the device can use is parted.
const EACH_MIN: u64 = 4;
/// Part of a trip that is enough ahead of a reader with whom a head stays: 97 pages on hdd.
const STAYS: u64 = 8;
/// A run is taken to go on for at most so many times what it has come; for one part in so many of it where its reader need not wait.
pub(in crate::wave) const PROMISE: u64 = 4;
/// What is read again is kept longer, and leaves less room to what is read once: a quarter of a share.
const AGAIN: u64 = 4;
/// Nothing else has cut a window. What is fetched then is what was missing to that much, sixteen pages or a thousand.
const ENOUGH: &str = "R13 up to what keeps the device busy";
/// Parts in which a window is pushed on at most where memory is short.
const PARTS: u64 = 8;

impl Wave {
    /// Pages by which a window of `target` is pushed on at once: its reader is heard of again when so many are read.
    ///
    /// As many as are worth a request: a trip of a head, elsewhere an eighth of a unit. But no fewer than a quarter of the window, so that the next
    /// pages are there in time, or an eighth where answers are late, since what is read meanwhile is not on its way; of `r` readers that wait `r` parts
    /// in `r + 3` or `r + 7`, since they do not wait for one another; and 8 pages of a window of 16 and more. And no more than
    ///
    /// - on a head seven eighths of the window;
    /// - where streams are more than requests can be in flight three quarters, since most of them wait for their turn anyway;
    /// - where memory has no room for what the device carries, one part in as many as the device takes requests from each stream, eight at most,
    ///   and 32 pages at least: all of the window should be on its way all the time. Where requests of 32 pages, the smallest, are no more than
    ///   the device takes, each of them is a part: 8 MiB of memory on s3, 32 of 128 KiB;
    /// - elsewhere half.
    pub(in crate::wave) fn step(&self, f: &File, target: u64) -> u64 {
        let Some(queue) = self.queues.get(&f.device) else { return target.max(1) };
        let trip = queue.device.trip_pages();
        let worth = trip.max(PageCount::holding(queue.device.unit()).0 / 8);
        let crowded = queue.device.crowded_by(self.active());
        let most = if trip > 0 {
            target - target / 8
        } else if crowded {
            target - target / 4
        } else if self.is_short(f) {
            let at_once = u64::from(queue.device.flight_max()) / self.active().max(1);
            let smallest = target / PIECE_MIN.0;
            let parts = if smallest <= at_once { smallest } else { at_once.min(PARTS) };
            (target / parts.max(2)).max(PIECE_MIN.0.min(target / 2))
        } else {
            target - target / 2
        };
        let readers = (queue.waiting.len() as u64).max(1);
        let rest = if queue.device.is_far() { 7 } else { 3 };
        let least = (target * readers / (readers + rest)).min(most);
        worth.clamp(least, most).max(FEW.min(target / 2)).max(1)
    }

    /// Whether memory has no room for what the file's device carries, and that is no head.
    pub(in crate::wave) fn is_short(&self, f: &File) -> bool {
        let Some(q) = self.queues.get(&f.device) else { return false };
        let carried = PageCount::holding(q.device.bytes_per_latency()).0 * 3 / 2;
        q.device.trip_pages() == 0 && self.room() < carried
    }

    /// `target`, with the window's end rounded down to the border of a request, so that no request carries only a few pages. Where memory is short,
    /// or where the device may stand idle between requests; then only of a window that nothing else has cut, since what is left of a run is wanted
    /// whole. A stream at page 1000 that may have 1024 ahead has [1000, 2016).
    pub(in crate::wave) fn cut(&self, f: &File, s: &Stream, target: u64, why: Why) -> u64 {
        let piece = if self.is_short(f) {
            PIECE_MIN.0
        } else {
            let Some(q) = self.queues.get(&f.device).filter(|_| why == Why(ENOUGH)) else { return target };
            let piece = self.piece(q);
            if !q.device.may_idle(piece) {
                return target;
            }
            piece
        };
        if target < PARTS * piece {
            return target;
        }
        let end = match s.course {
            Course::Backward => s.next.saturating_sub(target).next_multiple_of(piece),
            _ => s.next.saturating_add(target) / piece * piece,
        };
        end.abs_diff(s.next)
    }

    /// Pages that the rules want ahead of a stream, held against runs that ended as one that has come so many, and the rule that had the last
    /// word.
    pub(in crate::wave) fn target(&self, sid: StreamId, why: Why, came: u64) -> (u64, Why) {
        let Some(s) = self.streams.get(sid) else { return (0, why) };
        let f = &self.files[&s.file];
        // However long its sisters' windows are, a run of four pages promises no more than sixteen.
        // Where runs have ended, waiting pays for no more than they came to.
        let down = s.goes_down();
        let (own, others) = (f.runs.by(s.direction()), self.ended.by(s.direction()));
        let unknown = !own.known() && !others.known();
        let glides = unknown && self.glides(f, s);
        let paid = if (s.reads > 2 || s.waits.is_early() || self.opens_early(f, s)) && unknown && !glides {
            self.opened_by(f, s)
        } else {
            0
        };
        let promise = if glides {
            (s.progress() / PROMISE).max(s.request)
        } else {
            let outgrown = !down && f.goes_from_run_to_run() && came > own.longest();
            let promise = if outgrown { 1 } else { PROMISE };
            (promise * s.progress().max(s.request)).max(paid)
        };
        let mut target = s.ahead.max(f.taught.ahead()).max(paid).min(promise.max(AHEAD_MIN));
        let mut why = why;
        let share = self.share_asked_for(f);
        let by = |lengths: &Lengths| lengths.promise(came, PageCount(share), self.wait_pages(f));
        let may_end = || self.may_end(f, s, own, came, PageCount(share)).filter(|w| w.0 < target);
        let ends = || by(own).or_else(|| by(others)).or_else(may_end);
        let known = if self.goes_through(f, s) { None } else { ends() };
        match known {
            _ if s.to_look() > 0 && (f.runs.believe_looks() || s.to_look() <= target.max(self.unit(f))) => {
                (target, why) = (s.to_look(), Why(LOOKED));
            }
            Some(w) if w.0 < target => (target, why) = (w.0, Why("R9 runs here ended")),
            Some(w) if w.0 > target => (target, why) = (w.0, Why("R9 runs here went on")),
            _ => {
                let speculation = self.speculation_asked_for(f, s);
                if speculation < target {
                    (target, why) = (speculation, Why("R13 share of speculation"));
                }
            }
        }
        let stays = self.stays(s).then(|| self.stays_by(f, s));
        let enough = stays.unwrap_or_else(|| self.enough(f));
        // A run whose end is known, and is no farther than others were, leaves nothing in vain however much of it is out.
        let end_is_known =
            f.runs.believe_looks() && target == s.to_look() && target <= f.runs.telling().longest();
        if enough < target && !end_is_known {
            (target, why) = (enough, Why(ENOUGH));
        }
        let share = if s.reads_again() { share - share / AGAIN } else { share };
        let share = stays.map_or(share, |window| share.max(window));
        let share = if self.rushes(s) { self.lent(s, share) } else { share };
        let share = share.min(self.left_by_others(s));
        if share < target {
            (target, why) = (self.least(f, s, share), Why("R13 share of memory"));
        }
        // What the program says it needs, it needs; of what is behind that it would have said so (R15).
        let said = f.said.needed_until(s.next.saturating_sub(1)).filter(|_| s.course == Course::Forward);
        if let Some(end) = said.filter(|end| end - s.next < target) {
            (target, why) = (end - s.next, Why("R15 the program said how far"));
        }
        if let Some(most) = self.enough_between_runs(f, s).filter(|&most| most < target && !end_is_known) {
            (target, why) = (most, Why("R9 from run to run, and alone"));
        }
        let proved = self.proved(f, s);
        if proved < target {
            (target, why) = (proved, Why("R12 much is lost unread"));
        }
        (target, why)
    }

    /// R9: where a run that has come `came` pages may end, by the few that say so: of a reader who reads nowhere else, for parts of a stream that
    /// many share are runs that end at once; and by the first that were left, of the one reader of a file who reads on at once, unless one more
    /// wait is dear. A head asked for 221 pages after the second read of a slice of 80.
    fn may_end(&self, f: &File, s: &Stream, own: &Lengths, came: u64, most: PageCount) -> Option<PageCount> {
        let by_few = || own.may_end(came, most).filter(|_| s.returns.stayed() >= STAYED_IN);
        let one = || s.returns.stayed() > 0 && !s.goes_down() && !self.is_far(f) && f.has_one_reader();
        let by_left = || f.runs.may_go_on(came).filter(|_| one());
        by_few().or_else(by_left)
    }

    /// Pages that a stream may have ahead of it because it, or one of its file, has waited: what one latency carries; three times as much
    /// where the device may have several connections, for it costs no more time, and nobody knows yet how long runs are: 2,196 on s3. Not
    /// where several answer soon, since its reader is heard of again before that is read; and not downwards, where archives would be fetched
    /// whole for their ends (decision 51).
    fn opened_by(&self, f: &File, s: &Stream) -> u64 {
        let one = self.trip(f) > 0 || self.is_near(f) || s.course == Course::Backward;
        (if one { 1 } else { UNITS_FIRST }) * s.waits.paid().max(f.taught.paid())
    }

    /// Whether a stream's second read opens its window, where others wait for the third: its device answers late, so that one more wait is dear;
    /// those before it went on; and few began since it did. Rows of a matrix are short, and all of them are to be opened.
    pub(in crate::wave) fn opens_early(&self, f: &File, s: &Stream) -> bool {
        let serial = s.begun.serial();
        let alone = serial > 0 && f.seeds.sown_since(serial) < FOLLOWED_MAX;
        self.is_far(f)
            && s.course == Course::Forward
            && alone
            && f.taught.may_open_early()
            && !self.is_short(f)
    }

    /// Whether a stream on its way up has been read alone, by who need not wait to read on (glides.rs).
    pub(in crate::wave) fn glides(&self, f: &File, s: &Stream) -> bool {
        s.course == Course::Forward
            && self.queues.get(&f.device).is_some_and(|q| q.glides_with(s.returns.turn()))
    }

    /// Whether the file's device works at one request at a time, as far as is known.
    pub(in crate::wave) fn is_head(&self, f: &File) -> bool {
        self.queues.get(&f.device).is_some_and(|q| q.device.is_head())
    }

    /// Whether the file's device answers late, and is not known to be a head: s3.
    pub(in crate::wave) fn is_far(&self, f: &File) -> bool {
        self.queues.get(&f.device).is_some_and(|q| q.device.is_far())
    }

    /// Whether the file's device works at several requests at once and answers soon: nfs, ssd.
    fn is_near(&self, f: &File) -> bool {
        self.queues.get(&f.device).is_some_and(|q| q.device.is_near())
    }

    /// Whether a head may stay with a stream: it goes up, readers of others wait for the head too, and its own takes pages as soon as they arrive.
    /// Then a short window that is pushed on by halves keeps the head there, and of a long one only more would be in vain when the stream ends. Not
    /// where memory has no room for the short one either (`stays_by`), for the head would go elsewhere between its halves. Streams to come are not
    /// counted for that: what this one has is read before they are there.
    pub(in crate::wave) fn stays(&self, s: &Stream) -> bool {
        let Some(f) = self.files.get(&s.file) else { return false };
        let crowded = self.queues.get(&f.device).is_some_and(Queue::crowded_head);
        s.takes_what_comes()
            && crowded
            && self.asked_for(f, self.room() / self.active().max(1)) >= self.trip(f) / STAYS
    }

    /// Whether what is ahead of a stream is in flight rather than lying there: answers are late, and the reader takes pages as soon as they arrive and
    /// reads nowhere else. Not if one read is more than a quarter of the stream's share, since parts of it lie there until the rest has come, nor if
    /// the reader reads its pages again.
    pub(in crate::wave) fn rushes(&self, s: &Stream) -> bool {
        let Some(f) = self.files.get(&s.file) else { return false };
        let willing = s.takes_what_comes() && s.returns.stayed() >= STAYED_IN && !s.reads_again();
        willing && self.is_far(f) && LARGE * s.request <= self.share_asked_for(f)
    }

    /// What a stream may have ahead of it whose reader rushes: half as much again as its share, as far as others have left it of three quarters of
    /// memory. 1,536 pages for one reader of s3 in 8 MiB, where half is 1,024.
    fn lent(&self, s: &Stream, share: u64) -> u64 {
        let left = self.room_of_who_rushes().saturating_sub(self.out_of_others(s));
        (share * 3 / 2).min(left).max(share)
    }

    /// Pages that may be out where they are on their way.
    pub(in crate::wave) fn room_of_who_rushes(&self) -> u64 {
        (self.room() * 3 / 2).min(self.seven_eighths())
    }

    /// Pages that are enough ahead of a reader with whom a head stays: an eighth of a trip, or two of his reads where that does not hold one,
    /// for the rest would be asked for apart. 97 on hdd, 512 in reads of 1 MiB.
    fn stays_by(&self, f: &File, s: &Stream) -> u64 {
        let part = self.trip(f) / STAYS;
        if s.request > part { 2 * s.request } else { part }
    }

    /// Pages ahead of a stream that keep its device busy. What is out beyond that is in vain when the reader stops, whatever else allows it.
    ///
    /// - A head: the four trips for which it stays while others wait, 3,124 pages on hdd.
    /// - A device that answers late: twice what it takes at once.
    /// - Any other: of that the stream's part, where readers go between several streams; four requests at least. If it is known to answer soon,
    ///   all streams together are given no more than half as much again as it carries until the driver has told of an arrival
    ///   ([`crate::wave::Config::seen_within`]), or in four latencies, but two requests each, or four where small ones leave it idle: 3,700 pages on ssd and 1,900 on nfs where the driver tells
    ///   within 20 ms, 73 and 367 where it tells at once.
    pub(in crate::wave) fn enough(&self, f: &File) -> u64 {
        let Some(q) = self.queues.get(&f.device) else { return u64::MAX };
        let trip = q.device.trip_pages();
        if trip > 0 {
            return SLICE_TRIPS * trip;
        }
        let piece = self.piece(q);
        let all = 2 * u64::from(q.device.flight_max()) * piece;
        let (readers, streams) = ((self.latest.len() as u64).max(1), self.active().max(1));
        let each = (all * readers / streams).max(EACH_MIN * piece).min(all);
        let enough = if self.is_far(f) { all } else { each };
        match (q.device.latency(), q.device.rate()) {
            (Some(latency), Some(rate)) if self.is_near(f) => {
                let until = (latency + self.config.seen_within).0.max(LATENCIES * latency.0);
                let carried = Bytes((rate / 1000).saturating_mul(until) / 1_000_000);
                let in_all = PageCount::holding(carried).0 * 3 / 2;
                let few = if q.device.starves() { EACH_MIN } else { 2 };
                enough.min((in_all / streams).max(few * piece))
            }
            _ => enough,
        }
    }

    /// Pages of a request to the queue's device of what nobody waits for.
    fn piece(&self, queue: &Queue) -> u64 {
        piece_pages(queue, None, PageCount(self.ledger.unread()), PageCount(self.room()))
    }

    /// Pages that may be asked for where `pages` may be out: three quarters more on a head that seeks, for it fetches a window
    /// when the one before it is read, so that half of it is out on average. 300 readers of 100 KB/s in 128 MiB need that much: their
    /// share is 54 pages, a disk of 8 ms that is to carry 30 MB/s wants 84 at once, and they ask for 95 with 11 still to read.
    /// Not more: memory loses what has lain there for as long as it takes to fetch all of it, and windows of twice the share would be read
    /// for as long as that.
    fn asked_for(&self, f: &File, pages: u64) -> u64 {
        if self.trip(f) > 0 { (pages * 7 / 4).min(self.seven_eighths()) } else { pages }
    }

    /// What a stream may ask for of the speculation. Where answers are late and streams are more than requests can be in flight, three quarters
    /// more than its own as well, as far as others have left that: they ask by turns, each for most of a window when it is read, and the
    /// larger a request is, the fewer of them stand in line. 256 rows of a matrix on s3 have 38 pages each and ask for up to 66.
    fn speculation_asked_for(&self, f: &File, s: &Stream) -> u64 {
        let own = self.speculation_of(f, s);
        let crowded = |q: &Queue| q.device.crowded_by(self.active());
        if self.is_far(f) && self.queues.get(&f.device).is_some_and(crowded) {
            let left = self.pool(f).saturating_sub(self.out_of_others(s));
            return left.clamp(own, own * 7 / 4);
        }
        self.asked_for(f, own)
    }

    /// What others have left a stream of the memory, however few they were when they had their share.
    fn left_by_others(&self, s: &Stream) -> u64 {
        if self.active() <= 1 {
            return u64::MAX;
        }
        self.seven_eighths().saturating_sub(self.out_of_others(s)).max(AHEAD_MIN)
    }

    /// So many of a stream's share of memory. On a head windows last their readers for several epochs, and in each as many streams
    /// come as in the last: they are counted three times.
    pub(in crate::wave) fn share_asked_for(&self, f: &File) -> u64 {
        let (active, new) = (self.active(), self.epochs.newcomers());
        let streams = (if self.trip(f) > 0 { active + 3 * new } else { active + new }).max(1);
        let share = self.room() / streams;
        if share >= AHEAD_MIN { self.asked_for(f, share) } else { self.asked_for(f, self.room()) / streams }
    }

    /// What a stream has ahead of it for its share of memory: that share, and four pages where it is less. But from its fourth read on a stream whose
    /// share is less than four pages has whole reads, since part of one brings nothing: as many as its share holds, and one at least. It has none where
    /// memory does not hold one read of every stream beside what is out; nor on a head while its reader does not wait for it, since the way
    /// for these pages alone is as long as the way for the reader's own read, which brings them too.
    ///
    /// 512 streams in 8 MiB, 2 pages for each. In reads of a page 2 are ahead; in reads of two pages one is, while no more than 1792 - 2 * 512 are
    /// out; in reads of four none: 2048 pages come between two turns.
    fn least(&self, f: &File, s: &Stream, share: u64) -> u64 {
        if share >= AHEAD_MIN || s.reads <= STRIDE_READS {
            return share.max(AHEAD_MIN);
        }
        let alone = self.trip(f) > 0 && !s.waits.is_waited_for();
        let fits = self.out() + s.request * self.active() <= self.memory() / 8 * 7;
        if alone || !fits { 0 } else { (share / s.request.max(1)).max(1) * s.request }
    }

    /// Pages in vain that a wait is worth: those that come in an eighth of its time (R9). 24 on hdd, 82 on s3, 7 on nfs.
    pub(in crate::wave) fn wait_pages(&self, f: &File) -> PageCount {
        PageCount(self.unit(f) / 8)
    }

    /// Pages that one latency of the file's device carries.
    pub(in crate::wave) fn unit(&self, f: &File) -> u64 {
        self.queues.get(&f.device).map_or(0, |q| q.device.unit_pages())
    }

    /// Whether the file's device is known to work at several requests at once.
    pub(in crate::wave) fn overlaps(&self, f: &File) -> bool {
        self.queues.get(&f.device).is_some_and(|q| q.device.overlaps())
    }

    /// Pages that a trip of the file's head should bring; 0 where there is no head.
    pub(in crate::wave) fn trip(&self, f: &File) -> u64 {
        self.queues.get(&f.device).map_or(0, |q| q.device.trip_pages())
    }
}

#[cfg(test)]
mod tests;
