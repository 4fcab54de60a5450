//! What must hold whatever the constants are: every published pattern, every mixture and two dozen reads in an order of their own, short, on
//! all four devices.
//!
//! ```text
//! plan (2 % of its volume) --> play twice --> same decisions, byte for byte       every read served
//!                                |            fetched <= plan's + speculation     random: 1.05 bytes a byte used
//!                                '--> Wave::check() after every input (play does so in a debug build), and at the end
//! ```
//!
//! Nothing here judges speed: `examples/play.rs` and the grades do.

use bowwave_core::{Bytes, Config, PageCount};
use bowwave_lab::{DeviceModel, Fetcher, Params, Pattern, Plan, Yardsticks, find, mixtures, play, published};

/// Patterns with an order of their own, which a seed each draws.
const ORDERED: u64 = 24;

/// What speculation may come to in plans as short as these: 15 % of the clairvoyant's own plan, four times that plan again
/// (two pages may be out for each one used until 38 MiB are, and two more that waits have paid for; a stride's runs take
/// their gaps along), once more where streams end (each page used makes one good that an ended stream has left), once more
/// where the program changes its behaviour (that they have ended is seen a tenth of a second late, when what was read quietly
/// is told), and to begin with 4 MiB, or three times what three connections carry in a latency: of eight streams that come one after another
/// the first is given that, the second half of it, and so on.
fn fetched_bytes_max(plan: &Plan, yard: &Yardsticks, model: &DeviceModel) -> f64 {
    let connection = model.latency_ns as f64 / 1e9 * model.connection_bytes_per_s as f64;
    let times = if plan.phases.is_empty() { 6.15 } else { 7.15 };
    times * yard.plan_bytes as f64 + f64::from(4 << 20).max(3.0 * 3.0 * connection)
}

/// Whether each read falls on a random page, wherever those before it fell.
fn uniformly_random(pattern: &Pattern) -> bool {
    pattern.name == "rnd_sparse"
}

fn on(device: &str, model: &DeviceModel) {
    let params = Params { volume: 0.02, ..Params::published() };
    let config = Config { memory: Bytes(1 << 30), request_max: PageCount(64), ..Config::default() };
    let mut broken = Vec::new();
    let ordered = (1..=ORDERED).filter_map(|seed| find(&format!("ordered:{seed}")));
    for pattern in published().into_iter().chain(mixtures()).chain(ordered) {
        let plan = pattern.plan(&params).expect("published parameters");
        let yard = Yardsticks::of(&plan, model);
        let began = std::time::Instant::now();
        let first = play(&plan, model, Fetcher::Wave(config), true);
        let again = play(&plan, model, Fetcher::Wave(config), true);
        let took = began.elapsed();
        let useful = yard.useful_bytes as f64;
        let fetched = first.fetched_bytes as f64;
        println!(
            "{device:>4} {:<18} {:>7} reads {:>6.3} bytes a byte, at most {:>6.3}   {took:.1?}",
            pattern.name,
            first.reads_served,
            fetched / useful,
            fetched_bytes_max(&plan, &yard, model) / useful,
        );
        let mut hold = |holds: bool, what: &str| {
            if !holds {
                broken.push(format!("{device} {}: {what}", pattern.name));
            }
        };
        hold(first.reads_served == plan.ops.len() as u64, "a read was not served");
        hold(first.elapsed.0 > 0, "it took no time");
        hold(first.decisions == again.decisions, "two plays decided differently");
        hold(first == again, "two plays came to different ends");
        hold(fetched >= useful, "fewer bytes were fetched than used");
        hold(
            fetched <= fetched_bytes_max(&plan, &yard, model),
            &format!("{:.3} bytes a byte", fetched / useful),
        );
        if uniformly_random(&pattern) {
            hold(fetched <= 1.05 * useful, &format!("random: {:.3} bytes a byte", fetched / useful));
        }
        let c = first.counters;
        hold(c.pages_useful <= c.pages_ahead, "more was useful than was fetched");
        hold(c.stalls <= first.reads_served && c.reads <= first.reads_served + c.stalls, "reads told twice");
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn on_a_disk() {
    on("hdd", &DeviceModel::HDD);
}

#[test]
fn on_a_solid_state_disk() {
    on("ssd", &DeviceModel::SSD);
}

#[test]
fn on_a_network_file_system() {
    on("nfs", &DeviceModel::NFS);
}

#[test]
fn on_an_object_store() {
    on("s3", &DeviceModel::S3);
}
