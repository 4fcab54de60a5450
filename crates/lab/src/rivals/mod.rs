//! The rules of other systems, over the door that the eras of Linux use: a file each, from their descriptions.
//!
//! They are models of rules, not the systems: what a system does beside its rule (threads, formats, caches of its own) is not
//! here. Where a rule feeds on something that this door does not tell (that a reader waited, that a fetch came late), its
//! file says what stands in for it. All of them hear every read, once a request.
//!
//! ```text
//! amp               a degree and a trigger distance a stream, kept with its pages       FAST'07
//! zfetch            8 streams a file, doubling to 4 MiB, then an eighth more            OpenZFS 2.3
//! lustre            one state, 8 pages of slack, strides, one RPC more a time           Lustre llite
//! pg19              distance doubles when the reader waited, decays on hits             PostgreSQL 19 read_stream
//! innodb            13 of 64 pages, or 56 in order, buy the extent                      MySQL
//! leap              the majority of the last distances                                  ATC'20
//! mount             one stream, doubling; any jump begins anew                          today's object-store mounts
//! sparse            2.6.31, and a gap of up to eight requests is none                   seed 004
//! constant          a window of one size for everybody: what tuning a number can reach at best
//! fsspec-readahead  the request and one block of 5 MiB                                  fsspec
//! fsspec-adaptive   from the third read in a row, the streak times the mean read        fsspec 2026.9
//! ```

mod amp;
mod constant;
mod fsspec;
mod innodb;
mod leap;
mod lustre;
mod mount;
mod oracle;
mod pg19;
mod sparse;
mod zfetch;

use crate::world::{Brain, MakePolicy};
use bowwave_core::{
    Ask, AskKind, Decision, Extent, PageCount, PageIndex, Pattern, Policy, ReadState, View, Why, Window,
};
use std::rc::Rc;

/// The rivals' names, as a sweep takes them.
pub const RIVALS: [&str; 9] =
    ["amp", "zfetch", "lustre", "pg19", "innodb", "leap", "mount", "fsspec-readahead", "fsspec-adaptive"];

/// The rival of that name.
pub fn rival(name: &str) -> Option<Brain> {
    let make: MakePolicy = match name {
        "amp" => made(amp::Amp::default),
        "zfetch" => made(|| zfetch::Zfetch::of(8)),
        "lustre" => made(lustre::Lustre::default),
        "pg19" => made(pg19::Pg19::default),
        "innodb" => made(innodb::Innodb::default),
        "leap" => made(leap::Leap::default),
        "mount" => made(mount::Mount::default),
        "fsspec-readahead" => made(fsspec::Readahead::default),
        "fsspec-adaptive" => made(fsspec::Adaptive::default),
        _ => return None,
    };
    Some(Brain::Era(make, PageCount(1 << 14)))
}

/// OpenZFS with a list of so many streams.
pub(crate) fn zfetch(streams: usize) -> Brain {
    Brain::Era(made(move || zfetch::Zfetch::of(streams)), PageCount(1 << 14))
}

/// One window of so many pages for everybody, for ever: the best of these is what a tuned number can reach.
pub(crate) fn constant(window: PageCount) -> Brain {
    Brain::Era(made(move || constant::Constant::of(window)), PageCount(1 << 14))
}

/// 2.6.31 with the slides' test for sparse reads, under a ceiling of `max` pages (T27).
pub(crate) fn sparse_context(max: u64) -> Brain {
    Brain::Era(Rc::new(|| Box::new(sparse::SparseContext::default())), PageCount(max))
}

pub(crate) use oracle::Foreseen;

/// The oracle, `foreseen` for each descriptor in turn.
pub(crate) fn oracle(foreseen: Vec<Rc<std::cell::RefCell<Foreseen>>>, depth: u64, gap: PageCount) -> Brain {
    let next = std::cell::Cell::new(0);
    let make: MakePolicy = Rc::new(move || {
        let fd = next.replace(next.get() + 1);
        let rule = oracle::Oracle { foreseen: Rc::clone(&foreseen[fd % foreseen.len()]), depth, gap };
        Box::new(Hearing::of(rule))
    });
    Brain::Era(make, PageCount(1 << 14))
}

