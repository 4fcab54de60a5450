//! The async twins: many tasks, and futures that are dropped on the way.
#![cfg(feature = "tokio")]

mod common;

use bowwave::{Bytes, Cache};
use common::{Content, Faults, Faulty, Random};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_read_what_is_there() {
    let content = Content::new(1, 32 << 20);
    let cache = Cache::builder().memory(Bytes(4 << 20)).build().unwrap();
    let file = cache.open(content.clone()).unwrap();
    let mut tasks = Vec::new();
    for who in 0..16 {
        let (file, content) = (file.clone(), content.clone());
        tasks.push(tokio::spawn(async move {
            let mut random = Random::new(who);
            let mut buf = vec![0; 50_000];
            for _ in 0..60 {
                let (at, len) = (random.below(32 << 20), random.below(50_000) as usize);
                if random.below(2) == 0 {
                    let n = file.read_at_async_by(who as u32, &mut buf[..len], at).await.unwrap();
                    assert!(content.holds(at, &buf[..n]));
                } else {
                    let bytes = file.read_at_bytes_async_by(who as u32, at, len).await.unwrap();
                    assert!(content.holds(at, &bytes.to_vec()));
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    common::wait_until(|| cache.stats().in_flight_bytes == 0);
    cache.check();
}

#[tokio::test]
async fn a_future_that_is_dropped_leaves_nothing_behind() {
    let content = Content::new(2, 32 << 20);
    let slow =
        Faulty::new(content.clone(), Faults { stall_percent: 128, stall_ms: 5, ..Faults::default() }, 3);
    let cache = Cache::builder().memory(Bytes(2 << 20)).build().unwrap();
    let file = cache.open(Arc::clone(&slow)).unwrap();
    let mut random = Random::new(9);
    let mut buf = vec![0; 300_000];
    let mut dropped = 0;
    for _ in 0..200 {
        let at = random.below(32 << 20);
        let wait = Duration::from_micros(random.below(12_000));
        match tokio::time::timeout(wait, file.read_at_async(&mut buf, at)).await {
            Ok(n) => assert!(content.holds(at, &buf[..n.unwrap()])),
            Err(_) => dropped += 1,
        }
        let view = tokio::time::timeout(wait, file.read_at_bytes_async(at, 100_000)).await;
        if let Ok(view) = view {
            assert!(content.holds(at, &view.unwrap().to_vec()));
        }
    }
    assert!(dropped > 20, "{dropped}");
    slow.settle();
    common::wait_until(|| cache.stats().in_flight_bytes == 0);
    cache.check();
    drop(file);
    let stats = cache.stats();
    assert_eq!(stats.memory_bytes, stats.metadata_bytes, "nothing holds a page");
}
