//! R11: when a read pays rent, on what terms, and what is fetched for it. What it buys says density.rs.
//!
//! ```text
//! a read that belongs nowhere waits        pays one latency, where it lies
//!   nobody knows yet what a latency is     it pays with the next: the first read of a thread is told when it has returned
//!   the price is a guess                   a part is bought, and when it has arrived the price is known: looked at again then
//!
//! s3, 64 MiB in random order     0, 30, 60, 90 ms   four reads; the fourth buys 4 MiB, to learn the price
//!                                126 ms             they are there: 30 ms + 138 ms for 64 MiB, of which 150 are paid -> bought
//! ```

use crate::decision::{Pattern, Why};
use crate::table::PageBit;
use crate::units::{Extent, FileId, Nanos, PAGE_SIZE, PageIndex};
use crate::wave::plan::whole;
use crate::wave::regions::density::Terms;
use crate::wave::requests::queue::{Turn, Wanted};
use crate::wave::{File, Wave};

/// One page in so many of a bought region carries a mark.
const SAMPLE: u64 = 8;

impl File {
    /// Whether regions are bought though much is lost (R12): where it is read in order, as its program says, or where those before paid well.
    fn buys_anyway(&self) -> bool {
        self.said.in_order() || self.account.pays()
    }

    /// R11: so many marks were read near `page`, each for the pages of a bought region up to the next.
    pub(in crate::wave) fn served(&mut self, page: PageIndex, marks: u64) {
        self.density.served(page, marks * SAMPLE);
        self.account.served(marks * SAMPLE);
    }
}

impl Wave {
    /// R11: a stray pays rent; a region may have paid its price.
    pub(in crate::wave) fn rent(&mut self, now: Nanos, id: FileId, pages: Extent) {
        let holds_back = self.holds_back();
        let room = !holds_back && self.fills_little();
        let Some(f) = self.files.get_mut(&id) else { return };
        // What was bought there and is gone was lost (R12).
        let lost = f.density.take_lost(pages.start, room);
        self.belief.lost(lost);
        self.trials.lost(lost);
        if holds_back && !f.buys_anyway() {
            return;
        }
        let Some(queue) = self.queues.get(&f.device) else { return };
        if queue.device.latency().is_none() {
            f.density.owes(pages);
            return;
        }
        f.account.waited(pages.count.0, queue.device.way_pages());
        self.buy_what_paid(now, id, pages, true);
    }

    /// R11: so many strays waited of which nobody told. They wear the file; the next that is told may buy it.
    pub(in crate::wave) fn untold(&mut self, id: FileId, reads: u64) {
        let Some(f) = self.files.get_mut(&id) else { return };
        if let Some(latency) = self.queues.get(&f.device).and_then(|queue| queue.device.latency()) {
            f.density.wears(reads, latency.0);
        }
    }

    /// R11: something has arrived in a file. What its latest stray would have bought may have a price now that was a guess then.
    pub(in crate::wave) fn price_again(&mut self, now: Nanos, id: FileId) {
        let Some(f) = self.files.get(&id).filter(|f| f.density.is_unpriced()) else { return };
        let known = self.queues.get(&f.device).is_some_and(|queue| queue.device.bulk_is_known());
        if !known || self.holds_back() && !f.buys_anyway() {
            return;
        }
        if let Some(pages) = self.files.get_mut(&id).and_then(|f| f.density.take_unpriced()) {
            self.buy_what_paid(now, id, pages, false);
        }
    }

    /// R11: buys what has paid for itself by a stray of `pages`, which is `new`, or was counted when its price was a guess.
    fn buy_what_paid(&mut self, now: Nanos, id: FileId, pages: Extent, new: bool) {
        let Some(f) = self.files.get_mut(&id) else { return };
        let Some(queue) = self.queues.get(&f.device) else { return };
        let Some(latency) = queue.device.latency() else { return };
        let rate = queue.device.bulk_rate();
        let (head, way) = (queue.device.trip_pages() > 0, queue.device.way_pages());
        let terms = Terms {
            wait_ns: latency.0,
            end_of_file: f.end,
            gaps_are_cheap: 3 * queue.device.gap_max().0 >= pages.count.bytes().0,
            overlaps: (queue.device.weighed() || queue.device.is_head()).then(|| queue.device.overlaps()),
            rate_is_known: queue.device.bulk_is_known(),
            alone: f.has_one_reader(),
            most: if f.account.allows(self.belief.pages()) { self.belief.pages() / 4 } else { 0 },
        };
        let table = &f.table;
        let price = |region: Extent| {
            let missing = region.count.0 - table.resident(region).0;
            let transfer = missing.saturating_mul(PAGE_SIZE * 1000) / (rate / 1_000_000).max(1);
            (missing, latency.0.saturating_add(transfer))
        };
        let density = &mut f.density;
        let bought = if new { density.read(pages, terms, price) } else { density.buys(pages, terms, price) };
        let Some((region, why)) = bought else { return };
        // To a head each of its holes is a way.
        let ways = if head { table.holes(region).count() as u64 } else { 1 };
        f.account.bought(price(region).0, ways, way);
        self.buy(now, id, pages, region, Why(why));
    }

