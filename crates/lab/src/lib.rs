//! Modelled devices, access patterns, yardsticks, and virtual time to try them in.
//!
//! Nothing here knows real time or real files; the slow store (`bowwave-fuse`) puts a [`Device`] behind a real mount.

mod device;

pub use device::{Device, DeviceModel, DeviceModelError, Head};
