//! Where fields of the kernel's structures lie, and which number a tracepoint has, as the kernel describes itself at run time.
//!
//! ```text
//!   header   type 1, type 2, ...  (name, kind, what belongs to the kind)   names, each ended by a zero byte
//! ```
//!
//! Types are numbered from 1 in their order, so the list has to be walked. Nothing is assumed but names: a kernel that lacks
//! one of them is refused, and what it means by them the kernel checks itself when it takes a program.
//!
//! Worked example: 127,000 types in 5.5 MB; `inode` has `i_ino` at byte 64 here (its place differs between kernels).

use std::fs;

const KERNEL: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xEB9F;

const STRUCT: u32 = 4;
const TYPEDEF: u32 = 8;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// Byte of a field in a structure.
    Field(&'static str, &'static str),
    /// Number of a tracepoint's type.
    Tracepoint(&'static str),
}

/// Answers to `wanted`, in its order, from the kernel that runs.
pub(super) fn ask_kernel<const N: usize>(wanted: &[Wanted; N]) -> Result<[u32; N], String> {
    let told = fs::read(KERNEL).map_err(|error| format!("{KERNEL} cannot be read: {error}"))?;
    let mut answers = [0; N];
    for (answer, found) in answers.iter_mut().zip(find(&told, wanted).into_iter().zip(wanted)) {
        *answer = found.0.ok_or_else(|| format!("this kernel has no {}", found.1.words()))?;
    }
    Ok(answers)
}

impl Wanted {
    fn words(self) -> String {
        match self {
            Self::Field(of, name) => format!("field {name} in {of}"),
            Self::Tracepoint(name) => format!("tracepoint {name}"),
        }
    }
}

fn find<const N: usize>(told: &[u8], wanted: &[Wanted; N]) -> [Option<u32>; N] {
    let mut found = [None; N];
    // A description that breaks off answers nothing more.
    let _ = walk(told, |id, kind, name, members| {
        for (answer, wanted) in found.iter_mut().zip(wanted).filter(|(answer, _)| answer.is_none()) {
            match *wanted {
                Wanted::Field(of, field) if kind == STRUCT && name.is(of) => {
                    *answer = members.iter().find(|(name, _)| name.is(field)).map(|(_, byte)| byte);
                }
                Wanted::Tracepoint(point) if kind == TYPEDEF => {
                    *answer = name.rest("btf_trace_").filter(|name| name.is(point)).map(|_| id);
                }
                _ => {}
            }
        }
        found.iter().any(Option::is_none)
    });
    found
}

/// A name, and whatever follows it.
#[derive(Clone, Copy)]
struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    fn is(self, name: &str) -> bool {
        self.0.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }

    fn rest(self, prefix: &str) -> Option<Name<'a>> {
        self.0.strip_prefix(prefix.as_bytes()).map(Name)
    }
}

/// Fields of a structure: name, byte.
struct Members<'a> {
    list: &'a [u8],
    names: &'a [u8],
    /// Places are bits in 24 of them, below the width of a bit field.
    narrow: bool,
}

impl<'a> Members<'a> {
    fn iter(&self) -> impl Iterator<Item = (Name<'a>, u32)> + '_ {
        self.list.chunks_exact(12).filter_map(|member| {
            let bits = word(member, 8)?;
            let bits = if self.narrow { bits & 0xFF_FFFF } else { bits };
            Some((Name(self.names.get(word(member, 0)? as usize..)?), bits / 8))
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().expect("four bytes")))
}

/// Tells each type's number, kind, name and members, until nothing more is wanted; None where the description breaks off.
fn walk(told: &[u8], mut tell: impl FnMut(u32, u32, Name<'_>, Members<'_>) -> bool) -> Option<()> {
    if u16::from_ne_bytes(told.get(..2)?.try_into().expect("two bytes")) != MAGIC {
        return None;
    }
    let section = |at: usize| {
        let from = (word(told, 4)?.checked_add(word(told, at)?)?) as usize;
        told.get(from..from.checked_add(word(told, at + 4)? as usize)?)
    };
    let (mut types, names) = (section(8)?, section(16)?);
    let mut id = 0;
    while !types.is_empty() {
        id += 1;
        let info = word(types, 4)?;
        let (kind, count) = (info >> 24 & 31, info as usize & 0xFFFF);
        let more = match kind {
            // Numbers, variables, and marks at a declaration.
            1 | 14 | 17 => 4,
            // Arrays.
            3 => 12,
            // Structures and unions; sections; enumerations of 64 bits.
            4 | 5 | 15 | 19 => 12 * count,
            // Enumerations; parameters.
            6 | 13 => 8 * count,
            _ => 0,
        };
        let list = types.get(12..12 + more)?;
        let name = Name(names.get(word(types, 0)? as usize..)?);
        if !tell(id, kind, name, Members { list, names, narrow: info >> 31 == 1 }) {
            break;
        }
        types = &types[12 + more..];
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[u8] = b"\0int\0inode\0i_ino\0i_sb\0btf_trace_read\0";

    /// A number, a structure of two fields, a tracepoint.
    fn described() -> Vec<u8> {
        let types: [u32; 16] = [
            1,
            1 << 24,
            4,
            32, // int
            5,
            4 << 24 | 2,
            24,
            11,
            1,
            64,
            17,
            1,
            128, // inode { i_ino: bit 64, i_sb: bit 128 }
            22,
            8 << 24,
            1, // typedef
        ];
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut told = MAGIC.to_ne_bytes().to_vec();
        told.extend([1, 0]);
        let header = [24, 0, types.len() as u32, types.len() as u32, NAMES.len() as u32];
        told.extend(header.iter().flat_map(|word: &u32| word.to_ne_bytes()));
        told.extend(types);
        told.extend(NAMES);
        told
    }

    const WANTED: [Wanted; 4] = [
        Wanted::Field("inode", "i_ino"),
        Wanted::Field("inode", "i_sb"),
        Wanted::Tracepoint("read"),
        Wanted::Tracepoint("rea"),
    ];

    #[test]
    fn fields_and_tracepoints_are_found_by_name() {
        assert_eq!(find(&described(), &WANTED), [Some(8), Some(16), Some(3), None]);
    }

    #[test]
    fn no_description_is_too_odd() {
        bowwave_fuzz::fuzz("a kernel's description of itself", &[&described()], |told| {
            let found = find(told, &WANTED);
            assert!(found[2].is_none_or(|id| id > 0 && id as usize <= told.len() / 12));
        });
    }
}
