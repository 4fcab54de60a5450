//! An object in memory: for tests, for examples, and for what was made on the spot.

use crate::{Error, Meta, Scatter, Storage, Until};
use std::io::IoSliceMut;
use std::sync::Arc;

/// Bytes in memory that can be read as any object can.
#[derive(Clone, Debug)]
pub struct MemoryStorage {
    meta: Meta,
    bytes: Arc<[u8]>,
}

impl MemoryStorage {
    /// An object called `name` with these bytes.
    pub fn new(name: &str, bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        Self { meta: Meta { name: name.into(), len: bytes.len() as u64, version: None, endpoint: 0 }, bytes }
    }
}

impl Storage for MemoryStorage {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn read_at(&self, offset: u64, into: &mut [IoSliceMut<'_>], until: &Until) -> Result<(), Error> {
        until.check(&self.meta.name)?;
        let mut scatter = Scatter::new(into);
        let rest = usize::try_from(offset).ok().and_then(|at| self.bytes.get(at..)).unwrap_or_default();
        scatter.put(rest);
        if scatter.wanted() == 0 {
            return Ok(());
        }
        Err(Error::Wrong { object: self.meta.name.clone(), what: "it was asked beyond its end".into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_gives_all_that_was_asked_or_fails() {
        let storage = MemoryStorage::new("letters", *b"abcdefgh");
        let until = Until::after(Duration::from_secs(9));
        let (mut a, mut b) = ([0; 2], [0; 3]);
        storage.read_at(3, &mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)], &until).unwrap();
        assert_eq!((&a, &b), (b"de", b"fgh"));
        let error = storage.read_at(6, &mut [IoSliceMut::new(&mut b)], &until).unwrap_err();
        assert_eq!(error.to_string(), "letters: the store answered wrongly: it was asked beyond its end");
        until.cancel();
        assert!(matches!(
            storage.read_at(0, &mut [IoSliceMut::new(&mut a)], &until),
            Err(Error::Cancelled { .. })
        ));
    }
}
