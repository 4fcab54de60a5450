//! An assembler for the kernel's small machine: what our programs need of it, and no more.
//!
//! An instruction has eight bytes. A program is a list of them that only jumps forward, so the kernel can prove its end.
//!
//! ```text
//!   byte   0       1            2 3       4 5 6 7
//!          code    src | dst    offset    number           registers: r0 what a call returns, r1-r5 its arguments (lost by
//!                                                          it), r6-r9 kept, r10 the end of the stack
//! ```
//!
//! Worked example (test `a_program_is_these_bytes`): `if r1 == 7 { r0 = 1 } else { r0 = 0 }`.
//!
//! ```text
//!   b7 00 00 00 00 00 00 00     r0 = 0
//!   55 01 01 00 07 00 00 00     r1 != 7: skip one
//!   b7 00 00 00 01 00 00 00     r0 = 1
//!   95 00 00 00 00 00 00 00     exit
//! ```

use std::os::fd::{AsRawFd, BorrowedFd};

/// A register of 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reg(u8);

pub(super) const R0: Reg = Reg(0);
pub(super) const R1: Reg = Reg(1);
pub(super) const R2: Reg = Reg(2);
pub(super) const R3: Reg = Reg(3);
pub(super) const R4: Reg = Reg(4);
pub(super) const R5: Reg = Reg(5);
pub(super) const R6: Reg = Reg(6);
pub(super) const R7: Reg = Reg(7);
pub(super) const R8: Reg = Reg(8);
pub(super) const R9: Reg = Reg(9);
/// The end of the stack; 512 bytes lie below it.
pub(super) const STACK: Reg = Reg(10);

/// How many bytes are loaded or stored.
#[derive(Clone, Copy)]
pub(super) enum Size {
    /// Four.
    Word = 0x00,
    /// Eight.
    Double = 0x18,
}

/// What is done with 64 bits.
#[derive(Clone, Copy)]
pub(super) enum Op {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Xor = 0xA0,
    Move = 0xB0,
}

/// When a jump is taken.
#[derive(Clone, Copy)]
pub(super) enum If {
    Equal = 0x10,
    NotEqual = 0x50,
}

/// What is done in memory at once, whoever else is at it.
#[derive(Clone, Copy)]
pub(super) enum Atomic {
    Add = 0x00,
    Or = 0x40,
    And = 0x50,
}

/// What the kernel does for a program, by its number.
#[derive(Clone, Copy)]
pub(super) enum Call {
    /// CLOCK_MONOTONIC.
    Now = 5,
    /// The process in the upper half, the thread in the lower.
    WhoAmI = 14,
    /// ring, data, bytes, whether to ring; 0, or an error.
    RingOutput = 130,
}

/// A register or a number.
#[derive(Clone, Copy)]
pub(super) enum Operand {
    Reg(Reg),
    Number(i32),
}

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Self {
        Self::Reg(reg)
    }
}

impl From<i32> for Operand {
    fn from(number: i32) -> Self {
        Self::Number(number)
    }
}

/// An instruction as the kernel takes it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Insn {
    code: u8,
    registers: u8,
    offset: i16,
    number: i32,
}

/// A place further down that jumps may name before it is reached.
#[derive(Clone, Copy)]
pub(super) struct Label(usize);

/// A program in the making.
#[derive(Default)]
pub(super) struct Assembler {
    code: Vec<Insn>,
    /// Where each label lies, once that is known.
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn emit(&mut self, code: u8, to: Reg, from: Reg, offset: i16, number: i32) {
        self.code.push(Insn { code, registers: to.0 | from.0 << 4, offset, number });
    }

    /// `to = memory[from + offset]`.
    pub(super) fn load(&mut self, size: Size, to: Reg, from: Reg, offset: i16) {
        self.emit(0x61 | size as u8, to, from, offset, 0);
    }

    /// `memory[to + offset] = from`.
    pub(super) fn store(&mut self, size: Size, to: Reg, offset: i16, from: Reg) {
        self.emit(0x63 | size as u8, to, from, offset, 0);
    }

    /// `to = to op with`; for a move `to = with`.
    pub(super) fn op(&mut self, op: Op, to: Reg, with: impl Into<Operand>) {
        match with.into() {
            Operand::Reg(from) => self.emit(0x0F | op as u8, to, from, 0, 0),
            Operand::Number(number) => self.emit(0x07 | op as u8, to, R0, 0, number),
        }
    }

    /// `memory[to + offset] = it op from`, eight bytes at once.
    pub(super) fn atomic(&mut self, op: Atomic, to: Reg, offset: i16, from: Reg) {
        self.emit(0xDB, to, from, offset, op as i32);
    }

    /// A number of 64 bits: two instructions.
    pub(super) fn number(&mut self, to: Reg, number: u64) {
        self.wide(to, R0, number as i32, (number >> 32) as i32);
    }

    /// A map that is handed to a call.
    pub(super) fn map(&mut self, to: Reg, map: BorrowedFd<'_>) {
        self.wide(to, Reg(1), map.as_raw_fd(), 0);
    }

