//! The programs: three see reads and faults of the run's processes, two keep account of which processes those are.
//!
//! ```text
//!   mm_filemap_get_pages                    page_cache_sync_ra                sched_process_fork
//!   mm_filemap_fault                                                            parent ours? child's bit on
//!     process's bit off? -------> end         process's bit off? ---> end     sched_process_exit
//!     all pages settled?                      its page is not settled           last thread gone? bit off
//!       mark them used ---------> end         tell
//!     tell: into the ring, and ring if the agent sleeps
//! ```
//!
//! What is settled (arrived, and no mark among it) nobody needs to hear of: such a read leaves a bit and ends. A miss takes the
//! page's bit off, since the kernel has just said that it is gone; so its end is told as well.
//!
//! Worked example (test `only_what_is_not_settled_is_told`): a file of which pages 0 to 63 are settled is read through by single
//! pages: nothing of the first 64, each of the others, and the agent harvests 64 used pages.

use std::mem::offset_of;
use std::os::fd::BorrowedFd;

use super::Record;
use super::assemble::{
    Assembler, Atomic, Call, If, Insn, Label, Op, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, Reg, STACK, Size,
};
use super::shared::{
    ASLEEP, LEAVES, LEAVES_AT, LOST, Leaf, OWN, PROCESS_WORDS, PROCESSES_AT, SPREAD, THREADS, THREADS_AT,
    Thread,
};
use crate::tracepoints::Kind;

/// Flags of a ring's output: do not ring; ring in any case.
const QUIETLY: i32 = 1;
const LOUDLY: i32 = 2;

/// Where the kernel's fields lie.
#[derive(Clone, Copy)]
pub(super) struct Fields {
    /// `address_space.host`.
    pub(super) host: i16,
    /// `inode.i_ino`.
    pub(super) ino: i16,
    /// `inode.i_sb`.
    pub(super) sb: i16,
    /// `super_block.s_dev`.
    pub(super) dev: i16,
    /// `task_struct.tgid`.
    pub(super) tgid: i16,
}

/// The maps that the programs work with.
#[derive(Clone, Copy)]
pub(super) struct Maps<'a> {
    pub(super) shared: BorrowedFd<'a>,
    pub(super) ring: BorrowedFd<'a>,
}

/// Where a field of the record lies on the stack.
const fn on_stack(offset: usize) -> i16 {
    offset as i16 - size_of::<Record>() as i16
}

/// A tracepoint that names pages: `get_pages(mapping, first, last)`, `fault(mapping, page)`, `sync_ra(inode, first, ra, count)`.
pub(super) fn touches(kind: Kind, fields: Fields, maps: Maps<'_>) -> Vec<Insn> {
    let mut asm = Assembler::default();
    let (tell, end) = (asm.label(), asm.label());
    asm.op(Op::Move, R6, R1);
    asm.call(Call::WhoAmI);
    asm.op(Op::Move, R7, R0);
    asm.op(Op::Move, R1, R7);
    asm.op(Op::ShiftRight, R1, 32);
    process_word(&mut asm, maps, R1, R3);
    asm.load(Size::Double, R4, R3, 0);
    asm.op(Op::And, R1, 63);
    asm.op(Op::ShiftRight, R4, R1);
    asm.op(Op::And, R4, 1);
    asm.jump_if(If::Equal, R4, 0, end);
    asm.store(Size::Double, STACK, on_stack(offset_of!(Record, who)), R7);
    since(&mut asm, maps);
    // r1 the inode; r4 the key of the file's first leaf.
    asm.load(Size::Double, R1, R6, 0);
    if kind != Kind::Miss {
        asm.load(Size::Double, R1, R1, fields.host);
    }
    asm.load(Size::Double, R4, R1, fields.ino);
    asm.store(Size::Double, STACK, on_stack(offset_of!(Record, ino)), R4);
    asm.load(Size::Double, R2, R1, fields.sb);
    asm.load(Size::Word, R3, R2, fields.dev);
    asm.store(Size::Word, STACK, on_stack(offset_of!(Record, dev)), R3);
    asm.number(R5, SPREAD);
    asm.op(Op::Mul, R4, R5);
    asm.op(Op::Add, R4, R3);
    asm.op(Op::Mul, R4, R5);
    // r8 the first page, r9 the last.
    asm.load(Size::Double, R8, R6, 8);
    match kind {
        Kind::Read => asm.load(Size::Double, R9, R6, 16),
        Kind::Fault => asm.op(Op::Move, R9, R8),
        Kind::Miss => {
            asm.load(Size::Double, R9, R6, 24);
            asm.op(Op::Add, R9, R8);
            asm.op(Op::Sub, R9, 1);
        }
    }
    asm.store(Size::Double, STACK, on_stack(offset_of!(Record, first)), R8);
    asm.store(Size::Double, STACK, on_stack(offset_of!(Record, last)), R9);
    asm.op(Op::Move, R1, kind as i32);
    asm.store(Size::Word, STACK, on_stack(offset_of!(Record, kind)), R1);
    // r3 the leaf's place; told if another has it.
    asm.op(Op::Move, R1, R8);
    asm.op(Op::ShiftRight, R1, 6);
    asm.op(Op::Add, R4, R1);
    asm.op(Op::Move, R2, R4);
    asm.op(Op::And, R2, LEAVES as i32 - 1);
    asm.op(Op::Mul, R2, size_of::<Leaf>() as i32);
    asm.address(R3, maps.shared, LEAVES_AT);
    asm.op(Op::Add, R3, R2);
    asm.load(Size::Double, R5, R3, offset_of!(Leaf, key) as i16);
    asm.jump_if(If::NotEqual, R5, R4, tell);
    if kind == Kind::Miss {
        bits(&mut asm, 1);
        asm.op(Op::Xor, R5, -1);
        asm.atomic(Atomic::And, R3, offset_of!(Leaf, settled) as i16, R5);
    } else {
        dismiss(&mut asm, tell, end);
    }
    asm.place(tell);
    output(&mut asm, maps, end);
    asm.place(end);
    asm.op(Op::Move, R0, 0);
    asm.exit();
    asm.finish()
}

