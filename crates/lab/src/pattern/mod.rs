//! The access patterns that readahead is judged by: each a name, a sentence, and a generator of the exact list of reads.
//!
//! The patterns of the kernel's published baseline with its parameters, many paced streams, readers by turns in
//! scarce memory, and mixtures composed of them. A plan follows from name, parameters and seed alone; no order in it
//! depends on a hash or on the machine.
//!
//! Worked example (test `published_plans`): `zip` reads 64 files of 8 MiB in about 5,000 reads and uses about 100 MB.

mod composed;
mod mapped;
mod ordered;
mod params;
mod plan;
mod random;
mod scarce;
mod sequential;
mod served;
mod streams;
mod strided;

pub use params::{Misfit, Params, Set};
pub use plan::{BIG_FILE_BYTES, Dispatch, Op, Pace, Phase, Plan, PlanFile, SMALL_FILE_BYTES};

use params::Knobs;
use plan::{KIB, MIB};
use sequential::{VOLUME, sequential};
use std::collections::BTreeMap;
use std::fmt;
use streams::{Door, Turns, interleaved};
use strided::{matrix, reverse, stride};

/// What kind of program reads like this.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Family {
    /// One stream.
    Sequential,
    /// Many streams in one file.
    Streams,
    /// Strides, columns, backwards.
    Strided,
    /// Random reads of every density.
    Random,
    /// Servers and file formats.
    Served,
    /// Touches of mapped files.
    Mapped,
    /// Mixtures and changes.
    Composed,
    /// Many streams and little memory.
    Scarce,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sequential => "sequential",
            Self::Streams => "streams",
            Self::Strided => "strided",
            Self::Random => "random",
            Self::Served => "served",
            Self::Mapped => "mapped",
            Self::Composed => "composed",
            Self::Scarce => "scarce",
        })
    }
}

/// Draws a plan from a seed.
type Draw = fn(&mut Knobs, u64) -> Result<Plan, Misfit>;

#[derive(Clone, Copy)]
enum Build {
    Known(fn(&mut Knobs) -> Result<Plan, Misfit>),
    Drawn(Draw, u64),
}

/// One access pattern.
#[derive(Clone)]
pub struct Pattern {
    /// Its name, as the published tables write it.
    pub name: String,
    /// What kind of program reads like this.
    pub family: Family,
    /// Whether what is read next follows a rule that could be found out by watching.
    pub regular: bool,
    /// What it does, in one sentence.
    pub definition: &'static str,
    build: Build,
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({})", self.name)
    }
}

impl Pattern {
    /// The list of reads for `params`.
    ///
    /// # Errors
    /// If parameters set by hand do not fit one another or the files.
    pub fn plan(&self, params: &Params) -> Result<Plan, Misfit> {
        let mut knobs = Knobs::new(params, &self.name);
        let mut plan = match self.build {
            Build::Known(build) => build(&mut knobs)?,
            Build::Drawn(draw, seed) => draw(&mut knobs, seed)?,
        };
        for op in &mut plan.ops {
            op.think_ns = op.used * params.think_ns_per_mib / MIB;
        }
        plan.options = knobs.used;
        Ok(plan)
    }

    /// The parameters by their names, with the values that `params` gives them.
    ///
    /// # Errors
    /// As [`Pattern::plan`].
    pub fn options(&self, params: &Params) -> Result<BTreeMap<String, u64>, Misfit> {
        Ok(self.plan(&Params { volume: 0.001, ..params.clone() })?.options)
    }
}

/// The pattern called `name`: one of the [`catalogue`], `composed:SEED` or `ordered:SEED`.
pub fn find(name: &str) -> Option<Pattern> {
    let drawn = || {
        let (kind, seed) = name.split_once(':')?;
        let (definition, draw): (_, Draw) = match kind {
            "composed" => (
                "a mixture of two to four parts, by turns or one after another, drawn from the seed",
                composed::drawn,
            ),
            "ordered" => ("reads in an order of their own, drawn from the seed", ordered::drawn),
            _ => return None,
        };
        let (name, family) = (name.to_string(), Family::Composed);
        let build = Build::Drawn(draw, seed.parse().ok()?);
        Some(Pattern { name, family, regular: false, definition, build })
    };
    catalogue().into_iter().find(|pattern| pattern.name == name).or_else(drawn)
}

