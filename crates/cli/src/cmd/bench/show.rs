//! The tables: worst row first, even when it is ours; aligned anywhere, coloured only on a terminal.

use super::cell::Run;
use super::verdict::{Figures, Ratio, geometric_mean, median};
use bowwave_lab::{Params, Pattern};
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use std::fmt::Write;
use std::io::IsTerminal;

/// One pattern on one device under one arm: the medians of its runs.
struct Row<'a> {
    runs: Vec<&'a Run>,
    figures: Figures,
    ratio: Option<Ratio>,
}

impl Row<'_> {
    fn first(&self) -> &Run {
        self.runs[0]
    }

    /// The worse, the smaller: the ratio where there is one, the share of the online bound otherwise.
    fn goodness(&self) -> f64 {
        self.ratio.map(|ratio| ratio.median).or(self.figures.online).unwrap_or(f64::MAX)
    }
}

/// Everything that can be said of `runs`; `against` names the arm that others are compared with.
pub(crate) fn tables(runs: &[Run], against: Option<&str>) -> String {
    let mut rows = rows(runs, against);
    // Rows that are compared with others come before those that others are compared with.
    rows.sort_by(|a, b| {
        let reference = |row: &Row| against.is_some() && row.ratio.is_none();
        (reference(a), a.goodness()).partial_cmp(&(reference(b), b.goodness())).expect("no NaN")
    });
    let (paced, free): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| row.first().report.paced.is_some());
    let mut text = String::new();
    if !free.is_empty() {
        text.push_str(&paint(&free_table(&free, against), &free));
        text.push_str("\nonline, offline, ideal: shares of the yardsticks; f/used, f/plan: bytes fetched per byte used, and");
        text.push_str(" per byte that the offline\nbound's own plan fetches; ~ stopped at its time cap; ! wrong or failed reads\n");
        let _ = write!(text, "\nGeometric means over the patterns above\n\n{}\n", means(&free));
    }
    if !paced.is_empty() {
        let _ = write!(text, "\nPaced streams, in their measured part\n\n{}\n", paced_table(&paced));
    }
    if free.iter().any(|row| !row.first().report.phases.is_empty()) {
        let _ = write!(text, "\nAfter each change of behaviour\n\n{}\n", phase_table(&free));
    }
    text
}

fn rows<'a>(runs: &'a [Run], against: Option<&str>) -> Vec<Row<'a>> {
    let mut rows: Vec<Row> = Vec::new();
    for run in runs {
        let same = |row: &&mut Row| {
            let first = row.first();
            (&first.pattern, &first.device, &first.arm, first.spec.think_ns_per_mib)
                == (&run.pattern, &run.device, &run.arm, run.spec.think_ns_per_mib)
        };
        match rows.iter_mut().find(same) {
            Some(row) => row.runs.push(run),
            None => rows.push(Row { runs: vec![run], figures: Figures::of(run), ratio: None }),
        }
    }
    for row in &mut rows {
        row.figures = Figures::median(&row.runs.iter().map(|run| Figures::of(run)).collect::<Vec<_>>());
        row.ratio = against.filter(|arm| *arm != row.runs[0].arm).and_then(|arm| ratio(runs, &row.runs, arm));
    }
    rows
}

/// The speed of `ours` by that of arm `against`, pair by pair.
fn ratio(runs: &[Run], ours: &[&Run], against: &str) -> Option<Ratio> {
    let partner = |own: &Run| {
        runs.iter().find(|other| {
            other.arm == against
                && (&other.pattern, &other.device, other.pair) == (&own.pattern, &own.device, own.pair)
                && other.spec.think_ns_per_mib == own.spec.think_ns_per_mib
        })
    };
    let ratios: Option<Vec<f64>> =
        ours.iter().map(|own| Some(speed(own) / speed(partner(own)?).max(1e-9))).collect();
    ratios.map(|ratios| Ratio::of(&ratios))
}

/// Bytes used a second; of paced streams, in their measured part.
fn speed(run: &Run) -> f64 {
    let paced = run.report.paced.as_ref();
    paced.map_or_else(
        || Figures::of(run).mb_per_s,
        |paced| paced.measured_bytes as f64 / paced.measured_ns as f64 * 1e3,
    )
}

fn table(head: &[&str], left: usize) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(head.iter().copied());
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_cell_alignment(if number < left { CellAlignment::Left } else { CellAlignment::Right });
    }
    table
}

