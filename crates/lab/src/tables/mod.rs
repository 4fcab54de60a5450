//! The seeds' tables, run again: what was published, what the policy of that era does here, what `wave` does, and a verdict.
//!
//! ```text
//! T10   row                      published   2.6.20-like `legacy`    wave
//!       MB/s at most                     5                   ...      ...
//! verdict: reproduced | direction only | not reproducible here | no figure | not built yet        and why
//! ```
//!
//! Each table says which workload stands behind it, which parameters were free, and which published cell fixed each; a cell
//! that was used so is marked *fitted* and gives no verdict. A verdict is reckoned from the checks that the table states,
//! never written down by hand: all checks of the figure hold: *reproduced*; only those of the order: *direction only*;
//! not even those: *not reproduced*.
//!
//! One file a family: `exact` (closed forms and golden vectors), `thrash` (many streams in scarce memory), `flash`
//! (solid-state drives), `iozone` (one disk, one thread), `database` (random and clustered), `servers` (many clients),
//! `memory` (zones, slices, mapped files), `patches` (what seed 003 saved of the processor's time), `related` (X1-X6).

mod database;
mod exact;
mod flash;
mod iozone;
mod memory;
mod patches;
mod programs;
mod related;
mod servers;
mod thrash;

use serde::Serialize;

/// What a re-run came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The published figures, within the bounds that the table states.
    Reproduced,
    /// The published order and sign, not the size.
    DirectionOnly,
    /// It was run, and not even the order came out.
    NotReproduced,
    /// It cannot be: too many unknowns for its cells, or no machine to ask.
    NotReproducibleHere,
    /// There is no figure in it.
    NoFigure,
    /// Nobody has built its workload yet.
    NotBuiltYet,
}

impl Verdict {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::DirectionOnly => "direction only",
            Self::NotReproduced => "not reproduced",
            Self::NotReproducibleHere => "not reproducible here",
            Self::NoFigure => "no figure",
            Self::NotBuiltYet => "not built yet",
        }
    }
}

/// One figure: what was published and what came out.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figure {
    /// What it is a figure of.
    pub row: String,
    /// Its unit.
    pub unit: &'static str,
    /// As it was published.
    pub published: Option<f64>,
    /// The policy that stands for the published one.
    pub policy: String,
    /// What it does here.
    pub ours: Option<f64>,
    /// What `wave` does on the same workload.
    pub wave: Option<f64>,
    /// The cell fixed a free parameter: it says nothing.
    pub fitted: bool,
}

/// A parameter that the source leaves open.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Free {
    /// Its name and the value taken.
    pub what: String,
    /// Which published cell fixed it, or that none did.
    pub fixed_by: &'static str,
}

/// One statement that a verdict rests on.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Check {
    /// What must hold, with the figures.
    pub what: String,
    /// Whether it does.
    pub holds: bool,
    /// It is about the figure itself, not only about the order.
    pub of_figure: bool,
    /// It is about `wave`: a floor that this project set itself. It says nothing of the published table.
    pub floor: bool,
}

/// A curve to draw: `(x, y)`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// A table, run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Table {
    /// T1 to T29, X1 to X6, P1 to P6.
    pub id: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// Workload and machine as modelled.
    pub model: String,
    /// What was left open.
    pub free: Vec<Free>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// What the verdict rests on.
    pub checks: Vec<Check>,
    /// The verdict.
    pub verdict: Verdict,
    /// Why, or what to know beside it.
    pub why: String,
    /// What the curves' axes are.
    pub axes: (&'static str, &'static str),
    /// Curves to draw.
    pub curves: Vec<Curve>,
}

impl Table {
    fn new(entry: &Entry, model: impl Into<String>) -> Self {
        Self {
            id: entry.id,
            title: entry.title,
            source: entry.source,
            model: model.into(),
            free: Vec::new(),
            figures: Vec::new(),
            checks: Vec::new(),
            verdict: Verdict::NotBuiltYet,
            why: String::new(),
            axes: ("", ""),
            curves: Vec::new(),
        }
    }

    fn free(&mut self, what: impl Into<String>, fixed_by: &'static str) {
        self.free.push(Free { what: what.into(), fixed_by });
    }

