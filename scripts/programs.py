"""Real programs on a slow store, plain and under `bowwave run`: the same output, and time, bytes and requests.

    ./x programs                                 every program on s3 and hdd (about ten minutes)
    ./x programs --device s3 --only tar,git      a part of it; other rows that were measured stay
    ./x programs --pairs 3                       each several times, in turn; medians are told
    ./x programs --table                         no measuring: the table of what was measured

A small tree is made once (target/programs). Each run gets a fresh mount of it, so nothing is cached, and runs inside the
mount. A run on a mount without delay says what must come out: standard output, error output, exit code and every file
written must be the same, byte for byte, in both. Bytes and requests are the store's own count (MOUNT/.bowwave/stats).
"""

import argparse
import hashlib
import json
import os
import pathlib
import platform
import random
import select
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile

from store import Store

JSON = pathlib.Path("docs/measured/programs.json")
TREE_VERSION = "1"  # another tree: another number
CAP_S = 120
AT_ONCE = "lat=1us,bw=10GB/s,slots=64"
MIB = 1 << 20
ROWS = 56_000  # of about 540 bytes: a database of 30 MiB
POINTS = 200

# ---- the tree --------------------------------------------------------------------------------------------------------


def make_tree(root):
    """Files, a database, a repository and an archive, the same each time; kept for the next run."""
    done = root / "version"
    if done.exists() and done.read_text() == TREE_VERSION:
        return
    shutil.rmtree(root, ignore_errors=True)
    print("making the tree", flush=True)
    chance = random.Random(1)
    make_files(root / "files", chance)
    make_database(root / "rows.sqlite", chance)
    make_repository(root / "repo", chance)
    make_archive(root / "members.zip", chance)
    done.write_text(TREE_VERSION)


def make_files(root, chance):
    """64 MiB of bytes, 32 MiB of lines, and 300 files of 1 to 400 KiB."""
    root.mkdir(parents=True)
    (root / "bytes.bin").write_bytes(chance.randbytes(64 * MIB))
    with (root / "lines.txt").open("w", encoding="ascii") as out:
        written = 0
        while written < 32 * MIB:
            written += out.write(f"{chance.getrandbits(64):016x} {written:9} {'needle' if chance.random() < 1e-4 else 'hay'}\n")
    for number in range(300):
        folder = root / f"small{number % 10}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number:03}.dat").write_bytes(chance.randbytes(int(1024 * 400 ** chance.random())))


def make_database(path, chance):
    """A table with a primary key and an index that orders it differently."""
    with sqlite3.connect(path) as database:
        database.execute("create table rows(id integer primary key, name text, body text)")
        made = ((i, f"{chance.getrandbits(64):016x}", chance.randbytes(240).hex()) for i in range(ROWS))
        database.executemany("insert into rows values (?, ?, ?)", made)
        database.execute("create index by_name on rows(name)")
    database.close()


def make_repository(path, chance):
    """80 files and 100 commits, each with a new version of one: one pack of about 20 MB."""
    files = [f"part{n % 8}/file{n:02}.txt" for n in range(80)]
    text = lambda: chance.randbytes(100_000).hex().encode()
    stream = []
    for commit in range(101):
        changed = files if commit == 0 else [chance.choice(files)]
        said = f"commit {commit}\n".encode()
        stream.append(b"commit refs/heads/main\ncommitter A <a@example.org> %d +0000\n" % (1_600_000_000 + commit))
        stream.append(b"data %d\n%s" % (len(said), said))
        for name in changed:
            content = text()
            stream.append(b"M 100644 inline %s\ndata %d\n%s\n" % (name.encode(), len(content), content))
    git = ["git", "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q", path], check=True)
    subprocess.run([*git, "-C", path, "fast-import", "--quiet"], input=b"".join(stream), check=True)


def make_archive(path, chance):
    """60 members, stored and deflated, 20 MiB."""
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(60):
            content = chance.randbytes(180_000).hex().encode()
            way = zipfile.ZIP_STORED if number % 3 == 0 else zipfile.ZIP_DEFLATED
            archive.writestr(zipfile.ZipInfo(f"member{number:02}.txt"), content, way)


# ---- the programs ----------------------------------------------------------------------------------------------------

SCAN = "select count(*), sum(length(body)), max(body), min(body) from rows"
OPEN = "import sqlite3; d = sqlite3.connect('file:rows.sqlite?mode=ro', uri=True);"


def points():
    """The rows that are looked up: 200, anywhere."""
    chance = random.Random(2)
    return [chance.randrange(ROWS) for _ in range(POINTS)]


