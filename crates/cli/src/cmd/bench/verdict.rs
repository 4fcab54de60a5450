//! From raw runs to figures: shares, ratios, medians, the interval of a ratio, geometric means.
//!
//! Worked example (test `an_interval`): five paired ratios of 0.96, 0.98, 1.00, 1.02, 1.04 have the median 1.00 and a
//! 90 % interval of 0.97 to 1.03 (Student's t of their logarithms): not lost, for it does not lie under 1.

use super::cell::Run;
use super::thrash::Thrash;

/// The figures of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) seconds: f64,
    /// Bytes used a second; of paced streams, in their measured part.
    pub(crate) mb_per_s: f64,
    pub(crate) online: Option<f64>,
    pub(crate) offline: Option<f64>,
    pub(crate) ideal: Option<f64>,
    pub(crate) fetched_per_used: Option<f64>,
    pub(crate) fetched_per_plan: Option<f64>,
    pub(crate) requests: Option<f64>,
    pub(crate) request_kib: Option<f64>,
    pub(crate) thrash_percent: Option<f64>,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) capped: bool,
    pub(crate) failed: bool,
}

impl Figures {
    pub(crate) fn of(run: &Run) -> Self {
        let seconds = (run.report.elapsed_ns as f64 / 1e9).max(1e-9);
        let share = |bound_ns: u64| bound_ns as f64 / 1e9 / seconds;
        // Shares of a pace mean nothing: those streams are judged by what of their demand they got.
        let bounds = run.yardsticks.filter(|_| run.report.paced.is_none());
        let useful = run.yardsticks.map_or(run.report.bytes, |yardsticks| yardsticks.useful_bytes) as f64;
        let fetched = run.store.as_ref().map(|store| store.bytes as f64);
        let requests = run.store.as_ref().map(|store| store.requests as f64);
        Self {
            seconds,
            mb_per_s: useful / seconds / 1e6,
            online: bounds.map(|bounds| share(bounds.online_ns)),
            offline: bounds.map(|bounds| share(bounds.offline_ns)),
            ideal: bounds.map(|bounds| share(bounds.ideal_ns)),
            fetched_per_used: fetched.map(|fetched| fetched / useful.max(1.0)),
            fetched_per_plan: fetched
                .zip(run.yardsticks)
                .map(|(fetched, bounds)| fetched / (bounds.plan_bytes as f64).max(1.0)),
            requests,
            request_kib: fetched.zip(requests).map(|(bytes, requests)| bytes / requests.max(1.0) / 1024.0),
            thrash_percent: run.thrash.map(Thrash::percent),
            p50_us: run.report.p50_ns as f64 / 1e3,
            p99_us: run.report.p99_ns as f64 / 1e3,
            capped: run.report.capped,
            failed: run.report.wrong + run.report.errors > 0,
        }
    }

    /// The medians of several runs, figure by figure; stopped or failed if any was.
    pub(crate) fn median(runs: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(runs.iter().map(figure).collect());
        let some = |figure: fn(&Self) -> Option<f64>| {
            let all: Option<Vec<f64>> = runs.iter().map(figure).collect();
            all.map(median)
        };
        Self {
            seconds: of(|run| run.seconds),
            mb_per_s: of(|run| run.mb_per_s),
            online: some(|run| run.online),
            offline: some(|run| run.offline),
            ideal: some(|run| run.ideal),
            fetched_per_used: some(|run| run.fetched_per_used),
            fetched_per_plan: some(|run| run.fetched_per_plan),
            requests: some(|run| run.requests),
            request_kib: some(|run| run.request_kib),
            thrash_percent: some(|run| run.thrash_percent),
            p50_us: of(|run| run.p50_us),
            p99_us: of(|run| run.p99_us),
            capped: runs.iter().any(|run| run.capped),
            failed: runs.iter().any(|run| run.failed),
        }
    }
}

/// The middle one, or the mean of the two in the middle; 0 of nothing.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// The geometric mean; nothing of nothing.
pub(crate) fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logs: f64 = values.iter().map(|value| value.max(1e-9).ln()).sum();
    (!values.is_empty()).then(|| (logs / values.len() as f64).exp())
}

/// A ratio measured in pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    /// The 90 % interval of the mean ratio; unknown of a single pair.
    pub(crate) interval: Option<(f64, f64)>,
}

impl Ratio {
    /// Of paired ratios.
    pub(crate) fn of(ratios: &[f64]) -> Self {
        let n = ratios.len() as f64;
        let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.max(1e-9).ln()).collect();
        let mean = logs.iter().sum::<f64>() / n;
        let interval = (ratios.len() >= 2).then(|| {
            let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
            let half = t_95(ratios.len() - 1) * (variance / n).sqrt();
            ((mean - half).exp(), (mean + half).exp())
        });
        Self { median: median(ratios.to_vec()), interval }
    }
}

/// Student's t that 95 % lie under, by degrees of freedom.
fn t_95(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761,
        1.753, 1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701,
        1.699, 1.697,
    ];
    TABLE.get(freedom.saturating_sub(1)).copied().unwrap_or(1.645)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval() {
        let ratio = Ratio::of(&[1.00, 0.96, 1.04, 0.98, 1.02]);
        assert_eq!(ratio.median, 1.0);
        let (low, high) = ratio.interval.unwrap();
        assert!((low - 0.9693).abs() < 0.001 && (high - 1.0305).abs() < 0.001, "{low} {high}");
        assert_eq!(Ratio::of(&[0.9]).interval, None);
    }

    #[test]
    fn means() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!((geometric_mean(&[0.1, 1.0, 10.0]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
    }
}
