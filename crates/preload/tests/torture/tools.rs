//! Programs that people use, unmodified: same output with and without, and the agent hears of the whole file.

use std::fs;
use std::process::Command;

use bowwave_wire::Kind;

use crate::agent::{Agent, Manner};
use crate::program::{Bench, lines, tool};

/// Programs that read all of `data`, each in its own way.
const READERS: [&[&str]; 17] = [
    &["cat", "data"],
    &["dd", "if=data", "bs=7777", "status=none"],
    &["head", "-c", "2000000", "data"],
    &["tail", "-n", "+2", "data"],
    &["md5sum", "data"],
    &["sha256sum", "data"],
    &["cksum", "data"],
    &["sort", "-r", "data"],
    &["wc", "data"],
    &["awk", "{ n += length($0) } END { print n }", "data"],
    &["sed", "-n", "$p", "data"],
    &["grep", "-c", "abc", "data"],
    &["gzip", "-c", "-1", "data"],
    &["tar", "cf", "-", "--mtime=@0", "data"],
    &["perl", "-ne", "$n += length; END { print $n }", "data"],
    &["python3", "-c", "print(len(open('data').read()), sum(map(len, open('data', 'rb'))))"],
    &["dash", "-c", "cat < data; md5sum < data"],
];

#[test]
fn readers_print_the_same_and_the_agent_hears_of_every_page() {
    for args in READERS {
        let bench = Bench::new();
        let Some(program) = tool(args[0]) else { continue };
        bench.same(&program, &args[1..]);
        assert_eq!(unheard(&bench), 0, "{args:?}");
    }
}

/// Pages of `data` that no told read covers.
fn unheard(bench: &Bench) -> usize {
    let pages = fs::metadata(bench.data()).unwrap().len().div_ceil(4096);
    let told = bench.agent.reads_of(&bench.data());
    let covered = |page: u64| told.iter().any(|(at, len)| *at < (page + 1) * 4096 && at + len > page * 4096);
    (0..pages).filter(|page| !covered(*page)).count()
}

#[test]
fn copies_are_right_and_heard_of() {
    for args in [
        &["cp", "--reflink=never", "data", "copy"][..],
        &["install", "data", "copy"],
        &["mv", "-f", "twin", "copy"],
    ] {
        let bench = Bench::new();
        let Some(program) = tool(args[0]) else { continue };
        fs::copy(bench.data(), bench.dir.path().join("twin")).unwrap();
        assert!(bench.steered(&program, &args[1..]).status().unwrap().success());
        assert_eq!(fs::read(bench.dir.path().join("copy")).unwrap(), lines(crate::program::DATA_BYTES));
        if args[0] != "mv" {
            assert_eq!(unheard(&bench), 0, "{args:?}");
        }
    }
}

#[test]
fn searching_a_tree() {
    let Some(grep) = tool("grep") else { return };
    for manner in [Manner::Listen, Manner::SettleAll] {
        let bench = Bench::with(manner);
        for i in 0..60 {
            let folder = bench.dir.path().join(format!("tree/{}", i % 7));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(i.to_string()), lines(i * 3000)).unwrap();
        }
        bench.same(&grep, &["-rc", "abc", "tree"]);
    }
}

#[test]
fn git_looks_at_its_history() {
    let Some(git) = tool("git") else { return };
    let bench = Bench::new();
    let repository = bench.dir.path();
    fs::write(repository.join(".gitignore"), "segment\n").unwrap();
    let quiet = |args: &[&str]| {
        let author = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"];
        let status = Command::new(&git).args(author).args(args).current_dir(repository).status().unwrap();
        assert!(status.success());
    };
    quiet(&["init", "-q"]);
    for i in 0..5 {
        fs::write(repository.join(format!("file{i}")), lines(40_000 + i)).unwrap();
        quiet(&["add", "."]);
        quiet(&["commit", "-q", "-m", "more"]);
    }
    quiet(&["gc", "-q"]);
    for args in [
        &["log", "--stat"][..],
        &["status", "--short"],
        &["fsck"],
        &["grep", "-c", "abc"],
        &["diff", "HEAD~3"],
    ] {
        bench.same(&git, args);
    }
}

