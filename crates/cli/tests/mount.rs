//! `bowwave mount` as scripts see it: sources, exit codes, secrets, signals, a mount that was killed, and mount(8).
//!
//! What mounts needs root and /dev/fuse, and servers need to be installed; a test that misses something says so and passes.

#[path = "../../io/tests/servers/mod.rs"]
mod servers;

use servers::{Liar, Server, answer};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Without what the developer's own environment says of AWS.
fn bowwave() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bowwave"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AWS_") {
            command.env_remove(name);
        }
    }
    command.env("HOME", "/nonexistent").env("AWS_EC2_METADATA_DISABLED", "true");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn possible() -> bool {
    // SAFETY: it cannot fail.
    let possible = unsafe { libc::geteuid() } == 0 && Path::new("/dev/fuse").exists();
    if !possible {
        println!("skipped: tests of mounts need root and /dev/fuse");
    }
    possible
}

struct Mount {
    child: Child,
    dir: TempDir,
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).stderr(Stdio::null()).status();
    }
}

impl Mount {
    /// Mounts on a new directory, or says what was said.
    fn try_new(mut command: Command, args: &[&str]) -> Result<Self, Output> {
        let (dir, aside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let ready = aside.path().join("ready");
        command.arg("mount").args(args).arg(dir.path()).arg("--exit-with-parent");
        let mut child = command.arg("--ready-file").arg(&ready).spawn().unwrap();
        let begun = Instant::now();
        while !ready.exists() {
            if child.try_wait().unwrap().is_some() || begun.elapsed() > Duration::from_secs(60) {
                let _ = child.kill();
                return Err(child.wait_with_output().unwrap());
            }
            sleep(Duration::from_millis(5));
        }
        Ok(Self { child, dir })
    }

    fn new(args: &[&str]) -> Self {
        Self::try_new(bowwave(), args).unwrap_or_else(|output| panic!("{}", said(&output)))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn signal(&self, signal: i32) {
        // SAFETY: plain system call; the child has not been waited for, so its number is its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn is_mounted(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4).is_some_and(|at| Path::new(at) == dir))
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

#[test]
fn errors_are_one_sentence_and_a_code() {
    let (source, dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (source, here) = (source.path().to_str().unwrap(), dir.path().to_str().unwrap());
    let mut cases = vec![
        (vec![here], 64, "two places are needed"),
        (vec!["/nowhere/at/all", here], 66, "name an existing directory"),
        (vec!["/etc/passwd", here], 64, "it is no directory"),
        (vec!["gs://bucket/x", here], 64, "cannot mount a gs:// URL"),
        (vec![source, here, "-o", "memory=0"], 64, "1M at least"),
        (vec!["/nowhere/at/all", here, "-f"], 66, "name an existing directory"),
        (vec!["s3://", here], 64, "no name that a bucket can have"),
        (vec!["http://ann:SECRET@host/x", here], 64, "BOWWAVE_SOURCE"),
        (vec!["http://host/x?token=SECRET", here], 64, "BOWWAVE_SOURCE"),
        (vec!["s3://b", here, "--endpoint", "http://AKIA:SECRET@127.0.0.1:9"], 64, "environment"),
        (vec![source, here, "-o", "ro,pasword=SECRET"], 64, "no option 'pasword'"),
        (vec![source, here, "-o", "memory=lots"], 64, "'lots' is no size"),
        (vec![source, source], 73, "neither may contain the other"),
    ];
    // As python3 -m http.server: a page of names, and each file whole, whatever part of it was asked for.
    let whole = Liar::start(|_, asked| match asked.line.split(' ').nth(1) {
        Some("/data/") => answer("200 OK", &[], br#"<a href="deep/">deep</a>"#),
        Some("/data/deep/") => answer("200 OK", &[], br#"<a href="a.bin">a</a> <a href="b.bin">b</a>"#),
        _ => answer("200 OK", &["Content-Length: 3"], b"abc"),
    });
    let (folder, one) = (whole.url("data/"), whole.url("data/deep/b.bin"));
    if possible() {
        for url in [&folder, &one] {
            cases.push((vec![url, here], 66, "does not serve ranges (it ignores Range); use one that does"));
        }
        cases.push((vec!["/proc", here], 66, "its files say that they are empty and are not"));
        cases.push((vec![source, "/nowhere/at/all"], 73, "mkdir"));
        let told = vec![source, here, "--daemon", "--ready-file", "/no/such/file"];
        cases.push((told, 73, "cannot create --ready-file"));
        cases.push((vec![source, here, "--daemon", "--ready-fd", "77"], 74, "cannot write to --ready-fd 77"));
        cases.push((vec![source, here, "--memory", "4K"], 64, "1M at least"));
        cases.push((vec!["http://127.0.0.1:9/data/", here], 69, "Connection refused"));
        // Nobody listens there: that is what is said, with credentials and without.
        cases.push((vec!["s3://b", here, "--endpoint", "http://127.0.0.1:9", "--anonymous"], 69, "refused"));
        let told = "cannot mount s3://b/ at http://127.0.0.1:9/: Connection refused";
        cases.push((vec!["s3://b", here, "--endpoint", "http://127.0.0.1:9"], 69, told));
    }
    for (args, code, part) in cases {
        let output = bowwave().arg("mount").args(&args).output().unwrap();
        let sentence = said(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {sentence}");
        assert!(sentence.contains(part) && sentence.lines().count() == 1, "{args:?}: {sentence}");
        assert!(!sentence.contains("SECRET") && !sentence.contains("AKIA"), "{sentence}");
    }
}

#[test]
fn a_signal_unmounts_and_a_busy_mount_is_detached() {
    if !possible() {
        return;
    }
    let source = TempDir::new().unwrap();
    fs::write(source.path().join("data"), bytes(1_000_000)).unwrap();
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let mut mount = Mount::new(&[source.path().to_str().unwrap()]);
        assert!(fs::read(mount.path("data")).unwrap() == bytes(1_000_000));
        mount.signal(number);
        assert_eq!(mount.child.wait().unwrap().code(), Some(0));
        assert!(!is_mounted(mount.dir.path()));
    }
    let mut mount = Mount::new(&[source.path().to_str().unwrap()]);
    let open = File::open(mount.path("data")).unwrap();
    mount.signal(libc::SIGTERM);
    assert_eq!(mount.child.wait().unwrap().code(), Some(0));
    assert!(!is_mounted(mount.dir.path()));
    drop(open);
}

#[test]
fn a_mount_that_was_killed_is_cleared_and_made_again() {
    if !possible() {
        return;
    }
    let source = TempDir::new().unwrap();
    fs::write(source.path().join("data"), bytes(300_000)).unwrap();
    let mut mount = Mount::new(&[source.path().to_str().unwrap()]);
    let open = File::open(mount.path("data")).unwrap();
    mount.signal(libc::SIGKILL);
    mount.child.wait().unwrap();
    assert!(is_mounted(mount.dir.path()), "dead, and still there");
    let mut command = bowwave();
    command.arg("mount").arg(source.path()).arg(mount.dir.path()).arg("--exit-with-parent");
    mount.child = command.spawn().unwrap();
    let begun = Instant::now();
    while fs::read(mount.path("data")).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        sleep(Duration::from_millis(10));
    }
    assert!(fs::read(mount.path("data")).unwrap() == bytes(300_000));
    // Whoever had a file open of the dead one is told; he does not hang.
    assert!(open.read_at(&mut [0; 10], 0).is_err());
}

#[test]
fn a_daemon_is_ready_when_it_returns_and_mount_finds_its_helper() {
    if !possible() {
        return;
    }
    let (source, dir, bin) = (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(source.path().join("data"), b"abc").unwrap();
    let helper = bin.path().join("mount.fuse.bowwave");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_bowwave"), &helper).unwrap();
    let mut command = Command::new(&helper);
    command.args([source.path(), dir.path()]).args(["-o", "rw,noauto,_netdev,memory=64M,staleness=1"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read(dir.path().join("data")).unwrap(), b"abc");
    let stat = bowwave().arg("stat").arg(dir.path()).output().unwrap();
    let stat = String::from_utf8(stat.stdout).unwrap();
    assert!(stat.contains("memory_bytes_max           67108864"), "{stat}");
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(dir.path().to_str().unwrap())).unwrap();
    assert!(line.contains(" fuse.bowwave ro,"), "{line}");
    assert!(Command::new("umount").arg(dir.path()).status().unwrap().success());
    // What goes wrong is said where the daemon was started.
    let output =
        bowwave().args(["mount", "--daemon", "s3://", dir.path().to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(said(&output).starts_with("bowwave mount: the s3:// URL: "), "{}", said(&output));
}

#[test]
fn decisions_and_figures_are_told_while_it_is_mounted() {
    if !possible() {
        return;
    }
    let source = TempDir::new().unwrap();
    fs::write(source.path().join("data"), bytes(3_000_000)).unwrap();
    let mount = Mount::new(&[source.path().to_str().unwrap(), "--metrics", "0"]);
    fs::read(mount.path("data")).unwrap();
    let output = bowwave().arg("explain").arg(mount.dir.path()).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success() && text.contains("initial"), "{text}{}", said(&output));
    let output = bowwave().arg("stat").arg(mount.dir.path()).arg("--json").output().unwrap();
    let stats: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(stats["read_bytes"], 3_000_000);
    let output = bowwave().arg("stat").arg(source.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(66), "{}", said(&output));
}

#[test]
fn a_folder_of_nginx_is_a_mount() {
    if !possible() {
        return;
    }
    let Some(mut server) = Server::nginx() else { return };
    fs::create_dir(server.www().join("deep")).unwrap();
    fs::write(server.www().join("deep/data"), bytes(9_000_000)).unwrap();
    let mount = Mount::new(&[&server.url(""), "--staleness", "0.05"]);
    let names: Vec<_> = fs::read_dir(mount.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["deep"]);
    assert!(fs::read(mount.path("deep/data")).unwrap() == bytes(9_000_000));
    let file = File::open(mount.path("deep/data")).unwrap();
    let url = server.url("deep/data");
    let one = Mount::new(&[&url]);
    assert!(fs::read(one.path("data")).unwrap() == bytes(9_000_000));
    // The server goes and comes: what was opened is read on.
    server.kill();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sleep(Duration::from_millis(500));
            server.nginx_again();
        });
        let mut buffer = [0; 100];
        assert!(one.path("data").exists());
        drop(one);
        let _ = file.read_at(&mut buffer, 5_000_000);
    });
    assert!(begun.elapsed() < Duration::from_secs(60));
    let mut buffer = [0; 100];
    file.read_exact_at(&mut buffer, 8_000_000).unwrap();
    assert!(buffer[..] == bytes(9_000_000)[8_000_000..8_000_100]);
}

#[test]
fn a_bucket_is_a_mount_and_credentials_stay_where_they_are() {
    if !possible() {
        return;
    }
    let Some(server) = Server::s3() else { return };
    server.put("shelf", b"");
    server.put("shelf/data/deep/a.bin", &bytes(5_000_000));
    let endpoint = server.url("");
    let args = ["s3://shelf/data", "--endpoint", &endpoint];
    let signed = || {
        let mut command = bowwave();
        command.env("AWS_ACCESS_KEY_ID", "AKIASECRETID").env("AWS_SECRET_ACCESS_KEY", "VERYSECRETKEY");
        command
    };
    let mount = Mount::try_new(signed(), &args).unwrap_or_else(|output| panic!("{}", said(&output)));
    assert!(fs::read(mount.path("deep/a.bin")).unwrap() == bytes(5_000_000));
    let args_seen = fs::read(format!("/proc/{}/cmdline", mount.child.id())).unwrap();
    assert!(!String::from_utf8_lossy(&args_seen).contains("SECRET"));
    let mut all = args.to_vec();
    all.push("--anonymous");
    let mount = Mount::new(&all);
    assert!(fs::read(mount.path("deep/a.bin")).unwrap() == bytes(5_000_000));
    let missing = ["s3://nobody", "--endpoint", &endpoint];
    let output = Mount::try_new(signed(), &missing).err().unwrap();
    assert_eq!(output.status.code(), Some(69), "{}", said(&output));
    assert!(said(&output).contains("s3://nobody/: no such bucket") && !said(&output).contains("SECRET"));
    // No credentials anywhere: said at once, without asking a machine that is none of AWS.
    let begun = Instant::now();
    let output = Mount::try_new(bowwave(), &args).err().unwrap();
    assert_eq!(output.status.code(), Some(77), "{}", said(&output));
    assert!(said(&output).contains("no credentials were found; set AWS_ACCESS_KEY_ID"), "{}", said(&output));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
