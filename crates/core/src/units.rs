//! The quantities of readahead, each a type of its own: an index is not a count, a count is not bytes.
//!
//! ```text
//! byte      0        4096      8192      12288
//! page      |    0    |    1    |    2    |          Extent { start: 1, count: 2 } = [1, 3)
//! ```
//!
//! Worked example: bytes `[1024, 9216)` touch pages 0, 1 and 2, so [`Extent::covering`]`(1024, 8192)` is `[0, 3)`.

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// Bytes in a page. Linux's base page on the machines we run on.
pub const PAGE_SIZE: u64 = 4096;

/// A page's position in its file, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PageIndex(pub u64);

/// A number of pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PageCount(pub u64);

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// A moment or a span of time in nanoseconds. The core has no clock: every moment arrives as an argument.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

/// A file as its driver numbers it; the core attaches no meaning to the number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileId(pub u64);

/// Pages `[start, start + count)`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Extent {
    /// First page.
    pub start: PageIndex,
    /// Number of pages; 0 makes the extent empty.
    pub count: PageCount,
}

impl PageIndex {
    /// The page that holds byte `offset` (rounds down).
    pub const fn of_byte(offset: u64) -> Self {
        Self(offset / PAGE_SIZE)
    }
    /// The first byte of the page. Saturates.
    pub const fn byte(self) -> u64 {
        self.0.saturating_mul(PAGE_SIZE)
    }
    /// The page `n` before, or page 0 where the file begins earlier.
    pub const fn back(self, n: PageCount) -> Self {
        Self(self.0.saturating_sub(n.0))
    }
    /// Pages from `earlier` to here; 0 if `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> PageCount {
        PageCount(self.0.saturating_sub(earlier.0))
    }
}

impl PageCount {
    /// Pages that hold `bytes` bytes (rounds up).
    pub const fn holding(bytes: Bytes) -> Self {
        Self(bytes.0.div_ceil(PAGE_SIZE))
    }
    /// Bytes in this many whole pages. Saturates.
    pub const fn bytes(self) -> Bytes {
        Bytes(self.0.saturating_mul(PAGE_SIZE))
    }
}

impl Nanos {
    /// So many milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }
    /// So many microseconds.
    pub const fn from_us(us: u64) -> Self {
        Self(us * 1_000)
    }
    /// Time from `earlier` to here; 0 if `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Extent {
    /// Pages `[start, start + count)`. Saturates at the last page that an index can name.
    pub const fn new(start: u64, count: u64) -> Self {
        let room = u64::MAX - start;
        Self { start: PageIndex(start), count: PageCount(if count < room { count } else { room }) }
    }
    /// Pages `[start, end)`, empty if `end <= start`.
    pub const fn between(start: PageIndex, end: PageIndex) -> Self {
        Self { start, count: end.since(start) }
    }
    /// The pages that bytes `[offset, offset + len)` touch (rounds outwards); empty if `len` is 0.
    pub const fn covering(offset: u64, len: u64) -> Self {
        if len == 0 {
            return Self::new(offset / PAGE_SIZE, 0);
        }
        let first = offset / PAGE_SIZE;
        let last = offset.saturating_add(len - 1) / PAGE_SIZE;
        Self::new(first, last - first + 1)
    }
    /// First page past the extent.
    pub const fn end(self) -> PageIndex {
        PageIndex(self.start.0 + self.count.0)
    }
    /// Whether there is no page in it.
    pub const fn is_empty(self) -> bool {
        self.count.0 == 0
    }
    /// Whether `page` lies in it.
    pub const fn contains(self, page: PageIndex) -> bool {
        page.0 >= self.start.0 && page.0 - self.start.0 < self.count.0
    }
    /// The pages in both; empty (at the later start) where they do not meet.
    pub fn intersection(self, other: Self) -> Self {
        Self::between(self.start.max(other.start), self.end().min(other.end()))
    }
    /// The pages of both, and those between them.
    pub fn hull(self, other: Self) -> Self {
        Self::between(self.start.min(other.start), self.end().max(other.end()))
    }
}

impl Add<PageCount> for PageIndex {
    type Output = Self;
    fn add(self, n: PageCount) -> Self {
        Self(self.0.saturating_add(n.0))
    }
}

macro_rules! sums {
    ($($t:ident),*) => {$(
        impl Add for $t {
            type Output = Self;
            fn add(self, other: Self) -> Self { Self(self.0.saturating_add(other.0)) }
        }
        impl Sub for $t {
            type Output = Self;
            fn sub(self, other: Self) -> Self { Self(self.0.saturating_sub(other.0)) }
        }
        impl AddAssign for $t { fn add_assign(&mut self, other: Self) { *self = *self + other; } }
        impl SubAssign for $t { fn sub_assign(&mut self, other: Self) { *self = *self - other; } }
    )*};
}
sums!(PageCount, Bytes, Nanos);

macro_rules! plain {
    ($($t:ident),*) => {$(
        impl fmt::Debug for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { fmt::Display::fmt(&self.0, f) }
        }
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { fmt::Display::fmt(&self.0, f) }
        }
    )*};
}
plain!(PageIndex, PageCount, Bytes, Nanos, FileId);

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end())
    }
}
impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_touch_whole_pages() {
        assert_eq!(Extent::covering(1024, 8192), Extent::new(0, 3));
        assert_eq!(Extent::covering(4096, 4096), Extent::new(1, 1));
        assert!(Extent::covering(4096, 0).is_empty());
    }

    #[test]
    fn extents_meet_or_do_not() {
        assert_eq!(Extent::new(4, 8).intersection(Extent::new(10, 8)), Extent::new(10, 2));
        assert!(Extent::new(4, 4).intersection(Extent::new(8, 4)).is_empty());
        assert!(!Extent::new(4, 4).contains(PageIndex(8)));
    }
}
