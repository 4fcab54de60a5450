//! What would break a careless observer: threads, forks, signals, closed descriptors, sandboxes, other libraries, a dead
//! agent, a broken segment. The one question each time: does the program behave as without us?

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowwave_wire::{KERNEL_OFF, Kind};

use crate::agent::Manner;
use crate::program::{Bench, assert_same, compile, expected, library, lines, tool};

fn same(args: &[&str]) {
    for manner in [Manner::Listen, Manner::SettleAll] {
        let bench = Bench::with(manner);
        let Some(program) = compile("hostile.c", &[]) else { return };
        fs::write(bench.dir.path().join("other"), lines(1 << 20)).unwrap();
        bench.same(&program, args);
    }
}

#[test]
fn sixteen_threads_share_a_descriptor() {
    same(&["threads"]);
}

#[test]
fn threads_that_fork() {
    same(&["fork_threads"]);
}

#[test]
fn threads_with_stacks_of_64_and_16_kib() {
    same(&["stacks"]);
}

#[test]
fn programs_that_close_everything_or_all_but_three() {
    for how in [
        "close-loop",
        "close-range",
        "close-from",
        "close-cloexec",
        "close-loop+",
        "close-range+",
        "close-from+",
    ] {
        same(&[how]);
    }
}

#[test]
fn a_thread_that_reopens_what_others_read() {
    same(&["race"]);
}

#[test]
fn a_storm_of_signals_whose_handler_reads_too() {
    same(&["alarm"]);
}

#[test]
fn handlers_that_jump_out_of_a_read() {
    let Some(program) = compile("hostile.c", &[]) else { return };
    let bench = Bench::new();
    assert!(bench.steered(&program, &["jump"]).output().unwrap().status.success());
}

#[test]
fn threads_cancelled_inside_a_read() {
    same(&["cancel"]);
}

#[test]
fn a_sandbox_that_kills_for_any_system_call_of_ours() {
    same(&["seccomp"]);
    let bench = Bench::new();
    let Some(program) = compile("hostile.c", &[]) else { return };
    bench.same(&program, &["seccomp"]);
    let dormant = bench.agent.events().iter().filter(|e| e.kind == Kind::Process && e.detail == 2).count();
    assert_eq!(dormant, 4);
}

#[test]
fn a_sandbox_begun_by_a_child_that_nobody_told_us_of() {
    for how in ["vfork", "clone", "_Fork", "fork", "syscall"] {
        same(&["sandboxed", how]);
    }
}

#[test]
fn vectors_with_a_hole() {
    same(&["holes"]);
}

#[test]
fn an_environment_that_cannot_be_written() {
    for how in ["empty", "text", "all"] {
        same(&["no_names", how]);
    }
}

#[test]
fn asking_what_seccomp_can_do_changes_nothing() {
    Bench::new().tells("hostile.c", &["probe"]);
}

#[test]
fn a_program_in_another_root_runs_the_next_one_without_us() {
    let bench = Bench::new();
    let Some(program) = compile("hostile.c", &[]) else { return };
    let root = bench.dir.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::copy(bench.data(), root.join("data")).unwrap();
    fs::copy(&program, root.join("program")).unwrap();
    if !copy_libraries(&program, &root) {
        return;
    }
    let plain = bench.plain(&program, &["chroot", "root"]).output().unwrap();
    let steered = bench.steered(&program, &["chroot", "root"]).output().unwrap();
    let text = String::from_utf8_lossy(&steered.stdout).replace(" set", " unset");
    assert_eq!((text.as_ref(), &b""[..]), (&*String::from_utf8_lossy(&plain.stdout), &steered.stderr[..]));
    assert_eq!(plain.status, steered.status);
}

/// Something may be mounted over the folder of our library, whose loader would complain for the program.
#[test]
fn a_library_that_is_gone_is_not_passed_on() {
    let Some(program) = compile("hostile.c", &[]) else { return };
    for how in ["execve", "execl", "execvp", "vfork", "fork", "fork with copies", "spawn", "system"] {
        let bench = Bench::new();
        let moved = bench.dir.path().join("libbowwave-moved.so");
        fs::copy(library(), &moved).unwrap();
        let args = ["without_library", how];
        let steered = bench.steered(&program, &args).env("LD_PRELOAD", moved).output().unwrap();
        assert_same(&bench.plain(&program, &args).output().unwrap(), &steered, how);
    }
}