    /// R11: fetches all of a region because of a read.
    pub(in crate::wave) fn buy(&mut self, now: Nanos, id: FileId, pages: Extent, region: Extent, why: Why) {
        let Some(f) = self.files.get_mut(&id) else { return };
        // Every eighth page of what is bought is marked, to learn how much of it is read.
        for page in (region.start.0..region.end().0).step_by(SAMPLE as usize) {
            if !f.table.has(PageBit::Used, PageIndex(page)) {
                f.table.set(PageBit::Mark, Extent::new(page, 1));
            }
        }
        self.bring_all(now, id, pages, region, why);
    }

    /// R11: fetches all of these pages because of a read, without a mark.
    pub(in crate::wave) fn bring_all(
        &mut self,
        now: Nanos,
        id: FileId,
        pages: Extent,
        region: Extent,
        why: Why,
    ) {
        let Some(f) = self.files.get(&id) else { return };
        self.ledger.died(region.count.0 - f.table.resident(region).0);
        self.touch_leaves(id, region);
        self.explain(now, id, pages, whole(region), Pattern::Cluster, why);
        self.want(Wanted { file: id, pages: region, turn: Turn::Urgent, why, stream: None });
    }
}

#[cfg(test)]
mod tests {
    use crate::units::{Bytes, Extent, FileId, Nanos};
    use crate::wave::{Action, Config, Input, Wave};
    use alloc::vec::Vec;

    /// The picture at the top: what is bought when, in ms, of a store that answers after 30 ms and carries 120 MB/s by each of four requests.
    #[test]
    fn the_fourth_read_buys_a_part_and_its_arrival_the_rest() {
        let (mut wave, file) = (Wave::new(Config::default()), FileId(0));
        wave.handle(Nanos(0), Input::Open { file, device: 0, size: Bytes(16 << 30) });
        let mut coming = Vec::new();
        // One in each quarter of the 64 MiB from page 262,144, and the first quarter again.
        for (i, page) in (0..).zip([263_304, 268_768, 270_640, 275_364, 262_536]) {
            let (start, took) = (Nanos::from_ms(30 * i), Nanos::from_ms(30));
            let pages = Extent::new(page, 4);
            wave.handle(start, Input::Read { file, pages, actor: 0 });
            while let Some(Action::Fetch { id, .. }) = wave.poll(start) {
                coming.push(id);
            }
            if i == 4 {
                for fetch in coming.drain(..) {
                    wave.handle(Nanos::from_ms(126), Input::Arrived { fetch });
                    wave.check();
                }
            }
            let ended = start + took;
            wave.handle(ended, Input::Waited { file, pages, actor: 0, took, ended });
            wave.check();
        }
        let bought: Vec<_> = wave
            .take_trace()
            .map(|e| (e.at.0 / 1_000_000, e.decision.window.extent(), e.decision.why.0))
            .collect();
        assert_eq!(
            bought,
            [
                (90, Extent::new(275_456 - 1024, 1024), "R11 a part, to learn the price"),
                (126, Extent::new(262_144, 16_384), "R11 rent paid")
            ]
        );
    }

    /// Lookups in 16 MB of nfs, of which a driver tells one in 30: what it left out pays as well, and the next that is told buys the file.
    #[test]
    fn reads_that_nobody_told_pay_rent_too() {
        let bought = |untold: u64| {
            let (mut wave, file) = (Wave::new(Config::default()), FileId(0));
            wave.handle(Nanos(0), Input::Open { file, device: 0, size: Bytes(16 << 20) });
            wave.queue(0).device = crate::wave::devices::device::tests::play(16, 1_000, 250);
            let mut now = Nanos(0);
            for page in [1700, 90, 2950, 640, 3333, 1203] {
                wave.handle(now, Input::Untold { file, reads: untold });
                let pages = Extent::new(page, 1);
                wave.handle(now, Input::Read { file, pages, actor: 0 });
                now.0 += 1_000_000;
                wave.handle(
                    now,
                    Input::Waited { file, pages, actor: 0, took: Nanos::from_ms(1), ended: now },
                );
                wave.check();
            }
            wave.take_trace().any(|e| e.decision.why.0 == "R11 a file read all over")
        };
        assert_eq!([0, 29].map(bought), [false, true]);
    }
}
