#!/usr/bin/env python3
"""Programs drawn from seeds on a slow store, plain and under `bowwave run`: what nobody wrote a rule for, run by the kernel and not in virtual time.

    ./x drawn                                  seeds 0 to 39 on hdd and nfs (about fifteen minutes), the worst first
    ./x drawn --device ssd --seeds 100:140     others
    ./x drawn --seeds 4 --runs 10              one again, ten times

A program has one to eight processes, which read files of 96 MiB, their own or one for all, by pread or mapped. Each goes through one to three
phases: a scan, copies of tensors upwards or downwards, touches at random, a stride, a scan downwards, streams by turns, hops, runs here and there, or
blocks that are each read in another order. What comes out must be the same. A share is plain's time by the slowest run's: a rule that goes wrong once in
twenty runs is found by runs, not by means. With `--explain DIR` what was decided is kept where the share is below 0.9.
"""

import argparse
import mmap
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from store import Store

PAGE = 4096
PAGES = 24_576  # of a file
FILES = 8
CAP_S = 120

# ---- what is drawn -------------------------------------------------------------------------------------------------
# Each phase is a list of (page, pages).


def scan(r, n):
    first = r.randrange(PAGES // 2)
    length = int(200 * 2 ** r.uniform(0, 6))
    return [(page, n) for page in range(first, min(first + length, PAGES - 16), n)]


def back(r, n):
    first = r.randrange(PAGES // 2)
    length = int(200 * 2 ** r.uniform(0, 5))
    return [(page, n) for page in range(first, min(first + length, PAGES - 16), n)][::-1]


def copies(r, _):
    """Tensors, all or one in two or four, in the order in which memory is copied."""
    count, equal = r.randrange(4, 40), r.choice([0, int(10 * 2 ** r.uniform(0, 6))])
    manner, shuffled = r.choice(["up", "down", "end first", "down only", "up only"]), r.random() < 0.5
    at, runs, part = r.randrange(1000), [], r.choice([1, 1, 2, 4])
    for i in range(count * part):
        pages = equal or int(10 * 2 ** r.uniform(0, 6))
        if at + pages >= PAGES:
            break
        if i % part == 0:
            runs.append((at, at + pages - 1))
        at += pages - r.randrange(2)
    if shuffled:
        r.shuffle(runs)
    touched = []
    for first, last in runs:
        ends = {"up": [first, last, last - 1], "down": [first, last], "end first": [last]}.get(manner, [])
        between = range(last, first - 1, -1) if manner.startswith("down") else range(first, last + 1)
        touched += [(page, 1) for page in [*ends, *between]]
    return touched


def touches(r, n):
    width = r.choice([PAGES, PAGES, 4096])
    first = r.randrange(PAGES - width + 1)
    return [(first + r.randrange(width - n), n) for _ in range(r.choice([20, 100, 300]))]


def stride(r, _):
    period, first, run = r.randrange(20, 900), r.randrange(500), r.choice([1, 1, 3, 8])
    return [(page + i, 1) for page in range(first, PAGES - 16, period) for i in range(run)][:3000]


def by_turns(r, _):
    streams, length = r.choice([2, 3, 8]), int(100 * 2 ** r.uniform(0, 4))
    firsts = [r.randrange(PAGES - length) for _ in range(streams)]
    return [(first + i, 1) for i in range(length) for first in firsts]


def hops(r, _):
    at, read = r.randrange(500), []
    while at < PAGES - 64 and len(read) < 1500:
        run = r.choice([1, 1, 2, 6])
        read += [(at + i, 1) for i in range(run)]
        at += run + int(5 * 2 ** r.uniform(0, 6))
    return read


def runs(r, _):
    read = []
    for _ in range(r.randrange(10, 60)):
        first, length = r.randrange(PAGES - 600), int(4 * 2 ** r.uniform(0, 7))
        read += [(first + i, 1) for i in range(length)]
    return read


def blocks(r, _):
    first, length, block = r.randrange(PAGES // 2), r.randrange(300, 3000), r.choice([8, 32, 128])
    read = []
    for at in range(first, first + length, block):
        read += [(page, 1) for page in range(at, at + block)][:: r.choice([1, -1])]
    return read


PHASES = {
    "scan": scan, "copies": copies, "touches": touches, "stride": stride, "back": back, "by turns": by_turns, "hops": hops, "runs": runs, "blocks": blocks,
}  # fmt: skip
# Drawn as often as they stand here.
NAMES = ["scan", "copies", "copies", "touches", "stride", "back", "by turns", "hops", "runs", "blocks"]


def drawn(seed):
    """A list of (file, mapped, [(name, reads)]), one a process."""
    r = random.Random(seed)
    processes, own = r.choice([1, 1, 2, 4, 8]), r.random() < 0.4
    plans = []
    for i in range(processes):
        p = random.Random(seed * 100 + (0 if r.random() < 0.5 else i + 1))
        mapped, phases = p.random() < 0.65, []
        for _ in range(p.choice([1, 1, 2, 3])):
            name = p.choice(NAMES)
            phases.append((name, PHASES[name](p, 1 if mapped else p.choice([1, 2, 4, 16]))))
        plans.append((f"{i if own else 0}.bin", mapped, phases))
    return plans


def told(plans):
    """What the program does, in a line."""
    each = [f"{'mapped' if mapped else 'read'} {file} {', '.join(f'{name} {len(reads)}' for name, reads in phases)}" for file, mapped, phases in plans]
    return "; ".join(each)


# ---- the program ---------------------------------------------------------------------------------------------------


def process(file, mapped, phases):
    """Reads what was drawn; a sum of what it saw."""
    descriptor = os.open(file, os.O_RDONLY)
    if mapped:
        seen = mmap.mmap(descriptor, PAGES * PAGE, prot=mmap.PROT_READ)
        os.close(descriptor)
        return sum(seen[page * PAGE + 7] for _, reads in phases for page, _ in reads)
    return sum(os.pread(descriptor, n * PAGE, page * PAGE)[7] for _, reads in phases for page, n in reads)


def work(seed):
    """The program itself: a child for each process but one."""
    first, *others = drawn(seed)
    results = []
    for plan in others:
        reads, writes = os.pipe()
        if os.fork() == 0:
            os.write(writes, str(process(*plan)).encode())
            os._exit(0)
        os.close(writes)
        results.append(reads)
    print(process(*first), *(os.read(reads, 64).decode() for reads in results))


# ---- the measurement -----------------------------------------------------------------------------------------------


def play(options, work_dir, device, seed, explain):
    """One run; its time and what it printed."""
    command = [sys.executable, "-S", "-E", pathlib.Path(__file__).resolve(), "--work", str(seed)]
    if explain:
        command = [options.bowwave, "run", "--quiet", "--explain", explain, "--", *command]
    with Store(options.bowwave, options.data, work_dir, device, 128) as store:
        begun = time.monotonic()
        printed = subprocess.run(command, cwd=store.dir, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=CAP_S).stdout
        return time.monotonic() - begun, printed


def measure(options):
    options.data.mkdir(parents=True, exist_ok=True)
    for i in range(FILES):
        file, chance = options.data / f"{i}.bin", random.Random(i)
        if not file.exists() or file.stat().st_size != PAGES * PAGE:
            file.write_bytes(chance.randbytes(PAGES * PAGE))
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory(prefix="bowwave-drawn-") as folder:
        work_dir = pathlib.Path(folder)
        for device in options.device:
            for seed in options.seeds:
                plain, expected = play(options, work_dir, device, seed, None)
                times = []
                for i in range(options.runs):
                    explain = work_dir / f"{device}-{seed}-{i}"
                    took, printed = play(options, work_dir, device, seed, explain)
                    times.append(took)
                    if printed != expected:
                        wrong += 1
                        print(f"{device} {seed}: printed {printed!r}, plain {expected!r}", flush=True)
                    if options.explain and plain < 0.9 * took:
                        options.explain.mkdir(parents=True, exist_ok=True)
                        explain.replace(options.explain / explain.name)
                row = (plain / max(times), device, seed, plain, times)
                rows.append(row)
                print(line(row), told(drawn(seed)), flush=True)
    print("\nshare of plain's time, the worst first")
    for row in sorted(rows):
        print(line(row))
    return wrong


def line(row):
    share, device, seed, plain, times = row
    return f"{share:5.2f} {device:<4} seed {seed:<4} plain {plain:6.2f} s, run {' '.join(f'{t:.2f}' for t in times)}"


def seeds(text):
    first, _, end = text.partition(":")
    return range(int(first), int(end) if end else int(first) + 1)


def main():
    if sys.argv[1:2] == ["--work"]:
        return work(int(sys.argv[2]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", action="append", help="(repeatable) s3, nfs, hdd, ssd or a model spelt out; hdd and nfs")
    parser.add_argument("--seeds", type=seeds, default=range(40), metavar="FIRST:END", help="0:40")
    parser.add_argument("--runs", type=int, default=2, help="how often each under `bowwave run` (2)")
    parser.add_argument("--explain", type=pathlib.Path, metavar="DIR", help="keeps what was decided in slow runs there")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("target/drawn"), help="where the files are made")
    parser.add_argument("--bowwave", default="target/release/bowwave", help="the command to measure")
    options = parser.parse_args()
    options.bowwave = pathlib.Path(options.bowwave).resolve()
    options.device = options.device or ["hdd", "nfs"]
    return 1 if measure(options) else 0


sys.exit(main())