/// Copies what `program` is linked with into `root`. Says so and answers no without `ldd`.
fn copy_libraries(program: &Path, root: &Path) -> bool {
    let Some(ldd) = tool("ldd") else { return false };
    let listed = Command::new(ldd).arg(program).output().unwrap();
    for word in
        String::from_utf8_lossy(&listed.stdout).split_whitespace().filter(|word| word.starts_with('/'))
    {
        let to = root.join(&word[1..]);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(word, to).unwrap();
    }
    true
}

#[test]
fn an_inherited_descriptor_goes_on_where_it_was() {
    Bench::new().tells("hostile.c", &["exec"]);
}

#[test]
fn descriptors_beyond_the_table_are_passed_through() {
    same(&["huge"]);
}

#[test]
fn far_descriptors_are_followed_as_near_ones() {
    Bench::new().tells("hostile.c", &["far"]);
    same(&["far"]);
}

/// What we add to a program's data counts against its limit.
#[test]
fn a_program_with_two_megabytes_of_data() {
    let Some(program) = compile("hostile.c", &[]) else { return };
    let bench = Bench::new();
    let limited = |mut command: Command| {
        // SAFETY: a system call.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit { rlim_cur: 2 << 20, rlim_max: 2 << 20 };
                libc::setrlimit(libc::RLIMIT_DATA, &raw const limit);
                Ok(())
            })
        };
        command.output().unwrap()
    };
    for args in [&["sum"][..], &["far"]] {
        let plain = limited(bench.plain(&program, args));
        assert!(plain.status.success());
        assert_same(&plain, &limited(bench.steered(&program, args)), "2 MiB of data");
    }
    assert!(bench.agent.events().iter().any(|event| event.kind == Kind::Read));
}

#[test]
fn files_that_grow_and_shrink() {
    let Some(program) = compile("hostile.c", &[]) else { return };
    let (bench, other) = (Bench::new(), Bench::new());
    let plain = other.plain(&program, &["grow"]).output().unwrap();
    let steered = bench.steered(&program, &["grow"]).output().unwrap();
    assert_same(&plain, &steered, "grow");
}

#[test]
fn a_full_ring_loses_events_and_nothing_else() {
    let bench = Bench::new();
    bench.agent.deaf.store(true, Ordering::Relaxed);
    let Some(program) = compile("hostile.c", &[]) else { return };
    bench.same(&program, &["many"]);
    assert!(bench.agent.segment.events_lost.load(Ordering::Relaxed) > 20_000);
}

#[test]
fn an_agent_that_dies_leaves_the_kernels_heuristics_on() {
    let mut bench = Bench::new();
    let Some(program) = compile("hostile.c", &[]) else { return };
    let Some(strace) = tool("strace") else { return };
    let mut child = logged(&bench, &strace, &program, &["dying"]).spawn().unwrap();
    let now = bench.dir.path().join("now");
    while !now.exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    bench.agent.die();
    bench.agent.segment.heartbeat_ns.store(1, Ordering::Relaxed);
    let told = bench.agent.events().len();
    fs::remove_file(now).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(bench.agent.events().len(), told, "nobody listens, nobody speaks");
    assert_eq!(advice(&bench), ["RANDOM", "NORMAL"]);
}

/// What a static program would have open, it would have as its user left it: what is switched off is switched on again before exec, and
/// off once more after one that fails. Not in a child whose parent reads on, nor of what exec closes.
#[test]
fn a_program_that_becomes_another_leaves_it_the_kernels_heuristics() {
    let Some(program) = compile("hostile.c", &[]) else { return };
    let Some(strace) = tool("strace") else { return };
    for (how, expected) in [
        ("plainly", &["RANDOM", "RANDOM", "NORMAL", "RANDOM", "NORMAL"][..]),
        ("directly", &["RANDOM", "RANDOM", "NORMAL", "RANDOM", "NORMAL"]),
        ("orphan", &["RANDOM", "RANDOM", "NORMAL"]),
    ] {
        let bench = Bench::new();
        fs::write(bench.dir.path().join("other"), lines(1 << 20)).unwrap();
        assert!(logged(&bench, &strace, &program, &["become", how]).status().unwrap().success());
        assert_eq!(advice(&bench), expected, "{how}");
    }
}

