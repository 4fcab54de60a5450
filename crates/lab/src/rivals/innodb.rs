//! InnoDB `buf0rea`: extents of 64 pages. Thirteen of them in memory buy the extent (random readahead, off by default there,
//! on here); 56 read in order, and the next extent is fetched at the border.

use super::{Rule, pages};
use bowwave_core::{Extent, PageIndex, View};
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Innodb {
    /// Pages read in ascending order, and the last of them, by extent.
    ascending: BTreeMap<u64, (u64, u64)>,
}

const EXTENT: u64 = 64;
const LINEAR: u64 = 56;
const RANDOM: u64 = 13;

impl Rule for Innodb {
    fn name(&self) -> &'static str {
        "innodb"
    }

    fn read(&mut self, view: &dyn View, request: Extent, missing: bool, out: &mut Vec<Extent>) {
        for page in request.start.0..request.end().0 {
            let entry = self.ascending.entry(page / EXTENT).or_insert((0, 0));
            *entry = if page >= entry.1 { (entry.0 + 1, page) } else { (1, page) };
            if page % EXTENT == EXTENT - 1 && entry.0 >= LINEAR {
                out.push(pages(PageIndex(page + 1), EXTENT));
            }
        }
        if missing {
            let start = request.start.0 / EXTENT * EXTENT;
            let present =
                (start..start + EXTENT).filter(|&page| view.present(PageIndex(page))).count() as u64;
            if present >= RANDOM {
                out.push(pages(PageIndex(start), EXTENT));
            }
        }
        if self.ascending.len() > 4096 {
            self.ascending.pop_first();
        }
    }
}
