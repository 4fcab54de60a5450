//! What the demo prints: a table of all figures and bars of the shares, worst row first.

use super::{ArmFigures, Show};
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use std::fmt::Write;
use std::io::IsTerminal;

/// Characters of a full bar.
const WIDTH: usize = 40;

pub(super) fn draw(show: &Show) -> String {
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let mut text = String::from("\n");
    if show.virtual_time {
        text.push_str("VIRTUAL TIME: modelled devices, no kernel, nothing mounted\n\n");
    }
    let _ = writeln!(text, "{}\n", table(show));
    text.push_str("cells: MB/s used (bytes fetched per byte used); ~ stopped at its time cap;\n< stopped before its first read, at most this; ! wrong or failed reads\n\n");
    text.push_str(&bars(show, utf8(), colour));
    text.push_str(&means(show));
    text
}

fn table(show: &Show) -> String {
    let arms = show.arms();
    let mut head = vec!["", "device"];
    head.extend(&arms);
    head.extend(["of the bound", "by the best other"]);
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(head);
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_cell_alignment(if number < 2 { CellAlignment::Left } else { CellAlignment::Right });
    }
    for row in &show.rows {
        let mut cells = vec![row.title.to_string(), row.device.to_string()];
        cells.extend(row.arms.iter().map(cell));
        cells.push(row.ours().map_or("-".to_string(), |ours| format!("{:.0} %", ours.share * 100.0)));
        cells.push(times(row.by_best()));
        table.add_row(cells);
    }
    table.to_string()
}

fn cell(figures: &ArmFigures) -> String {
    let mark = if figures.capped { "~" } else { "" };
    let wrong = if figures.failed { "!" } else { "" };
    if figures.at_most {
        return format!("< {}{wrong}", three(figures.mb_per_s));
    }
    let waste = figures.fetched_per_used.map_or(String::new(), |ratio| format!(" ({ratio:.2})"));
    format!("{mark}{}{waste}{wrong}", three(figures.mb_per_s))
}

/// Three figures.
pub(super) fn three(value: f64) -> String {
    match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// `12 x`, `1.03 x`.
pub(super) fn times(ratio: f64) -> String {
    format!("{} x", three(ratio))
}

fn bars(show: &Show, utf8: bool, colour: bool) -> String {
    let mut text =
        String::from("Share of the online bound: what nobody could beat who has to be surprised first\n\n");
    for row in &show.rows {
        let _ = writeln!(text, "{} on {}: {}", row.title, row.device, row.about);
        for arm in &row.arms {
            let (on, off) = match (colour, arm.arm.as_str()) {
                (false, _) => ("", ""),
                (true, "bowwave") => ("\x1b[36m", "\x1b[0m"),
                (true, _) => ("\x1b[2m", "\x1b[0m"),
            };
            let mark = if arm.at_most {
                "< "
            } else if arm.capped {
                "~"
            } else {
                ""
            };
            let shown = format!("{mark}{:.0} %", arm.share * 100.0);
            let _ = writeln!(text, "  {:<8} {on}{}{off} {shown}", arm.arm, bar(arm.share, utf8));
        }
        text.push('\n');
    }
    text
}

/// A bar of `share`, in eighths of a character where those exist.
fn bar(share: f64, utf8: bool) -> String {
    let eighths = (share.clamp(0.0, 1.0) * (WIDTH * 8) as f64).round() as usize;
    if !utf8 {
        return "#".repeat((eighths + 4) / 8);
    }
    // U+2588 is a full block, U+258F its leftmost eighth.
    let rest = ["", "\u{258f}", "\u{258e}", "\u{258d}", "\u{258c}", "\u{258b}", "\u{258a}", "\u{2589}"];
    "\u{2588}".repeat(eighths / 8) + rest[eighths % 8]
}

fn means(show: &Show) -> String {
    let mut text = String::from("Geometric mean of the shares:");
    for arm in show.arms() {
        let _ = write!(text, "  {arm} {}", show.mean(arm));
    }
    if let Some(worst) = show.rows.first() {
        let _ = write!(
            text,
            "\nWorst row: '{}' on {}, {} the best other arm",
            worst.title,
            worst.device,
            times(worst.by_best())
        );
    }
    text + "\n"
}

/// Whether the locale says UTF-8.
fn utf8() -> bool {
    let said = ["LC_ALL", "LC_CTYPE", "LANG"].map(|name| std::env::var(name).unwrap_or_default());
    let first = said.into_iter().find(|value| !value.is_empty()).unwrap_or_default().to_lowercase();
    first.contains("utf-8") || first.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_and_figures() {
        assert_eq!(bar(1.0, false).len(), WIDTH);
        assert_eq!(bar(0.5, true), "\u{2588}".repeat(20));
        assert_eq!(bar(1.0 / 320.0, true), "\u{258f}");
        assert_eq!((bar(7.0, false).len(), bar(0.0, true).len()), (WIDTH, 0));
        assert_eq!(
            [three(1234.5), three(99.96), three(12.34), three(0.056)],
            ["1234", "100", "12.3", "0.06"]
        );
    }
}