/// `place`: the word of `processes` with the bit of process `who`, which stays. r2 is lost.
fn process_word(asm: &mut Assembler, maps: Maps<'_>, who: Reg, place: Reg) {
    asm.op(Op::Move, R2, who);
    asm.op(Op::ShiftRight, R2, 6);
    asm.op(Op::And, R2, PROCESS_WORDS as i32 - 1);
    asm.op(Op::ShiftLeft, R2, 3);
    asm.address(place, maps.shared, PROCESSES_AT);
    asm.op(Op::Add, place, R2);
}

/// The time, and when this thread was seen before; 0 if that is not known. r7 says who.
fn since(asm: &mut Assembler, maps: Maps<'_>) {
    let unknown = asm.label();
    asm.call(Call::Now);
    asm.store(Size::Double, STACK, on_stack(offset_of!(Record, at_ns)), R0);
    asm.op(Op::Move, R1, R7);
    asm.op(Op::And, R1, THREADS as i32 - 1);
    asm.op(Op::Mul, R1, size_of::<Thread>() as i32);
    asm.address(R3, maps.shared, THREADS_AT);
    asm.op(Op::Add, R3, R1);
    asm.op(Op::Move, R5, 0);
    asm.load(Size::Double, R4, R3, offset_of!(Thread, who) as i16);
    asm.jump_if(If::NotEqual, R4, R7, unknown);
    asm.load(Size::Double, R5, R3, offset_of!(Thread, at_ns) as i16);
    asm.place(unknown);
    asm.store(Size::Double, R3, offset_of!(Thread, who) as i16, R7);
    asm.store(Size::Double, R3, offset_of!(Thread, at_ns) as i16, R0);
    asm.store(Size::Double, STACK, on_stack(offset_of!(Record, since_ns)), R5);
}

/// r5: as many bits as `low` has, from the first page's place in its leaf.
fn bits(asm: &mut Assembler, low: i32) {
    asm.op(Op::Move, R5, low);
    asm.op(Op::Move, R2, R8);
    asm.op(Op::And, R2, 63);
    asm.op(Op::ShiftLeft, R5, R2);
}

/// Pages of one leaf that are all settled are marked used, and that is all. r3 is the leaf, r1 its number in the file.
fn dismiss(asm: &mut Assembler, tell: Label, end: Label) {
    asm.op(Op::Move, R5, R9);
    asm.op(Op::ShiftRight, R5, 6);
    asm.jump_if(If::NotEqual, R5, R1, tell);
    // 64 pages make 2 << 63, which is 0; less 1 it is all of them.
    asm.op(Op::Move, R2, R9);
    asm.op(Op::Sub, R2, R8);
    asm.op(Op::And, R2, 63);
    asm.op(Op::Move, R5, 2);
    asm.op(Op::ShiftLeft, R5, R2);
    asm.op(Op::Sub, R5, 1);
    asm.op(Op::Move, R2, R8);
    asm.op(Op::And, R2, 63);
    asm.op(Op::ShiftLeft, R5, R2);
    asm.load(Size::Double, R4, R3, offset_of!(Leaf, settled) as i16);
    asm.op(Op::And, R4, R5);
    asm.jump_if(If::NotEqual, R4, R5, tell);
    asm.load(Size::Double, R4, R3, offset_of!(Leaf, used) as i16);
    asm.op(Op::And, R4, R5);
    asm.jump_if(If::Equal, R4, R5, end);
    asm.atomic(Atomic::Or, R3, offset_of!(Leaf, used) as i16, R5);
    asm.jump(end);
}