def programs(out):
    """Name and command of each, as one would type it inside the tree; `out` is where it may write."""
    lookup = "select id, name, length(body) from rows where id = "
    looked_up = f"{OPEN} [print(d.execute('{lookup}' + str(i)).fetchall()) for i in {points()}]"
    return {
        "tar": ["tar", "cf", f"{out}/files.tar", "files"],
        "grep": ["grep", "-rn", "needle", "files"],
        "cp": ["cp", "-r", "files", f"{out}/copy"],
        "md5sum": ["md5sum", "files/bytes.bin"],
        "sort": ["sort", "files/lines.txt", "-o", f"{out}/sorted"],
        "git": ["git", "clone", "-q", "repo", f"{out}/clone"],
        "zip": ["python3", "-m", "zipfile", "-t", "members.zip"],
        "scan": ["python3", "-c", f"{OPEN} print(d.execute('{SCAN}').fetchall())"],
        "points": ["python3", "-c", looked_up],
        "sqlite3-scan": ["sqlite3", "-readonly", "rows.sqlite", SCAN],
        "sqlite3-points": ["sqlite3", "-readonly", "rows.sqlite", ";".join(f"{lookup}{i}" for i in points())],
    }


TITLES = {
    "tar": "`tar cf`",
    "grep": "`grep -rn`",
    "cp": "`cp -r`",
    "md5sum": "`md5sum`, 64 MiB",
    "sort": "`sort`, 32 MiB",
    "git": "`git clone`",
    "zip": "`python3 -m zipfile -t`",
    "scan": "Python's sqlite3, full scan",
    "points": "Python's sqlite3, 200 rows by key",
    "sqlite3-scan": "`sqlite3`, full scan",
    "sqlite3-points": "`sqlite3`, 200 rows by key",
}


def environment(work):
    """What both arms find: no locale, no settings of the user, the same clock for git's log."""
    settings = work / "gitconfig"
    settings.write_text("[safe]\n\tdirectory = *\n")
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    git = {"GIT_CONFIG_GLOBAL": str(settings), "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org"}
    return kept | git | {"LC_ALL": "C", "TMPDIR": str(work), "GIT_COMMITTER_DATE": "1600000000 +0000"}


# ---- one run ---------------------------------------------------------------------------------------------------------


def digest(root):
    """One hash of all files below: names, modes, contents. Git's index and config name inodes and the origin's path."""
    told = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.match(".git/index") or path.match(".git/config"):
            continue
        told.update(f"{path.relative_to(root)} {path.lstat().st_mode:o}\n".encode())
        if path.is_file():
            told.update(path.read_bytes())
    return told.hexdigest()


def play(name, where, work, before=()):
    """Runs a program in `where`, and tells how it went and a hash of all that came of it."""
    out = work / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    said, wrong = work / "stdout", work / "stderr"
    with said.open("wb") as stdout, wrong.open("wb") as stderr:
        begun = time.monotonic()
        process = subprocess.Popen(
            [*before, *programs(out)[name]],
            cwd=where,
            env=environment(work),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        capped = not ends(process, CAP_S)
        if capped:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        elapsed = time.monotonic() - begun
    came = hashlib.sha256(said.read_bytes() + b"\0" + wrong.read_bytes() + b"\0" + digest(out).encode())
    run = {"elapsed_s": round(elapsed, 3), "exit_code": process.returncode, "capped": capped}
    return run | {"sha256": came.hexdigest(), "stderr": wrong.read_text(errors="replace")[:500]}


def ends(process, seconds):
    """Whether it ends in time; told at once, where Popen.wait with a limit looks every 50 ms."""
    descriptor = os.pidfd_open(process.pid)
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def pair(name, device, work, options, reference):
    """Plain and steered, one after the other, and whether both gave what they must."""
    runs = {}
    for arm in ("plain", "bowwave"):
        warm(options.tree)
        report = work / "report.json"
        before = [options.bowwave, "run", "--quiet", "--json", report, "--"] if arm == "bowwave" else []
        with Store(options.bowwave, options.tree, work, device) as store:
            run = play(name, store.dir, work, before)
            run |= store.stats()
        run["same"] = run["sha256"] == reference["sha256"] and run["exit_code"] == reference["exit_code"]
        if arm == "bowwave":
            said = json.loads(report.read_text() or "{}")
            said.pop("files", None)  # hundreds
            run["report"] = said
        runs[arm] = run
    return runs


def warm(tree):
    """The store reads the tree through the page cache: see that it is there, so that only the model's pace counts."""
    for path in tree.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(MIB):
                    pass


def measure(options):
    """Plays what was asked for, and writes the rows as they come."""
    make_tree(options.tree)
    document = read(options.json)
    bad = 0
    with tempfile.TemporaryDirectory(prefix="bowwave-programs-") as folder:
        work = pathlib.Path(folder)
        for name in options.only:
            if shutil.which(programs(work)[name][0]) is None:
                print(f"skipped: {name}: {programs(work)[name][0]} is not installed", flush=True)
                continue
            with Store(options.bowwave, options.tree, work, AT_ONCE) as store:
                reference = play(name, store.dir, work)
            for device in options.device:
                pairs = [pair(name, device, work, options, reference) for _ in range(options.pairs)]
                row = {"program": name, "device": device, "commit": options.commit, "pairs": pairs}
                document["rows"] = [r for r in document["rows"] if (r["program"], r["device"]) != (name, device)]
                document["rows"].append(row)
                write(options.json, document)
                wrong = [run for runs in pairs for run in runs.values() if not run["same"] and not run["capped"]]
                bad += bool(wrong)
                print(" ".join(cell.ljust(9) for cell in cells(row)), flush=True)
                for run in wrong:
                    print(f"{name} {device}: differs: exit code {run['exit_code']}, stderr {run['stderr']!r}", flush=True)
    return bad


# ---- the table -------------------------------------------------------------------------------------------------------

HEAD = ["program", "device", "plain s", "run s", "ratio", "plain MB", "run MB", "plain requests", "run requests", "output"]


def median(row, arm, key):
    """Of all pairs."""
    return statistics.median(runs[arm][key] for runs in row["pairs"])


def ratio(row):
    """Plain time by steered time, the median of the pairs: above 1 bowwave is faster."""
    return statistics.median(runs["plain"]["elapsed_s"] / runs["bowwave"]["elapsed_s"] for runs in row["pairs"])


def cells(row):
    """A row of the table."""
    runs = [run for runs in row["pairs"] for run in runs.values()]
    stopped = any(run["capped"] for run in runs)
    same = "stopped" if stopped else "same" if all(run["same"] for run in runs) else "DIFFERS"
    both = lambda key, form: [form(median(row, arm, key)) for arm in ("plain", "bowwave")]
    seconds = both("elapsed_s", "{:.2f}".format)
    megabytes = both("bytes", lambda n: f"{n / 1e6:.1f}")
    requests = both("requests", "{:.0f}".format)
    return [TITLES[row["program"]], row["device"], *seconds, f"{ratio(row):.2f}", *megabytes, *requests, same]


def table(document):
    """All rows as Markdown, the worst first."""
    rows = [HEAD, *(cells(row) for row in sorted(document["rows"], key=ratio))]
    width = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    left = {0, 1, len(HEAD) - 1}
    lines = []
    for number, row in enumerate(rows):
        aligned = (c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, width, strict=True)))
        lines.append("| " + " | ".join(aligned) + " |")
        if number == 0:
            lines.append("|" + "|".join("-" * (w + 1) + ("-" if i in left else ":") for i, w in enumerate(width)) + "|")
    return "\n".join(lines)