fn free_table(rows: &[Row], against: Option<&str>) -> String {
    let versus = against.map(|arm| format!("by {arm} [90 %]")).unwrap_or_default();
    let mut head = vec![
        "pattern", "device", "arm", "s", "MB/s", "online", "offline", "ideal", "f/used", "f/plan",
        "requests", "KiB", "p50 us", "p99 us",
    ];
    let thrash = rows.iter().any(|row| row.figures.thrash_percent.is_some());
    head.extend(thrash.then_some("thrash %"));
    head.extend(against.is_some().then_some(versus.as_str()));
    let mut table = table(&head, 3);
    for row in rows {
        let (run, figures) = (row.first(), &row.figures);
        let mark = if figures.failed { "!" } else { "" };
        let capped = if figures.capped { "~" } else { "" };
        let mut cells = vec![
            format!("{}{mark}", label(run)),
            run.device.clone(),
            run.arm.clone(),
            format!("{capped}{:.3}", figures.seconds),
            number(Some(figures.mb_per_s)),
            share(figures.online),
            share(figures.offline),
            share(figures.ideal),
            two(figures.fetched_per_used),
            two(figures.fetched_per_plan),
            whole(figures.requests),
            whole(figures.request_kib),
            number(Some(figures.p50_us)),
            number(Some(figures.p99_us)),
        ];
        cells.extend(thrash.then(|| two(figures.thrash_percent)));
        cells.extend(against.map(|_| ratio_cell(row.ratio)));
        table.add_row(cells);
    }
    table.to_string()
}

fn ratio_cell(ratio: Option<Ratio>) -> String {
    match ratio {
        None => "-".to_string(),
        Some(Ratio { median, interval: None }) => format!("{median:.3}"),
        Some(Ratio { median, interval: Some((low, high)) }) => format!("{median:.3} [{low:.3}, {high:.3}]"),
    }
}

fn means(rows: &[Row]) -> String {
    let mut groups: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let group = (row.first().device.as_str(), row.first().arm.as_str());
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups.sort_unstable();
    let mut table = table(
        &[
            "device", "arm", "patterns", "online", "offline", "ideal", "f/used", "regular", "online",
            "offline",
        ],
        2,
    );
    for (device, arm) in groups {
        let of = |regular: bool, figure: fn(&Figures) -> Option<f64>| {
            let values: Vec<f64> = rows
                .iter()
                .filter(|row| row.first().device == device && row.first().arm == arm)
                .filter(|row| !regular || row.first().regular)
                .filter_map(|row| figure(&row.figures))
                .collect();
            (values.len(), geometric_mean(&values))
        };
        table.add_row([
            device.to_string(),
            arm.to_string(),
            of(false, |figures| Some(figures.seconds)).0.to_string(),
            share(of(false, |figures| figures.online).1),
            share(of(false, |figures| figures.offline).1),
            share(of(false, |figures| figures.ideal).1),
            two(of(false, |figures| figures.fetched_per_used).1),
            of(true, |figures| Some(figures.seconds)).0.to_string(),
            share(of(true, |figures| figures.online).1),
            share(of(true, |figures| figures.offline).1),
        ]);
    }
    table.to_string()
}

fn paced_table(rows: &[Row]) -> String {
    let mut table = table(
        &[
            "pattern",
            "device",
            "arm",
            "MB/s",
            "of MB/s",
            "best second",
            "KiB",
            "f/used",
            "again/used",
            "thrash %",
            "late",
            "late p99 ms",
            "ratio",
        ],
        3,
    );
    for row in rows {
        let of = |figure: fn(&Run) -> Option<f64>| {
            let all: Option<Vec<f64>> = row.runs.iter().map(|run| figure(run)).collect();
            all.map(median)
        };
        let run = row.first();
        table.add_row([
            label(run),
            run.device.clone(),
            run.arm.clone(),
            two(of(|run| Some(speed(run)))),
            two(of(|run| Some(run.report.paced.as_ref()?.demand_bytes_per_s as f64 / 1e6))),
            two(of(|run| Some(*run.report.paced.as_ref()?.by_second.iter().max()? as f64 / 1e6))),
            whole(of(|run| {
                let (from, to) = run.store_measured.as_ref()?;
                let requests = (to.requests - from.requests).max(1);
                Some((to.bytes - from.bytes) as f64 / requests as f64 / 1024.0)
            })),
            two(of(|run| {
                let (from, to) = run.store_measured.as_ref()?;
                Some((to.bytes - from.bytes) as f64 / run.report.paced.as_ref()?.measured_bytes.max(1) as f64)
            })),
            two(of(|run| {
                let (from, to) = run.store_measured.as_ref()?;
                let again = to.resent_bytes - from.resent_bytes;
                Some(again as f64 / run.report.paced.as_ref()?.measured_bytes.max(1) as f64)
            })),
            two(row.figures.thrash_percent),
            whole(of(|run| Some(run.report.paced.as_ref()?.late as f64))),
            whole(of(|run| Some(run.report.paced.as_ref()?.late_p99_ns as f64 / 1e6))),
            ratio_cell(row.ratio),
        ]);
    }
    table.to_string()
}

