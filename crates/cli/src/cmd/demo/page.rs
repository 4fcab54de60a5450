//! The page: one file of HTML with its own style and drawings, nothing fetched from anywhere, light and dark.
//!
//! Three plots and a table, all from the same rows: the share of the online bound per pattern and arm, the bytes fetched
//! per byte used, and the windows that bowwave chose over time. Worst row first in each.

use super::terminal::{three, times};
use super::{ArmFigures, Row, Show};
use std::fmt::Write;

const WIDTH: f64 = 920.0;
/// Where bars begin: names stand left of it.
const LEFT: f64 = 190.0;
const RIGHT: f64 = 70.0;
const BAR: f64 = 9.0;
const GAP: f64 = 3.0;

/// The whole page.
pub(super) fn page(show: &Show) -> String {
    let mut text = String::new();
    let _ = write!(
        text,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>bowwave demo</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<style>{}</style>\n</head>\n<body>\n<main>\n",
        include_str!("page.css")
    );
    let place = if show.virtual_time {
        "modelled devices in virtual time".to_string()
    } else {
        format!("slow stores mounted on Linux {}, every read verified", escaped(&show.kernel))
    };
    let _ = write!(
        text,
        "<header>\n<p class=\"name\">bowwave {}</p>\n<h1>Readahead without the number</h1>\n<p>Ten ways to read, on {place}; each \
         from a cold cache, under every kind of readahead. Rows are ordered by what bowwave gains over the best other arm: \
         the worst comes first.</p>\n</header>\n",
        show.version
    );
    text.push_str(&tiles(show));
    text.push_str(&legend(show));
    section(
        &mut text,
        "Share of the online bound",
        "How fast, as a share of what nobody could beat: a reader who knows the whole list of reads in advance, except \
         that the first touch of what no rule could foresee costs its full latency. Longer is better; 1 is the bound, and a little above it the store answered faster than its model.",
        &share_plot(show),
    );
    section(
        &mut text,
        "Bytes fetched per byte used",
        "Counted in the store. At 1 nothing is fetched in vain; right of it, the device worked for nothing.",
        &waste_plot(show),
    );
    section(
        &mut text,
        "The windows that bowwave chose",
        "Each dot is a decision: when, and how much to fetch at once. Nobody set a number; windows grow while their \
         reader waits and stop growing when the device is busy.",
        &windows_plots(show),
    );
    section(
        &mut text,
        "All figures",
        "MB/s are bytes used a second. ~ marks a run that was stopped at its cap: its figures are those of the reads it \
         made until then; &lt; one that was stopped before its first read.",
        &table(show),
    );
    let _ = write!(
        text,
        "<footer><p>Played in {:.0} s; runs were stopped after {} s. Devices: hdd 8 ms, 100 MB/s, one head; nfs 1 ms, 250 MB/s, \
         16 at once; s3 30 ms, 90 MB/s a connection, 64 connections, 1 GB/s; ssd 0.1 ms, 500 MB/s, 32 at once. \
         <code>bowwave bench</code> plays these patterns and many more; <code>bowwave run -- CMD</code> does this for your \
         program.</p></footer>\n</main>\n</body>\n</html>\n",
        show.seconds, show.cap_s
    );
    text
}

fn section(text: &mut String, title: &str, about: &str, body: &str) {
    let _ = write!(
        text,
        "<section>\n<h2>{title}</h2>\n<p>{about}</p>\n<div class=\"plot\">\n{body}</div>\n</section>\n"
    );
}

/// What an arm is called on the page.
fn label(arm: &str) -> &str {
    match arm {
        "off" => "readahead off",
        "128k" => "kernel, 128 KiB",
        "8m" => "kernel, 8 MiB",
        "cat" => "cat first",
        name => name,
    }
}

fn tiles(show: &Show) -> String {
    let mut text = String::from("<div class=\"tiles\">\n");
    let mut tile = |class: &str, value: String, words: &str| {
        let _ = writeln!(text, "<div class=\"tile {class}\"><b>{value}</b><span>{words}</span></div>");
    };
    for arm in show.arms() {
        let class = if arm == "bowwave" { "ours" } else { "" };
        tile(class, escaped(&show.mean(arm)), &format!("mean share, {}", label(arm)));
    }
    if let Some(worst) = show.rows.first() {
        tile(
            "worst",
            times(worst.by_best()),
            &format!("the best other arm, in our worst row: {}", escaped(worst.title)),
        );
    }
    text + "</div>\n"
}

