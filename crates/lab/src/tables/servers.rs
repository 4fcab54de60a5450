//! Many clients of one server: T22, T26, T27.

use super::programs::{mb, rate, wave};
use super::{Entry, Table};
use crate::rng::Rng;
use crate::world::{Brain, DiskModel, MachineModel, Step, World, WorldConfig, WorldOutcome};
use bowwave_core::{Nanos, PageCount};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// 1,200 clients; a send asks for the rest of 256 pages and is cut short where the socket is full.
fn lighttpd(brain: Brain) -> WorldOutcome {
    let disk = DiskModel { bytes_per_s: 70_000_000, ..DiskModel::hitachi_2007() };
    let machine = MachineModel::Raid { disk, disks: 4, stripe_bytes: 256 << 10 };
    let files = vec![1 << 14; 400];
    let mut config = WorldConfig::new(machine, 3 << 20, brain, &files);
    // A descriptor of its own for each client, three clients to a file.
    config.descriptors = (0..1200).map(|client| client % 400).collect();
    config.stop_at = Some(Nanos::from_ms(40_000));
    let mut world = World::new(config);
    for client in 0..1200_u32 {
        let mut rng = Rng::named(22, &["T22", &client.to_string()]);
        let mut at = rng.below(1 << 13);
        let (mut chunk_end, mut send, mut due) = (at, false, 0_u64);
        let start = Nanos(rng.below(5_000_000_000));
        world.add(
            start,
            Box::new(move |now| {
                send = !send;
                if !send {
                    return Step::Until(Nanos(due));
                }
                if at >= chunk_end {
                    chunk_end = at + 64 + rng.below(193);
                }
                // What the socket takes: 8 to 24 pages, then the client drains it at 36 KB/s.
                let transfer = (8 + rng.below(17)).min(chunk_end - at);
                let pages = super::programs::pages(at, chunk_end - at);
                at += transfer;
                due = now.0 + transfer * 4096 * 1_000_000_000 / 36_000;
                Step::Read { fd: client, pages, transfer: PageCount(transfer) }
            }),
        );
    }
    world.run()
}

pub(super) fn t22(entry: &Entry) -> Table {
    let mut table = Table::new(
        entry,
        "1,200 clients at 36 KB/s, three to a file, a descriptor each; a send asks for the rest of 64 to 256 pages and gets 8 to 24; \
         memory for all; four disks",
    );
    table.free("36 KB/s a client", "network with context, 43.4 MB/s");
    table.free(
        "vanilla under its default of 128 KiB, context under 1 MiB",
        "mean readahead, 15 and 228 pages: no one ceiling allows both",
    );
    table.free("four disks of 70 MB/s; socket buffers of 8 to 24 pages", "no cell");
    let (l, c, w) =
        (lighttpd(Brain::era("legacy", 32)), lighttpd(Brain::era("context", 256)), lighttpd(wave(3 << 20)));
    let size = |o: &WorldOutcome| o.pages_fetched as f64 / o.requests.max(1) as f64;
    let wait = |o: &WorldOutcome| o.stalled_ns as f64 / o.reads.max(1) as f64 / 1e6;
    let net = |o: &WorldOutcome| mb(o.pages_read as f64 * 4096.0 * 1e9 / o.elapsed.0.max(1) as f64);
    table.figure("mean readahead", "pages", 15.0, "legacy", size(&l), None);
    table.figure("mean readahead", "pages", 228.0, "context", size(&c), size(&w));
    table.figure("network", "MB/s", 37.0, "legacy", net(&l), None);
    table.figure("network", "MB/s", 43.4, "context", net(&c), net(&w)).fitted = true;
    table.figure("wait of a send (iowait was 25.20 %)", "ms", None, "legacy", wait(&l), None);
    table.figure("wait of a send (iowait was 21.00 %)", "ms", None, "context", wait(&c), wait(&w));
    table.order(
        format!("readahead grows ({:.0} pages from {:.0})", size(&c), size(&l)),
        size(&c) > 3.0 * size(&l),
    );
    table.order(format!("a send waits less ({:.2} ms from {:.2})", wait(&c), wait(&l)), wait(&c) < wait(&l));
    table.floor(format!("under wave too ({:.2} ms)", wait(&w)), wait(&w) < wait(&l));
    table.exact(
        format!("15 times the size, within a factor of two ({:.1})", size(&c) / size(&l)),
        (7.5..=30.0).contains(&(size(&c) / size(&l))),
    );
    table.judged(
        "a retried send looks like a seek to 2.6.22; later eras find its pages cached and hear nothing of it",
    )
}

