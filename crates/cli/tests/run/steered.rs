//! What is steered, and what of that is told; what is not; and runs beside and inside one another.

use super::*;

/// Copies what is to be started, in a process of its own: a child that another test forks meanwhile would have it open for writing, so that it could not be.
fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

#[test]
fn what_is_read_is_told_and_off_switches_it_off() {
    let place = Place::new();
    let (output, report) = place.report(&[], &["sh", "-c", "cat data"]);
    assert!(output.stdout == bytes(DATA_BYTES));
    assert!(text(&output.stderr).starts_with("bowwave: "), "{}", text(&output.stderr));
    assert_eq!(met(&report), 1, "{report}");
    if files(&report) == names(&["data"]) {
        assert_eq!(report["bytes_used"], DATA_BYTES.next_multiple_of(4096));
    }

    let (output, report) = place.report(&[], &["sh", "-c", "BOWWAVE=off cat data"]);
    assert!(output.stdout == bytes(DATA_BYTES));
    assert_eq!((met(&report), &report["processes"]), (0, &Value::from(1)), "{report}");

    let asked = ["sh", "-c", "echo \"$LD_PRELOAD$BOWWAVE_SEGMENT\"; exit 4"];
    for output in [
        place.run(&["--off"], &asked).output().unwrap(),
        place.run(&[], &asked).env("BOWWAVE", "off").output().unwrap(),
    ] {
        assert_eq!(
            (output.status.code(), text(&output.stdout), text(&output.stderr)),
            (Some(4), "\n".into(), String::new())
        );
    }
    assert_eq!(
        place.run(&["--off"], &["no-such-program-anywhere"]).output().unwrap().status.code(),
        Some(127)
    );
}

#[test]
fn a_dry_run_fetches_nothing() {
    let place = Place::new();
    chill(&place.path("data"));
    let (output, report) = place.report(&["--dry-run"], &["cat", "data"]);
    assert!(output.stdout == bytes(DATA_BYTES));
    assert_eq!((&report["fetch_calls"], &report["bytes_fetched"]), (&Value::from(0), &Value::from(0)));
    assert_eq!(met(&report), 1, "it observes: {report}");
}

#[test]
fn only_and_except_choose_files() {
    let place = Place::new();
    for name in ["a.dat", "b.dat", "c.txt"] {
        fs::write(place.path(name), bytes(300_000)).unwrap();
    }
    let whole = place.path("b.dat");
    let whole = whole.to_str().unwrap();
    for (options, steered) in [
        (&["--only", "*.dat"][..], &["a.dat", "b.dat"][..]),
        (&["--except", "*.dat"], &["c.txt"]),
        (&["--only", "*.dat", "--except", "a*"], &["b.dat"]),
        (&["--only", whole, "--only", "c.*"], &["b.dat", "c.txt"]),
        (&["--only", "nothing"], &[]),
    ] {
        let (output, report) = place.report(options, &["cat", "a.dat", "b.dat", "c.txt"]);
        assert_eq!(output.stdout.len(), 900_000);
        assert!(files(&report).is_subset(&names(steered)), "{options:?}: {report}");
        assert_eq!(met(&report), 3, "{options:?}: {report}");
    }
}