fn legend(show: &Show) -> String {
    let mut text = String::from("<p class=\"legend\">");
    for arm in show.arms() {
        let _ = write!(text, "<span><i class=\"a-{}\"></i>{}</span>", class(arm), label(arm));
    }
    text + "</p>\n"
}

fn class(arm: &str) -> &str {
    match arm {
        "off" | "cat" | "bowwave" => arm,
        "128k" => "k128",
        _ => "m8",
    }
}

fn svg(height: f64, what: &str, body: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{what}\">\n{body}</svg>\n")
}

/// Rows of bars: names left, a grid behind, a value at the end of each bar.
fn share_plot(show: &Show) -> String {
    let room = WIDTH - LEFT - RIGHT;
    let x = |share: f64| LEFT + share.clamp(0.0, 1.0) * room;
    let height_of_row = show.arms().len() as f64 * (BAR + GAP) + 20.0;
    let height = 34.0 + show.rows.len() as f64 * height_of_row;
    let mut body = String::new();
    for tenth in [0, 2, 4, 6, 8, 10] {
        let at = x(f64::from(tenth) / 10.0);
        let _ = writeln!(
            body,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"20\" y2=\"{height:.0}\"/>\
             <text class=\"tick\" x=\"{at:.1}\" y=\"12\" text-anchor=\"middle\">{:.1}</text>",
            f64::from(tenth) / 10.0
        );
    }
    for (number, row) in show.rows.iter().enumerate() {
        let top = 34.0 + number as f64 * height_of_row;
        names(&mut body, row, top + 16.0);
        for (place, arm) in row.arms.iter().enumerate() {
            let y = top + place as f64 * (BAR + GAP);
            let end = x(arm.share);
            let stopped = if arm.capped && !arm.at_most { "~" } else { "" };
            let hollow = if arm.at_most { " most" } else { "" };
            let _ = writeln!(
                body,
                "<g><title>{}</title><rect class=\"a-{}{hollow}\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\"/>\
                 <text class=\"value{}\" x=\"{:.1}\" y=\"{:.1}\">{stopped}{}</text></g>",
                tooltip(row, arm),
                class(&arm.arm),
                (end - LEFT).max(1.5),
                if arm.arm == "bowwave" { " ours" } else { "" },
                end + 5.0,
                y + BAR - 0.5,
                share(arm)
            );
        }
    }
    svg(height, "share of the online bound by pattern and arm", &body)
}

fn share(arm: &ArmFigures) -> String {
    if arm.at_most {
        format!("&lt; {:.2}, stopped before its first read", arm.share)
    } else if arm.share < 0.095 {
        format!("{:.3}", arm.share)
    } else {
        format!("{:.2}", arm.share)
    }
}

fn names(body: &mut String, row: &Row, y: f64) {
    let _ = writeln!(
        body,
        "<g><title>{}</title><text class=\"row\" x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>\
         <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">on {}</text></g>",
        escaped(row.about),
        LEFT - 14.0,
        escaped(row.title),
        LEFT - 14.0,
        y + 15.0,
        row.device
    );
}

fn tooltip(row: &Row, arm: &ArmFigures) -> String {
    let waste = arm
        .fetched_per_used
        .map_or(String::new(), |ratio| format!(", {ratio:.2} bytes fetched per byte used"));
    let stopped = if arm.capped { ", stopped at its cap" } else { "" };
    escaped(&format!(
        "{} on {}, {}: {} MB/s in {:.2} s{waste}{stopped}",
        row.title,
        row.device,
        label(&arm.arm),
        three(arm.mb_per_s),
        arm.seconds
    ))
}

