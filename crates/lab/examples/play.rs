//! Every read() pattern on every device in virtual time, under `wave`: share of the bounds, and bytes.
//!
//! `cargo run --release -p bowwave-lab --example play -- [PATTERN-PREFIX] [DEVICE] [mixtures | composed=N | ordered=N] [explain] [root] [told | sampled] [drawn=SEED] [volume=F]`
//!
//! `told`: the brain hears of each read at once, as that of a cache of our own does, and `sampled`: as an observer outside; else as the shim inside a program.
//! `model=SPEC` is a device spelt out, as `bowwave slow --device` has it. `trace=FILE` plays the reads of a recorded trace instead, `runs=N` N drawn programs that read runs here and there in one file.

use bowwave_core::{Bytes, Config, PageCount};
use bowwave_lab::{
    DeviceModel, Fetcher, Knowledge, Params, Pattern, Plan, Rng, Yardsticks, find, mixtures, play_knowing,
    published, read_trace, trace_of,
};

/// A program that reads 24 to 150 runs at random places of one file, as slices of arrays and members of archives are read, with or without
/// a read of an index before each.
fn runs(seed: u64) -> Plan {
    let mut rng = Rng::new(seed);
    let mut one_of = |choices: &[u64]| choices[rng.below(choices.len() as u64) as usize];
    let (bytes, reads) = (one_of(&[4, 16, 64, 80, 128]) << 10, one_of(&[4, 8, 20, 50]));
    let (size, runs) = (one_of(&[40, 400, 4000]) << 20, one_of(&[24, 60, 150]));
    let (uneven, indexed) = (one_of(&[0, 1]) == 1, one_of(&[0, 1]) == 1);
    let mut all = Vec::new();
    for _ in 0..runs {
        if indexed {
            all.push((rng.below(size) & !4095, 4096));
        }
        let reads = if uneven { reads / 2 + rng.below(reads + 1) } else { reads };
        let start = rng.below(size - bytes * reads) & !4095;
        all.extend((0..reads).map(|read| (start + read * bytes, bytes)));
    }
    trace_of(all.into_iter().map(|(offset, bytes)| ("file".to_owned(), offset, bytes)))
        .expect("reads that can be played")
        .plan
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| args.iter().any(|a| a == word);
    let value = |key: &str| args.iter().find_map(|a| a.strip_prefix(key)).map(str::to_owned);
    let drawn = ["composed", "ordered"].into_iter().find_map(|kind| {
        let n = value(&format!("{kind}="))?.parse::<u64>().ok()?;
        Some((1..=n).filter_map(|seed| find(&format!("{kind}:{seed}"))).collect())
    });
    let patterns = match drawn {
        Some(drawn) => drawn,
        None if has("mixtures") => mixtures(),
        None => published(),
    };
    let name = args.iter().find(|a| {
        DeviceModel::NAMED.iter().all(|n| n.0 != a.as_str())
            && patterns.iter().any(|p| p.name.starts_with(a.as_str()))
    });
    let mut params =
        value("drawn=").map_or_else(Params::published, |s| Params::drawn(s.parse().unwrap_or(1)));
    if let Some(v) = value("volume=") {
        params.volume = v.parse().unwrap_or(1.0);
    }
    let request_max = PageCount(if has("root") { 256 } else { 64 });
    let config =
        Config { memory: Bytes(6 << 30), request_max, reader_max: PageCount(32), ..Config::default() };
    let knowledge = match (has("told"), has("sampled")) {
        (true, _) => Knowledge::Event,
        (_, true) => Knowledge::Sampled,
        _ => Knowledge::Marks,
    };
    let spelt = value("model=");
    let devices: Vec<(&str, DeviceModel)> = match &spelt {
        Some(spec) => vec![(spec, spec.parse().expect("a device"))],
        None => DeviceModel::NAMED
            .into_iter()
            .filter(|(d, _)| !args.iter().any(|a| DeviceModel::NAMED.iter().any(|n| n.0 == a)) || has(d))
            .collect(),
    };
    let plans: Vec<(String, Plan)> = if let Some(path) = value("trace=") {
        let text = std::fs::read_to_string(&path).expect("a trace that can be read");
        vec![(path, read_trace(&text, None).expect("a trace").plan)]
    } else if let Some(n) = value("runs=").and_then(|n| n.parse().ok()) {
        (0..n).map(|seed| (format!("runs:{seed}"), runs(seed))).collect()
    } else {
        let wanted = |p: &&Pattern| name.is_none_or(|n| p.name.starts_with(n.as_str()));
        patterns
            .iter()
            .filter(wanted)
            .map(|p| (p.name.clone(), p.plan(&params).expect("none is set by hand")))
            .collect()
    };
    for (device, model) in &devices {
        let mut logs = (0.0, 0);
        println!(
            "{device:>4}: pattern              s   online offline  none  fetched/used  /plan requests events"
        );
        for (name, plan) in &plans {
            let yard = Yardsticks::of(plan, model);
            let out = play_knowing(plan, model, Fetcher::Wave(config), knowledge, has("explain"));
            let none = yard.demand_ns;
            let s = out.elapsed.0 as f64;
            let share = yard.online_ns as f64 / s;
            println!(
                "      {:<18} {:>7.3}  {:>6.3} {:>6.3} {:>6.2} {:>8.3} {:>8.3} {:>8} {:>8}",
                name,
                s / 1e9,
                share,
                yard.offline_ns as f64 / s,
                none as f64 / s,
                out.fetched_bytes as f64 / yard.useful_bytes as f64,
                out.fetched_bytes as f64 / yard.plan_bytes as f64,
                out.requests,
                out.events,
            );
            for line in &out.decisions {
                println!("{line}");
            }
            let random = ["rnd_sparse", "rnd_clu_loose"].contains(&name.as_str());
            if !random {
                logs = (logs.0 + share.min(1.0).ln(), logs.1 + 1);
            }
        }
        println!(
            "      geometric mean of online shares over {}: {:.3}",
            logs.1,
            (logs.0 / f64::from(logs.1)).exp()
        );
    }
}
