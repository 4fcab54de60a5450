//! Modelled devices, access patterns, yardsticks, and virtual time to try them in.
//!
//! Nothing here knows real time or real files; the slow store (`bowwave-fuse`) puts a [`Device`] behind a real mount.

mod bound;
mod device;
mod pattern;
mod play;
mod rng;

pub use bound::{Yardsticks, ceiling_bytes_per_s};
pub use device::{Device, DeviceModel, DeviceModelError, Head};
pub use pattern::{
    BIG_FILE_BYTES, Dispatch, Family, Op, Pace, Params, Pattern, Phase, Plan, PlanFile, SMALL_FILE_BYTES,
    Set, catalogue, find, mapped, mixtures, published, scarce,
};
pub use play::{Fetcher, Knowledge, Outcome, play, play_knowing};
pub use rng::Rng;
