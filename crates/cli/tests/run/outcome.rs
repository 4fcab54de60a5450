//! What comes of a run: whether it starts at all, the program's exit code, what cannot be written, and that it goes on without us.

use super::*;

/// A program that cannot be started, and what the one sentence about it says.
fn refused(place: &Place, program: &str, code: i32, part: &str) {
    let Output { status, stdout, stderr } = place.run(&[], &[program]).output().unwrap();
    let said = text(&stderr);
    assert_eq!((status.code(), text(&stdout).as_str()), (Some(code), ""), "{program}: {said}");
    assert!(said.starts_with("bowwave: ") && said.contains(part), "{program}: {said}");
    assert_eq!(said.lines().count(), 1, "{program}: {said}");
}

#[test]
fn a_program_that_is_not_there_or_may_not_run() {
    let place = Place::new();
    refused(&place, "no-such-program-anywhere", 127, "cannot find the program \"no-such-program-anywhere\"");
    refused(&place, "./missing", 127, "cannot find");
    refused(&place, "./data/within", 127, "cannot find");
    refused(&place, "./data", 126, "cannot execute ./data");
    refused(&place, "/", 126, "cannot execute /");
    refused(&place, "", 127, "cannot find");
    // Executable by its mode, and nothing there that could run it.
    fs::write(place.path("orphan"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(place.path("orphan"), fs::Permissions::from_mode(0o755)).unwrap();
    refused(&place, "./orphan", 126, "cannot execute ./orphan: its interpreter /");
}

#[test]
fn reports_that_cannot_be_made_are_said_before_the_program_starts() {
    let place = Place::new();
    for option in ["--json", "--explain"] {
        let output = place.run(&[option, "missing/file"], &["sh", "-c", "echo started"]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(73), 0), "{said}");
        assert!(said.contains("cannot create missing/file") && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn the_programs_exit_code_is_ours() {
    let place = Place::new();
    for code in [0, 1, 3, 126, 127, 255] {
        let script = format!("exit {code}");
        let output = place.run(&[], &["sh", "-c", &script]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.starts_with("bowwave: ") && said.lines().count() == 1, "{said}");
        let quiet = place.run(&["--quiet"], &["sh", "-c", &script]).output().unwrap();
        assert_eq!((quiet.status.code(), quiet.stderr.len()), (Some(code), 0));
    }
}

/// A limit of file sizes below a segment costs the program nothing, and is its own to die of.
#[test]
fn a_limit_of_files_is_the_programs_to_die_of() {
    let place = Place::new();
    let options = ["--observer", "preload"];
    let mut command = place.run(&options, &["sh", "-c", "echo ran; kill -XFSZ $$; echo lived"]);
    // SAFETY: sets a limit and a disposition, between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            Ok(())
        });
    }
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(
        (text(&output.stdout).as_str(), output.status.signal()),
        ("ran\n", Some(libc::SIGXFSZ)),
        "{said}"
    );
    assert!(said.contains("(ulimit -f)") && said.contains("unsteered"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_full_disk_is_said_once_and_costs_the_program_nothing() {
    if !Path::new("/dev/full").exists() {
        println!("skipped: no /dev/full");
        return;
    }
    let place = Place::new();
    // A decision a file at least: more than any buffer holds.
    for number in 0..150 {
        fs::write(place.path(&format!("part{number:03}")), bytes(200 << 10)).unwrap();
        chill(&place.path(&format!("part{number:03}")));
    }
    let plain = Command::new("sh").args(["-c", "cat part*"]).current_dir(place.dir.path()).output().unwrap();
    for (options, sentences) in [
        (&["--json", "/dev/full"][..], 1),
        (&["--explain", "/dev/full"], 1),
        (&["--json", "/dev/full", "--explain", "/dev/full"], 2),
    ] {
        (0..150).for_each(|number| chill(&place.path(&format!("part{number:03}"))));
        let options = [options, &["--quiet"]].concat();
        let output = place.run(&options, &["sh", "-c", "cat part*; exit 3"]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(output.stdout == plain.stdout, "{options:?}");
        assert_eq!(said.lines().filter(|line| line.contains("cannot write")).count(), sentences, "{said}");
        assert_eq!(said.lines().count(), sentences, "{said}");
        assert!(said.lines().all(|line| line.contains("/dev/full: No space left")), "{said}");
    }
}

#[test]
fn a_program_goes_on_when_we_are_killed() {
    let place = Place::new();
    chill(&place.path("data"));
    let mut talk =
        place.talk("head -c 1000000 data >/dev/null; echo ready; read line; cat data; echo \"ended $?\"");
    assert_eq!(talk.hear(), "ready");
    let run = talk.pid();
    let left = segments(run);
    signal(run, libc::SIGKILL);
    assert_eq!(talk.run.wait().unwrap().signal(), Some(libc::SIGKILL));
    talk.say("on");
    let mut rest = Vec::new();
    talk.from.read_to_end(&mut rest).unwrap();
    let wanted = [&bytes(DATA_BYTES)[..], b"ended 0\n"].concat();
    assert!(rest == wanted, "{} bytes instead of {}", rest.len(), wanted.len());
    // A later run would remove it; nobody shall have to wait for that here.
    left.iter().for_each(|path| drop(fs::remove_file(path)));
}

#[test]
fn what_outlives_the_program_goes_on_without_us() {
    let place = Place::new();
    let script = "(read line <go; cat data data >late.part; mv late.part late) >/dev/null 2>&1 & echo left";
    let made = Command::new("mkfifo").arg(place.path("go")).status();
    if !made.is_ok_and(|status| status.success()) {
        println!("skipped: no mkfifo");
        return;
    }
    let (output, _) = place.report(&[], &["sh", "-c", script]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "left\n"));
    fs::write(place.path("go"), "go\n").unwrap();
    until("the late child is done", || place.path("late").exists());
    assert!(fs::read(place.path("late")).unwrap() == [bytes(DATA_BYTES), bytes(DATA_BYTES)].concat());
}