/// The record into the ring; a full ring is counted.
fn output(asm: &mut Assembler, maps: Maps<'_>, end: Label) {
    let send = asm.label();
    asm.op(Op::Move, R4, QUIETLY);
    asm.address(R1, maps.shared, ASLEEP);
    asm.load(Size::Double, R2, R1, 0);
    asm.jump_if(If::Equal, R2, 0, send);
    asm.op(Op::Move, R2, 0);
    asm.store(Size::Double, R1, 0, R2);
    asm.op(Op::Move, R4, LOUDLY);
    asm.place(send);
    asm.map(R1, maps.ring);
    asm.op(Op::Move, R2, STACK);
    asm.op(Op::Add, R2, -(size_of::<Record>() as i32));
    asm.op(Op::Move, R3, size_of::<Record>() as i32);
    asm.call(Call::RingOutput);
    asm.jump_if(If::Equal, R0, 0, end);
    asm.address(R1, maps.shared, LOST);
    asm.op(Op::Move, R2, 1);
    asm.atomic(Atomic::Add, R1, 0, R2);
}

/// `fork(parent, child)`: what a process of the run starts is the run's, and so is what we start.
pub(super) fn fork(fields: Fields, maps: Maps<'_>) -> Vec<Insn> {
    let mut asm = Assembler::default();
    let (ours, end) = (asm.label(), asm.label());
    asm.op(Op::Move, R6, R1);
    asm.call(Call::WhoAmI);
    asm.op(Op::Move, R7, R0);
    asm.op(Op::ShiftRight, R7, 32);
    asm.address(R1, maps.shared, OWN);
    asm.load(Size::Double, R1, R1, 0);
    asm.jump_if(If::Equal, R1, R7, ours);
    process_word(&mut asm, maps, R7, R3);
    asm.load(Size::Double, R4, R3, 0);
    asm.op(Op::Move, R1, R7);
    asm.op(Op::And, R1, 63);
    asm.op(Op::ShiftRight, R4, R1);
    asm.op(Op::And, R4, 1);
    asm.jump_if(If::Equal, R4, 0, end);
    asm.place(ours);
    asm.load(Size::Double, R1, R6, 8);
    asm.load(Size::Word, R1, R1, fields.tgid);
    // A thread of its own.
    asm.jump_if(If::Equal, R1, R7, end);
    process_word(&mut asm, maps, R1, R3);
    process_bit(&mut asm);
    asm.atomic(Atomic::Or, R3, 0, R5);
    asm.place(end);
    asm.op(Op::Move, R0, 0);
    asm.exit();
    asm.finish()
}

/// r5: the bit of process r1 in its word.
fn process_bit(asm: &mut Assembler) {
    asm.op(Op::And, R1, 63);
    asm.op(Op::Move, R5, 1);
    asm.op(Op::ShiftLeft, R5, R1);
}

/// `exit(task, whether it was its process's last thread)`: the number may be given to another.
pub(super) fn exit(maps: Maps<'_>) -> Vec<Insn> {
    let mut asm = Assembler::default();
    let end = asm.label();
    asm.load(Size::Double, R1, R1, 8);
    asm.op(Op::And, R1, 1);
    asm.jump_if(If::Equal, R1, 0, end);
    asm.call(Call::WhoAmI);
    asm.op(Op::Move, R1, R0);
    asm.op(Op::ShiftRight, R1, 32);
    process_word(&mut asm, maps, R1, R3);
    process_bit(&mut asm);
    asm.load(Size::Double, R4, R3, 0);
    asm.op(Op::And, R4, R5);
    asm.jump_if(If::Equal, R4, 0, end);
    asm.op(Op::Xor, R5, -1);
    asm.atomic(Atomic::And, R3, 0, R5);
    asm.place(end);
    asm.op(Op::Move, R0, 0);
    asm.exit();
    asm.finish()
}
