//! Fetches of the core's into flights: a frame for each page, and what became of them told back.
//!
//! ```text
//! Fetch #7 [12,28)   14 and 15 are there    --> flights [12,14) [16,28)   both landed --> Arrived #7
//! ```

use super::{Brain, id};
use crate::engine::FileShared;
use crate::flight::Flight;
use crate::memory::{LEAF, Run};
use bowwave_core::{Extent, FetchId, Input, Nanos, PageCount, Window};
use bowwave_io::Error;
use std::sync::Arc;

/// A fetch of the brain's that is under way.
pub(super) struct Fetching {
    file: u32,
    pages: Extent,
    flights: u32,
    arrived: bool,
}

/// What is to be done without the lock.
#[derive(Default)]
pub(crate) struct Orders {
    pub(crate) send: Vec<Arc<Flight>>,
    pub(crate) land: Vec<(Arc<Flight>, Error)>,
}

impl Brain {
    /// Performs one fetch of the brain's. Whether its end was told at once.
    pub(super) fn fetch(
        &mut self,
        now: Nanos,
        fetch: FetchId,
        number: u32,
        pages: Extent,
        demand: bool,
    ) -> bool {
        let Some(file) = self.files.get(&number).filter(|file| file.changed().is_none()).map(Arc::clone)
        else {
            self.wave.handle(now, Input::Failed { fetch });
            return true;
        };
        if self.pages.table(id(number)).resident(pages) == pages.count {
            self.wave.handle(now, Input::Skipped { fetch });
            return true;
        }
        let flights = self.fly(now, &file, pages, Some(fetch), demand);
        if flights == 0 {
            self.wave.handle(now, Input::Failed { fetch });
            return true;
        }
        self.fetches.insert(fetch, Fetching { file: number, pages, flights, arrived: false });
        false
    }

    /// Gives the missing pages of `wanted` frames, as far as there are any, and lines flights up for them.
    pub(super) fn fly(
        &mut self,
        now: Nanos,
        file: &Arc<FileShared>,
        wanted: Extent,
        fetch: Option<FetchId>,
        demand: bool,
    ) -> u32 {
        let number = file.number;
        let window = Window { start: wanted.start, size: wanted.count, async_size: PageCount(0) };
        if self.pages.table(id(number)).resident(wanted).0 > 0 {
            self.pages.retain(id(number), wanted);
        }
        let submission = self.asking(now, |pages, hold| pages.submit_unless(id(number), window, 0, hold));
        let mut flights = 0;
        for hole in submission.fetch {
            let mut runs = Vec::new();
            let mut left = hole.count.0;
            while left > 0 {
                let run = self.free.take(left).expect("a frame for each page that the cache took");
                left -= run.count();
                runs.push(run);
            }
            for (leaf, count) in leaves(hole) {
                self.memory.expect(number, leaf, count);
            }
            let flight = Arc::new(Flight::new(Arc::clone(file), hole, fetch, demand, runs));
            self.flights.insert((number, hole.start.0), Arc::clone(&flight));
            self.in_flight += hole.count.0;
            self.grown += hole.count.0;
            self.to_send.push(flight);
            flights += 1;
        }
        self.in_use_max = self.in_use_max.max(self.pages.used().0);
        flights
    }

    /// A flight has landed, or will never start: its frames go to the readers, or back.
    pub(crate) fn settle(&mut self, now: Nanos, flight: &Arc<Flight>, runs: Vec<Run>, arrived: bool) {
        let (number, pages) = (flight.file.number, flight.pages);
        self.flights.remove(&(number, pages.start.0));
        self.in_flight -= pages.count.0;
        let open = self.files.contains_key(&number);
        if arrived && open {
            self.bytes_fetched += pages.count.bytes().0;
            self.pages.arrived(id(number), pages);
            let mut page = pages.start.0;
            for run in runs {
                let count = run.count();
                self.memory.publish(number, page, run);
                page += count;
            }
        } else {
            self.pages.failed(id(number), pages);
            for run in runs {
                self.free.give(run);
            }
            for (leaf, count) in leaves(pages) {
                self.memory.expect_no_more(number, leaf, count);
            }
        }
        if let Some(orphans) = self.orphans.get_mut(&number) {
            *orphans -= 1;
            if *orphans == 0 {
                self.orphans.remove(&number);
                self.pages.close(id(number));
            }
        }
        if arrived && open && flight.fetch.is_none() && self.announced.concerns(number) {
            // Nobody will tell how long it took.
            self.wave.handle(now, Input::Present { file: id(number), pages });
        }
        if let Some(fetch) = flight.fetch {
            self.progress(now, fetch, arrived && open);
        }
    }

    /// One flight of a fetch is over.
    fn progress(&mut self, now: Nanos, fetch: FetchId, arrived: bool) {
        let Some(fetching) = self.fetches.get_mut(&fetch) else { return };
        fetching.flights -= 1;
        fetching.arrived |= arrived;
        if fetching.flights > 0 {
            return;
        }
        let Some(fetching) = self.fetches.remove(&fetch) else { return };
        let over = if fetching.arrived { Input::Arrived { fetch } } else { Input::Failed { fetch } };
        self.wave.handle(now, over);
        if fetching.arrived && self.files.contains_key(&fetching.file) {
            // A part had no frame, or failed.
            let table = self.pages.table(id(fetching.file));
            let absent: Vec<Extent> = table.holes(fetching.pages).collect();
            for pages in absent {
                self.wave.handle(now, Input::Dropped { file: id(fetching.file), pages });
            }
        }
    }

    /// Flights to be lined up, and such as will never start: the caller does both without the lock.
    pub(crate) fn take_orders(&mut self) -> Orders {
        self.requests += self.to_send.len() as u64;
        Orders { send: std::mem::take(&mut self.to_send), land: std::mem::take(&mut self.to_land) }
    }
}

/// The leaves of an extent, and how many of its pages lie in each.
fn leaves(pages: Extent) -> impl Iterator<Item = (u64, u64)> {
    let (start, end) = (pages.start.0, pages.end().0);
    (start / LEAF..end.div_ceil(LEAF))
        .map(move |leaf| (leaf, end.min((leaf + 1) * LEAF) - start.max(leaf * LEAF)))
}
