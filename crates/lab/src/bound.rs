//! Yardsticks: how fast a plan could have been read from a device, by someone who knows everything, or almost.
//!
//! Four times and two amounts, all from the reads that were made and the device's figures, none from a measurement:
//!
//! * **useful bytes**: distinct pages used, whole.
//! * **simple ideal**: useful bytes at the device's full pace (or the program's think time, if longer), plus one latency.
//! * **offline bound**: a clairvoyant with the whole list: all extents known and sorted, gaps read where that is cheaper
//!   than one more request, everything in flight at once. **Plan bytes** are what it fetches, gaps included.
//! * **online bound**: the same, except that the first touch of each run that no rule could foresee costs its full
//!   latency in the reader's order, divided by the threads that wait at once. Never beyond demand-only reading, which is
//!   a rule too.
//! * **demand-only**: exact bytes, one request at a time a thread, nothing ahead.
//!
//! Worked example (test `a_stride_on_a_disk`): four reads of 64 KiB, one every 1 MiB. The gaps of 983,040 bytes cost
//! 9.8 ms, a seek 8 ms, so nothing is merged: 4 x 8 ms + 262,144 B / 100 MB/s = 34.62 ms.
//!
//! ```text
//! reads     |##|            |##|            |##|
//! s3        |##|----469 KB----|##|          gaps up to 30 ms / 64 x 1 GB/s are read through
//! online    8 ms or 30 ms / threads for each `fresh` touch, then the rest as above
//! ```

use crate::device::DeviceModel;
use crate::pattern::{Dispatch, Op, Plan};
use bowwave_core::{Extent, PAGE_SIZE};
use std::collections::BTreeMap;

/// The yardsticks of one plan on one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Yardsticks {
    /// Distinct pages used, in bytes.
    pub useful_bytes: u64,
    /// Bytes that the offline bound's own plan fetches: useful ones and the gaps it buys.
    pub plan_bytes: u64,
    /// Requests of the offline bound's plan.
    pub plan_requests: u64,
    /// First touches that no rule could foresee.
    pub fresh_touches: u64,
    /// Time the program computes; where threads compute at once, the longest.
    pub compute_ns: u64,
    /// The simple ideal.
    pub ideal_ns: u64,
    /// The offline bound.
    pub offline_ns: u64,
    /// The online bound.
    pub online_ns: u64,
    /// Exact bytes, one request at a time a thread.
    pub demand_ns: u64,
}

impl Yardsticks {
    /// Measures `plan`, all of it, on `model`; give [`Plan::executed`] to judge a run that was stopped early.
    pub fn of(plan: &Plan, model: &DeviceModel) -> Self {
        let cost = Cost { model };
        let pages = Pages::of(plan);
        let waiting = u64::from(plan.threads).min(u64::from(model.slots)).max(1);
        let useful_bytes = bytes(pages.used.values().flatten());
        let compute_ns = compute_ns(plan);
        let one_latency = model.latency_ns;

        let transfer = cost.pipe_ns(useful_bytes);
        let ideal_ns = transfer.max(compute_ns) + one_latency;

        let sorted = cost.merged(&pages.used, &BTreeMap::new());
        let offline_ns = cost.sorted_ns(&sorted, u64::from(useful_bytes > 0)).max(compute_ns);

        let holes_ns = pages.demand.iter().map(|hole| cost.hole_ns(hole)).sum::<u64>();
        let demand_ns = if model.head.is_some() { holes_ns } else { holes_ns / waiting };
        let demand_ns = demand_ns.max(transfer);

        let fresh_touches = pages.demand.iter().filter(|hole| hole.fresh).count() as u64;
        let foreseen = cost.merged(&pages.foreseen(), &pages.fresh);
        let surprises_ns = if model.head.is_some() {
            fresh_touches * one_latency + cost.pipe_ns(bytes(pages.fresh.values().flatten()))
        } else {
            fresh_touches * one_latency / waiting
        };
        let rest_ns = if model.head.is_some() {
            cost.sorted_ns(&foreseen, 0)
        } else {
            let all = foreseen.bytes + bytes(pages.fresh.values().flatten());
            cost.sorted_ns(&Sorted { bytes: all, ..foreseen }, u64::from(fresh_touches == 0))
        };
        let online_ns = (surprises_ns + rest_ns).min(demand_ns + compute_ns).max(offline_ns);

        Self {
            useful_bytes,
            plan_bytes: sorted.bytes,
            plan_requests: sorted.requests,
            fresh_touches,
            compute_ns,
            ideal_ns,
            offline_ns,
            online_ns,
            demand_ns,
        }
    }
}

