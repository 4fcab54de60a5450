"""Programs that map their files, or read slices of them, on slow stores: plain, other windows, `cat` first, bowwave.

    ./x mapped                                   every program on every device, and in half the memory (half an hour)
    ./x mapped --device s3 --only lmdb --pairs 3 a part of it; other rows that were measured stay
    ./x mapped --observer outside                the same with the observer outside, beside the others
    ./x mapped --table                           no measuring: the table of what was measured

Each loads data of its own kind (safetensors, GGUF, LMDB, SQLite with mmap_size, Parquet, HDF5, zip) with the library that
people use (from PyPI, into target/programs-venv) and prints a hash of what it got: the same in every arm, or the row
says so. Each run has a fresh mount: nothing is cached. Bytes and requests are the store's own count; *used* is what the
program asks for from a store without delay and without readahead.

*plain* is what a machine has: 128 KiB of `read_ahead_kb` on the modelled devices (s3, nfs, hdd), and 8192 KiB on `loop`, a
loop device with a file system on it, such as many virtual disks are. Its bytes are what the block device counts.
"""

import argparse
import json
import os
import pathlib
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from group import Group
from store import Store

JSON = pathlib.Path("docs/measured/mapped.json")
DATA_VERSION = "3"
AT_ONCE = "lat=1us,bw=10GB/s,slots=64"
WHEELS = ["numpy", "safetensors", "gguf", "lmdb", "pyarrow", "h5py", "duckdb"]
CAP_S = 90
DEVICES = ["s3", "nfs", "hdd", "loop"]
WINDOWS = [128, 1024, 8192]
TITLES = {
    "safetensors": "safetensors, whole, by name",
    "safetensors-quarter": "safetensors, one tensor in four",
    "safetensors-four": "safetensors, four processes, a quarter each",
    "gguf": "gguf, every tensor",
    "lmdb-gets": "lmdb, 300 random gets",
    "lmdb-scan": "lmdb, full scan",
    "sqlite-mmap": "sqlite3 with mmap_size, full scan",
    "sqlite-points": "sqlite3 with mmap_size, 200 rows by key",
    "parquet-columns": "pyarrow, 2 of 8 columns, mapped",
    "parquet": "pyarrow, all columns, mapped",
    "duckdb-columns": "duckdb, sums of 2 of 8 columns",
    "duckdb": "duckdb, sums of all columns",
    "h5py": "h5py, 24 slices",
    "zipfile": "zipfile, 60 of 300 members",
}
FILES = {
    "safetensors": "model.safetensors",
    "safetensors-quarter": "model.safetensors",
    "safetensors-four": "model.safetensors",
    "gguf": "model.gguf",
    "lmdb-gets": "rows.lmdb",
    "lmdb-scan": "rows.lmdb",
    "sqlite-mmap": "rows.sqlite",
    "sqlite-points": "rows.sqlite",
    "parquet-columns": "table.parquet",
    "parquet": "table.parquet",
    "duckdb-columns": "table.parquet",
    "duckdb": "table.parquet",
    "h5py": "cube.h5",
    "zipfile": "members.zip",
}
HASH = "import hashlib, random; h = hashlib.md5(); c = random.Random(3)\n"
JOBS = {
    "safetensors": """
from safetensors import safe_open
with safe_open('model.safetensors', 'np') as f:
    for name in sorted(f.keys()): h.update(f.get_tensor(name))
""",
    "safetensors-quarter": """
from safetensors import safe_open
with safe_open('model.safetensors', 'np') as f:
    for name in sorted(f.keys())[::4]: h.update(f.get_tensor(name))
""",
    "safetensors-four": """
import subprocess, sys
load = """ + repr("""
import hashlib, sys
from safetensors import safe_open
h = hashlib.md5()
with safe_open('model.safetensors', 'np') as f:
    for name in sorted(f.keys())[int(sys.argv[1])::4]: h.update(f.get_tensor(name))
print(h.hexdigest())
""") + """
ranks = [subprocess.Popen([sys.executable, '-c', load, str(rank)], stdout=subprocess.PIPE) for rank in range(4)]
for rank in ranks: h.update(rank.communicate()[0])
""",
    "gguf": """
from gguf import GGUFReader
for tensor in GGUFReader('model.gguf').tensors: h.update(tensor.data)
""",
    "lmdb-gets": """
import lmdb
with lmdb.open('rows.lmdb', subdir=False, readonly=True, lock=False) as e, e.begin() as t:
    for _ in range(300): h.update(t.get(b'%08d' % c.randrange(20000)))
""",
    "lmdb-scan": """
import lmdb
with lmdb.open('rows.lmdb', subdir=False, readonly=True, lock=False) as e, e.begin() as t:
    for k, v in t.cursor(): h.update(v)
""",
    "sqlite-mmap": """
import sqlite3
d = sqlite3.connect('file:rows.sqlite?immutable=1', uri=True); d.execute('pragma mmap_size=1000000000')
for row in d.execute('select body from rows'): h.update(row[0])
""",
    "sqlite-points": """
import sqlite3
d = sqlite3.connect('file:rows.sqlite?immutable=1', uri=True); d.execute('pragma mmap_size=1000000000')
for _ in range(200): h.update(d.execute('select body from rows where id=?', (c.randrange(20000),)).fetchone()[0])
""",
    "parquet-columns": """
import pyarrow.parquet as q
t = q.read_table('table.parquet', columns=['c1', 'c6'], memory_map=True, use_threads=False)
for col in t.columns: h.update(col.to_numpy().tobytes())
""",
    "parquet": """
import pyarrow.parquet as q
t = q.read_table('table.parquet', memory_map=True, use_threads=False)
for col in t.columns: h.update(col.to_numpy().tobytes())
""",
    "h5py": """
import h5py
with h5py.File('cube.h5') as f:
    for _ in range(24):
        i = c.randrange(480); h.update(f['cube'][i:i + 4].tobytes())
""",
    "duckdb-columns": """
import duckdb
d = duckdb.connect(config={'threads': 1}); d.execute('set enable_progress_bar = false')
h.update(repr(d.execute("select min(c1), max(c1), min(c6), max(c6) from 'table.parquet' where c1 > c6").fetchall()).encode())
""",
    "duckdb": """
import duckdb
d = duckdb.connect(config={'threads': 1}); d.execute('set enable_progress_bar = false')
columns = ', '.join(f'max(c{i} * c{(i + 1) % 8})' for i in range(8))
h.update(repr(d.execute(f"select {columns} from 'table.parquet'").fetchall()).encode())
""",
    "zipfile": """
import zipfile
with zipfile.ZipFile('members.zip') as z:
    for name in c.sample(z.namelist(), 60): h.update(z.read(name))
""",
}
MAKE = """
import numpy as np, random, sqlite3, zipfile, lmdb, h5py, pyarrow as pa, pyarrow.parquet as q
from safetensors.numpy import save_file
from gguf import GGUFWriter
rng = np.random.default_rng(1); names = [f'layer{i:03}.weight' for i in range(96)]; random.Random(1).shuffle(names)
save_file({n: rng.random((256, 1024), dtype=np.float32) for n in names}, 'model.safetensors')
w = GGUFWriter('model.gguf', 'llama')
for n in names[:80]: w.add_tensor(n, rng.random((256, 1024), dtype=np.float32))
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
with lmdb.open('rows.lmdb', subdir=False, map_size=1 << 30, lock=False) as e, e.begin(write=True) as t:
    for i in range(20000): t.put(b'%08d' % i, rng.bytes(3000))
d = sqlite3.connect('rows.sqlite'); d.execute('create table rows(id integer primary key, body blob)')
d.executemany('insert into rows values (?, ?)', ((i, rng.bytes(3000)) for i in range(20000))); d.commit(); d.close()
t = pa.table({f'c{i}': rng.random(1 << 20) for i in range(8)})
q.write_table(t, 'table.parquet', row_group_size=1 << 17, compression='none', use_dictionary=False)
with h5py.File('cube.h5', 'w') as f: f.create_dataset('cube', data=rng.random((488, 128, 160), dtype=np.float32), chunks=(1, 128, 160))
with zipfile.ZipFile('members.zip', 'w') as z:
    for i in range(300): z.writestr(f'{i:03}', rng.bytes(1 << int(rng.integers(14, 20))))
"""


