//! What can the device do? Latency, rate, how many requests it serves at once, whether it has a head: all of it by timing.

pub(in crate::wave) mod behind;
pub(in crate::wave) mod crawls;
pub(in crate::wave) mod device;
pub(in crate::wave) mod flight;
pub(in crate::wave) mod glides;
pub(in crate::wave) mod jumps;
pub(in crate::wave) mod rates;
pub(in crate::wave) mod sizes;
pub(in crate::wave) mod times;
