//! The agent answers before the reader needs the answer, or it need not have answered: how it gets the processor in time.
//!
//! It runs for microseconds at a time and then sleeps, among readers that may be many and busy. A short slice makes the
//! scheduler run it soon after it wakes (anybody may ask for one); where we may, it also goes before the readers.
//!
//! ```text
//!   32 readers on 2 processors, slices of 3 ms: an agent like any other waits up to 48 ms for its turn
//!   with a slice of 0.1 ms its deadline lies before theirs: it runs at the next tick, or at once
//! ```
//!
//! Where long nothing came of what it hears, of reads at random, nothing is to be answered: it lets all others go first.

/// The shortest slice that Linux grants (6.12 and later; others pass over it).
const SLICE_NS: u64 = 100_000;
/// A slice like those of others.
const SLICE_LEISURELY_NS: u64 = 3_000_000;
/// How much we go before the readers where we may,
const NICE: i32 = -10;
/// and how much behind all others: only who may go before them may come back from there.
const NICE_LEISURELY: i32 = 10;

/// The kernel's `struct sched_attr`, first version.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks for a short slice and, with `privileges`, for precedence; makes sleeps end when they should: the kernel's slack
/// of 50 us is most of a fast device's latency. What is refused is done without.
pub(crate) fn prompt(privileges: bool) {
    // SAFETY: concerns this thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000 as libc::c_ulong) };
    let _ = privileges && set(NICE, SLICE_NS) || set(0, SLICE_NS);
}

/// Asks for nothing of that: others go first, until [`prompt`] is called again.
pub(crate) fn leisurely(privileges: bool) {
    set(if privileges { NICE_LEISURELY } else { 0 }, SLICE_LEISURELY_NS);
}

fn set(nice: i32, runtime: u64) -> bool {
    let attr = SchedAttr { size: size_of::<SchedAttr>() as u32, nice, runtime, ..SchedAttr::default() };
    // SAFETY: the structure is as long as it says; 0 is this thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_slice_is_granted_or_done_without() {
        assert_eq!(size_of::<SchedAttr>(), 48);
        let there_and_back = || {
            prompt(false);
            leisurely(false);
            prompt(false);
        };
        std::thread::spawn(there_and_back).join().unwrap();
    }
}