def python(target):
    """A Python with the libraries, made once."""
    home = target / "programs-venv"
    own = home / "bin/python"
    if not own.exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
    if subprocess.run([own, "-c", f"import {', '.join(WHEELS)}"], capture_output=True, check=False).returncode != 0:
        print(f"installing {', '.join(WHEELS)} into {home}", flush=True)
        subprocess.run([own, "-m", "pip", "install", "-q", *WHEELS], check=True)
    return str(own)


def make_data(own, data):
    """The files that are loaded, the same each time; kept for the next run."""
    done = data / "version"
    if done.exists() and done.read_text() == DATA_VERSION:
        return
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    print("making the data", flush=True)
    subprocess.run([own, "-c", MAKE], cwd=data, check=True)
    done.write_text(DATA_VERSION)


class Loop:
    """The data on a file system on a loop device, freshly mounted, with so large a window."""

    def __init__(self, data, work, window):
        self.dir, image = work / "mount", data.with_suffix(".ext4")
        self.dir.mkdir(exist_ok=True)
        self.loop = subprocess.run(["losetup", "--find", "--show", "--read-only", image], capture_output=True, text=True, check=True).stdout.strip()
        self.block = pathlib.Path("/sys/block") / pathlib.Path(self.loop).name
        (self.block / "queue/read_ahead_kb").write_text(str(window))
        subprocess.run(["mount", "-o", "ro,noload", self.loop, self.dir], check=True)
        self.before = self.count()

    def count(self):
        """Reads and sectors read, as the block device counts them."""
        words = (self.block / "stat").read_text().split()
        return int(words[0]), 512 * int(words[2])

    def stats(self):
        """What came since it was mounted. A file system on a device has no other count of what is different."""
        requests, sent = (now - before for now, before in zip(self.count(), self.before, strict=True))
        return {"requests": requests, "bytes": sent, "unique_bytes": sent}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", self.dir], check=True)
        subprocess.run(["losetup", "--detach", self.loop], check=True)