/// 16 nfsd take calls of 32 KiB from one queue in which neighbours changed places.
fn nfsd(brain: Brain) -> f64 {
    let disk = DiskModel { bytes_per_s: 65_000_000, ..DiskModel::hitachi_2007() };
    let machine = MachineModel::Raid { disk, disks: 8, stripe_bytes: 64 << 10 };
    let files = vec![25_600; 8];
    let config = WorldConfig::new(machine, 1 << 18, brain, &files);
    let mut rng = Rng::named(26, &["T26"]);
    let mut queue = VecDeque::new();
    // Four clients at a time, each in its own file; what each has outstanding arrives in any order.
    for four in 0..2_u32 {
        for window in 0..25_600 / 8 / 16 {
            let mut calls: Vec<(u32, u64)> = (0..4_u32)
                .flat_map(|client| (0..16).map(move |call| (four * 4 + client, (window * 16 + call) * 8)))
                .collect();
            rng.shuffle(&mut calls);
            queue.extend(calls);
        }
    }
    let queue = Rc::new(RefCell::new(queue));
    let mut world = World::new(config);
    for _ in 0..16 {
        let queue = Rc::clone(&queue);
        world.add(
            Nanos(0),
            Box::new(move |_| {
                queue.borrow_mut().pop_front().map_or(Step::End, |(fd, page)| Step::read(fd, page, 8))
            }),
        );
    }
    rate(&world.run())
}

pub(super) fn t26(entry: &Entry) -> Table {
    let mut table = Table::new(
        entry,
        "16 nfsd, four clients at a time in files of 100 MB, calls of 32 KiB out of order within 16; one readahead state a file; a \
         ceiling of 1 MiB; eight disks of 65 MB/s",
    );
    table.free("eight disks of 65 MB/s", "60 MB/s a disk, 470 MB/s in all");
    let (none, l, o, c, w) = (
        mb(nfsd(Brain::era("none", 256))),
        mb(nfsd(Brain::era("legacy", 256))),
        mb(nfsd(Brain::era("ondemand-2.6.23", 256))),
        mb(nfsd(Brain::era("context", 256))),
        mb(nfsd(wave(1 << 18))),
    );
    table.figure("no readahead", "MB/s", None, "none", none, None);
    table.figure("2.6.18", "MB/s", 260.0, "legacy", l, None);
    table.figure("2.6.23", "MB/s", 470.0, "ondemand-2.6.23", o, w);
    table.figure("vanilla, each disk", "MB/s", 30.0, "legacy", l / 8.0, None);
    table.figure("context, each disk", "MB/s", 60.0, "context", c / 8.0, w / 8.0);
    table.order(format!("context carries more than legacy ({c:.0} for {l:.0} MB/s)"), c > l * 1.1);
    table.order(format!("on demand too ({o:.0})"), o > l);
    table.floor(format!("wave too ({w:.0})"), w > l * 1.1);
    table.exact(format!("1.8 to 2 times, within a half ({:.1})", c / l), (1.5..=3.0).contains(&(c / l)));
    table.judged("the state of a file that sixteen threads read is never up to date; the cache is")
}

/// Parallel backups on a RAID of 24: read 8 KiB, skip 8 KiB.
fn sparse(brain: Brain) -> f64 {
    let disk = DiskModel { look_ahead_bytes: 0, ..DiskModel::hitachi_2007() };
    let machine = MachineModel::Raid { disk, disks: 22, stripe_bytes: 64 << 10 };
    let files = vec![1 << 18; 8];
    let mut config = WorldConfig::new(machine, 1 << 20, brain, &files);
    for (i, file) in config.files.iter_mut().enumerate() {
        file.address = i as u64 * 100_000_000_000;
    }
    config.stop_at = Some(Nanos::from_ms(20_000));
    let mut world = World::new(config);
    for fd in 0..8 {
        let mut at = 0;
        world.add(
            Nanos(0),
            Box::new(move |_| {
                at += 4;
                if at >= 1 << 18 { Step::End } else { Step::read(fd, at - 4, 2) }
            }),
        );
    }
    rate(&world.run())
}

pub(super) fn t27(entry: &Entry) -> Table {
    let mut table = Table::new(
        entry,
        "eight backups at once, each reads 8 KiB and skips 8 KiB, 20 s; 24 disks less two of parity, stripes of 64 KiB; a ceiling of 4 \
         MiB, the slides' test (a gap of up to eight requests counts as sequential) over the rules of 2.6.31",
    );
    table.free("eight backups; drives whose own look-ahead is lost to the others", "no cell");
    let (l, s, w) = (
        mb(sparse(Brain::era("legacy", 1024))),
        mb(sparse(crate::rivals::sparse_context(1024))),
        mb(sparse(wave(1 << 20))),
    );
    table.figure("vanilla", "MB/s", 5.0, "legacy", l, None);
    table.figure("sparse test", "MB/s", 225.0, "context + sparse", s, w);
    table.order(format!("many times as fast ({:.0} times)", s / l), s > 8.0 * l);
    table.exact(format!("40 to 50 times, 30 or more here ({:.0})", s / l), s >= 30.0 * l);
    table.floor(format!("wave at least 40 times ({:.0}), without the rule", w / l), w >= 40.0 * l);
    table.judged(
        "each read of vanilla pays a seek and half a turn; wave learns the stride, and reads over gaps where that is cheaper than a request",
    )
}
