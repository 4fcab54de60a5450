//! Modelled devices, access patterns, yardsticks, and virtual time to try them in.
//!
//! Nothing here knows real time or real files; the slow store (`bowwave-fuse`) puts a [`Device`] behind a real mount.

mod bound;
mod device;
mod held_out;
mod judge;
mod pattern;
mod play;
mod replay;
mod rivals;
mod rng;
mod swarm;
mod sweep;
mod tables;
mod world;

pub use bound::{Yardsticks, ceiling_bytes_per_s};
pub use device::{Device, DeviceModel, DeviceModelError, Head};
pub use held_out::{
    Choice, Half, Halves, HeldOut, HeldOutCell, Mean, held_out, held_out_cells, settings as held_out_settings,
};
pub use judge::{
    Access as JudgeAccess, Case as JudgeCase, Compared, Judged, Reads as JudgeReads, Record as JudgeRecord,
    cases as judge_cases, compare as judge_compare, trace_line as judge_trace_line,
};
pub use pattern::{
    BIG_FILE_BYTES, Dispatch, Family, Misfit, Op, Pace, Params, Pattern, Phase, Plan, PlanFile,
    SMALL_FILE_BYTES, Set, catalogue, find, mapped, mixtures, published, scarce,
};
pub use play::{Fetcher, Knowledge, Outcome, play, play_knowing};
pub use replay::{Trace, TraceFormat, read_trace, trace_of};
pub use rivals::{RIVALS, rival};
pub use rng::Rng;
pub use swarm::{EVENTS_MAX, NotAScenario, Scenario};
pub use sweep::{Score, SweepCell, sweep_brain, sweep_cell, sweep_plan, sweep_play, sweep_policies};
pub use tables::{
    Check, Curve, Entry as TableEntry, Figure, Free, TABLES, Table, Verdict, chosen as chosen_tables,
};
pub use world::{
    Actor, ActorOutcome, Brain, Bucket, Cost, Cpu, Dirty, DiskModel, Faults, MachineModel, MakePolicy, Queue,
    Spell, Step, World, WorldConfig, WorldFile, WorldOutcome,
};