def make_image(data):
    """A file system that holds the data, for the loop device."""
    image = data.with_suffix(".ext4")
    if not image.exists() or image.stat().st_mtime < (data / "version").stat().st_mtime:
        size = sum(file.stat().st_size for file in data.iterdir())
        image.unlink(missing_ok=True)
        subprocess.run(["mkfs.ext4", "-q", "-d", data, image, f"{size // 1024 * 5 // 4 + 65536}k"], check=True)


def store(options, work, device, window):
    """The data on that device, cold."""
    if device == "loop":
        return Loop(options.data, work, window)
    return Store(options.bowwave, options.data, work, device, window)


def play(command, where, limit):
    """Runs a command; time, faults, and what it printed."""
    group = Group(limit)
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile() as said:
        begun = time.monotonic()
        process = subprocess.Popen(
            command, cwd=where, env=environment, stdin=subprocess.DEVNULL, stdout=said, preexec_fn=group.enter, start_new_session=True
        )
        descriptor = os.pidfd_open(process.pid)
        capped = not select.select([descriptor], [], [], CAP_S)[0]
        os.close(descriptor)
        if capped:
            os.killpg(process.pid, signal.SIGTERM)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        elapsed = time.monotonic() - begun
        said.seek(0)
        words = said.read().decode(errors="replace").strip()
    group.leave()
    return {"elapsed_s": round(elapsed, 3), "exit_code": process.returncode, "major_faults": usage.ru_majflt, "said": words, "capped": capped}


def plain_window(device):
    """In KiB: what such a device has on most machines."""
    return 8192 if device == "loop" else 128


def other_windows(device):
    """The windows that are tried beside it, as names of arms."""
    return [f"{window}k" for window in WINDOWS if window != plain_window(device)]


def run(options, work, name, device, arm, limit):
    """One program under one arm."""
    data, own = options.data, options.python
    # So that only the model's pace counts.
    (data.with_suffix(".ext4") if device == "loop" else data / FILES[name]).read_bytes()
    window = int(arm[:-1]) if arm.endswith("k") else plain_window(device)
    script = f"{HASH}{JOBS[name]}\nprint(h.hexdigest())"
    command = [own, "-c", script]
    if arm == "cat":
        command = ["sh", "-c", f"cat {FILES[name]} > /dev/null; exec \"$0\" \"$@\"", *command]
    if arm == "bowwave":
        command = [options.bowwave, "run", "--quiet", "--observer", options.observer, "--", *command]
    with store(options, work, device, window) as place:
        came = play(command, place.dir, limit)
        return came | place.stats()