fn made<P: Rule + 'static>(make: impl Fn() -> P + 'static) -> MakePolicy {
    Rc::new(move || Box::new(Hearing::of(make())))
}

/// A rival's rule: a request has come, what shall be fetched beside it?
trait Rule {
    fn name(&self) -> &'static str;
    fn read(&mut self, view: &dyn View, request: Extent, missing: bool, out: &mut Vec<Extent>);
}

/// A rule, told once a request. What is missing of the request itself is fetched first, all at once.
struct Hearing<P> {
    rule: P,
    request: Option<Extent>,
    /// Room for what it wants ahead.
    ahead: Vec<Extent>,
}

impl<P: Rule> Hearing<P> {
    fn of(rule: P) -> Self {
        Self { rule, request: None, ahead: Vec::new() }
    }
}

impl<P: Rule> Policy for Hearing<P> {
    fn name(&self) -> &'static str {
        self.rule.name()
    }

    fn hears_reads(&self) -> bool {
        true
    }

    fn decide(&mut self, view: &dyn View, _: &mut ReadState, ask: Ask, out: &mut Vec<Decision>) {
        let request = Extent { start: ask.page, count: ask.count };
        let decided = |extent: Extent, pattern, why| Decision {
            window: Window { start: extent.start, size: extent.count, async_size: PageCount(0) },
            pattern,
            why: Why(why),
        };
        match ask.kind {
            AskKind::Read if self.request.is_none() => {
                self.request = Some(request);
                let missing = view.next_hole(request.start, request.count) < request.end();
                if missing {
                    out.push(decided(request, Pattern::Random, "asked"));
                }
                self.rule.read(view, request, missing, &mut self.ahead);
                let end = view.end_of_file();
                for extent in self.ahead.drain(..) {
                    let inside = Extent::between(extent.start, extent.end().min(end));
                    if !inside.is_empty() {
                        out.push(decided(inside, Pattern::Subsequent, "rule"));
                    }
                }
            }
            // It was there when the request began and is gone.
            AskKind::Miss | AskKind::Fault | AskKind::Forced => {
                out.push(decided(request, Pattern::Random, "lost"));
            }
            AskKind::Read | AskKind::Mark => {}
        }
    }

    fn read_done(&mut self, _: &mut ReadState, _: Extent, _: u64) {
        self.request = None;
    }
}

/// `count` pages from `start`.
fn pages(start: PageIndex, count: u64) -> Extent {
    Extent { start, count: PageCount(count) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceModel;
    use crate::world::{MachineModel, Step, World, WorldConfig};
    use bowwave_core::Nanos;

    /// How many times as fast as who fetches nothing ahead.
    fn speed_up(name: &str, order: &[u64]) -> f64 {
        let time = |brain: Brain| {
            let nfs = MachineModel::Plain(DeviceModel::NFS);
            let mut world = World::new(WorldConfig::new(nfs, 1 << 16, brain, &[1 << 16]));
            let mut order = order.iter().copied();
            world.add(
                Nanos(0),
                Box::new(move |_| order.next().map_or(Step::End, |page| Step::read(0, page, 4))),
            );
            world.run().elapsed.0 as f64
        };
        time(Brain::era("none", 32)) / time(rival(name).unwrap())
    }

    #[test]
    fn every_rival_reads_ahead_of_a_stream() {
        let stream: Vec<u64> = (0..1000).map(|i| i * 4).collect();
        for name in RIVALS {
            let times = speed_up(name, &stream);
            assert!(times > 1.5, "{name}: {times:.2} times as fast");
        }
    }

    /// What the table of the module says of some of them.
    #[test]
    fn strides_and_single_streams() {
        let stride: Vec<u64> = (0..300).map(|i| i * 40).collect();
        let of = |name| speed_up(name, &stride);
        assert!(
            of("leap") > 2.0 && of("lustre") > 2.0 && of("pg19") < 1.1,
            "{} {}",
            of("leap"),
            of("lustre")
        );
        let two: Vec<u64> = (0..400).flat_map(|i| [i * 4, 30_000 + i * 4]).collect();
        let (many, one) = (speed_up("zfetch", &two), speed_up("mount", &two));
        assert!(many > 1.5 && one < 1.1, "{many} {one}");
    }
}