/// One line a row, a dot an arm, on a logarithmic scale.
fn waste_plot(show: &Show) -> String {
    let all = show.rows.iter().flat_map(|row| row.arms.iter().filter_map(|arm| arm.fetched_per_used));
    let most = all.fold(4.0_f64, f64::max);
    let top_power = most.log2().ceil();
    let room = WIDTH - LEFT - RIGHT;
    let step = 36.0;
    let height = 40.0 + show.rows.len() as f64 * step;
    // A stopped run may have used what others fetched for it: a little under 1.
    let x = |ratio: f64| LEFT + 24.0 + (ratio.max(0.8).log2() / top_power) * (room - 24.0);
    let mut body = String::new();
    let every = if top_power > 8.0 { 2 } else { 1 };
    for power in (0..=top_power as i32).step_by(every) {
        let at = x(f64::from(power).exp2());
        let _ = writeln!(
            body,
            "<line class=\"grid{}\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"20\" y2=\"{height:.0}\"/>\
             <text class=\"tick\" x=\"{at:.1}\" y=\"12\" text-anchor=\"middle\">{}</text>",
            if power == 0 { " one" } else { "" },
            1_u64 << power
        );
    }
    for (number, row) in show.rows.iter().enumerate() {
        let y = 44.0 + number as f64 * step;
        names(&mut body, row, y - 2.0);
        let ends = row.arms.iter().filter_map(|arm| arm.fetched_per_used);
        let (low, high) = ends.fold((f64::MAX, 1.0_f64), |(low, high), r| (low.min(r), high.max(r)));
        let _ = writeln!(
            body,
            "<line class=\"rail\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
            x(low.min(1.0)),
            x(high)
        );
        for arm in &row.arms {
            let Some(ratio) = arm.fetched_per_used else { continue };
            let radius = if arm.arm == "bowwave" { 6.5 } else { 5.0 };
            let _ = writeln!(
                body,
                "<g><title>{}</title><circle class=\"a-{}\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/></g>",
                tooltip(row, arm),
                class(&arm.arm),
                x(ratio)
            );
        }
        // The largest gets its figure; the others have theirs in the table.
        if high >= 1.3 {
            let _ = writeln!(
                body,
                "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x(high) + 10.0,
                y + 4.0,
                three(high)
            );
        }
    }
    svg(height, "bytes fetched per byte used by pattern and arm, logarithmic", &body)
}

/// A small plot a row: seconds to the right, pages of a window upwards, logarithmic.
fn windows_plots(show: &Show) -> String {
    const CELL: (f64, f64) = (452.0, 132.0);
    let mut body = String::new();
    let rows: Vec<&Row> = show.rows.iter().filter(|row| !row.windows.is_empty()).collect();
    for (number, row) in rows.iter().enumerate() {
        let left = (number % 2) as f64 * (CELL.0 + 16.0) + 58.0;
        let top = (number / 2) as f64 * (CELL.1 + 34.0) + 24.0;
        let (width, height) = (CELL.0 - 74.0, CELL.1 - 34.0);
        let most = row.windows.iter().map(|&(_, pages)| pages as f64).fold(16.0, f64::max);
        let first = row.windows.first().map_or(0.0, |w| w.0);
        let last = row.windows.last().map_or(1.0, |w| w.0);
        let span = (last - first).max(1e-3);
        let (low, high) = (0.0, most.log2().ceil());
        let x = |at: f64| left + (at - first) / span * width;
        let y = |pages: f64| top + height - (pages.max(1.0).log2() - low) / (high - low) * height;
        let _ = writeln!(
            body,
            "<text class=\"row\" x=\"{left:.1}\" y=\"{:.1}\">{} <tspan class=\"tick\">on {}, {} windows</tspan></text>",
            top - 9.0,
            escaped(row.title),
            row.device,
            row.windows.len()
        );
        // Three lines that are powers of two, written as bytes.
        for part in [0.0, 0.5, 1.0] {
            let pages = (low + (high - low) * part).round().exp2();
            let at = y(pages);
            let _ = writeln!(
                body,
                "<line class=\"grid\" x1=\"{left:.1}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left + width,
                left - 6.0,
                at + 4.0,
                bytes(pages)
            );
        }
        let mut dots = String::new();
        for (at, pages) in thinned(&row.windows) {
            let _ = write!(dots, "M{:.1} {:.1}h0", x(at), y(pages as f64));
        }
        let _ = writeln!(body, "<path class=\"dots\" d=\"{dots}\"/>");
        let _ = writeln!(
            body,
            "<text class=\"tick\" x=\"{left:.1}\" y=\"{:.1}\">0</text>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            top + height + 15.0,
            left + width,
            top + height + 15.0,
            duration(span)
        );
    }
    if rows.is_empty() {
        return "<p>No windows were recorded.</p>\n".to_string();
    }
    svg(rows.len().div_ceil(2) as f64 * (CELL.1 + 34.0) + 6.0, "windows over time by pattern", &body)
}

