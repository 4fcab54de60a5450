//! A decision: the windows that a rule asks for, its pattern and its reason. Rules return it; others act on it.

use crate::window::Window;
use core::fmt;

/// What kind of readahead a submission is. Exactly one for each submission; rows of the stats table (spec 5.7).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Pattern {
    /// A window opened fresh: start of file, oversize read, new sequential stream.
    Initial,
    /// An existing window pushed forward.
    Subsequent,
    /// No usable window: start and size derived from cached pages.
    Context,
    /// A page of the last window was lost before its use.
    Thrash,
    /// Mapped read-around without advice.
    Around,
    /// Reverse reading.
    Backwards,
    /// A constant distance between reads.
    Stride,
    /// A region bought because its reads paid for it.
    Cluster,
    /// Forced reads: the program's own advice.
    Fadvise,
    /// A read larger than the ceiling, cut into pieces.
    Oversize,
    /// A small read without evidence of a stream.
    Random,
}

impl Pattern {
    /// Every pattern, in the order of the stats table.
    pub const ALL: [Self; 11] = [
        Self::Initial,
        Self::Subsequent,
        Self::Context,
        Self::Thrash,
        Self::Around,
        Self::Backwards,
        Self::Stride,
        Self::Cluster,
        Self::Fadvise,
        Self::Oversize,
        Self::Random,
    ];
    /// The word that the trace and the stats table print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Subsequent => "subsequent",
            Self::Context => "context",
            Self::Thrash => "thrash",
            Self::Around => "around",
            Self::Backwards => "backwards",
            Self::Stride => "stride",
            Self::Cluster => "cluster",
            Self::Fadvise => "fadvise",
            Self::Oversize => "oversize",
            Self::Random => "random",
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a rule decided so: the rule's name and reason in a few words, as `bowwave explain` prints them.
///
/// A `Why` is a static string so that a rule can say anything and a trace costs nothing to keep; `R7 stride` for the
/// numbered rules of `wave`, plain words (`start-of-file`) for the eras of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Why(pub &'static str);

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

/// One window to fetch, what kind of readahead it is, and why. An empty window means: fetch nothing, for this reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// What to fetch. Pages already present are skipped by whoever acts.
    pub window: Window,
    /// The row it counts in.
    pub pattern: Pattern,
    /// The rule and its reason.
    pub why: Why,
}
