//! What came of files that were given up: their reports, and of those beyond [`REPORTS_MAX`] the sums alone.
//!
//! A report is some 200 bytes with its path, so all of them are 3 MiB. A run that reads a million files keeps those of which most was
//! used; the sums of a run are of all files (test `sums_are_of_all_files`).

use std::cmp::Reverse;

use crate::summary::FileReport;

/// Reports that are kept of files that were given up.
const REPORTS_MAX: usize = 16_384;

/// Reports of files that were given up.
#[derive(Default)]
pub(super) struct Retired {
    reports: Vec<FileReport>,
    /// Those that are not kept, added up in one.
    folded: Option<FileReport>,
    count_folded: u64,
}

impl Retired {
    pub(super) fn push(&mut self, report: FileReport) {
        self.reports.push(report);
        if self.reports.len() > REPORTS_MAX {
            self.fold(REPORTS_MAX / 2);
        }
    }

    /// Adds up all but the `keep` of which most was used.
    fn fold(&mut self, keep: usize) {
        self.reports.sort_by_key(most_used_first);
        for report in self.reports.drain(keep..) {
            self.count_folded += 1;
            match &mut self.folded {
                Some(sum) => add(sum, &report),
                None => self.folded = Some(report),
            }
        }
    }

    /// The reports with those of `files` beside them, most used first; the sums of all files; and of how many there is no report.
    pub(super) fn with(self, files: impl Iterator<Item = FileReport>) -> (Vec<FileReport>, FileReport, u64) {
        let mut reports = self.reports;
        reports.extend(files);
        reports.sort_by_key(most_used_first);
        let mut sums = FileReport::default();
        reports.iter().chain(&self.folded).for_each(|report| add(&mut sums, report));
        (reports, sums, self.count_folded)
    }
}

fn most_used_first(report: &FileReport) -> (Reverse<u64>, u64) {
    (Reverse(report.used), report.number)
}

fn add(sum: &mut FileReport, report: &FileReport) {
    sum.used += report.used;
    sum.fetched += report.fetched;
    sum.missed += report.missed;
    sum.wasted += report.wasted;
    sum.lost += report.lost;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 40,000 files each has used as many bytes as its number.
    #[test]
    fn sums_are_of_all_files() {
        let mut retired = Retired::default();
        let report = |number| FileReport {
            number,
            used: number,
            fetched: 5,
            missed: 4,
            wasted: 3,
            lost: 2,
            ..FileReport::default()
        };
        (1..40_000).for_each(|number| retired.push(report(number)));
        let (reports, sums, folded) = retired.with([report(40_000)].into_iter());
        assert!(reports.len() <= REPORTS_MAX + 1 && reports.len() as u64 + folded == 40_000);
        assert!(
            reports.iter().map(|report| report.number).eq((40_001 - reports.len() as u64..=40_000).rev())
        );
        assert_eq!(sums.used, 40_000 * 40_001 / 2);
        assert_eq!([sums.fetched, sums.missed, sums.wasted, sums.lost], [200_000, 160_000, 120_000, 80_000]);
    }
}
