"""What `bowwave run` costs a program that reads what is cached already: 4 KiB at a time, ten million times.

    ./x cached                   pread and read, fifty pairs of 200,000 calls each (about two minutes), and instructions
    ./x cached --calls 1000000   a shorter one

A small C program reads one file of 1 MiB, all of it cached, over and over, and times itself; it runs plain and under
`bowwave run` in turn, so that whatever else the machine does meets both. Told are the medians of both, the median ratio
of the pairs with its spread, and instructions a call in user space (valgrind, the same program, plain and with the
library and a living agent). Writes docs/measured/cached.md.
"""

import argparse
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

REPORT = pathlib.Path("docs/measured/cached.md")
PAIRS = 50  # short ones: what else the machine does changes within seconds

PROGRAM = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static char page[4096];
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
int main(int argc, char **argv) { /* WAY CALLS WARM_MS */
    int fd = open("cached.bin", O_RDONLY), by_position = !strcmp(argv[1], "pread");
    long calls = atol(argv[2]), i;
    if (fd < 0) return 1;
    for (int turn = 0; turn < 2; turn++) { /* met and settled before the clock starts */
        for (i = 0; i < 256; i++) if (pread(fd, page, 4096, i * 4096) != 4096) return 2;
        usleep(1000 * atol(argv[3]));
    }
    double begun = now();
    if (by_position)
        for (i = 0; i < calls; i++) { if (pread(fd, page, 4096, i % 256 * 4096) != 4096) return 3; }
    else
        for (i = 0; i < calls; i++) {
            if (i % 256 == 0) lseek(fd, 0, SEEK_SET);
            if (read(fd, page, 4096) != 4096) return 4;
        }
    printf("%.3f\n", (now() - begun) / calls);
    return 0;
}
"""


def build(folder):
    """The program and its file."""
    (folder / "cached.c").write_text(PROGRAM)
    subprocess.run(["cc", "-O2", "-o", "cached", "cached.c"], cwd=folder, check=True)
    (folder / "cached.bin").write_bytes(bytes(range(256)) * 4096)


def run(options, folder, steered, command):
    """Runs a command in the folder, under bowwave or not; its words."""
    before = [options.bowwave, "run", "--quiet", "--"] if steered else []
    return subprocess.run([*before, *command], cwd=folder, capture_output=True, text=True, check=True)


def pairs(options, folder, way):
    """Nanoseconds a call, plain and steered, for each pair; who goes first changes."""
    calls = str(options.calls // PAIRS)
    told = []
    for number in range(PAIRS):
        pair = {}
        for steered in (False, True) if number % 2 == 0 else (True, False):
            pair[steered] = float(run(options, folder, steered, ["./cached", way, calls, "100"]).stdout)
        told.append((pair[False], pair[True]))
        print(f"{way} {number + 1}/{PAIRS}: plain {told[-1][0]:.1f} ns, steered {told[-1][1]:.1f} ns", flush=True)
    return told


def instructions(options, folder, way, steered):
    """Instructions a call in user space: what many calls take more than few do."""
    counts = []
    for calls in (100_000, 1_100_000):
        counting = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        said = run(options, folder, steered, [*counting, "./cached", way, str(calls), "300"]).stderr
        counts.append(int(re.search(r"Collected : (\d+)", said).group(1)))
    return (counts[1] - counts[0]) / 1_000_000


def line(options, folder, way):
    """A row of the table."""
    told = pairs(options, folder, way)
    plain, steered = (statistics.median(pair[arm] for pair in told) for arm in (0, 1))
    ratios = sorted(pair[1] / pair[0] for pair in told)
    cells = [f"`{way}`", f"{plain:.1f}", f"{steered:.1f}", f"{statistics.median(ratios):.4f}"]
    cells.append(f"{ratios[len(ratios) // 4]:.4f} to {ratios[-len(ratios) // 4]:.4f}")
    if shutil.which("valgrind"):
        counted = [instructions(options, folder, way, arm) for arm in (False, True)]
        cells += [f"{counted[0]:.1f}", f"{counted[1]:.1f}"]
    else:
        cells += ["no valgrind", "no valgrind"]
    return "| " + " | ".join(cells) + " |"


def main():
    """Measures, prints and writes."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    parser = argparse.ArgumentParser(prog="./x cached", description="What bowwave run costs reads of cached data.")
    parser.add_argument("--calls", type=int, default=10_000_000, help="calls of each kind and arm, in all")
    parser.add_argument("--bowwave", default=str(target / "release/bowwave"), help="the command to measure")
    parser.add_argument("--report", type=pathlib.Path, default=REPORT, help="where the table goes")
    options = parser.parse_args()
    options.bowwave = str(pathlib.Path(options.bowwave).resolve())
    if shutil.which("cc") is None:
        sys.exit("x cached: there is no C compiler (cc); install one (on Debian: apt-get install gcc libc6-dev)")
    with tempfile.TemporaryDirectory(prefix="bowwave-cached-", dir=target) as folder:
        build(pathlib.Path(folder))
        rows = [line(options, pathlib.Path(folder), way) for way in ("pread", "read")]
    text = f"""# Reads of cached data

`./x cached` measures this and writes it: {options.calls:,} calls of 4 KiB on one cached file, {PAIRS} pairs in turn, on
{os.cpu_count()} processors, Linux {platform.release().split("-")[0]}. *ratio* is time under `bowwave run` by plain time, the median of the pairs, with
the middle half of them beside it. Instructions are those of a call in user space, loop included, of the same program
without and with `bowwave run`; what the kernel does for a call is not among them.

| call | plain ns | run ns | ratio | middle half | plain instructions | run instructions |
|------|---------:|-------:|------:|-------------------|-------------------:|-----------------:|
"""
    text += "\n".join(rows) + "\n"
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text(text)
    print("\n" + text)


main()