def measure(options):
    """Plays what was asked for, and writes the rows as they come."""
    make_data(options.python, options.data)
    if "loop" in options.device:
        make_image(options.data)
    document = read(options.json)
    bad = 0
    with tempfile.TemporaryDirectory(prefix="bowwave-mapped-") as folder:
        work = pathlib.Path(folder)
        for name in options.only:
            size = (options.data / FILES[name]).stat().st_size
            with Store(options.bowwave, options.data, work, AT_ONCE, 0) as place:
                script = f"{HASH}{JOBS[name]}\nprint(h.hexdigest())"
                reference = play([options.python, "-c", script], place.dir, None) | place.stats()
            for device, limit in [(d, l) for d in options.device for l in (None, size // 2)]:
                if limit and options.no_limit:
                    continue
                probe = Group(limit)
                probe.leave()
                if not probe.works:
                    print(f"skipped: {name} in half its memory: no memory groups here", flush=True)
                    continue
                # A program needs memory for what it makes of its data too: what is scarce is the page cache.
                limit = limit and limit + options.program_bytes
                arms = ["plain", *other_windows(device), "cat", "bowwave"]
                pairs = [{arm: run(options, work, name, device, arm, limit) for arm in arms} for _ in range(options.pairs)]
                for runs in pairs:
                    for one in runs.values():
                        one["same"] = one["said"] == reference["said"] and one["exit_code"] == 0
                row = {"program": name, "device": device, "half": bool(limit), "used": reference["unique_bytes"], "commit": options.commit, "pairs": pairs}
                key = (name, device, row["half"])
                document["rows"] = [r for r in document["rows"] if (r["program"], r["device"], r["half"]) != key]
                document["rows"].append(row)
                write(options.json, document, options.observer)
                wrong = [(arm, one) for runs in pairs for arm, one in runs.items() if not one["same"] and not one["capped"]]
                bad += bool(wrong)
                print(" ".join(str(cell).ljust(8) for cell in cells(row)), flush=True)
                for arm, one in wrong:
                    print(f"{name} {device} {arm}: differs: exit code {one['exit_code']}, said {one['said'][:200]!r}", flush=True)
    return bad


HEAD = ["program", "device", "memory", "plain s", "best window s", "cat s", "run s", "plain/run", "window/run", "cat/run", "plain f/u", "cat f/u", "run f/u", "requests plain", "run", "faults plain", "run", "output"]


def median(row, arm, key):
    """Of all pairs."""
    return statistics.median(runs[arm][key] for runs in row["pairs"])


def best_window(row):
    """The time under the window that is best for this row."""
    return min(median(row, arm, "elapsed_s") for arm in ("plain", *other_windows(row["device"])))


def ratio(row, other=None):
    """Time of another arm by time under bowwave: above 1 bowwave is faster."""
    before = best_window(row) if other == "window" else median(row, other or "plain", "elapsed_s")
    return before / median(row, "bowwave", "elapsed_s")


def cells(row):
    """A row of the table."""
    runs = [one for runs in row["pairs"] for one in runs.values()]
    same = "stopped" if any(one["capped"] for one in runs) else "same" if all(one["same"] for one in runs) else "DIFFERS"
    seconds = lambda arm: f"{median(row, arm, 'elapsed_s'):.2f}"
    used = lambda arm: f"{median(row, arm, 'bytes') / max(row['used'], 1):.2f}"
    count = lambda arm, key: f"{median(row, arm, key):.0f}"
    return [
        TITLES[row["program"]], row["device"], "half" if row["half"] else "enough",
        seconds("plain"), f"{best_window(row):.2f}", seconds("cat"), seconds("bowwave"),
        f"{ratio(row):.2f}", f"{ratio(row, 'window'):.2f}", f"{ratio(row, 'cat'):.2f}",
        used("plain"), used("cat"), used("bowwave"),
        count("plain", "requests"), count("bowwave", "requests"), count("plain", "major_faults"), count("bowwave", "major_faults"), same,
    ]  # fmt: skip


def headline(ordered, devices):
    """What the rows of these devices came to."""
    rows, names = [row for row in ordered if row["device"] in devices], " and ".join(devices)
    if not rows:
        return f"{names}: not measured.  "
    mean = lambda other: statistics.geometric_mean(ratio(row, other) for row in rows)
    memory = " in half the memory" if rows[0]["half"] else ""
    return (
        f"{names}: {mean(None):.2f} times as fast as plain over {len(rows)} rows (geometric mean), {mean('window'):.2f} times the best window of "
        f"each, {mean('cat'):.2f} times `cat` first. Worst: {TITLES[rows[0]['program']]}{memory}, {ratio(rows[0]):.2f} of plain.  "
    )


def table(document):
    """All rows as Markdown, the worst first, and the geometric means."""
    ordered = sorted(document["rows"], key=ratio)
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in ordered]
    if ordered:
        lines.append("")
        lines += [headline(ordered, ["s3", "nfs"]), *(headline(ordered, [device]) for device in DEVICES)]
    return "\n".join(lines)


ABOUT = """# Programs that map their files, on slow stores

`{command}` measures this and writes it, `{command} --table` prints it again from [{json}]({json}). Medians, worst first. Time includes the start of Python and of bowwave. *plain* is 128 KiB of `read_ahead_kb`, on `loop` 8192. *best
window* is the best of 128, 1024 and 8192, chosen for each row; *f/u* is bytes that the store sent per byte used. In *half* the memory the program is
in a memory group of half its file's size and room for itself. Machine: {machine}

"""


def read(path):
    """What was measured before."""
    return json.loads(path.read_text()) if path.exists() else {"rows": []}


def write(path, document, observer):
    """The figures, a line a row, and beside them the table."""
    document["machine"] = f"{os.cpu_count()} processors, Linux {os.uname().release.split('-')[0]}; shared with other work."
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in document["rows"])
    path.write_text(json.dumps({"machine": document["machine"]})[:-1] + ', "rows": [\n' + rows + "\n]}\n")
    command = "./x mapped" if observer == "auto" else f"./x mapped --observer {observer}"
    path.with_suffix(".md").write_text(ABOUT.format(machine=document["machine"], command=command, json=path.name) + table(document) + "\n")


