//! Signals and job control: who gets them, who dies of them, and who stops.

use super::*;

#[test]
fn a_program_killed_by_a_signal_is_seen_to_be() {
    let place = Place::new();
    for number in [libc::SIGKILL, libc::SIGTERM, libc::SIGINT, libc::SIGSEGV, libc::SIGPIPE, libc::SIGUSR1] {
        let mut command = place.run(&["--quiet"], &["sh", "-c", &format!("kill -{number} $$; sleep 60")]);
        let run = command.spawn().unwrap();
        let pid = run.id() as i32;
        let output = run.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(number), "{:?}: {}", output.status, text(&output.stderr));
        assert_eq!(segments(pid), Vec::<PathBuf>::new());
    }
}

/// Both ends of a terminal: what is typed into the first, the second is told.
fn terminal() -> (File, File) {
    let (mut keys, mut screen) = (0, 0);
    let (name, modes, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: writes two descriptors, which are nobody else's.
    unsafe {
        assert_eq!(libc::openpty(&mut keys, &mut screen, name, modes, size), 0);
        [keys, screen].iter().for_each(|&fd| _ = libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC));
        (File::from_raw_fd(keys), File::from_raw_fd(screen))
    }
}

#[test]
fn ctrl_c_twice_is_the_programs_and_leaves_nothing() {
    let place = Place::new();
    let script = "trap 'trap - INT; echo once' INT; echo $$; while :; do read line; done";
    let (mut keys, screen) = terminal();
    let mut talk = place.talk_at(&screen, script);
    let (run, program) = (talk.pid(), talk.hear().parse::<i32>().unwrap());
    talk.settle(program);
    keys.write_all(b"\x03").unwrap();
    assert_eq!(talk.hear(), "once");
    keys.write_all(b"\x03").unwrap();
    let (_, status) = talk.end();
    assert_eq!(status.signal(), Some(libc::SIGINT), "{status:?}");
    until("the program is gone", || state(program).is_none());
    assert_eq!(segments(run), Vec::<PathBuf>::new());

    // Two at once, to a program that knows nothing of them.
    let (mut keys, screen) = terminal();
    let mut talk = place.talk_at(&screen, "echo $$; exec sleep 600");
    let run = talk.pid();
    let program = talk.hear().parse().unwrap();
    talk.settle(program);
    keys.write_all(b"\x03\x03").unwrap();
    assert_eq!(talk.end().1.signal(), Some(libc::SIGINT));
    assert_eq!(segments(run), Vec::<PathBuf>::new());
}

#[test]
fn signals_to_us_are_handed_on() {
    let place = Place::new();
    for (name, number) in [
        ("TERM", libc::SIGTERM),
        ("HUP", libc::SIGHUP),
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("ALRM", libc::SIGALRM),
        ("XCPU", libc::SIGXCPU),
    ] {
        let script = format!("trap 'echo got {name}; exit 7' {name}; echo $$; while :; do read line; done");
        let mut talk = place.talk(&script);
        let program = talk.hear().parse().unwrap();
        talk.settle(program);
        signal(talk.pid(), number);
        let (said, status) = talk.end();
        assert_eq!((said.as_str(), status.code()), (format!("got {name}\n").as_str(), Some(7)));

        let mut talk = place.talk("echo $$; exec sleep 600");
        let program = talk.hear().parse().unwrap();
        talk.settle(program);
        signal(talk.pid(), number);
        assert_eq!(talk.end().1.signal(), Some(number));
    }
}

/// `alarm(2)` outlives exec, and was meant for the program.
#[test]
fn a_timer_that_we_inherit_is_the_programs() {
    let place = Place::new();
    let mut command =
        place.run(&["--quiet"], &["sh", "-c", "trap 'exit 7' ALRM; while :; do read line; done"]);
    // SAFETY: a system call.
    unsafe {
        command.stdin(Stdio::piped()).pre_exec(|| {
            libc::alarm(1);
            Ok(())
        });
    }
    let mut run = command.spawn().unwrap();
    let _open = run.stdin.take();
    assert_eq!(run.wait().unwrap().code(), Some(7));
}

/// Who starts us may have blocked the signal that the program dies of.
#[test]
fn a_blocked_signal_is_died_of_all_the_same() {
    let place = Place::new();
    let script =
        "import os, signal; signal.pthread_sigmask(signal.SIG_UNBLOCK, [15]); os.kill(os.getpid(), 15)";
    let mut command = place.run(&["--quiet"], &["python3", "-c", script]);
    // SAFETY: a set of this function's.
    unsafe {
        command.pre_exec(|| {
            let mut set = std::mem::zeroed();
            libc::sigaddset(&mut set, libc::SIGTERM);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Ok(())
        });
    }
    let status = command.status().unwrap();
    if status.code() == Some(127) {
        println!("skipped: no python3");
        return;
    }
    assert_eq!(status.signal(), Some(libc::SIGTERM), "{status:?}");
}

#[test]
fn what_was_ignored_stays_ignored() {
    let place = Place::new();
    let asked = "grep SigIgn /proc/self/status";
    let ignoring = |mut command: Command| {
        // SAFETY: signal may be called between fork and exec.
        unsafe {
            command.pre_exec(|| {
                for number in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM] {
                    libc::signal(number, libc::SIG_IGN);
                }
                Ok(())
            })
        };
        let output = command.output().unwrap();
        let said = text(&output.stdout);
        u64::from_str_radix(said.split_whitespace().last().unwrap(), 16).unwrap() & 0x7fff
    };
    let mut plain = Command::new("sh");
    plain.args(["-c", asked]);
    assert_eq!(ignoring(place.run(&["--quiet"], &["sh", "-c", asked])), ignoring(plain));
}

#[test]
fn ctrl_z_stops_both_and_both_go_on() {
    let place = Place::new();
    let mut talk = place.talk("echo $$; read line; echo \"<$line>\"; exit 5");
    let (run, program) = (talk.pid(), talk.hear().parse::<i32>().unwrap());
    for _ in 0..3 {
        signal(-run, libc::SIGTSTP);
        wait_stopped(run);
        until("the program stops", || state(program) == Some('T'));
        signal(-run, libc::SIGCONT);
        until("both go on", || state(program) != Some('T') && state(run) != Some('T'));
    }
    talk.say("on");
    let (said, status) = talk.end();
    assert_eq!((said.as_str(), status.code()), ("<on>\n", Some(5)));
}

#[test]
fn a_program_that_stops_alone_stops_us_and_goes_on_with_us() {
    let place = Place::new();
    let mut talk = place.talk("echo $$; read line; kill -STOP $$; echo \"<$line>\"; exit 5");
    let (run, program) = (talk.pid(), talk.hear().parse::<i32>().unwrap());
    talk.say("on");
    wait_stopped(run);
    assert_eq!(state(program), Some('T'));
    signal(run, libc::SIGCONT);
    let (said, status) = talk.end();
    assert_eq!((said.as_str(), status.code()), ("<on>\n", Some(5)));
}
