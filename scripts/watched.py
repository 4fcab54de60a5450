"""What it costs a program that its mappings are watched: idle, hot, and touched at random on a fast device.

    ./x watched                  the three of them (about two minutes); the last one needs root and /dev/fuse
    ./x watched --pairs 3        a shorter one

A small C program maps a file and either sleeps (64 GiB, sparse), touches what is cached at random (512 MiB, forty million
touches, the first of each page a fault), or touches at random what is not cached (1 GiB on the ssd model, 8,000 touches); the
last one is held against MADV_RANDOM, since a random reader can hope for no more. Arms go in turn, who begins changes, and
the median of the pairs' ratios is told with the lowest and the highest. Asked for: at most 1 % of a processor, 3 %, 3 %.
Writes docs/measured/watched.md; it fails only if a program does.
"""

import argparse
import os
import pathlib
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from store import Store

REPORT = pathlib.Path("docs/measured/watched.md")
PROGRAM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
int main(int argc, char **argv) { /* FILE TOUCHES SLEEP_S random|normal SEED */
    int fd = open(argv[1], O_RDONLY);
    off_t size = lseek(fd, 0, SEEK_END);
    volatile char *at = mmap(0, size, PROT_READ, MAP_SHARED, fd, 0);
    if (fd < 0 || at == MAP_FAILED) return 1;
    if (!strcmp(argv[4], "random")) madvise((void *)at, size, MADV_RANDOM);
    sleep(atoi(argv[3]));
    uint64_t x = 2 * atoll(argv[5]) + 1;
    unsigned sum = 0;
    double begun = now();
    for (long i = atol(argv[2]); i > 0; i--) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        sum += at[x % (size / 4096) * 4096];
    }
    printf("%.6f %u\n", now() - begun, sum);
    return 0;
}
"""
IDLE_S = 10
HOT_BYTES, HOT_TOUCHES = 512 << 20, 40_000_000
COLD_BYTES, COLD_TOUCHES = 1 << 30, 8_000


def play(options, folder, steered, *words):
    """What the program says, and processor seconds of all that took part."""
    before = [options.bowwave, "run", "--quiet", "--"] if steered else []
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = subprocess.run([*before, folder / "touch", *map(str, words)], capture_output=True, text=True, check=True).stdout.split()
    since = resource.getrusage(resource.RUSAGE_CHILDREN)
    return float(said[0]), said[1], since.ru_utime + since.ru_stime - used.ru_utime - used.ru_stime


def idle(options, folder):
    """Per cent of a processor beyond what the program takes alone."""
    file = folder / "sparse"
    with file.open("wb") as sparse:
        sparse.truncate(64 << 30)
    shares = []
    for _ in range(min(options.pairs, 3)):
        plain, steered = (play(options, folder, arm, file, 0, IDLE_S, "normal", 1)[2] for arm in (False, True))
        shares.append(100 * (steered - plain) / IDLE_S)
    return f"idle, a mapping of 64 GiB for {IDLE_S} s", f"{statistics.median(shares):.2f} % of a processor, start and end of bowwave included", f"{min(shares):.2f} to {max(shares):.2f} %", "1 %"


def compare(what, options, one):
    """Time by turns; `one(steered, turn)` plays an arm."""
    ratios = []
    for turn in range(options.pairs):
        came = {steered: one(steered, turn) for steered in ((False, True) if turn % 2 == 0 else (True, False))}
        if came[False][1] != came[True][1]:
            sys.exit(f"x watched: {what}: other bytes were read under bowwave run")
        ratios.append(100 * (came[True][0] / came[False][0] - 1))
    return what, f"{statistics.median(ratios):+.1f} % time", f"{min(ratios):+.1f} to {max(ratios):+.1f} %", "3 %"


def hot(options, folder):
    """Touches of what is cached."""
    file = folder / "hot"
    file.write_bytes(os.urandom(1 << 20) * (HOT_BYTES >> 20))
    file.read_bytes()
    return compare(f"hot, {HOT_TOUCHES:,} touches of {HOT_BYTES >> 20} MiB that are cached", options, lambda steered, turn: play(options, folder, steered, file, HOT_TOUCHES, 0, "normal", turn))


def cold(options, folder):
    """Touches of what is not, on a fast device."""
    data = folder / "data"
    data.mkdir()
    (data / "cold").write_bytes(os.urandom(1 << 20) * (COLD_BYTES >> 20))

    def one(steered, turn):
        (data / "cold").read_bytes()  # so that only the model's pace counts
        with Store(options.bowwave, data, folder, "ssd") as store:
            came = play(options, folder, steered, store.dir / "cold", COLD_TOUCHES, 0, "normal" if steered else "random", turn)
            if steered:
                sent.append(store.stats()["bytes"] / (COLD_TOUCHES * 4096))
        return came

    sent = []
    what, time_, spread, asked = compare(f"cold, {COLD_TOUCHES:,} touches of 1 GiB on the ssd model, against MADV_RANDOM", options, one)
    return what, f"{time_}, {statistics.median(sent):.2f} bytes a byte", spread, asked


def main():
    """Measures, prints and writes."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    parser = argparse.ArgumentParser(prog="./x watched", description="What it costs a program that its mappings are watched.")
    parser.add_argument("--pairs", type=int, default=7, help="how often each")
    parser.add_argument("--only", choices=["idle", "hot", "cold"], help="one of them; nothing is written")
    parser.add_argument("--bowwave", default=str(target / "release/bowwave"), help="the command to measure")
    parser.add_argument("--report", type=pathlib.Path, default=REPORT, help="where the table goes")
    options = parser.parse_args()
    options.bowwave = str(pathlib.Path(options.bowwave).resolve())
    if shutil.which("cc") is None:
        sys.exit("x watched: there is no C compiler (cc); install one (on Debian: apt-get install gcc libc6-dev)")
    ways = {"idle": idle, "hot": hot, "cold": cold}
    with tempfile.TemporaryDirectory(prefix="bowwave-watched-", dir=target) as name:
        folder = pathlib.Path(name).resolve()
        (folder / "touch.c").write_text(PROGRAM)
        subprocess.run(["cc", "-O2", "-o", folder / "touch", folder / "touch.c"], check=True)
        rows = [way(options, folder) for key, way in ways.items() if options.only in (None, key)]
    text = f"""# What it costs that mappings are watched

`./x watched` measures this and writes it: {options.pairs} pairs in turn on {os.cpu_count()} processors, Linux {platform.release().split("-")[0]}, shared with other work; medians.

| program | under `bowwave run` | lowest to highest | asked: at most |
|---|---|---|---|
"""
    text += "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
    if options.only is None:
        options.report.write_text(text)
    print(text)


main()