def main():
    """Reads the options; ends with 1 if any output differed."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    said = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False).stdout.strip()
    parser = argparse.ArgumentParser(prog="./x mapped", description="Programs that map their files, on slow stores.")
    parser.add_argument("--device", action="append", choices=DEVICES, help="(repeatable); without it all of them")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(TITLES), help=f"of {','.join(TITLES)}")
    parser.add_argument("--pairs", type=int, default=1, help="how often each, in turn")
    parser.add_argument("--no-limit", action="store_true", help="not in half the memory as well")
    parser.add_argument("--program-bytes", type=int, default=160 << 20, help="memory for the program beside its file's half")
    parser.add_argument("--observer", choices=["auto", "preload", "outside"], default="auto", help="of `bowwave run`; figures of one that is named are kept apart")
    parser.add_argument("--json", type=pathlib.Path, help="where the figures go, and with .md the table")
    parser.add_argument("--table", action="store_true", help="print what was measured, measure nothing")
    parser.add_argument("--bowwave", default=str(target / "release/bowwave"), help="the command to measure")
    parser.add_argument("--commit", default=said or "unknown", help="what to note as its state")
    options = parser.parse_args()
    for name in options.only:
        if name not in TITLES:
            parser.error(f"there is no program {name!r}; these are: {', '.join(TITLES)}")
    apart = "" if options.observer == "auto" else f"-{options.observer}"
    options.json = options.json or JSON.with_name(f"mapped{apart}.json")
    if options.table:
        print(table(read(options.json)))
        return
    options.device = options.device or DEVICES
    options.bowwave = str(pathlib.Path(options.bowwave).resolve())
    options.data = (target / "mapped").resolve()
    options.python = str(pathlib.Path(python(target.resolve())))
    bad = measure(options)
    print()
    print(table(read(options.json)))
    sys.exit(1 if bad else 0)


main()