/// `program` with the library, where new files have the kernel's heuristics switched off; its advice is kept for [`advice`].
fn logged(bench: &Bench, strace: &Path, program: &Path, args: &[&str]) -> Command {
    bench.agent.segment.kernel_default.store(KERNEL_OFF, Ordering::Relaxed);
    let set = [
        format!("LD_PRELOAD={}", library().display()),
        format!("BOWWAVE_SEGMENT={}", bench.agent.path.display()),
    ];
    let mut command = bench.plain(strace, &["-f", "-e", "trace=fadvise64", "-o", "log"]);
    command.args(["-E", &set[0], "-E", &set[1]]).arg(program).args(args);
    command
}

/// The advice given, in order.
fn advice(bench: &Bench) -> Vec<String> {
    let log = fs::read_to_string(bench.dir.path().join("log")).unwrap();
    let given = |line: &str| Some(line.split_once("POSIX_FADV_")?.1.strip_suffix(") = 0")?.to_string());
    log.lines().filter_map(given).collect()
}

#[test]
fn a_segment_that_is_none_leaves_the_program_alone() {
    let bench = Bench::new();
    let Some(program) = compile("hostile.c", &[]) else { return };
    let dir = bench.dir.path();
    let good = fs::read(&bench.agent.path).unwrap();
    let mut old = good.clone();
    old[8] = 77; // the version
    for (name, bytes) in
        [("empty", &[][..]), ("short", &good[..4096]), ("zeros", &vec![0; good.len()]), ("old", &old)]
    {
        fs::write(dir.join(name), bytes).unwrap();
    }
    let plain = bench.plain(&program, &["sum"]).output().unwrap();
    for name in
        ["empty", "short", "zeros", "old", "missing", "/dev/zero", "/dev/null", "/", "", "/proc/self/mem"]
    {
        let mut command = bench.steered(&program, &["sum"]);
        let steered = command.env("BOWWAVE_SEGMENT", dir.join(name)).output().unwrap();
        assert_same(&plain, &steered, name);
    }
    let steered = bench.steered(&program, &["sum"]).env("BOWWAVE", "off").output().unwrap();
    assert_same(&plain, &steered, "off");
    let steered = bench.steered(&program, &["sum"]).env_remove("BOWWAVE_SEGMENT").output().unwrap();
    assert_same(&plain, &steered, "unset");
    assert_eq!(bench.agent.events(), [], "nobody found the segment");
}

#[test]
fn a_static_program_runs_unchanged() {
    let bench = Bench::new();
    let Some(program) = compile("hostile.c", &["-static"]) else { return };
    bench.same(&program, &["sum"]);
    assert_eq!(bench.agent.events(), []);
}

#[test]
fn another_librarys_malloc_and_constructor_read_first_and_its_clock_is_not_ours() {
    let bench = Bench::new();
    let Some(program) = compile("hostile.c", &[]) else { return };
    let Some(other) = compile("interposer.c", &["-shared", "-fPIC"]) else { return };
    let (ours, other) = (library().display(), other.display());
    let plain = bench.plain(&program, &["stacks"]).env("LD_PRELOAD", other.to_string()).output().unwrap();
    let mut told = 0;
    for both in [format!("{ours}:{other}"), format!("{other}:{ours}")] {
        told = bench.agent.events().len();
        let steered = bench.steered(&program, &["stacks"]).env("LD_PRELOAD", &both).output().unwrap();
        assert_same(&plain, &steered, &both);
    }
    // `bowwave run` loads ours last.
    let told = &bench.agent.events()[told..];
    assert!(told.len() > 100 && told.iter().all(|event| event.at_ns > 1_000_000_000), "the agent's clock");
    assert!(expected(&String::from_utf8_lossy(&plain.stdout)).is_empty());
}
