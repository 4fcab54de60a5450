//! Descriptors: the program has what it would have without us, and has it alone.

use super::*;

#[test]
fn stdin_passes_through() {
    let place = Place::new();
    let output =
        place.run(&["--quiet"], &["cat"]).stdin(File::open(place.path("data")).unwrap()).output().unwrap();
    assert!(output.stdout == bytes(DATA_BYTES));

    let mut talk = place.talk("while read line; do echo \"<$line>\"; done; echo end");
    for line in ["one", "two three"] {
        talk.say(line);
        assert_eq!(talk.hear(), format!("<{line}>"));
    }
    talk.to = None;
    let (said, status) = talk.end();
    assert_eq!((said.as_str(), status.code()), ("end\n", Some(0)));
}

/// Descriptors that are closed, signals that are ignored or blocked, whoever ignores SIGCHLD: as it is without us.
#[test]
fn the_program_starts_with_what_we_were_started_with() {
    let place = Place::new();
    let script = "grep -E 'Sig(Ign|Blk)' /proc/self/status >said
        for fd in 0 1 2; do [ -e /proc/$$/fd/$fd ] && echo $fd >>said; done; exit 3";
    let said = |mut command: Command| {
        // SAFETY: system calls only, on this process; the kernel's sigaction begins with the handler.
        unsafe {
            command.pre_exec(|| {
                for number in [libc::SIGUSR1, libc::SIGPIPE, libc::SIGCHLD, 32] {
                    let ignore = [libc::SIG_IGN, 0, 0, 0, 0, 0, 0, 0];
                    let none = std::ptr::null_mut::<usize>();
                    libc::syscall(libc::SYS_rt_sigaction, number, ignore.as_ptr(), none, 8);
                }
                let mut set = std::mem::zeroed();
                libc::sigaddset(&mut set, libc::SIGUSR2);
                libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
                (0..3).for_each(|fd| _ = libc::close(fd));
                Ok(())
            });
        }
        let code = command.status().unwrap().code();
        (code, fs::read_to_string(place.path("said")).unwrap())
    };
    let mut plain = Command::new("sh");
    plain.args(["-c", script]).current_dir(place.dir.path());
    as_from_a_terminal(&mut plain);
    let plain = said(plain);
    assert_eq!(plain.0, Some(3));
    for options in [&["--quiet"][..], &[], &["--off"]] {
        assert_eq!(said(place.run(options, &["sh", "-c", script])), plain, "{options:?}");
    }
}

/// Who waits for the end of a pipe that the program has closed waits for nobody else; nor for a message under --quiet.
#[test]
fn what_the_program_closes_is_closed() {
    let place = Place::new();
    let script = "exec <&-; echo closed; exec >&- 2>&-; while [ ! -e go ]; do sleep 0.01; done; exit 5";
    let mut talk = place.talk(script);
    assert_eq!(talk.hear(), "closed");
    until("nobody reads", || talk.to.as_mut().unwrap().write_all(b"x").is_err());
    let mut rest = Vec::new();
    talk.from.read_to_end(&mut rest).unwrap();
    talk.run.stderr.as_mut().unwrap().read_to_end(&mut rest).unwrap();
    assert_eq!((rest.len(), talk.run.try_wait().unwrap()), (0, None));
    fs::write(place.path("go"), "").unwrap();
    assert_eq!(talk.run.wait().unwrap().code(), Some(5));
}

/// A lock of fcntl(2) belongs to the process that becomes us; closing its file would let it go.
#[test]
fn a_lock_that_we_inherit_lasts_as_long_as_the_program() {
    let place = Place::new();
    let whole = |kind| libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    let mut command = place.run(&["--quiet"], &["sh", "-c", "echo began; read line; exit 5"]);
    // SAFETY: system calls only; the descriptor stays open at exec.
    unsafe {
        command.stdin(Stdio::piped()).pre_exec(move || {
            let fd = libc::open(c"data".as_ptr(), libc::O_RDWR);
            libc::fcntl(fd, libc::F_SETLK, &whole(libc::F_WRLCK));
            Ok(())
        });
    }
    let mut run = command.spawn().unwrap();
    let mut began = String::new();
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut began).unwrap();
    // What we give up we have given up by now, or soon; either way the lock must be there.
    sleep(Duration::from_millis(50));
    let file = File::options().read(true).write(true).open(place.path("data")).unwrap();
    let mut holder = whole(libc::F_WRLCK);
    // SAFETY: asks who holds a lock, of a file that is open.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &mut holder) };
    assert_eq!((holder.l_type, holder.l_pid), (libc::F_WRLCK as libc::c_short, run.id() as i32));
    drop(run.stdin.take());
    assert_eq!(run.wait().unwrap().code(), Some(5));
}

/// Whoever opens a leased file has its holder signalled, and who has it open keeps it from being leased: neither is to be us.
#[test]
fn a_program_that_leases_what_it_reads() {
    let place = Place::new();
    let script = "
import fcntl, os, sys, time
fd = os.open('data', os.O_RDONLY)
def reads(): [(os.read(fd, 4096), time.sleep(0.001)) for _ in range(100)]
if sys.argv[1] == 'late': reads()
try: print(fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK))
except OSError as error: print(error)
reads()
print(fcntl.fcntl(fd, fcntl.F_GETLEASE))";
    for when in ["early", "late"] {
        let command = ["python3", "-c", script, when];
        let Ok(plain) = Command::new("python3").args(&command[1..]).current_dir(place.dir.path()).output()
        else {
            println!("skipped: no python3");
            return;
        };
        chill(&place.path("data"));
        let run = place.run(&["--quiet"], &command).output().unwrap();
        let said = |output: &Output| (output.status, text(&output.stdout), text(&output.stderr));
        assert_eq!(said(&run), said(&plain), "{when}");
    }
}
