//! `bowwave lab tables`: every table of the seeds, the published figure beside ours, and a verdict.
//!
//! ```text
//!   $ bowwave lab tables T23
//!   T23  streams of 100 KB/s in 128 MB, as the slides have it                     reproduced
//!        most, MB/s          5     legacy              ...
//! ```

use super::page;
use crate::cmd::failure::{Failure, USAGE};
use crate::cmd::out::{print, writable, write_file};
use bowwave_lab::{Figure, Table, TableEntry, Verdict, chosen_tables};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Run the published tables again: T1 to T29, X1 to X6, and the six patches of 2014 (P1 to P6).
///
/// Each table shows the published figure, what the policy of that era does here, and what wave does; then its verdict:
/// reproduced, direction only (the order, not the size), not reproduced, not reproducible here, no figure, not built yet. A
/// figure that fixed a free parameter is marked * and gives no verdict. A *floor* is what this project asks of wave on the same
/// workload; one that is missed says so, and the verdict on the published table does not rest on it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Tables to run, such as T10 X4; all if none is named
    #[arg(value_name = "TABLE")]
    names: Vec<String>,
    /// Print one line of JSON a table
    #[arg(long)]
    json: bool,
    /// Also write a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Only the verdicts, a line a table
    #[arg(long, conflicts_with = "json")]
    brief: bool,
    /// Tables that are run at once
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let entries = chosen_tables(&args.names).map_err(|name| {
        Failure::new(
            USAGE,
            format_args!("there is no table {name}; there are T1 to T29, X1 to X6 and P1 to P6"),
        )
    })?;
    args.html.as_deref().map_or(Ok(()), writable)?;
    let tables = run(&entries, args.jobs.max(1));
    let mut text: String = tables
        .iter()
        .map(|table| match (args.json, args.brief) {
            (true, _) => serde_json::to_string(table).expect("plain data") + "\n",
            (_, true) => brief(table) + "\n",
            _ => shown(table) + "\n",
        })
        .collect();
    if !args.json && tables.len() > 1 {
        text.push_str(&format!("{}\n", summary(&tables)));
    }
    let printed = print(text);
    if let Some(path) = &args.html {
        write_file(path, page::tables(&tables))?;
        eprintln!("wrote {}", path.display());
    }
    printed
}

/// Runs them, `jobs` at a time; they come back in their order.
fn run(entries: &[TableEntry], jobs: usize) -> Vec<Table> {
    let bar = indicatif::ProgressBar::new(entries.len() as u64).with_style(
        indicatif::ProgressStyle::with_template("{pos}/{len} tables  {msg}")
            .unwrap_or_else(|_| indicatif::ProgressStyle::default_bar()),
    );
    let next = AtomicUsize::new(0);
    let mut done: Vec<(usize, Table)> = std::thread::scope(|scope| {
        let work = || {
            let mut mine = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(entry) = entries.get(at) else { return mine };
                bar.set_message(format!("{} {}", entry.id, entry.title));
                mine.push((at, entry.run()));
                bar.inc(1);
            }
        };
        let workers: Vec<_> = (0..jobs.min(entries.len())).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a table panicked")).collect()
    });
    bar.finish_and_clear();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, table)| table).collect()
}

fn brief(table: &Table) -> String {
    format!("{:<4} {:<58} {}", table.id, table.title, table.verdict.words())
}

/// A figure with as many digits as it deserves.
pub(super) fn number(x: Option<f64>) -> String {
    match x {
        None => "-".into(),
        Some(x) if x.abs() >= 1000.0 || (x.fract() == 0.0 && x.abs() >= 10.0) => format!("{x:.0}"),
        Some(x) if x.abs() >= 100.0 => format!("{x:.1}"),
        Some(x) => format!("{x:.2}"),
    }
}

fn line(f: &Figure, width: usize) -> String {
    let mark = if f.fitted { "*" } else { " " };
    format!(
        "     {:<width$}  {:<18} {:>10}{mark} {:>10} {:>10}  {}\n",
        f.row,
        f.unit,
        number(f.published),
        number(f.ours),
        number(f.wave),
        f.policy
    )
}

fn shown(table: &Table) -> String {
    let mut text = format!("{}\n     {}\n", brief(table), table.source);
    let mut say = |what: &str, words: &str| {
        if !words.is_empty() {
            text.push_str(&wrapped(what, words));
        }
    };
    say("model  ", &table.model);
    for free in &table.free {
        say("free   ", &format!("{}; fixed by: {}", free.what, free.fixed_by));
    }
    let width = table.figures.iter().map(|f| f.row.chars().count()).max().unwrap_or(0);
    if width > 0 {
        text.push_str(&format!(
            "\n     {:<width$}  {:<18} {:>10}  {:>10} {:>10}  policy\n",
            "", "unit", "published", "ours", "wave"
        ));
        table.figures.iter().for_each(|figure| text.push_str(&line(figure, width)));
        text.push('\n');
    }
    for check in &table.checks {
        let word = match (check.holds, check.of_figure, check.floor) {
            (true, _, true) => "floor  ",
            (false, _, true) => "MISSED ",
            (true, true, _) => "figure ",
            (true, false, _) => "order  ",
            (false, _, _) => "NOT    ",
        };
        text.push_str(&wrapped(word, &check.what));
    }
    text.push_str(&wrapped("why    ", &table.why));
    text
}

/// `words` behind `what`, no line longer than a hundred columns.
fn wrapped(what: &str, words: &str) -> String {
    let mut lines = vec![format!("     {what}")];
    for word in words.split_whitespace() {
        if lines[lines.len() - 1].chars().count() + word.chars().count() > 99 {
            lines.push(" ".repeat(12));
        }
        let last = lines.len() - 1;
        if !lines[last].ends_with(' ') {
            lines[last].push(' ');
        }
        lines[last].push_str(word);
    }
    lines.join("\n") + "\n"
}

fn summary(tables: &[Table]) -> String {
    let count = |verdict| tables.iter().filter(|table| table.verdict == verdict).count();
    let all = [
        Verdict::Reproduced,
        Verdict::DirectionOnly,
        Verdict::NotReproduced,
        Verdict::NotReproducibleHere,
        Verdict::NoFigure,
        Verdict::NotBuiltYet,
    ];
    let parts: Vec<String> = all
        .into_iter()
        .filter(|&verdict| count(verdict) > 0)
        .map(|verdict| format!("{} {}", count(verdict), verdict.words()))
        .collect();
    let floors = || tables.iter().flat_map(|table| &table.checks).filter(|check| check.floor);
    let (held, all) = (floors().filter(|check| check.holds).count(), floors().count());
    format!("{} tables: {}; wave holds {held} of its {all} floors", tables.len(), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_are_wrapped() {
        let text = wrapped("why    ", &"word ".repeat(60));
        assert!(text.lines().all(|line| line.chars().count() <= 100));
        assert_eq!(text.split_whitespace().count(), 61);
    }

    #[test]
    fn figures_have_the_digits_that_they_deserve() {
        let shown = [Some(0.5), Some(13.0), Some(497.57), Some(85_333.3), None].map(number);
        assert_eq!(shown, ["0.50", "13", "497.6", "85333", "-"]);
    }
}