fn phase_table(rows: &[Row]) -> String {
    let first = format!("first {} ms", super::player::FIRST_READS);
    let mut table = table(
        &["pattern", "device", "arm", "phase", "reads", "stall ms", &first, "used MB", "fetched MB"],
        4,
    );
    for row in rows {
        let run = row.first();
        for (index, phase) in run.report.phases.iter().enumerate() {
            let at = |index: usize| run.store_at_phases.get(index).or(run.store.as_ref());
            let fetched = at(index).zip(at(index + 1)).map(|(from, to)| (to.bytes - from.bytes) as f64 / 1e6);
            let used = run.useful_at_phases.get(index).map(|bytes| *bytes as f64 / 1e6);
            table.add_row([
                label(run),
                run.device.clone(),
                run.arm.clone(),
                phase.name.clone(),
                phase.reads.to_string(),
                number(Some(phase.wait_ns as f64 / 1e6)),
                number(Some(phase.first_wait_ns as f64 / 1e6)),
                number(used),
                number(fetched),
            ]);
        }
    }
    table.to_string()
}

/// What `--list` prints: a line for each pattern, or its parameters too.
pub(crate) fn list(patterns: &[Pattern], params: &Params) -> String {
    let mut table = table(&["pattern", "family", "regular", "what it does", "parameters"], 5);
    for pattern in patterns {
        // What makes no plan was refused before.
        let options = pattern.options(params).unwrap_or_default();
        let options: Vec<String> =
            options.iter().map(|(name, value)| format!("{name}={}", size(*value))).collect();
        table.add_row([
            pattern.name.clone(),
            pattern.family.to_string(),
            if pattern.regular { "yes" } else { "no" }.to_string(),
            pattern.definition.to_string(),
            options.join(" "),
        ]);
    }
    format!("{table}\n")
}

/// A value as one would type it: 64K, 24M, 1000.
fn size(value: u64) -> String {
    match value {
        0 => "0".to_string(),
        value if value % (1 << 30) == 0 => format!("{}G", value >> 30),
        value if value % (1 << 20) == 0 => format!("{}M", value >> 20),
        value if value % (1 << 10) == 0 => format!("{}K", value >> 10),
        value => value.to_string(),
    }
}

fn label(run: &Run) -> String {
    format!("{}{}", run.pattern, if run.spec.think_ns_per_mib > 0 { "+think" } else { "" })
}

fn share(value: Option<f64>) -> String {
    value.map_or(
        "-".to_string(),
        |value| {
            if value < 0.1 { format!("{value:.3}") } else { format!("{value:.2}") }
        },
    )
}

fn two(value: Option<f64>) -> String {
    value.map_or("-".to_string(), |value| format!("{value:.2}"))
}

fn whole(value: Option<f64>) -> String {
    value.map_or("-".to_string(), |value| format!("{value:.0}"))
}

/// Three figures.
fn number(value: Option<f64>) -> String {
    value.map_or("-".to_string(), |value| match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    })
}

/// Colours the lines of a table by their share of the online bound, on a terminal.
fn paint(table: &str, rows: &[Row]) -> String {
    let plain = !std::io::stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some();
    let line = |(number, line): (usize, &str)| {
        let share = number.checked_sub(2).and_then(|number| rows.get(number)?.figures.online);
        match share {
            Some(share) if !plain && share < 0.5 => format!("\x1b[31m{line}\x1b[0m\n"),
            Some(share) if !plain && share >= 0.9 => format!("\x1b[32m{line}\x1b[0m\n"),
            _ => format!("{line}\n"),
        }
    };
    table.lines().enumerate().map(line).collect()
}