/// Every pattern that has a fixed name, families together.
pub fn catalogue() -> Vec<Pattern> {
    let mut all = published();
    all.extend(mapped());
    all.extend(mixtures());
    all.extend(scarce());
    all
}

fn known(
    name: &str,
    family: Family,
    regular: bool,
    definition: &'static str,
    build: fn(&mut Knobs) -> Result<Plan, Misfit>,
) -> Pattern {
    Pattern { name: name.to_string(), family, regular, definition, build: Build::Known(build) }
}

/// The read() patterns of the kernel's published baseline.
pub fn published() -> Vec<Pattern> {
    use Family::{Random, Sequential, Served, Streams, Strided};
    let (rule, none) = (true, false);
    vec![
        known("seq_1k", Sequential, rule, "1 KiB reads from 0 to 64 MiB", |k| sequential(k, KIB, 64 * MIB)),
        known("seq_4k", Sequential, rule, "4 KiB reads from 0 to 256 MiB", |k| {
            sequential(k, 4 * KIB, VOLUME)
        }),
        known("seq_8k", Sequential, rule, "8 KiB reads from 0 to 256 MiB", |k| {
            sequential(k, 8 * KIB, VOLUME)
        }),
        known("seq_10k", Sequential, rule, "10240-byte reads, not page aligned, from 0 to 256 MiB", |k| {
            sequential(k, 10 * KIB, VOLUME)
        }),
        known("seq_64k", Sequential, rule, "64 KiB reads from 0 to 256 MiB", |k| {
            sequential(k, 64 * KIB, VOLUME)
        }),
        known("seq_1m", Sequential, rule, "1 MiB reads from 0 to 256 MiB", |k| sequential(k, MIB, VOLUME)),
        known(
            "seq_mid",
            Sequential,
            rule,
            "8 KiB reads of 256 MiB from 333 MiB + 12 KiB on: a stream that begins in mid-file",
            sequential::mid_file,
        ),
        known(
            "retry",
            Sequential,
            rule,
            "each read asks for 256 KiB and uses 64 KiB of it, the next asks again from there",
            sequential::retry,
        ),
        known("il2_1fd", Streams, rule, "2 streams of 8 KiB reads by turns, one descriptor", |k| {
            interleaved(k, 2, Door::OneFd, Turns::RoundRobin)
        }),
        known("il2_2fd", Streams, rule, "2 streams of 8 KiB reads by turns, a descriptor each", |k| {
            interleaved(k, 2, Door::OwnFd, Turns::RoundRobin)
        }),
        known(
            "il2_2fd_2t",
            Streams,
            rule,
            "2 streams of 8 KiB reads, a descriptor and a free thread each",
            |k| interleaved(k, 2, Door::OwnThread, Turns::RoundRobin),
        ),
        known("il8_1fd", Streams, rule, "8 streams of 8 KiB reads by turns, one descriptor", |k| {
            interleaved(k, 8, Door::OneFd, Turns::RoundRobin)
        }),
        known("il32_1fd", Streams, rule, "32 streams of 8 KiB reads by turns, one descriptor", |k| {
            interleaved(k, 32, Door::OneFd, Turns::RoundRobin)
        }),
        known("il32r_1fd", Streams, rule, "32 streams of 8 KiB reads in random order, one descriptor", |k| {
            interleaved(k, 32, Door::OneFd, Turns::Random)
        }),
        known("il32_32fd", Streams, rule, "32 streams of 8 KiB reads by turns, a descriptor each", |k| {
            interleaved(k, 32, Door::OwnFd, Turns::RoundRobin)
        }),
        known(
            "il32_32t",
            Streams,
            rule,
            "32 streams of 8 KiB reads, a descriptor and a free thread each",
            |k| interleaved(k, 32, Door::OwnThread, Turns::RoundRobin),
        ),
        known("il128_1fd", Streams, rule, "128 streams of 8 KiB reads by turns, one descriptor", |k| {
            interleaved(k, 128, Door::OneFd, Turns::RoundRobin)
        }),
        known("il512_1fd", Streams, rule, "512 streams of 8 KiB reads by turns, one descriptor", |k| {
            interleaved(k, 512, Door::OneFd, Turns::RoundRobin)
        }),
        known("matrix64", Strided, rule, "columns of a matrix of 64 rows of 1000 pages, page by page", |k| {
            matrix(k, 64)
        }),
        known(
            "matrix256",
            Strided,
            rule,
            "columns of a matrix of 256 rows of 1000 pages, page by page",
            |k| matrix(k, 256),
        ),
        known("sparse_8k", Strided, rule, "read 8 KiB, skip 8 KiB", |k| stride(k, 8 * KIB, 16 * KIB)),
        known("stride_4k_64k", Strided, rule, "4 KiB every 64 KiB", |k| stride(k, 4 * KIB, 64 * KIB)),
        known("stride_4k_1m", Strided, rule, "4 KiB every 1 MiB", |k| stride(k, 4 * KIB, MIB)),
        known("stride_64k_1m", Strided, rule, "64 KiB every 1 MiB", |k| stride(k, 64 * KIB, MIB)),
        known("stride_128k_512k", Strided, rule, "128 KiB every 512 KiB", |k| {
            stride(k, 128 * KIB, 512 * KIB)
        }),
        known("rev_4k", Strided, rule, "4 KiB reads going backwards through 256 MiB", |k| {
            reverse(k, 4 * KIB)
        }),
        known("rev_64k", Strided, rule, "64 KiB reads going backwards through 256 MiB", |k| {
            reverse(k, 64 * KIB)
        }),
        known("rev_1m", Strided, rule, "1 MiB reads going backwards through 256 MiB", |k| reverse(k, MIB)),
        known(
            "mix",
            Random,
            none,
            "16 KiB sequential reads; after every 4 of them a 4 KiB read of a random page in 12 GiB, same descriptor",
            random::mix,
        ),
        known(
            "rnd_dense",
            Random,
            none,
            "all 16 KiB blocks of 64 MiB, each once, in random order",
            random::dense,
        ),
        known(
            "rnd_clu",
            Random,
            none,
            "512 clusters: a random 1 MiB of 12 GiB, half of its 8 KiB blocks, each once, in random order",
            random::clusters,
        ),
        known(
            "rnd_clu_loose",
            Random,
            none,
            "512 clusters: a random 16 MiB of 12 GiB, 16 random pages in it",
            random::loose_clusters,
        ),
        known("rnd_sparse", Random, none, "8192 random pages of 12 GiB", random::sparse),
        known(
            "db",
            Random,
            none,
            "16 KiB blocks of a 256 MiB table, some areas more popular than others; 30 % go on to the next block",
            random::database,
        ),
        known(
            "nfs16_own",
            Served,
            rule,
            "16 threads, a descriptor each, take 32 KiB reads from a queue shuffled within every 16 reads",
            |k| served::server(k, Dispatch::QueueOwn),
        ),
        known(
            "nfs16_shared",
            Served,
            rule,
            "16 threads on one descriptor take 32 KiB reads from a queue shuffled within every 16 reads",
            |k| served::server(k, Dispatch::QueueShared),
        ),
        known(
            "parquet",
            Served,
            none,
            "64 files of 8 MiB: last 8 bytes, 48 KiB footer, then 4 chunks of 512 KiB in 64 KiB reads",
            served::columns,
        ),
        known(
            "zip",
            Served,
            none,
            "64 files of 8 MiB: last 22 bytes, last 64 KiB, directory by 4 KiB, then 12 members: header, then data",
            served::archive,
        ),
    ]
}

