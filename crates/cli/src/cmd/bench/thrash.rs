//! Windows lost before their use, counted from the store's request log.
//!
//! Readers in scarce memory read every page once, in order. So a page that the store sends a second time had been lost
//! before its reader came, and the request that brought it first is thrashed.
//!
//! Worked example (test `a_page_sent_twice`): requests for pages `[0, 4)`, `[4, 8)`, then `[6, 10)`: pages 6 and 7 came
//! twice, so the second of three requests is thrashed.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

const PAGE: u64 = 4096;

/// Requests, and how many of them brought a page that had to be sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Thrash {
    pub(crate) requests: u64,
    pub(crate) thrashed: u64,
}

impl Thrash {
    /// From the lines of the log: arrival us, completion us, file, offset, bytes, tab-separated.
    pub(crate) fn of(log: &str) -> Self {
        let mut requests: Vec<(u64, &str, u64, u64)> = log.lines().filter_map(request).collect();
        requests.sort_unstable();
        let (mut brought, mut thrashed) = (BTreeMap::new(), BTreeSet::new());
        for (number, (_, file, offset, bytes)) in requests.iter().enumerate() {
            for page in offset / PAGE..(offset + bytes).div_ceil(PAGE) {
                thrashed.extend(brought.insert((*file, page), number));
            }
        }
        Self { requests: requests.len() as u64, thrashed: thrashed.len() as u64 }
    }

    /// Thrashed requests in percent of all.
    pub(crate) fn percent(self) -> f64 {
        self.thrashed as f64 / (self.requests as f64).max(1.0) * 100.0
    }
}

fn request(line: &str) -> Option<(u64, &str, u64, u64)> {
    let mut fields = line.split('\t');
    let arrival = fields.next()?.parse().ok()?;
    let file = fields.nth(1)?;
    Some((arrival, file, fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_sent_twice() {
        let log = "20\t25\tbig/000\t24576\t16384\n0\t5\tbig/000\t0\t16384\n10\t30\tbig/000\t16384\t16384\n\
                   30\t40\tbig/001\t0\t16384\n";
        assert_eq!(Thrash::of(log), Thrash { requests: 4, thrashed: 1 });
        assert_eq!(Thrash::of(log).percent(), 25.0);
        assert_eq!(Thrash::of("").percent(), 0.0);
    }
}
