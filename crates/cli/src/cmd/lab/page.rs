//! The pages of `bowwave lab tables`, `sweep` and `replay` with `--html`: one file with its own style and drawings, light and dark, nothing fetched from
//! anywhere. The style is the demo's.

use super::tables::number;
use bowwave_lab::{Curve, SweepCell, Table, Verdict};
use std::fmt::Write;

const WIDTH: f64 = 920.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 60.0;
const BOTTOM: f64 = 40.0;
const RIGHT: f64 = 190.0;
/// One colour a curve, in the demo's order; the last is ours.
const CLASSES: [&str; 4] = ["k128", "m8", "cat", "ours"];

/// The whole page.
pub(super) fn tables(tables: &[Table]) -> String {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>bowwave lab tables</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<style>{}{}</style>\n</head>\n<body>\n<main>\n",
        include_str!("../demo/page.css"),
        include_str!("page.css")
    );
    let count = |verdict| tables.iter().filter(|t| t.verdict == verdict).count();
    let _ = write!(
        text,
        "<header>\n<p class=\"name\">bowwave {} lab</p>\n<h1>Twenty years of tables, again</h1>\n<p>Every table of the seeds: the figure \
         that was published, what the policy of that era does here in virtual time, and what wave does on the same workload. A figure \
         marked * fixed a free parameter and says nothing.</p>\n</header>\n<div class=\"tiles\">\n",
        env!("CARGO_PKG_VERSION")
    );
    for verdict in [
        Verdict::Reproduced,
        Verdict::DirectionOnly,
        Verdict::NotReproduced,
        Verdict::NotReproducibleHere,
        Verdict::NotBuiltYet,
    ] {
        let class = if verdict == Verdict::Reproduced { "ours" } else { "" };
        let _ = writeln!(
            text,
            "<div class=\"tile {class}\"><b>{}</b><span>{}</span></div>",
            count(verdict),
            verdict.words()
        );
    }
    text.push_str("</div>\n");
    tables.iter().for_each(|table| section(&mut text, table));
    text.push_str("</main>\n</body>\n</html>\n");
    text
}

/// The page of `bowwave lab replay`: the answer, and a plot a device of the time under each window, and under wave.
pub(super) fn replay(answer: &str, cells: &[SweepCell], windows_kib: &[u64]) -> String {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>bowwave lab replay</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<style>{}{}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<p class=\"name\">bowwave {} lab</p>\n<h1>Your reads, replayed</h1>\n<p>{}</p>\n</header>\n",
        include_str!("../demo/page.css"),
        include_str!("page.css"),
        env!("CARGO_PKG_VERSION"),
        escaped(answer)
    );
    for cell in cells {
        let seconds = |name: &str| cell.of(name).map_or(0.0, |score| score.seconds);
        let flat = |y: f64| windows_kib.iter().map(|&kib| (kib as f64, y)).collect::<Vec<_>>();
        let fixed =
            windows_kib.iter().map(|&kib| (kib as f64, seconds(&format!("linux-6.18@{kib}")))).collect();
        let curves = vec![
            Curve { name: "linux-6.18".into(), points: fixed },
            Curve { name: "no readahead".into(), points: flat(seconds("none")) },
            Curve { name: "oracle".into(), points: flat(cell.oracle_s) },
            Curve { name: "wave".into(), points: flat(seconds("wave")) },
        ];
        let drawn = plot(&curves, ("KiB of readahead", "seconds"));
        let _ = write!(
            text,
            "<section>\n<h2>{}</h2>\n<div class=\"plot\">\n{drawn}</div>\n</section>\n",
            escaped(&cell.device)
        );
    }
    text.push_str("</main>\n</body>\n</html>\n");
    text
}

