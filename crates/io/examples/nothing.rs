//! A storage that does nothing, complete: copy it and put your store where the comments say.
//!
//! `cargo run -p bowwave-io --example nothing` reads a piece of it:
//!
//! ```text
//!   nothing:1000 bytes 100..108: [0, 0, 0, 0, 0, 0, 0, 0]
//! ```

use bowwave_io::{Error, Meta, Storage, Until};
use std::io::IoSliceMut;
use std::time::Duration;

/// An object of zeros. Yours holds a connection, a handle, a path: whatever reading needs, and the version that it opened.
struct Nothing {
    meta: Meta,
}

impl Nothing {
    /// Opening is the time to learn length and version; both hold while the storage lives.
    fn open(len: u64) -> Self {
        Self {
            meta: Meta {
                // In errors and traces: which object, and no secret.
                name: format!("nothing:{len}").into(),
                len,
                // What tells two versions apart. With `None` a change cannot be seen, and may be read as a mixture.
                version: Some("1".into()),
                // The same for all objects behind one server or disk: they share what is learnt of it.
                endpoint: 0x6e6f_7468_696e_6721,
            },
        }
    }
}

impl Storage for Nothing {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn read_at(&self, _offset: u64, into: &mut [IoSliceMut<'_>], until: &Until) -> Result<(), Error> {
        // Ask between two steps: the time may be over, or nobody wants the bytes any more. A request that can be stopped while
        // it waits should be.
        until.check(&self.meta.name)?;
        // Ask your store for the bytes here, on condition that it still has `meta.version`; if not: `Error::Changed`. A store
        // that answers with other bytes than were asked for: `Error::Wrong`. What the system says: `Error::io`. Do not try
        // again, read ahead or cache: who is above you does, and knows why.
        for slice in into {
            // Bytes that come in pieces of other sizes: `bowwave_io::Scatter`.
            slice.fill(0);
        }
        // Every byte of every slice is filled now.
        Ok(())
    }
}

fn main() -> Result<(), Error> {
    let storage = Nothing::open(1000);
    let mut bytes = [1; 8];
    storage.read_at(100, &mut [IoSliceMut::new(&mut bytes)], &Until::after(Duration::from_secs(30)))?;
    println!("{} bytes 100..108: {bytes:?}", storage.meta().name);
    Ok(())
}