#[test]
fn scripts_pipes_and_children_of_children() {
    let script = "
        i=0
        while [ $i -lt 40 ]; do
            (head -c 5000 data | md5sum; exec 3<data; read line <&3; echo $line; cat <&3 | tail -c 10) &
            wait
            i=$((i + 1))
        done
        find . -name data -exec md5sum {} +
        echo data | xargs -n1 wc -c
        sort data | uniq -c | sort -rn | head -3";
    for shell in ["dash", "bash"] {
        let Some(shell) = tool(shell) else { continue };
        for manner in [Manner::Listen, Manner::SettleAll] {
            Bench::with(manner).same(&shell, &["-c", script]);
        }
    }
}

#[test]
fn a_storm_of_parallel_makes() {
    let Some(make) = tool("make") else { return };
    let bench = Bench::new();
    let mut rules = String::from("all:");
    (0..60).for_each(|i| rules.push_str(&format!(" t{i}")));
    (0..60).for_each(|i| {
        rules.push_str(&format!("\nt{i}:\n\t@md5sum data | cut -c1-32 > t{i}; cat t{i} >/dev/null"))
    });
    fs::write(bench.dir.path().join("Makefile"), rules + "\n").unwrap();
    bench.same(&make, &["-B", "-j8"]);
    assert!(processes(&bench.agent) > 60, "children are steered too");
}

fn processes(agent: &Agent) -> usize {
    agent.events().iter().filter(|e| e.kind == Kind::Process && e.detail == 0).count()
}

#[test]
fn python_with_threads_processes_and_archives() {
    let Some(python) = tool("python3") else { return };
    let script = "
import subprocess, threading, zipfile, mmap, os, hashlib, multiprocessing
zipfile.ZipFile('z.zip', 'w', zipfile.ZIP_DEFLATED).write('data')
print(hashlib.md5(zipfile.ZipFile('z.zip').read('data')).hexdigest())
print(subprocess.run(['md5sum', 'data'], capture_output=True, close_fds=True).stdout)
print(subprocess.run('md5sum < data', shell=True, capture_output=True).stdout)
def work(i):
    with open('data', 'rb', buffering=0) as f:
        f.seek(i * 1000); return len(f.read(5000))
threads = [threading.Thread(target=work, args=(i,)) for i in range(20)]
[t.start() for t in threads]; [t.join() for t in threads]
with multiprocessing.get_context('fork').Pool(4) as pool: print(pool.map(work, range(50)))
with open('data', 'rb') as f: print(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[5000:5010])
fd = os.open('data', os.O_RDONLY); print(os.preadv(fd, [bytearray(100)], 50), os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM))
out = os.open('out', os.O_WRONLY | os.O_CREAT); print(os.sendfile(out, fd, 0, 1 << 20))
";
    for manner in [Manner::Listen, Manner::SettleAll] {
        Bench::with(manner).same(&python, &["-c", script]);
    }
}

#[test]
fn runtimes_with_threads_and_system_calls_of_their_own() {
    let node = "const fs = require('fs'); console.log(fs.readFileSync('data').length);
        fs.createReadStream('data').on('data', (b) => n += b.length).on('end', () => console.log(n)); var n = 0;";
    for (name, args) in [("node", &["-e", node][..]), ("cargo", &["--version"]), ("go", &["version"])] {
        let Some(program) = tool(name) else { continue };
        Bench::new().same(&program, args);
    }
}

#[test]
fn a_database_scans_and_looks_up() {
    let Some(sqlite) = tool("sqlite3") else { return };
    let bench = Bench::new();
    let fill = "create table t(a integer primary key, b text); with recursive n(i) as (select 1 union all select i + 1 \
                from n where i < 20000) insert into t select i, hex(i * 7919) from n; create index tb on t(b);";
    assert!(bench.plain(&sqlite, &["db", fill]).status().unwrap().success());
    bench.same(
        &sqlite,
        &["db", "select count(*), sum(a), max(b) from t; select a from t where b = '3135383338';"],
    );
    assert!(bench.agent.reads_of(&bench.dir.path().join("db")).len() > 50);
}