/// At most so many dots as can be told apart: the largest and the smallest of each slice of time.
fn thinned(windows: &[(f64, u64)]) -> Vec<(f64, u64)> {
    const SLICES: usize = 400;
    if windows.len() <= 2 * SLICES {
        return windows.to_vec();
    }
    let slice = windows.len().div_ceil(SLICES);
    let ends = |part: &[(f64, u64)]| {
        let least = part.iter().min_by_key(|window| window.1).copied();
        let most = part.iter().max_by_key(|window| window.1).copied();
        [least, most]
    };
    windows.chunks(slice).flat_map(ends).flatten().collect()
}

fn bytes(pages: f64) -> String {
    let kib = pages * 4.0;
    if kib >= 1024.0 { format!("{:.0} MiB", kib / 1024.0) } else { format!("{kib:.0} KiB") }
}

fn duration(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.1} s") }
}

fn table(show: &Show) -> String {
    let mut text = String::from("<table>\n<thead><tr><th>pattern</th>");
    for arm in show.arms() {
        let _ = write!(text, "<th class=\"n\">{}<br><small>MB/s<br>fetched/used</small></th>", label(arm));
    }
    text.push_str("<th class=\"n\">bowwave by<br>128 KiB</th><th class=\"n\">by the best<br>other</th></tr></thead>\n<tbody>\n");
    for row in &show.rows {
        let _ = write!(
            text,
            "<tr><td><b>{}</b> on {}<br><small>{}</small></td>",
            escaped(row.title),
            row.device,
            escaped(row.about)
        );
        for arm in &row.arms {
            let stopped = if arm.capped && !arm.at_most { "~" } else { "" };
            let wrong = if arm.failed { " <b class=\"bad\">wrong reads</b>" } else { "" };
            let speed = format!("{}{}", if arm.at_most { "&lt; " } else { "" }, three(arm.mb_per_s));
            let waste = arm.fetched_per_used.map_or(String::new(), |ratio| format!("{ratio:.2}"));
            let ours = if arm.arm == "bowwave" { " ours" } else { "" };
            let _ =
                write!(text, "<td class=\"n{ours}\">{stopped}{speed}{wrong}<br><small>{waste}</small></td>");
        }
        let by = row.by("128k").map_or("-".to_string(), times);
        let best = row.by_best();
        let _ = writeln!(
            text,
            "<td class=\"n\">{by}</td><td class=\"n{}\">{}</td></tr>",
            if best < 0.97 { " bad" } else { "" },
            times(best)
        );
    }
    text + "</tbody>\n</table>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(name: &str, mb_per_s: f64) -> ArmFigures {
        ArmFigures {
            arm: name.to_string(),
            seconds: 1.0,
            mb_per_s,
            share: mb_per_s / 100.0,
            at_most: false,
            fetched_per_used: Some(1.5),
            requests: None,
            p99_us: None,
            capped: false,
            failed: false,
        }
    }

    /// The page needs nothing but itself, and every group that is opened is closed.
    #[test]
    fn a_page_stands_alone() {
        let row = Row {
            title: "a < b",
            about: "\"quoted\"",
            pattern: "seq_64k",
            device: "s3",
            arms: vec![arm("128k", 10.0), arm("bowwave", 90.0)],
            windows: (1..2000).map(|n| (f64::from(n) / 100.0, u64::from(n as u32 % 64 + 1))).collect(),
        };
        let show = Show {
            virtual_time: false,
            seconds: 1.0,
            cap_s: 3.0,
            version: "0",
            kernel: "6".to_string(),
            rows: vec![row],
        };
        let page = page(&show);
        for word in ["http://", "https://", "<script", "NaN", "inf", "a < b"] {
            assert!(!page.contains(word), "{word}");
        }
        for tag in ["g", "svg", "section", "div", "table", "tr", "td", "p", "text"] {
            let opened =
                page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "<{tag}>");
        }
        assert!(page.contains("9.00 x") && page.is_ascii());
    }
}