/// Touches of mapped files, as the kernel's published baseline has them.
pub fn mapped() -> Vec<Pattern> {
    use Family::Mapped;
    vec![
        known("mmap_seq", Mapped, true, "every page of a mapped file from 0 to 256 MiB", mapped::in_order),
        known(
            "mmap_il8",
            Mapped,
            true,
            "8 streams through one mapping by turns of two pages",
            mapped::by_turns,
        ),
        known(
            "mmap_rand",
            Mapped,
            false,
            "8192 random pages of the first GiB of a mapped file",
            mapped::at_random,
        ),
    ]
}

/// Mixtures of patterns on one file: by turns, in phases, changing, stopping.
pub fn mixtures() -> Vec<Pattern> {
    use Family::Composed;
    let (rule, none) = (true, false);
    vec![
        known(
            "mx_seq_stride",
            Composed,
            rule,
            "a stream and a stride on one descriptor by turns",
            composed::sequential_and_stride,
        ),
        known(
            "mx_seq_rev",
            Composed,
            rule,
            "a stream forwards and one backwards on one descriptor by turns",
            composed::forwards_and_backwards,
        ),
        known(
            "mx_two_strides",
            Composed,
            rule,
            "two strides of different period on one descriptor by turns",
            composed::two_strides,
        ),
        known(
            "mx_matrix_seq",
            Composed,
            rule,
            "columns of a matrix and a stream on one descriptor by turns",
            composed::matrix_and_sequential,
        ),
        known(
            "mx_il8_rnd",
            Composed,
            none,
            "8 streams and random pages on one descriptor by turns",
            composed::streams_and_random,
        ),
        known(
            "ph_turn_about",
            Composed,
            rule,
            "a stream forwards, then one backwards, then one of large reads",
            composed::turn_about,
        ),
        known("ph_rnd_seq_rnd", Composed, none, "random pages, then a stream, then random pages", |k| {
            composed::random_then_not(k)
        }),
        known("ph_period", Composed, rule, "a stride whose length and period change twice", |k| {
            composed::changing_period(k)
        }),
        known("ph_density", Composed, rule, "read 8 KiB skip 8 KiB, then a stream, then sparse again", |k| {
            composed::changing_density(k)
        }),
        known("ph_streams", Composed, rule, "1 stream, then 8, then 32, on one descriptor", |k| {
            composed::growing_streams(k)
        }),
        known(
            "ph_zigzag",
            Composed,
            rule,
            "runs of 4 MiB read forwards and backwards in turn",
            composed::zigzag,
        ),
        known("stop_il8", Composed, rule, "8 streams by turns that stop one after the other", |k| {
            streams::stopping(k, 8)
        }),
    ]
}