/// Bytes a second that requests of `request_bytes` can carry, however many are wanted: each slot's requests one after
/// another, or the whole device's pace. For a head, each request seeks.
///
/// Worked example (test `ceilings`): 64 connections of s3 with 128 KiB each carry 266.7 MB/s of 1 GB/s.
pub fn ceiling_bytes_per_s(model: &DeviceModel, request_bytes: u64) -> u64 {
    let ns = u128::from(model.latency_ns)
        + u128::from(request_bytes) * 1_000_000_000 / u128::from(model.connection_bytes_per_s);
    let slots = u128::from(model.slots) * u128::from(request_bytes) * 1_000_000_000 / ns.max(1);
    (slots as u64).min(model.bytes_per_s)
}

/// Extents of each file, sorted, apart.
type Extents = BTreeMap<u32, Vec<Extent>>;

/// A run of pages that was asked for and not read before.
struct Hole {
    extent: Extent,
    /// Starts where the last one ended.
    contiguous: bool,
    /// The first of its read, and its read could not be foreseen.
    fresh: bool,
}

/// What a plan touches.
struct Pages {
    used: Extents,
    fresh: Extents,
    demand: Vec<Hole>,
}

impl Pages {
    fn of(plan: &Plan) -> Self {
        let mut seen: BTreeMap<u32, Seen> = BTreeMap::new();
        let (mut fresh, mut demand, mut last) = (Extents::new(), Vec::new(), None);
        for op in &plan.ops {
            let mut unforeseen = op.fresh;
            for extent in seen.entry(op.file).or_default().read(used(op)) {
                let contiguous = last == Some((op.file, extent.start));
                demand.push(Hole { extent, contiguous, fresh: unforeseen });
                if op.fresh {
                    fresh.entry(op.file).or_default().push(extent);
                }
                unforeseen = false;
                last = Some((op.file, extent.end()));
            }
        }
        fresh.values_mut().for_each(|extents| extents.sort_unstable());
        let used = seen.into_iter().map(|(file, seen)| (file, seen.extents())).collect();
        Self { used, fresh, demand }
    }

    /// Pages used that a rule could foresee.
    fn foreseen(&self) -> Extents {
        let none = Vec::new();
        let rest = |file: &u32, used: &Vec<Extent>| without(used, self.fresh.get(file).unwrap_or(&none));
        self.used.iter().map(|(file, used)| (*file, rest(file, used))).collect()
    }
}

/// `all` less `gone`; both sorted and apart, `gone` inside `all`.
fn without(all: &[Extent], gone: &[Extent]) -> Vec<Extent> {
    let (mut rest, mut gone) = (Vec::new(), gone.iter().peekable());
    for extent in all {
        let mut start = extent.start;
        while let Some(hole) = gone.next_if(|hole| hole.start < extent.end()) {
            rest.push(Extent::between(start, hole.start));
            start = hole.end();
        }
        rest.push(Extent::between(start, extent.end()));
    }
    rest.retain(|extent| !extent.is_empty());
    rest
}

/// Pages of one file that were read: sixty-four to a word, and no word of none, so that a page at the end of a petabyte costs no more
/// than the first.
#[derive(Default)]
struct Seen(BTreeMap<u64, u64>);

impl Seen {
    /// Marks `extent` read and returns the runs of it that were not.
    fn read(&mut self, extent: Extent) -> Vec<Extent> {
        let mut runs: Vec<Extent> = Vec::new();
        let (mut page, end) = (extent.start.0, extent.end().0);
        while page < end {
            let word = self.0.entry(page / 64).or_default();
            for page in page..end.min(page / 64 * 64 + 64) {
                if *word >> (page % 64) & 1 == 0 {
                    append(&mut runs, page);
                    *word |= 1 << (page % 64);
                }
            }
            page = page / 64 * 64 + 64;
        }
        runs
    }

    fn extents(self) -> Vec<Extent> {
        let pages = self.0.into_iter().flat_map(|(at, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        });
        let mut runs: Vec<Extent> = Vec::new();
        for page in pages {
            append(&mut runs, page);
        }
        runs
    }
}

/// One more page at the end of `runs`.
fn append(runs: &mut Vec<Extent>, page: u64) {
    match runs.last_mut() {
        Some(run) if run.end().0 == page => run.count.0 += 1,
        _ => runs.push(Extent::new(page, 1)),
    }
}

