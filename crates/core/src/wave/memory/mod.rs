//! How much may be out, and what is lost: who reads (R13), what is out, shares of streams (R13), thrashing (R12), and how large the memory is believed to be.

pub(in crate::wave) mod belief;
pub(in crate::wave) mod epochs;
pub(in crate::wave) mod ledger;
pub(in crate::wave) mod losses;
pub(in crate::wave) mod shares;
pub(in crate::wave) mod trials;
