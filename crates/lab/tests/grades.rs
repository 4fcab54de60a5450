//! The three grades of knowledge, compared: the same plan with every read and arrival told at once (a), with misses and
//! marks only (b, the shim), and with arrivals learnt from samples up to 50 ms old (c, an observer outside).
//!
//! What a rule does without its knowledge must cost little more than what it does with it. Where that does not hold yet,
//! the bound is wide and says so:
//!
//! ```text
//!                 bytes fetched             time
//! (b) to (a)      within 25 %, but two      within 25 %
//! (c) to (b)      within 25 %               never slower than nobody; a fetch keeps its place in flight until the sample
//! random          1.05 a byte, all grades   1.03 of nobody, all grades
//! ```
//!
//! `cargo test -p bowwave-lab --test grades -- --nocapture` prints the table behind these bounds.

use bowwave_core::{Bytes, Config, PageCount};
use bowwave_lab::{DeviceModel, Fetcher, Knowledge, Outcome, Params, Plan, find, play_knowing};

/// Bytes that a brain which has learnt nothing may have out in vain (2 MiB), and twice what a device can have under way:
/// they weigh in plans as short as these, and say nothing of a rule.
const SLACK_BYTES: f64 = 6e6;
/// The same for time: two looks of a sampler.
const SLACK_NS: f64 = 1e8;

/// How far (b) may be from (a), and (c) from (b).
struct Bound {
    pattern: &'static str,
    /// Bytes of (b) as a multiple of (a)'s, either way.
    bytes_b: f64,
    /// Time of (b) as a multiple of (a)'s.
    time_b: f64,
    /// Bytes of (c) as a multiple of the more of (a)'s and (b)'s.
    bytes_c: f64,
}

const BOUNDS: [Bound; 7] = [
    Bound { pattern: "seq_8k", bytes_b: 1.25, time_b: 1.25, bytes_c: 1.25 },
    // Eight streams of 1.6 MB each are young: what is out in vain is what waiting allowed (R13), and (a) hears of more waits.
    Bound { pattern: "il8_1fd", bytes_b: 2.25, time_b: 1.25, bytes_c: 1.25 },
    Bound { pattern: "rev_64k", bytes_b: 1.25, time_b: 1.25, bytes_c: 1.25 },
    Bound { pattern: "stride_64k_1m", bytes_b: 1.25, time_b: 1.25, bytes_c: 1.25 },
    // R7 hears of each run under (a), of misses and marked runs under (b). Where its reader stops, what is out is no more than the device
    // can use: on the solid-state disk (b) fetched 3.1 bytes a byte when it was.
    Bound { pattern: "sparse_8k", bytes_b: 1.25, time_b: 1.25, bytes_c: 1.25 },
    // R11 buys by times that (c) never learns on the network file system: 2.5 bytes a byte, and as slow as nobody.
    // Where (b) hears of a read it hears after it of what was read behind it: since, or earlier in the cluster. It takes either for reading
    // on: on the object store it fetches 3.6 bytes a byte for 2.2.
    Bound { pattern: "rnd_clu", bytes_b: 1.5, time_b: 1.25, bytes_c: 1.25 },
    Bound { pattern: "rnd_sparse", bytes_b: 1.0, time_b: 1.01, bytes_c: 1.0 },
];

fn outcome(plan: &Plan, model: &DeviceModel, knowledge: Knowledge) -> Outcome {
    let config = Config { memory: Bytes(6 << 30), request_max: PageCount(64), ..Config::default() };
    play_knowing(plan, model, Fetcher::Wave(config), knowledge, false)
}

fn compare(device: &str, model: &DeviceModel) {
    let params = Params { volume: 0.05, ..Params::published() };
    let mut broken = Vec::new();
    for bound in &BOUNDS {
        let plan =
            find(bound.pattern).expect("a published pattern").plan(&params).expect("published parameters");
        let useful = bowwave_lab::Yardsticks::of(&plan, model).useful_bytes as f64;
        let grades = [Knowledge::Event, Knowledge::Marks, Knowledge::Sampled];
        let played = grades.map(|knowledge| outcome(&plan, model, knowledge));
        let nobody = play_knowing(&plan, model, Fetcher::Nobody, Knowledge::Marks, false);
        let [a, b, c] = played.each_ref().map(|o| o.fetched_bytes as f64);
        let [ta, tb, tc] = played.each_ref().map(|o| o.elapsed.0 as f64);
        let tn = nobody.elapsed.0 as f64;
        println!(
            "{device:>4} {:<14} bytes a byte {:>6.3} {:>6.3} {:>6.3}   time / nobody's {:>6.3} {:>6.3} {:>6.3}",
            bound.pattern,
            a / useful,
            b / useful,
            c / useful,
            ta / tn,
            tb / tn,
            tc / tn
        );
        let mut hold = |holds: bool, what: String| {
            if !holds {
                broken.push(format!("{device} {}: {what}", bound.pattern));
            }
        };
        let within = |x: f64, y: f64, times: f64, slack: f64| x <= y * times + slack;
        let bytes = |x: f64| format!("{:.3} bytes a byte", x / useful);
        if bound.pattern == "rnd_sparse" {
            for (x, t) in [(a, ta), (b, tb), (c, tc)] {
                hold(x <= 1.05 * useful, format!("uniformly random: {}", bytes(x)));
                hold(t <= 1.03 * tn, format!("uniformly random: {:.3} of the time without", t / tn));
            }
            continue;
        }
        let near = within(b, a, bound.bytes_b, SLACK_BYTES) && within(a, b, bound.bytes_b, SLACK_BYTES);
        hold(near, format!("misses and marks: {}, all told: {}", bytes(b), bytes(a)));
        hold(within(tb, ta, bound.time_b, SLACK_NS), format!("misses and marks: {:.2} of the time", tb / ta));
        hold(
            within(c, a.max(b), bound.bytes_c, SLACK_BYTES),
            format!("samples: {}, all told: {}", bytes(c), bytes(a)),
        );
        hold(within(tc, tn, 1.05, SLACK_NS), format!("samples: {:.3} of the time without", tc / tn));
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn on_a_disk() {
    compare("hdd", &DeviceModel::HDD);
}

#[test]
fn on_a_solid_state_disk() {
    compare("ssd", &DeviceModel::SSD);
}

#[test]
fn on_a_network_file_system() {
    compare("nfs", &DeviceModel::NFS);
}

#[test]
fn on_an_object_store() {
    compare("s3", &DeviceModel::S3);
}
