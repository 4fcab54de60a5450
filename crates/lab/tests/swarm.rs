//! Worlds drawn from seeds, judged after every event; each sixteenth is played twice. And the scenarios that failed once, kept
//! in `tests/swarm/` with a sentence each.
//!
//! `BOWWAVE_SEEDS=10000 cargo test --release -p bowwave-lab --test swarm` plays more, `BOWWAVE_SEED=N` one; `bowwave lab swarm`
//! plays them too, and makes a scenario that fails smaller.

use bowwave_lab::Scenario;

#[test]
fn whatever_the_world_what_must_hold_holds() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let seeds = number("BOWWAVE_SEED").map_or(1..1 + number("BOWWAVE_SEEDS").unwrap_or(2000), |n| n..n + 1);
    for seed in seeds {
        let scenario = Scenario::drawn(seed);
        let outcome = scenario.play().unwrap_or_else(|why| panic!("BOWWAVE_SEED={seed}: {why}\n{scenario}"));
        if seed % 16 == 0 {
            assert!(scenario.play() == Ok(outcome), "BOWWAVE_SEED={seed}: played twice");
        }
    }
}

#[test]
fn what_failed_once_does_not_fail_again() {
    let kept = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/swarm");
    for entry in std::fs::read_dir(kept).expect("the kept scenarios") {
        let path = entry.expect("a file").path();
        let text = std::fs::read_to_string(&path).expect("a scenario");
        let scenario: Scenario = text.parse().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        scenario.play().unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    }
}
