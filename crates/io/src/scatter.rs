//! Filling several slices from bytes that come in pieces of other sizes, as bodies of HTTP do.
//!
//! Worked example: slices of 3 and 5 bytes, pieces `ab` and `cdefgh`: the first slice gets `abc`, the second `defgh`
//! (test `pieces_need_not_fit_the_slices`).

use std::io::IoSliceMut;

/// A place in a list of slices, moving forward as bytes come.
#[derive(Debug)]
pub struct Scatter<'a, 'b> {
    slices: &'a mut [IoSliceMut<'b>],
    slice: usize,
    at: usize,
}

impl<'a, 'b> Scatter<'a, 'b> {
    /// The first byte of `slices` is next.
    pub fn new(slices: &'a mut [IoSliceMut<'b>]) -> Self {
        Self { slices, slice: 0, at: 0 }
    }

    /// Takes as much of `bytes` as still has room, and says how much that was. O(bytes).
    pub fn put(&mut self, mut bytes: &[u8]) -> usize {
        let given = bytes.len();
        while !bytes.is_empty() && self.slice < self.slices.len() {
            let room = &mut self.slices[self.slice][self.at..];
            let n = room.len().min(bytes.len());
            room[..n].copy_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            self.at += n;
            if self.at == self.slices[self.slice].len() {
                (self.slice, self.at) = (self.slice + 1, 0);
            }
        }
        given - bytes.len()
    }

    /// Bytes that are still wanted.
    pub fn wanted(&self) -> usize {
        self.slices[self.slice..].iter().map(|s| s.len()).sum::<usize>() - self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_need_not_fit_the_slices() {
        let (mut a, mut b) = ([0; 3], [0; 5]);
        let mut slices = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        let mut scatter = Scatter::new(&mut slices);
        assert_eq!((scatter.put(b"ab"), scatter.wanted()), (2, 6));
        assert_eq!((scatter.put(b"cdefghij"), scatter.wanted()), (6, 0), "what has no room is left");
        assert_eq!((&a, &b), (b"abc", b"defgh"));
    }
}