    fn figure(
        &mut self,
        row: impl Into<String>,
        unit: &'static str,
        published: impl Into<Option<f64>>,
        policy: &str,
        ours: impl Into<Option<f64>>,
        wave: impl Into<Option<f64>>,
    ) -> &mut Figure {
        self.figures.push(Figure {
            row: row.into(),
            unit,
            published: published.into(),
            policy: policy.into(),
            ours: ours.into(),
            wave: wave.into(),
            fitted: false,
        });
        self.figures.last_mut().expect("just pushed")
    }

    /// A statement about the order or the sign.
    fn order(&mut self, what: impl Into<String>, holds: bool) {
        self.checks.push(Check { what: what.into(), holds, of_figure: false, floor: false });
    }

    /// A floor that this project set `wave`; the verdict on the published table does not rest on it.
    fn floor(&mut self, what: impl Into<String>, holds: bool) {
        self.checks.push(Check { what: what.into(), holds, of_figure: false, floor: true });
    }

    /// A statement about the figures themselves.
    fn exact(&mut self, what: impl Into<String>, holds: bool) {
        self.checks.push(Check { what: what.into(), holds, of_figure: true, floor: false });
    }

    fn curve(&mut self, name: impl Into<String>, points: Vec<(f64, f64)>) {
        self.curves.push(Curve { name: name.into(), points });
    }

    /// The verdict, from the checks.
    fn judged(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        let published = || self.checks.iter().filter(|c| !c.floor);
        let all = |of_figure: bool| published().filter(|c| c.of_figure == of_figure).all(|c| c.holds);
        let has_figures = published().any(|c| c.of_figure);
        self.verdict = match (all(false), all(true) && has_figures) {
            (true, true) => Verdict::Reproduced,
            (true, false) if published().any(|c| !c.of_figure && c.holds) => Verdict::DirectionOnly,
            _ => Verdict::NotReproduced,
        };
        self
    }

    /// A verdict that no run can change.
    fn settled(mut self, verdict: Verdict, why: impl Into<String>) -> Self {
        (self.verdict, self.why) = (verdict, why.into());
        self
    }
}

/// A table that can be run.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name.
    pub id: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Where it was published.
    pub source: &'static str,
    run: fn(&Entry) -> Table,
}

impl Entry {
    /// Runs it.
    pub fn run(&self) -> Table {
        (self.run)(self)
    }
}

const fn entry(
    id: &'static str,
    title: &'static str,
    source: &'static str,
    run: fn(&Entry) -> Table,
) -> Entry {
    Entry { id, title, source, run }
}

const S0: &str = "seed 000 (2007)";
const S1: &str = "seed 001 (2010)";
const S2: &str = "seed 002 (2013)";
const S3: &str = "seed 003 (2014)";
const S4: &str = "seed 004 (2008)";