#[test]
fn a_static_program_runs_unchanged_and_is_named() {
    let place = Place::new();
    fs::write(
        place.path("fixed.c"),
        "#include <stdio.h>\nint main(void) { FILE *f = fopen(\"data\", \"r\"); int c; \
         while ((c = getc(f)) != EOF) putchar(c); return 6; }\n",
    )
    .unwrap();
    let mut cc = Command::new("cc");
    let built = cc.args(["-static", "-o", "fixed", "fixed.c"]).current_dir(place.dir.path()).output();
    if !built.is_ok_and(|built| built.status.success()) {
        println!("skipped: cc -static does not work here");
        return;
    }
    let (output, report) = place.report(&["--observer", "preload"], &["./fixed"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(output.stdout == bytes(DATA_BYTES));
    assert_eq!(report["not_steered"]["static program"], 1);
    assert!(said.contains("not steered: 1 static program"), "{said}");
}

#[test]
fn a_setuid_program_runs_unchanged_and_is_named() {
    let place = Place::new();
    let command: Vec<String> = if is_root() {
        let program = place.path("other");
        copy_program(Path::new("/bin/cat"), &program);
        std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        vec![program.to_str().unwrap().into()]
    } else {
        vec!["su".into(), "--version".into()]
    };
    let program = if is_root() { PathBuf::from(&command[0]) } else { "/usr/bin/su".into() };
    if !fs::metadata(&program).is_ok_and(|about| about.permissions().mode() & 0o4000 != 0) {
        println!("skipped: no set-uid program");
        return;
    }
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let (output, report) = place.report(&["--observer", "preload"], &command);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(report["not_steered"]["set-uid program"], 1);
    assert!(said.contains("not steered: 1 set-uid program"), "{said}");
    assert_eq!(said.lines().count(), 1, "the loader has nothing to complain of: {said}");
}

#[test]
fn a_copied_binary_carries_its_library() {
    let mut place = Place::new();
    let elsewhere = place.path("else where");
    fs::create_dir(&elsewhere).unwrap();
    copy_program(&place.bowwave, &elsewhere.join("bw"));
    place.bowwave = elsewhere.join("bw");
    for cache in [place.path("cache"), "/dev/null/nowhere".into()] {
        let json = place.path("report.json");
        let mut run = place.run(&["--json", json.to_str().unwrap()], &["cat", "data"]);
        let output = run.env("XDG_CACHE_HOME", &cache).env_remove("XDG_RUNTIME_DIR").output().unwrap();
        let said = text(&output.stderr);
        assert!(output.stdout == bytes(DATA_BYTES) && said.lines().count() == 1, "{said}");
        let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        assert_eq!(met(&report), 1, "{said}");
    }
}

#[test]
fn two_runs_at_once_know_nothing_of_each_other() {
    let place = Place::new();
    fs::write(place.path("other"), bytes(400_000)).unwrap();
    let mut both: Vec<_> = ["data", "other"]
        .map(|name| {
            let mut talk =
                place.talk(&format!("echo ready; read line; cat {name}; echo $BOWWAVE_SEGMENT >&2"));
            assert_eq!(talk.hear(), "ready");
            talk
        })
        .into();
    let each: Vec<_> = both.iter().map(|talk| segments(talk.pid())).collect();
    assert!(each.iter().all(|of_one| of_one.len() == 1), "{each:?}");
    both.iter_mut().for_each(|talk| talk.say("go"));
    for (mut talk, size) in both.into_iter().zip([DATA_BYTES, 400_000]) {
        let mut said = Vec::new();
        talk.from.read_to_end(&mut said).unwrap();
        assert!(said == bytes(size));
        let run = talk.pid();
        let output = talk.run.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stderr).contains(&format!("bowwave-{run}-")), "{}", text(&output.stderr));
        assert_eq!(segments(run), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_run_inside_a_run() {
    let place = Place::new();
    let (outer, inner) = (place.path("outer.json"), place.path("inner.json"));
    let bowwave = place.bowwave.to_str().unwrap();
    let within = [bowwave, "run", "--json", inner.to_str().unwrap(), "--", "sh", "-c", "cat data; exit 9"];
    let output = place.run(&["--json", outer.to_str().unwrap()], &within).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(9), "{said}");
    assert!(output.stdout == bytes(DATA_BYTES));
    assert_eq!(said.lines().filter(|line| line.starts_with("bowwave: ")).count(), 2, "{said}");
    let report = |path| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
    assert_eq!(met(&report(inner)), 1);
    assert!(report(outer)["processes"].as_u64() > Some(0), "the inner bowwave is a program, too");
}

/// Its programs tell numbers of their own; who cannot make a namespace here says so and passes.
#[test]
fn programs_in_a_pid_namespace_of_their_own_are_steered() {
    let place = Place::new();
    let possible = Command::new("unshare").args(["-Urpf", "--mount-proc", "true"]).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        println!("skipped: no PID namespaces here (unshare -Urpf --mount-proc)");
        return;
    }
    chill(&place.path("data"));
    // It has the file open as long as it waits for what to compare it with.
    let script = "sleep 1 | cmp -s data -; true";
    let command = ["unshare", "-Urpf", "--mount-proc", "sh", "-c", script];
    let output = place.run(&["--observer", "preload", "--json", "out"], &command).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_str(&fs::read_to_string(place.path("out")).unwrap()).unwrap();
    let files = report["files"].as_array().unwrap();
    assert!(
        files.iter().any(|file| file["path"].as_str().is_some_and(|at| at.ends_with("/data"))),
        "{report}"
    );
    assert!(!report["not_steered"].to_string().contains("namespace"), "{report}");
}

/// Root watches from outside where there is no place for a segment; who may not runs unsteered. Either is said, once.
#[test]
fn without_a_place_for_the_segment_it_is_observed_from_outside_where_that_may_be() {
    let place = Place::new();
    chill(&place.path("data"));
    let limited = |options: &[&str]| {
        let mut command = place.run(options, &["cat", "data"]);
        // SAFETY: sets a limit, between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
                Ok(())
            });
        }
        let output = command.output().unwrap();
        assert!(output.stdout == bytes(DATA_BYTES) && output.status.success());
        text(&output.stderr)
    };
    let said = limited(&[]);
    let instead = said.contains("(ulimit -f); observing from outside instead");
    let summed_up = said.contains("fetched in vain");
    assert!(instead == summed_up && (instead || said.contains("running cat unsteered")), "{said}");
    assert_eq!(said.lines().count(), if instead { 2 } else { 1 }, "{said}");
    let asked = limited(&["--observer", "outside"]);
    assert_eq!(asked.lines().count(), 1, "nothing is missing where it was asked for: {asked}");
    assert_eq!(limited(&["--quiet"]), "");
}
