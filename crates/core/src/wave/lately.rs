//! The latest of something, `N` at most, the newest first; the oldest goes.
//!
//! Worked example, three at most (test `the_oldest_goes`): 1, 2, 3, 4 leave `[4, 3, 2]`.

/// It lies where it is kept, and takes no memory of its own.
#[derive(Clone, Copy, Debug)]
pub(in crate::wave) struct Lately<T, const N: usize> {
    items: [T; N],
    count: usize,
}

impl<T: Copy + Default, const N: usize> Default for Lately<T, N> {
    fn default() -> Self {
        Self { items: [T::default(); N], count: 0 }
    }
}

impl<T, const N: usize> Lately<T, N> {
    /// Adds the newest. O(`N`).
    pub(in crate::wave) fn push(&mut self, item: T) {
        self.items.rotate_right(1);
        self.items[0] = item;
        self.count = (self.count + 1).min(N);
    }

    /// All of them, the newest first.
    pub(in crate::wave) fn all(&self) -> &[T] {
        &self.items[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::Lately;

    #[test]
    fn the_oldest_goes() {
        let mut lately = Lately::<u64, 3>::default();
        assert!(lately.all().is_empty());
        (1..=4).for_each(|n| lately.push(n));
        assert_eq!(lately.all(), [4, 3, 2]);
    }
}
