//! R7 and R8: reads equally far apart, alone, by turns with others, stepping aside, as those before, and the columns of a matrix.

pub(in crate::wave) mod aside;
pub(in crate::wave) mod beat;
pub(in crate::wave) mod by_turns;
pub(in crate::wave) mod columns;
pub(in crate::wave) mod foreseen;
pub(in crate::wave) mod strides;
pub(in crate::wave) mod whole_runs;
