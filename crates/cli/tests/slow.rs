//! `bowwave slow` as scripts see it: exit codes, readiness, signals, and a store that was killed.
//!
//! What mounts needs root and /dev/fuse; says so and passes without.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

fn slow() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bowwave"));
    command.arg("slow").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts a store of generated files on `dir` and waits until it is ready, or says why it cannot be.
fn serve(dir: &Path, ready: &Path, more: &[&str]) -> Option<Child> {
    let mut command = slow();
    command.arg(dir).args(["--device", "lat=100us,bw=4GB/s,slots=64", "--exit-with-parent"]).args(more);
    let mut child = command.arg("--ready-file").arg(ready).spawn().unwrap();
    while !ready.exists() {
        if child.try_wait().unwrap().is_some() {
            let output = child.wait_with_output().unwrap();
            let (code, sentence) = (output.status.code(), String::from_utf8_lossy(&output.stderr));
            assert!(matches!(code, Some(69 | 77)), "{code:?}: {sentence}");
            println!("skipped: {sentence}");
            return None;
        }
        sleep(Duration::from_millis(5));
    }
    Some(child)
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: plain system call; the child has not been waited for, so its number is its own.
    unsafe { libc::kill(child.id() as i32, signal) };
}

fn is_mounted(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4).is_some_and(|at| Path::new(at) == dir))
}

#[test]
fn errors_are_one_sentence_and_a_code() {
    let dir = TempDir::new().unwrap();
    let here = dir.path().to_str().unwrap();
    let missing = dir.path().join("missing");
    let missing = missing.to_str().unwrap();
    let mut cases = vec![
        (vec![here, "--device", "floppy"], 64, "'floppy'"),
        (vec![here, "--device", "s3,slots=0"], 64, "'slots=0'"),
        (vec![missing], 73, "mkdir"),
        (vec![here, here, "--device", "ssd", here], 64, "more than two places"),
    ];
    if Path::new("/dev/fuse").exists() {
        cases.push((vec![missing, here], 66, "name an existing directory"));
        cases.push((vec![missing, "--device", "ssd", here], 66, "name an existing directory"));
    }
    for (args, code, part) in cases {
        let Output { status, stderr, .. } = slow().args(&args).output().unwrap();
        let sentence = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(code), "{args:?}: {sentence}");
        assert!(sentence.contains(part) && sentence.lines().count() == 1, "{args:?}: {sentence}");
    }
}

#[test]
fn a_signal_unmounts_and_tells_the_counts() {
    let (dir, aside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let ready = aside.path().join("ready");
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let Some(child) = serve(dir.path(), &ready, &["--json"]) else { return };
        fs::read(dir.path().join("gen/a-100000")).unwrap();
        signal(&child, number);
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        assert_eq!(status.code(), Some(0), "{}", String::from_utf8_lossy(&stderr));
        let stats: serde_json::Value = serde_json::from_slice(&stdout).unwrap();
        assert_eq!(stats["unique_bytes"], 100_000);
        assert!(!is_mounted(dir.path()) && !ready.exists());
    }
}

#[test]
fn a_second_signal_detaches_a_busy_store() {
    let (dir, aside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let Some(child) = serve(dir.path(), &aside.path().join("ready"), &[]) else { return };
    let file = File::open(dir.path().join("big/000")).unwrap();
    let start = Instant::now();
    signal(&child, libc::SIGINT);
    sleep(Duration::from_millis(300));
    file.read_exact_at(&mut [0; 4096], 1 << 30).unwrap();
    signal(&child, libc::SIGINT);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(2), "it did not wait until the file was closed");
    assert!(!is_mounted(dir.path()));
    assert!(file.read_exact_at(&mut [0; 4096], 2 << 30).is_err(), "an open file fails, and does not hang");
}

#[test]
fn a_killed_store_is_cleared_by_the_next() {
    let (dir, aside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let ready = aside.path().join("ready");
    let Some(mut killed) = serve(dir.path(), &ready, &[]) else { return };
    killed.kill().unwrap();
    killed.wait().unwrap();
    fs::remove_file(&ready).unwrap();
    assert!(is_mounted(dir.path()), "nobody could unmount it");

    let Some(child) = serve(dir.path(), &ready, &[]) else { return };
    assert_eq!(fs::read(dir.path().join("gen/b-5000")).unwrap().len(), 5000);
    let second = slow().arg(dir.path()).output().unwrap();
    assert_eq!(second.status.code(), Some(73), "{}", String::from_utf8_lossy(&second.stderr));
    signal(&child, libc::SIGTERM);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    assert!(!is_mounted(dir.path()));
}

#[test]
fn each_device_has_limits_of_its_own() {
    let (dir, aside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let Some(child) = serve(dir.path(), &aside.path().join("ready"), &["--read-ahead-kb", "128"]) else {
        return;
    };
    // A file of another device comes first, as the libraries of a program in Python do.
    let (first, said) = (aside.path().join("first"), aside.path().join("said"));
    fs::write(&first, vec![7; 1 << 20]).unwrap();
    // On a machine that has much else to do the word of a read may come when it is over: then it is tried elsewhere.
    let mut said_last = String::new();
    let large = (1..=5).any(|n| {
        let script =
            format!("cat $0 > /dev/null; dd if=$1 of=/dev/null bs=1M skip={} count=1 2> /dev/null", 64 * n);
        let mut run = Command::new(env!("CARGO_BIN_EXE_bowwave"));
        run.args(["run", "--quiet", "--observer", "preload", "--explain"]).arg(&said);
        run.args(["--", "sh", "-c", &script]).args([&first, &dir.path().join("big/000")]);
        assert!(run.status().unwrap().success());
        said_last = fs::read_to_string(&said).unwrap();
        said_last.contains("R14 rest of a large read")
    });
    assert!(large, "the kernel sends 128 KiB of the 1 MiB here, whatever it sends elsewhere: {said_last}");
    signal(&child, libc::SIGTERM);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
}

/// The log and what is said of it may lie on the same disk.
#[test]
fn a_full_disk_ends_the_log_and_not_the_mount() {
    let (dir, aside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let ready = aside.path().join("ready");
    for heard in [true, false] {
        let Some(mut child) = serve(dir.path(), &ready, &["--log", "/dev/full"]) else { return };
        if !heard {
            drop(child.stderr.take());
        }
        let data = fs::read(dir.path().join("gen/a-100000")).unwrap();
        // Reading them writes the log out.
        fs::read(dir.path().join(".bowwave/stats")).unwrap();
        assert_eq!(fs::read(dir.path().join("gen/a-100000")).unwrap(), data);
        signal(&child, libc::SIGTERM);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        let told = said.matches("cannot write the request log /dev/full: No space left").count();
        assert_eq!(told, usize::from(heard), "{said}");
        assert!(!is_mounted(dir.path()));
    }
}