/// The page of `bowwave lab sweep`: rho of each policy on each device, and eta against rho; the summary below.
pub(super) fn sweep(summary: &str, cells: &[SweepCell], policies: &[String]) -> String {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>bowwave lab sweep</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<style>{}{}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<p class=\"name\">bowwave {} lab</p>\n<h1>Every policy, as a share of an oracle</h1>\n<p>{} cells: a pattern on a \
         device in a memory. rho is the oracle's time over the policy's, eta the share of fetched bytes that was used. \
         For each device and memory: the geometric mean of rho over the patterns, policy by policy, then rho against the mean of eta, where the upper \
         right is best; point at a dot for its name. Below them all figures, and every cell that another policy wins.</p>\n</header>\n",
        include_str!("../demo/page.css"),
        include_str!("page.css"),
        env!("CARGO_PKG_VERSION"),
        cells.len()
    );
    let mut groups: Vec<(String, u64)> =
        cells.iter().map(|cell| (cell.device.clone(), cell.memory_mib)).collect();
    groups.sort();
    groups.dedup();
    for (device, memory) in &groups {
        let of = |cell: &&SweepCell| cell.device == *device && cell.memory_mib == *memory;
        let mut rows: Vec<(&String, f64, f64)> = policies
            .iter()
            .map(|policy| {
                let scores: Vec<_> = cells.iter().filter(of).filter_map(|cell| cell.of(policy)).collect();
                let n = scores.len().max(1) as f64;
                let rho = (scores.iter().map(|score| score.rho.max(1e-9).ln()).sum::<f64>() / n).exp();
                (policy, rho, scores.iter().map(|score| score.eta).sum::<f64>() / n)
            })
            .collect();
        rows.sort_by(|a, b| b.1.total_cmp(&a.1));
        let _ = write!(
            text,
            "<section>\n<h2>{}, {memory} MiB</h2>\n<div class=\"plot\">\n{}</div>\n<div class=\"plot\">\n{}</div>\n</section>\n",
            escaped(device),
            bars(&rows),
            scatter(&rows)
        );
    }
    let _ = write!(
        text,
        "<section>\n<h2>All cells</h2>\n<pre>{}</pre>\n</section>\n</main>\n</body>\n</html>\n",
        escaped(summary)
    );
    text
}

/// A bar a policy: the geometric mean of its rho.
fn bars(rows: &[(&String, f64, f64)]) -> String {
    let (step, left) = (18.0, 170.0);
    let height = step * rows.len() as f64 + 10.0;
    let mut body = String::new();
    for (at, (policy, rho, _)) in rows.iter().enumerate() {
        let (y, long) = (4.0 + step * at as f64, (WIDTH - left - 60.0) * rho);
        let class = if policy.as_str() == "wave" { "ours" } else { "k128" };
        let _ = writeln!(
            body,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text><line class=\"curve c-{class}\" x1=\"{left}\" x2=\"{:.1}\" y1=\"{:.0}\" \
             y2=\"{:.0}\"/><text class=\"tick\" x=\"{:.0}\" y=\"{:.0}\">{rho:.2}</text>",
            left - 8.0,
            y + 12.0,
            escaped(policy),
            left + long,
            y + 8.0,
            y + 8.0,
            left + long + 6.0,
            y + 12.0
        );
    }
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"rho by policy\">\n{body}</svg>\n"
    )
}

/// A dot a policy: the mean of its eta over the geometric mean of its rho, both from 0 to 1.
fn scatter(rows: &[(&String, f64, f64)]) -> String {
    let (room, tall) = (WIDTH - LEFT - RIGHT, HEIGHT - BOTTOM - 14.0);
    let (x, y) = (|rho: f64| LEFT + rho.min(1.0) * room, |eta: f64| HEIGHT - BOTTOM - eta.min(1.0) * tall);
    let mut body = String::new();
    for quarter in 0..=4 {
        let v = f64::from(quarter) / 4.0;
        let _ = writeln!(
            body,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{:.1}\" y2=\"{:.1}\"/><text class=\"tick\" x=\"{:.0}\" y=\"{:.1}\" \
             text-anchor=\"end\">{v}</text><text class=\"tick\" x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{v}</text>",
            LEFT + room,
            y(v),
            y(v),
            LEFT - 6.0,
            y(v) + 4.0,
            x(v),
            HEIGHT - BOTTOM + 16.0
        );
    }
    for (policy, rho, eta) in rows {
        let class = if policy.as_str() == "wave" { "ours" } else { "k128" };
        let _ = writeln!(
            body,
            "<circle class=\"c-{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}: rho {rho:.2}, eta {eta:.2}</title></circle>",
            x(*rho),
            y(*eta),
            escaped(policy)
        );
    }
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"eta over rho\">\n{body}<text class=\"tick\" x=\"{:.0}\" y=\"{:.0}\" \
         text-anchor=\"middle\">rho</text><text class=\"tick\" x=\"4\" y=\"10\">eta</text></svg>\n",
        LEFT + room / 2.0,
        HEIGHT - 6.0
    )
}

