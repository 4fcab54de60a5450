//! What generated files hold: every byte computable from the file's path and the offset, so that a reader can tell a wrong
//! file, a wrong page or a shifted byte on any mount, without a copy to compare with.
//!
//! A file is a sequence of 8-byte little-endian words, and a word mixes the file's id with its own index:
//!
//! ```text
//!   file_id("big/000") --+
//!   word 3 = bytes 24..32 --> (id + 3) x odd constant, high half folded into the low --> 8 bytes
//! ```
//!
//! One multiplication a file, one addition and one shift a word, so that filling keeps ahead of any device we model.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

const WORD: u64 = 8;
/// 2^64 / golden ratio, odd: neighbouring words differ in their high halves.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The id of the generated file at `path`, relative to the root of the mount: `big/000` and `./big//000` are the same file.
pub fn file_id(path: impl AsRef<Path>) -> u64 {
    // FNV-1a over the names, each behind a slash, which no name can contain.
    let names = path.as_ref().components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.as_bytes()),
        _ => None,
    });
    fnv1a(names.flat_map(|name| std::iter::once(&b'/').chain(name)))
}

/// FNV-1a, 64 bits: the same in every release of Rust and of ours, so that numbers made by it last.
pub(crate) fn fnv1a<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    bytes.into_iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// Word `index` of a file: its bytes `[8 * index, 8 * index + 8)`, little-endian.
pub const fn word(file_id: u64, index: u64) -> u64 {
    fold(file_id.wrapping_add(index).wrapping_mul(SPREAD))
}

const fn fold(product: u64) -> u64 {
    product ^ (product >> 32)
}

/// Writes the bytes of a file from `offset` on into `buffer`.
pub fn fill(file_id: u64, offset: u64, buffer: &mut [u8]) {
    let (head, rest) = buffer.split_at_mut(unaligned(offset, buffer.len()));
    copy_within_word(file_id, offset, head);
    let first = (offset + head.len() as u64) / WORD;
    let mut product = file_id.wrapping_add(first).wrapping_mul(SPREAD);
    let (words, tail) = rest.as_chunks_mut::<{ WORD as usize }>();
    for word in words.iter_mut() {
        *word = fold(product).to_le_bytes();
        product = product.wrapping_add(SPREAD);
    }
    copy_within_word(file_id, (first + words.len() as u64) * WORD, tail);
}

/// The offset in the file of the first byte of `bytes`, read at `offset`, that is not what the file holds.
pub fn first_wrong(file_id: u64, offset: u64, bytes: &[u8]) -> Option<u64> {
    let mut expected = [0; 4096];
    let mut at = offset;
    for chunk in bytes.chunks(expected.len()) {
        let expected = &mut expected[..chunk.len()];
        fill(file_id, at, expected);
        if expected != chunk {
            let wrong = chunk.iter().zip(expected).take_while(|(a, b)| a == b).count();
            return Some(at + wrong as u64);
        }
        at += chunk.len() as u64;
    }
    None
}

/// Bytes of a buffer at `offset` before the next word begins.
fn unaligned(offset: u64, length: usize) -> usize {
    (offset.next_multiple_of(WORD) - offset).min(length as u64) as usize
}

/// Fills less than a word.
fn copy_within_word(file_id: u64, offset: u64, bytes: &mut [u8]) {
    let word = word(file_id, offset / WORD).to_le_bytes();
    let from = (offset % WORD) as usize;
    bytes.copy_from_slice(&word[from..from + bytes.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_id() {
        assert_eq!(file_id("big/000"), file_id("./big//000"));
        assert_ne!(file_id("big/000"), file_id("big/001"));
        assert_ne!(file_id("a/b"), file_id("ab"));
    }

    #[test]
    fn any_piece_is_part_of_the_whole() {
        let id = file_id("small/007");
        let mut whole = [0; 256];
        fill(id, 8000, &mut whole);
        assert_eq!(whole[..8], word(id, 1000).to_le_bytes());
        for from in 0..40 {
            for to in from..80 {
                let mut piece = vec![0; to - from];
                fill(id, 8000 + from as u64, &mut piece);
                assert_eq!(piece, whole[from..to], "[{from}, {to})");
            }
        }
    }

    #[test]
    fn a_wrong_byte_is_found() {
        let id = file_id("gen/x-1000000");
        let mut bytes = vec![0; 10_000];
        fill(id, 4099, &mut bytes);
        assert_eq!(first_wrong(id, 4099, &bytes), None);
        assert_eq!(first_wrong(id, 4100, &bytes), Some(4100), "shifted by one");
        bytes[7777] ^= 1;
        assert_eq!(first_wrong(id, 4099, &bytes), Some(4099 + 7777));
    }
}
