//! R11: reads at random. They pay rent, and what they have paid for is bought.
//!
//! ```text
//! a read waits --> rent: on what terms --> density: which region has paid --> bought --> account: did it pay for itself?
//!                                          grids, fills, beside: where regions lie, how they filled, what lies next to them
//!                                          region, chance: what is known of one, whether reads gather there; going: which way they go
//!                                          near: who comes near to where he has just been
//!                                          worn, wholes: small files; through: such as are read from begin to end
//! ```

pub(in crate::wave) mod account;
pub(in crate::wave) mod beside;
pub(in crate::wave) mod chance;
pub(in crate::wave) mod density;
pub(in crate::wave) mod fills;
pub(in crate::wave) mod going;
pub(in crate::wave) mod grids;
pub(in crate::wave) mod near;
pub(in crate::wave) mod region;
pub(in crate::wave) mod rent;
pub(in crate::wave) mod through;
pub(in crate::wave) mod wholes;
pub(in crate::wave) mod worn;