/// Many streams and little memory.
pub fn scarce() -> Vec<Pattern> {
    use Family::Scarce;
    vec![
        known("turns8", Scarce, true, "8 readers of 32 MiB each by 64 KiB turns in 128 MiB of memory", |k| {
            scarce::turns(k, 8)
        }),
        known(
            "turns16",
            Scarce,
            true,
            "16 readers of 32 MiB each by 64 KiB turns in 128 MiB of memory",
            |k| scarce::turns(k, 16),
        ),
        known(
            "turns32",
            Scarce,
            true,
            "32 readers of 32 MiB each by 64 KiB turns in 128 MiB of memory",
            |k| scarce::turns(k, 32),
        ),
        known(
            "turns64",
            Scarce,
            true,
            "64 readers of 32 MiB each by 64 KiB turns in 128 MiB of memory",
            |k| scarce::turns(k, 64),
        ),
        known("paced200", Scarce, true, "200 streams of 100 KB/s, a file each, in 128 MiB of memory", |k| {
            scarce::paced(k, 200, false)
        }),
        known(
            "paced200_1fd",
            Scarce,
            true,
            "200 streams of 100 KB/s on one descriptor in 128 MiB of memory",
            |k| scarce::paced(k, 200, true),
        ),
        known(
            "paced250",
            Scarce,
            true,
            "250 streams of 100 KB/s on one descriptor in 128 MiB of memory",
            |k| scarce::paced(k, 250, true),
        ),
    ]
}

#[cfg(test)]
mod tests;