fn used(op: &Op) -> Extent {
    Extent::covering(op.offset, op.used)
}

fn bytes<'a>(extents: impl Iterator<Item = &'a Extent>) -> u64 {
    extents.map(|extent| extent.count.0 * PAGE_SIZE).sum()
}

fn compute_ns(plan: &Plan) -> u64 {
    let mut by_thread = vec![0; plan.threads as usize];
    for op in &plan.ops {
        by_thread[op.thread as usize] += op.think_ns;
    }
    match plan.dispatch {
        Dispatch::Assigned => by_thread.into_iter().max().unwrap_or(0),
        Dispatch::QueueOwn | Dispatch::QueueShared => {
            by_thread.iter().sum::<u64>() / u64::from(plan.threads.max(1))
        }
    }
}

/// Requests and bytes of a sorted and merged plan.
struct Sorted {
    requests: u64,
    bytes: u64,
}

/// What things cost on a device.
struct Cost<'a> {
    model: &'a DeviceModel,
}

impl Cost<'_> {
    /// Time for `bytes` at the whole device's pace.
    fn pipe_ns(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * 1_000_000_000 / u128::from(self.model.bytes_per_s)) as u64
    }

    /// What one more request costs when all are known: a seek, or a slot's share of the latency.
    fn request_ns(&self) -> u64 {
        if self.model.head.is_some() {
            self.model.latency_ns
        } else {
            self.model.latency_ns / u64::from(self.model.slots)
        }
    }

    /// One hole, by itself, when somebody waits for it.
    fn hole_ns(&self, hole: &Hole) -> u64 {
        let bytes = hole.extent.count.0 * PAGE_SIZE;
        let transfer = u128::from(bytes) * 1_000_000_000 / u128::from(self.model.connection_bytes_per_s);
        let latency = if self.model.head.is_some() && hole.contiguous { 0 } else { self.model.latency_ns };
        latency + transfer as u64
    }

    /// Extents in order, gaps read where that is not dearer than a request. Pages of `cached` are there already: an
    /// extent that begins where one of them ends needs no seek of a head, which stands there.
    fn merged(&self, extents: &Extents, cached: &Extents) -> Sorted {
        let mut sorted = Sorted { requests: 0, bytes: 0 };
        for (file, extents) in extents {
            let cached = cached.get(file).map_or(&[][..], Vec::as_slice);
            let mut end = None;
            for extent in extents {
                let gap = end.map(|end| extent.start.since(end).bytes().0);
                let follows = self.model.head.is_some()
                    && cached.binary_search_by_key(&extent.start, |touch| touch.end()).is_ok();
                match gap {
                    _ if follows => {}
                    Some(gap) if self.pipe_ns(gap) <= self.request_ns() => sorted.bytes += gap,
                    _ => sorted.requests += 1,
                }
                sorted.bytes += extent.count.bytes().0;
                end = Some(extent.end());
            }
        }
        sorted
    }

    /// Time for a sorted plan, everything in flight at once, and `latencies` more that nothing hides.
    fn sorted_ns(&self, plan: &Sorted, latencies: u64) -> u64 {
        let (transfer, requests) = (self.pipe_ns(plan.bytes), plan.requests * self.request_ns());
        if self.model.head.is_some() {
            requests + transfer
        } else {
            transfer.max(plan.requests * self.model.latency_ns / u64::from(self.model.slots))
                + latencies * self.model.latency_ns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::{Params, find};

    fn plan(name: &str) -> Plan {
        find(name).unwrap().plan(&Params::published()).unwrap()
    }

    /// `name` with `reads` of its reads made, stopped there.
    fn first(name: &str, reads: usize) -> Plan {
        let mut plan = plan(name);
        plan.ops.truncate(reads);
        plan
    }

    #[test]
    fn a_stride_on_a_disk() {
        let yardsticks = Yardsticks::of(&first("stride_64k_1m", 4), &DeviceModel::HDD);
        assert_eq!(yardsticks.useful_bytes, 262_144);
        assert_eq!(yardsticks.plan_bytes, 262_144);
        assert_eq!(yardsticks.plan_requests, 4);
        assert_eq!(yardsticks.ideal_ns, 2_621_440 + 8_000_000);
        assert_eq!(yardsticks.offline_ns, 4 * 8_000_000 + 2_621_440);
        // One surprise, then three requests that were foreseen: on one head they cost the same.
        assert_eq!(yardsticks.online_ns, yardsticks.offline_ns);
        assert_eq!(yardsticks.demand_ns, 4 * (8_000_000 + 655_360));
    }

    #[test]
    fn gaps_are_bought_where_they_are_cheaper() {
        // 8 KiB gaps cost 82 us on hdd and 33 us on nfs, a request 8 ms and 62.5 us: bought.
        for model in [DeviceModel::HDD, DeviceModel::NFS] {
            let yardsticks = Yardsticks::of(&first("sparse_8k", 10), &model);
            assert_eq!((yardsticks.plan_requests, yardsticks.plan_bytes), (1, 19 * 8192));
        }
        // 16 us on ssd, a request 3.125 us: not bought.
        let yardsticks = Yardsticks::of(&first("sparse_8k", 10), &DeviceModel::SSD);
        assert_eq!((yardsticks.plan_requests, yardsticks.plan_bytes), (10, 10 * 8192));
        assert_eq!(yardsticks.offline_ns, 163_840 + 100_000);
    }

    #[test]
    fn surprises_cost_their_latency_in_the_readers_order() {
        // 32 streams: 32 surprises of 30 ms, then everything at 1 GB/s.
        let yardsticks = Yardsticks::of(&plan("il32_1fd"), &DeviceModel::S3);
        assert_eq!(yardsticks.fresh_touches, 32);
        assert_eq!(yardsticks.offline_ns, 268_435_456 + 30_000_000);
        assert_eq!(yardsticks.online_ns, 268_435_456 + 32 * 30_000_000);
        // A thread each: they wait at once.
        let yardsticks = Yardsticks::of(&plan("il32_32t"), &DeviceModel::S3);
        assert_eq!(yardsticks.online_ns, yardsticks.offline_ns);
        // On one head the same seeks either way.
        let yardsticks = Yardsticks::of(&plan("il32_1fd"), &DeviceModel::HDD);
        assert_eq!(yardsticks.offline_ns, 32 * 8_000_000 + 2_684_354_560);
        assert_eq!(yardsticks.online_ns, yardsticks.offline_ns);
    }

    #[test]
    fn nothing_beats_demand_where_nothing_can_be_foreseen() {
        for (_, model) in DeviceModel::NAMED {
            let yardsticks = Yardsticks::of(&plan("rnd_sparse"), &model);
            let share = yardsticks.online_ns as f64 / yardsticks.demand_ns as f64;
            assert!((0.99..=1.0).contains(&share) || model == DeviceModel::SSD, "{share}");
            assert!(yardsticks.online_ns > 2 * yardsticks.offline_ns || model == DeviceModel::HDD);
        }
    }

    #[test]
    fn repeats_cost_nothing() {
        let yardsticks = Yardsticks::of(&plan("retry"), &DeviceModel::SSD);
        assert_eq!(yardsticks.useful_bytes, 256 << 20);
        assert_eq!(yardsticks.plan_requests, 1);
        let overlapping = Yardsticks::of(&plan("il2_1fd"), &DeviceModel::SSD);
        assert_eq!(overlapping.useful_bytes, (152 << 20) + (20 << 10));
    }

    #[test]
    fn compute_hides_transfer_but_not_a_latency() {
        let params = Params { think_ns_per_mib: 10_486_000, ..Params::published() };
        let yardsticks = Yardsticks::of(&find("seq_1m").unwrap().plan(&params).unwrap(), &DeviceModel::HDD);
        assert_eq!(yardsticks.compute_ns, 256 * 10_486_000);
        assert_eq!(yardsticks.ideal_ns, yardsticks.compute_ns + 8_000_000);
    }

    #[test]
    fn ceilings() {
        assert_eq!(ceiling_bytes_per_s(&DeviceModel::S3, 128 << 10) / 100_000, 2666);
        assert_eq!(ceiling_bytes_per_s(&DeviceModel::S3, 8 << 20), 1_000_000_000);
        assert_eq!(ceiling_bytes_per_s(&DeviceModel::HDD, 256 << 10) / 100_000, 246);
        assert_eq!(ceiling_bytes_per_s(&DeviceModel::NFS, 128 << 10), 250_000_000);
    }

    /// Complete runs of the published tables: from useful MB/s follows the time it took, and our bound divided by that
    /// must be the published share (baseline 4.3, 4.2, 4.1; printed to three and two figures).
    #[test]
    fn published_shares_of_complete_runs() {
        #[rustfmt::skip]
        let table = [
            // pattern, device, MB/s, percent of offline, percent of ideal
            ("il512_1fd", DeviceModel::HDD, 6.16, 16.0, 6.2),
            ("il32_1fd", DeviceModel::HDD, 44.8, 49.0, 45.0),
            ("il128_1fd", DeviceModel::HDD, 25.5, 35.0, 26.0),
            ("stride_128k_512k", DeviceModel::NFS, 77.7, 31.0, 31.0),
            ("parquet", DeviceModel::HDD, 27.2, 78.0, 27.0),
            ("parquet", DeviceModel::SSD, 285.0, 57.0, 57.0),
            ("parquet", DeviceModel::NFS, 77.6, 31.0, 31.0),
            ("zip", DeviceModel::SSD, 131.0, 26.0, 26.0),
            ("zip", DeviceModel::NFS, 30.1, 12.0, 12.0),
            ("rnd_dense", DeviceModel::SSD, 135.0, 27.0, 27.0),
            ("rnd_dense", DeviceModel::NFS, 19.0, 7.6, 7.6),
            ("rnd_clu", DeviceModel::SSD, 58.2, 12.0, 12.0),
            ("rnd_clu_loose", DeviceModel::SSD, 28.2, 5.7, 5.7),
            ("stride_4k_1m", DeviceModel::SSD, 33.5, 6.7, 6.7),
            ("stride_64k_1m", DeviceModel::SSD, 201.0, 40.0, 40.0),
            ("il512_1fd", DeviceModel::S3, 5.41, 0.6, 0.6),
            ("il8_1fd", DeviceModel::S3, 109.0, 12.0, 12.0),
            ("il2_1fd", DeviceModel::S3, 212.0, 25.0, 25.0),
            ("seq_1m", DeviceModel::S3, 324.0, 36.0, 36.0),
            ("db", DeviceModel::SSD, 99.3, 20.0, 20.0),
        ];
        for (name, model, mb_per_s, offline, ideal) in table {
            let yardsticks = Yardsticks::of(&plan(name), &model);
            let elapsed_ns = yardsticks.useful_bytes as f64 / mb_per_s * 1000.0;
            for (bound_ns, published) in [(yardsticks.offline_ns, offline), (yardsticks.ideal_ns, ideal)] {
                let share = bound_ns as f64 / elapsed_ns * 100.0;
                let unit = if published < 10.0 { 0.06 } else { 0.6 } + published * 0.005;
                assert!((share - published).abs() < unit, "{name} on {model:?}: {share} for {published}");
            }
        }
    }

    /// Capped runs of the published tables: as many reads as fit into the cap at the published MB/s.
    #[test]
    fn published_shares_of_capped_runs() {
        #[rustfmt::skip]
        let table = [
            // pattern, device, cap in s, MB/s, bytes a read, percent of offline, percent of demand-only
            ("stride_64k_1m", DeviceModel::HDD, 4.0, 7.34, 65536, 97.0, 97.0),
            ("stride_128k_512k", DeviceModel::HDD, 4.0, 13.5, 131_072, 54.0, 96.0),
            ("stride_4k_1m", DeviceModel::NFS, 4.0, 3.71, 4096, 5.7, 92.0),
            ("stride_64k_1m", DeviceModel::S3, 3.0, 2.12, 65536, 2.5, 99.0),
            ("sparse_8k", DeviceModel::HDD, 5.0, 0.98, 8192, 2.1, 97.0),
            ("sparse_8k", DeviceModel::NFS, 5.0, 7.29, 8192, 5.9, 92.0),
            ("rev_64k", DeviceModel::HDD, 4.0, 7.36, 65536, 7.6, 97.0),
            ("seq_4k", DeviceModel::S3, 5.0, 8.09, 4096, 1.4, 5937.0),
            ("seq_1m", DeviceModel::S3, 5.0, 8.2, 1 << 20, 1.4, 33.0),
        ];
        for (name, model, cap_s, mb_per_s, read, offline, demand) in table {
            let reads = (mb_per_s * 1e6 * cap_s / read as f64) as usize;
            let yardsticks = Yardsticks::of(&first(name, reads), &model);
            let elapsed_ns = yardsticks.useful_bytes as f64 / mb_per_s * 1000.0;
            for (bound_ns, published) in [(yardsticks.offline_ns, offline), (yardsticks.demand_ns, demand)] {
                let share = bound_ns as f64 / elapsed_ns * 100.0;
                let unit = if published < 10.0 { 0.06 } else { 0.6 } + published * 0.03;
                assert!((share - published).abs() < unit, "{name} on {model:?}: {share} for {published}");
            }
        }
    }
}