    /// The address of a byte in the only value of a map.
    pub(super) fn address(&mut self, to: Reg, map: BorrowedFd<'_>, byte: usize) {
        self.wide(to, Reg(2), map.as_raw_fd(), i32::try_from(byte).expect("a value has less than 2 GiB"));
    }

    fn wide(&mut self, to: Reg, kind: Reg, low: i32, high: i32) {
        self.emit(0x18, to, kind, 0, low);
        self.emit(0x00, R0, R0, 0, high);
    }

    pub(super) fn call(&mut self, call: Call) {
        self.emit(0x85, R0, R0, 0, call as i32);
    }

    pub(super) fn exit(&mut self) {
        self.emit(0x95, R0, R0, 0, 0);
    }

    /// A new label, to be placed later.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The next instruction is what `label` names.
    pub(super) fn place(&mut self, label: Label) {
        let before = self.labels[label.0].replace(self.code.len());
        assert!(before.is_none(), "a label lies in one place");
    }

    pub(super) fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.emit(0x05, R0, R0, 0, 0);
    }

    pub(super) fn jump_if(&mut self, when: If, what: Reg, with: impl Into<Operand>, to: Label) {
        self.jumps.push((self.code.len(), to));
        match with.into() {
            Operand::Reg(with) => self.emit(0x0D | when as u8, what, with, 0, 0),
            Operand::Number(number) => self.emit(0x05 | when as u8, what, R0, 0, number),
        }
    }

    /// The program, its jumps resolved.
    pub(super) fn finish(mut self) -> Vec<Insn> {
        for (at, label) in self.jumps {
            let to = self.labels[label.0].expect("a label that is jumped to lies somewhere");
            assert!(to > at, "jumps go forward, so that every program ends");
            self.code[at].offset = i16::try_from(to - at - 1).expect("programs are short");
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// The eight bytes of each instruction, as the kernel reads them.
    fn bytes(assembler: Assembler) -> Vec<[u8; 8]> {
        let encode = |insn: Insn| {
            let [o0, o1] = insn.offset.to_le_bytes();
            let [n0, n1, n2, n3] = insn.number.to_le_bytes();
            [insn.code, insn.registers, o0, o1, n0, n1, n2, n3]
        };
        assembler.finish().into_iter().map(encode).collect()
    }

    fn one(build: impl FnOnce(&mut Assembler)) -> [u8; 8] {
        let mut assembler = Assembler::default();
        build(&mut assembler);
        bytes(assembler)[0]
    }

    #[test]
    fn a_program_is_these_bytes() {
        let mut asm = Assembler::default();
        let end = asm.label();
        asm.op(Op::Move, R0, 0);
        asm.jump_if(If::NotEqual, R1, 7, end);
        asm.op(Op::Move, R0, 1);
        asm.place(end);
        asm.exit();
        let told = [
            [0xb7, 0, 0, 0, 0, 0, 0, 0],
            [0x55, 1, 1, 0, 7, 0, 0, 0],
            [0xb7, 0, 0, 0, 1, 0, 0, 0],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes(asm), told);
    }

    /// As the kernel's document of the instruction set encodes them.
    #[test]
    fn each_instruction_is_encoded_as_documented() {
        assert_eq!(one(|a| a.load(Size::Double, R1, R6, 8)), [0x79, 0x61, 8, 0, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.load(Size::Word, R3, R2, -4)), [0x61, 0x23, 0xfc, 0xff, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.store(Size::Double, STACK, -8, R7)), [0x7b, 0x7a, 0xf8, 0xff, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.store(Size::Word, STACK, -4, R1)), [0x63, 0x1a, 0xfc, 0xff, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.op(Op::Add, R2, R3)), [0x0f, 0x32, 0, 0, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.op(Op::Xor, R5, -1)), [0xa7, 5, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(one(|a| a.op(Op::ShiftRight, R1, 6)), [0x77, 1, 0, 0, 6, 0, 0, 0]);
        assert_eq!(one(|a| a.atomic(Atomic::Or, R3, 16, R5)), [0xdb, 0x53, 16, 0, 0x40, 0, 0, 0]);
        assert_eq!(one(|a| a.call(Call::RingOutput)), [0x85, 0, 0, 0, 130, 0, 0, 0]);
    }

    #[test]
    fn wide_numbers_maps_and_addresses_take_two() {
        let mut asm = Assembler::default();
        let file = std::fs::File::open("/dev/null").unwrap();
        let fd = file.as_raw_fd() as u8;
        asm.number(R5, 0x0102_0304_0506_0708);
        asm.address(R3, file.as_fd(), 4096);
        asm.map(R1, file.as_fd());
        let told = [
            [0x18, 5, 0, 0, 8, 7, 6, 5],
            [0, 0, 0, 0, 4, 3, 2, 1],
            [0x18, 0x23, 0, 0, fd, 0, 0, 0],
            [0, 0, 0, 0, 0, 16, 0, 0],
            [0x18, 0x11, 0, 0, fd, 0, 0, 0],
            [0; 8],
        ];
        assert_eq!(bytes(asm), told);
    }
}
