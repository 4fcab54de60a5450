//! The reads as futures. A future that is dropped leaves no frame, no pin and no waiter behind: what was sent for on its behalf
//! arrives and is cached, and whoever waits for it too gets it.
//!
//! The engine's own threads read the storages; a task only waits. Needed of the runtime: its timer, and `spawn_blocking` where
//! every frame of the cache is held and a read goes past it.

use crate::file::{File, this_thread};
use crate::flight::Flight;
use crate::page_bytes::PageBytes;
use crate::reading::{self, Filling, Reading, Turn, Viewing};
use bowwave_io::Error;
use std::future::poll_fn;
use std::sync::Arc;

/// A task's place among those that wait for a flight, given up when it waits no more.
struct Ticket<'a> {
    flight: &'a Flight,
    place: Option<u64>,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.flight.leave(place);
        }
    }
}

impl File {
    /// [`File::read_at`] for tasks.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub async fn read_at_async(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        self.read_at_async_by(this_thread(), buf, offset).await
    }

    /// [`File::read_at_by`] for tasks, which wander between threads: the number tells one reader from another.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub async fn read_at_async_by(&self, actor: u32, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let len = self.clip(buf.len(), offset);
        let mut done = 0;
        for part in buf[..len].chunks_mut(reading::segment_bytes(self.engine().frames)) {
            let from = offset + done as u64;
            done += part.len();
            if !self.copy_quietly(|| actor, part, from) {
                self.read_segment_async(actor, part, from).await?;
            }
        }
        Ok(done)
    }

    /// [`File::read_at_bytes`] for tasks.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub async fn read_at_bytes_async(&self, offset: u64, len: usize) -> Result<PageBytes, Error> {
        self.read_at_bytes_async_by(this_thread(), offset, len).await
    }

    /// [`File::read_at_bytes_by`] for tasks.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub async fn read_at_bytes_async_by(
        &self,
        actor: u32,
        offset: u64,
        len: usize,
    ) -> Result<PageBytes, Error> {
        let len = self.clip(len, offset);
        if self.may_view(len) {
            if let Some(view) = self.view_quietly(|| actor, offset, len) {
                return Ok(view);
            }
            let reading = Reading::begin_task(self.open(), actor, offset, len);
            let mut viewing = Viewing::new(reading, self, offset, len);
            loop {
                match viewing.turn()? {
                    Turn::Done(view) => return Ok(view),
                    Turn::Wait(flight) => wait(&viewing.reading, &flight).await?,
                    Turn::Bypass(_) => break,
                }
            }
        }
        let mut copy = vec![0; len];
        self.read_at_async_by(actor, &mut copy, offset).await?;
        Ok(PageBytes::copy(copy))
    }

    async fn read_segment_async(&self, actor: u32, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let reading = Reading::begin_task(self.open(), actor, offset, buf.len());
        let mut filling = Filling::new(reading, self, offset);
        loop {
            match filling.turn(buf)? {
                Turn::Done(()) => return Ok(()),
                Turn::Wait(flight) => wait(&filling.reading, &flight).await?,
                Turn::Bypass(part) => {
                    let piece = self.bypass_async(offset + part.start as u64, part.len()).await?;
                    buf[part].copy_from_slice(&piece);
                }
            }
        }
    }

    async fn bypass_async(&self, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let open = Arc::clone(self.open());
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; len];
            open.engine().bypass(open.file(), offset, &mut piece).map(|()| piece)
        });
        match read.await {
            Ok(read) => read,
            Err(_) => Err(Error::Cancelled { object: self.meta().name.clone() }),
        }
    }
}

async fn wait(reading: &Reading<'_>, flight: &Flight) -> Result<(), Error> {
    let mut ticket = Ticket { flight, place: None };
    let landed = poll_fn(|cx| flight.poll(cx, &mut ticket.place));
    let outcome = tokio::time::timeout(reading.patience(), landed).await.map_err(|_| reading.timed_out())?;
    reading.landed(outcome)
}