ABOUT = """# Real programs on slow stores

`./x programs` measures this and writes it, `./x programs --table` prints it again from [programs.json](programs.json).
Medians of {pairs} in turn, worst ratio first, on {machine}. *ratio* is plain time by time under `bowwave run` (start and
end of bowwave included): above 1 bowwave is faster. Bytes and requests are the store's own count. *output* compares
standard output, error output, exit code and all files written, byte for byte, with a run on a store without delay.

The tree: 64 MiB of bytes, 32 MiB of lines and 300 files of 1 to 400 KiB (`tar`, `grep`, `cp`), a database of 32 MB, a
repository of 101 commits, an archive of 60 members. Every run has a fresh mount: nothing is cached. A run is stopped at
120 s.

"""


def read(path):
    """What was measured before."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {"rows": []}


def write(path, document):
    """The figures, a line a run, and beside them the table."""
    document["machine"] = f"{os.cpu_count()} processors, Linux {platform.release().split('-')[0]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in document["rows"])
    head = json.dumps({key: value for key, value in document.items() if key != "rows"})
    path.write_text(head[:-1] + ', "rows": [\n' + rows + "\n]}\n")
    counts = sorted({len(row["pairs"]) for row in document["rows"]})
    pairs = " or ".join(map(str, counts)) + (" pair" if counts == [1] else " pairs")
    path.with_suffix(".md").write_text(ABOUT.format(pairs=pairs, machine=document["machine"]) + table(document) + "\n")


def commit():
    """The state of the program, if git knows it."""
    said = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"


def main():
    """Reads the options; ends with 1 if any output differed."""
    known = list(TITLES)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    parser = argparse.ArgumentParser(prog="./x programs", description="Real programs on slow stores, plain and steered.")
    parser.add_argument("--device", action="append", help="model of `bowwave slow` (repeatable); without it s3 and hdd")
    parser.add_argument("--only", type=lambda text: text.split(","), default=known, help=f"of {','.join(known)}")
    parser.add_argument("--pairs", type=int, default=1, help="how often each, in turn")
    parser.add_argument("--json", type=pathlib.Path, default=JSON, help="where the figures go, and with .md the table")
    parser.add_argument("--table", action="store_true", help="print what was measured, measure nothing")
    parser.add_argument("--bowwave", default=str(target / "release/bowwave"), help="the command to measure")
    parser.add_argument("--commit", default=commit(), help="what to note as its state")
    options = parser.parse_args()
    options.device = options.device or ["s3", "hdd"]
    for name in options.only:
        if name not in known:
            parser.error(f"there is no program {name!r}; these are: {', '.join(known)}")
    if options.table:
        print(table(read(options.json)))
        return
    options.bowwave = str(pathlib.Path(options.bowwave).resolve())
    options.tree = (target / "programs").resolve()
    bad = measure(options)
    print()
    print(table(read(options.json)))
    sys.exit(1 if bad else 0)


main()
