//! How far ahead? What waits have taught and a stream may want (R3, R13), where runs ended and were left, and what is enough between them (R9), what is skipped (R2), what the program said (R15), and which
//! seeds are opened with others (R10).

pub(in crate::wave) mod alone;
pub(in crate::wave) mod in_step;
pub(in crate::wave) mod lengths;
pub(in crate::wave) mod needed;
pub(in crate::wave) mod passes;
pub(in crate::wave) mod reach;
pub(in crate::wave) mod runs;
pub(in crate::wave) mod waits;