/// Every table of the seeds and the related ones, in order. None is left out.
pub const TABLES: [Entry; 41] = [
    entry("T1", "calls and look-ups saved by asking on demand", S0, exact::t1),
    entry("T2", "iozone, first run", S0, iozone::t2),
    entry("T3", "iozone, second run", S0, iozone::t3),
    entry("T4", "iozone, reads in the mean", S0, iozone::t4),
    entry("T5", "aio-stress on a DVD image", S0, iozone::t5),
    entry("T6", "sysbench fileio, random reads and writes", S0, iozone::t6),
    entry("T7", "sysbench OLTP, 10,000 transactions", S0, database::t7),
    entry("T8", "sysbench OLTP, 5,000 transactions", S0, database::t8),
    entry("T9", "sysbench OLTP, 2,000 transactions", S0, database::t9),
    entry("T10", "200 streams of 100 KB/s in 128 MB", S0, thrash::t10),
    entry("T11", "a disk in closed form", S1, exact::t11),
    entry("T12", "Intel X25-M against the size of readahead", S1, flash::t12),
    entry("T13", "hit ratios of a desktop's readahead", S1, memory::t13),
    entry("T14", "memory that a stream's readahead takes", S1, exact::t14),
    entry("T15", "the stats table of 300 streams in 128 MB", S1, thrash::t15),
    entry("T16", "25 lines of one stream's trace", S1, exact::t16),
    entry("T17", "hole search, leaf by leaf", S1, exact::t17),
    entry("T18", "a database on an SSD (Taobao)", S2, flash::t18),
    entry("T19", "sysbench rndrd 64 KiB on an SSD", S2, flash::t19),
    entry("T20", "tiobench sequential reads", S3, memory::t20),
    entry("T21", "a diffstat", S3, memory::t21),
    entry("T22", "lighttpd, 1,200 clients, retried reads", S4, servers::t22),
    entry("T23", "streams of 100 KB/s in 128 MB, as the slides have it", S4, thrash::t23),
    entry("T24", "how many streams one descriptor carries", S4, exact::t24),
    entry("T25", "columns of a matrix", S4, exact::t25),
    entry("T26", "16 nfsd on a RAID", S4, servers::t26),
    entry("T27", "sparse reads on 24 disks", S4, servers::t27),
    entry("T28", "clustered random reads", S4, database::t28),
    entry("T29", "databases", S4, database::t29),
    entry("P1", "seed 003, patch 1: trace arguments when nobody listens", S3, patches::p1),
    entry("P2", "seed 003, patch 2: hot fields together", S3, patches::p2),
    entry("P3", "seed 003, patch 3: balanced zones are not shrunk", S3, memory::p3),
    entry("P4", "seed 003, patch 4: cost of fair placement", S3, patches::p4),
    entry("P5", "seed 003, patch 5: cached dirty limits", S3, patches::p5),
    entry("P6", "seed 003, patch 6: time slices of 300 and 600 ms", S3, memory::p6),
    entry("X1", "32K sequential readers, 128K against 512K (Goyal)", "linux-mm, Feb 2010", related::x1),
    entry("X2", "boot to console", "linux-mm, Feb 2010", related::x2),
    entry("X3", "size sweeps of small devices", "linux-mm, Feb 2010", related::x3),
    entry("X4", "mapped readahead, 2009", "commits 70ac23cf, 7ffc59b4", related::x4),
    entry("X5", "a disk's default window of 6.17", "commit 459779d04ae8", related::x5),
    entry("X6", "tiobench again, by Weiner", "linux-mm, Jul 2014", related::x6),
];

/// The tables of those names, or all. An unknown name comes back as the error.
pub fn chosen(names: &[String]) -> Result<Vec<Entry>, String> {
    if names.is_empty() {
        return Ok(TABLES.to_vec());
    }
    let find = |name: &String| {
        let known = TABLES.iter().find(|entry| entry.id.eq_ignore_ascii_case(name));
        known.copied().ok_or_else(|| name.clone())
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T1 to T29 and X1 to X6, each once.
    #[test]
    fn no_table_is_left_out() {
        let wanted = (1..=29).map(|n| format!("T{n}")).chain((1..=6).map(|n| format!("X{n}")));
        for id in wanted {
            assert_eq!(TABLES.iter().filter(|entry| entry.id == id).count(), 1, "{id}");
        }
        assert!(chosen(&["t10".into()]).is_ok() && chosen(&["T30".into()]).is_err());
    }

    /// What the issue asks to be exact is.
    #[test]
    fn the_exact_ones_are_exact() {
        for id in ["T11", "T14", "T16", "T17", "T24"] {
            let table = chosen(&[id.into()]).unwrap()[0].run();
            assert_eq!(table.verdict, Verdict::Reproduced, "{id}: {:?}", table.checks);
        }
    }

    /// A verdict follows from the checks.
    #[test]
    fn verdicts_follow_from_checks() {
        let verdict = |order: &[bool], exact: &[bool]| {
            let mut table = Table::new(&TABLES[0], "");
            order.iter().for_each(|&holds| table.order("", holds));
            exact.iter().for_each(|&holds| table.exact("", holds));
            table.judged("").verdict
        };
        assert_eq!(verdict(&[true], &[true]), Verdict::Reproduced);
        assert_eq!(verdict(&[true], &[false]), Verdict::DirectionOnly);
        assert_eq!(verdict(&[true], &[]), Verdict::DirectionOnly);
        assert_eq!(verdict(&[false, true], &[true]), Verdict::NotReproduced);
        assert_eq!(verdict(&[], &[false]), Verdict::NotReproduced);
        let mut missed = Table::new(&TABLES[0], "");
        missed.floor("", false);
        missed.exact("", true);
        assert_eq!(missed.judged("").verdict, Verdict::Reproduced, "a floor of ours is not the seed's");
    }
}