fn section(text: &mut String, table: &Table) {
    let _ = write!(
        text,
        "<section id=\"{}\">\n<h2>{} &nbsp;{} <em class=\"v-{:?}\">{}</em></h2>\n<p>{}. {}</p>\n",
        table.id,
        table.id,
        escaped(table.title),
        table.verdict,
        table.verdict.words(),
        escaped(table.source),
        escaped(&table.model)
    );
    if !table.curves.is_empty() {
        let _ = writeln!(text, "<div class=\"plot\">\n{}</div>", plot(&table.curves, table.axes));
    }
    if !table.figures.is_empty() {
        text.push_str("<div class=\"plot\"><table>\n<thead><tr><th></th><th>unit</th><th class=\"n\">published</th><th class=\"n\">ours</th><th class=\"n\">wave</th><th>policy</th></tr></thead>\n<tbody>\n");
        for f in &table.figures {
            let _ = writeln!(
                text,
                "<tr><td>{}</td><td>{}</td><td class=\"n\">{}{}</td><td class=\"n\">{}</td><td class=\"n ours\">{}</td><td>{}</td></tr>",
                escaped(&f.row),
                escaped(f.unit),
                number(f.published),
                if f.fitted { "*" } else { "" },
                number(f.ours),
                number(f.wave),
                escaped(&f.policy)
            );
        }
        text.push_str("</tbody>\n</table></div>\n");
    }
    text.push_str("<ul>\n");
    for free in &table.free {
        let _ = writeln!(text, "<li>free: {}; fixed by {}</li>", escaped(&free.what), escaped(free.fixed_by));
    }
    for check in &table.checks {
        let class = if check.holds { "" } else { " class=\"bad\"" };
        let _ = writeln!(
            text,
            "<li{class}>{}{}</li>",
            match (check.holds, check.floor) {
                (true, _) => "",
                (false, true) => "floor missed: ",
                (false, false) => "not: ",
            },
            escaped(&check.what)
        );
    }
    let _ = write!(text, "</ul>\n<p>{}</p>\n</section>\n", escaped(&table.why));
}

/// Curves over one pair of axes from zero; the horizontal one by the logarithm where its points span more than a hundredfold.
fn plot(curves: &[Curve], axes: (&str, &str)) -> String {
    let points = || curves.iter().flat_map(|curve| curve.points.iter().copied());
    let most = |f: fn((f64, f64)) -> f64| points().map(f).fold(f64::MIN_POSITIVE, f64::max);
    let least = points().map(|p| p.0).fold(f64::INFINITY, f64::min);
    let (x_max, y_max) = (most(|p| p.0), most(|p| p.1));
    let log = least > 0.0 && x_max / least > 100.0;
    let room = WIDTH - LEFT - RIGHT;
    let x = |v: f64| {
        let share = if log { (v / least).ln() / (x_max / least).ln() } else { v / x_max };
        LEFT + share * room
    };
    let y = |v: f64| HEIGHT - BOTTOM - v / y_max * (HEIGHT - BOTTOM - 14.0);
    let mut body = String::new();
    for quarter in 0..=4 {
        let v = y_max * f64::from(quarter) / 4.0;
        let _ = writeln!(
            body,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{:.1}\" y2=\"{:.1}\"/><text class=\"tick\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT + room,
            y(v),
            y(v),
            LEFT - 6.0,
            y(v) + 4.0,
            number(Some(v))
        );
    }
    for v in [least, x_max] {
        let _ = writeln!(
            body,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            x(v),
            HEIGHT - BOTTOM + 16.0,
            number(Some(v))
        );
    }
    let _ = writeln!(
        body,
        "<text class=\"tick\" x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text><text class=\"tick\" x=\"4\" y=\"10\">{}</text>",
        LEFT + room / 2.0,
        HEIGHT - 6.0,
        escaped(axes.0),
        escaped(axes.1)
    );
    for (i, curve) in curves.iter().enumerate() {
        body.push_str(&drawn(curve, i, &x, &y));
    }
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} over {}\">\n{body}</svg>\n",
        escaped(axes.1),
        escaped(axes.0)
    )
}

fn drawn(curve: &Curve, i: usize, x: &impl Fn(f64) -> f64, y: &impl Fn(f64) -> f64) -> String {
    let class = if curve.name == "wave" { "ours" } else { CLASSES[i % 3] };
    let path: Vec<String> = curve.points.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
    let name_y = 20.0 + 18.0 * i as f64;
    format!(
        "<polyline class=\"curve c-{class}\" points=\"{}\"/><circle class=\"c-{class}\" cx=\"{:.0}\" cy=\"{:.0}\" r=\"5\"/><text x=\"{:.0}\" y=\"{:.0}\">{}</text>\n",
        path.join(" "),
        WIDTH - RIGHT + 20.0,
        name_y - 4.0,
        WIDTH - RIGHT + 32.0,
        name_y,
        escaped(&curve.name)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
