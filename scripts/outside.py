"""Programs that no library reaches, on slow stores: plain, under the library, and under the observer outside by either way.

    ./x outside                     each on s3 and nfs (about three minutes); needs root
    ./x outside --device s3 --only static-go

A Go program without libc and a C program linked statically (each if there is a compiler for it), node, md5sum and sort read
one file through and say what they got: the same under every arm, or the row says so, and the command fails. *library* is
`bowwave run --observer preload`: what it does not reach runs unchanged. *outside* takes BPF programs where it may, *perf* is what is
taken where those are refused. Plain is the kernel at 128 KiB of `read_ahead_kb`.
On s3 the observer outside is asked for five times the plain speed: a row below that is told, and the command fails.
"""

import argparse
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from store import Store

REPORT = pathlib.Path("docs/measured/outside.md")
BYTES = 64 << 20
AIM = 5.0
ARMS = {"plain": None, "library": "preload", "outside": "outside", "perf": "perf"}
GO = """package main
import ("crypto/md5"; "fmt"; "io"; "os")
func main() {
	f, err := os.Open(os.Args[1]); if err != nil { panic(err) }
	h := md5.New(); if _, err := io.Copy(h, f); err != nil { panic(err) }
	fmt.Printf("%x\\n", h.Sum(nil))
}
"""
C = """#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    static unsigned char part[65536];
    unsigned long sum = 0;
    long n;
    int fd = open(argv[1], O_RDONLY);
    while ((n = read(fd, part, sizeof part)) > 0)
        for (long i = 0; i < n; i++) sum = sum * 31 + part[i];
    printf("%lx\\n", sum);
    return n < 0;
}
"""
HITS = 1_000_000
C_HITS = """#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    static char page[4096];
    int fd = open(argv[1], O_RDONLY);
    for (long i = 0, n = atol(argv[2]); i < n; i++)
        if (pread(fd, page, sizeof page, i % 16384 * 4096) <= 0) return 1;
    return 0;
}
"""
NODE = "const h = require('crypto').createHash('md5'); require('fs').createReadStream(process.argv[1]).on('data', d => h.update(d)).on('end', () => console.log(h.digest('hex')))"


def programs(work):
    """Those that can be had here: a name, and the command before the file's name."""
    said = {}
    if shutil.which("go"):
        (work / "main.go").write_text(GO)
        environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GO111MODULE": "off", "GOCACHE": str(work / "go")}
        subprocess.run(["go", "build", "-o", work / "static-go", "main.go"], cwd=work, env=environment, check=True)
        said["static-go"] = [work / "static-go"]
    compiler = shutil.which("musl-gcc") or shutil.which("cc")
    if compiler:
        (work / "main.c").write_text(C)
        built = subprocess.run([compiler, "-O2", "-static", "-o", work / "static-c", "main.c"], cwd=work, capture_output=True, check=False)
        if built.returncode == 0:
            said["static-c"] = [work / "static-c"]
    node = shutil.which("node")
    if node:
        said["node"] = [os.path.realpath(node), "-e", NODE]
    return said | {"md5sum": ["md5sum"], "sort": ["sort", "-S", "200M"]}


def prices(options, data, work):
    """What being watched costs: seconds of a million reads of a cached file, and of a program that does nothing."""
    (work / "hits.c").write_text(C_HITS)
    compiler = shutil.which("musl-gcc") or shutil.which("cc")
    built = compiler and subprocess.run([compiler, "-O2", "-static", "-o", work / "hits", "hits.c"], cwd=work, capture_output=True, check=False)
    jobs = {"nothing (`true`)": ["true"]}
    if built and built.returncode == 0:
        jobs[f"{HITS} cached reads of 4 KiB"] = [work / "hits", data / "lines", str(HITS)]
    lines = []
    for name, command in jobs.items():
        seconds = {arm: [] for arm in ARMS}
        for _ in range(options.price_pairs):
            (data / "lines").read_bytes()
            for arm, times in seconds.items():
                before = [options.bowwave, "run", "--quiet", "--observer", ARMS[arm], "--"] if ARMS[arm] else []
                begun = time.monotonic()
                subprocess.run([*before, *command], check=True)
                times.append(time.monotonic() - begun)
        cells = [f"{statistics.median(times):.3f} ({min(times):.3f} to {max(times):.3f})" for times in seconds.values()]
        lines.append("| " + " | ".join([name, *cells]) + " |")
        print(lines[-1], flush=True)
    return lines


def make_data(data):
    """Lines of text, none like another."""
    lines = random.Random(1)
    with (data / "lines").open("w") as file:
        written = 0
        while written < BYTES:
            written += file.write(f"{lines.getrandbits(600):0150x}\n")


def run(options, data, work, device, command, observer):
    """Seconds, what was said, and what the store sent."""
    (data / "lines").read_bytes()  # so that only the model's pace counts
    before = [options.bowwave, "run", "--quiet", "--observer", observer, "--"] if observer else []
    with Store(options.bowwave, data, work, device, 128) as store:
        begun = time.monotonic()
        came = subprocess.run([*before, *command, "lines"], cwd=store.dir, capture_output=True, check=False)
        elapsed = time.monotonic() - begun
        return elapsed, (came.returncode, came.stdout), store.stats()["bytes"]


def main():
    """Measures, prints and writes; ends with 1 if an output differs or s3 is below what is asked."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    parser = argparse.ArgumentParser(prog="./x outside", description="Programs that no library reaches, on slow stores.")
    parser.add_argument("--device", action="append", help="model of `bowwave slow` (repeatable); without it s3 and nfs")
    parser.add_argument("--only", type=lambda text: text.split(","), help="of static-go, static-c, node, md5sum, sort")
    parser.add_argument("--pairs", type=int, default=1, help="how often each, in turn")
    parser.add_argument("--price-pairs", type=int, default=5, help="how often each of what being watched costs, in turn")
    parser.add_argument("--report", type=pathlib.Path, default=REPORT, help="where the table goes")
    parser.add_argument("--bowwave", default=str(target / "release/bowwave"), help="the command to measure")
    options = parser.parse_args()
    options.bowwave = str(pathlib.Path(options.bowwave).resolve())
    if os.geteuid() != 0:
        sys.exit("x outside: the observer outside takes root; run it as root")
    lines, bad = [], []
    with tempfile.TemporaryDirectory(prefix="bowwave-outside-") as folder:
        work, data = pathlib.Path(folder), pathlib.Path(folder) / "data"
        data.mkdir()
        make_data(data)
        price = prices(options, data, work)
        for device in options.device or ["s3", "nfs"]:
            for name, command in programs(work).items():
                if options.only and name not in options.only:
                    continue
                rounds = [{arm: run(options, data, work, device, command, by) for arm, by in ARMS.items()} for _ in range(options.pairs)]
                seconds = {arm: statistics.median(came[arm][0] for came in rounds) for arm in ARMS}
                same = all(came[arm][1] == rounds[0]["plain"][1] and came[arm][1][0] == 0 for came in rounds for arm in ARMS)
                times = seconds["plain"] / seconds["outside"]
                if not same or (device == "s3" and times < AIM):
                    bad.append(f"{name} on {device}: {'output differs' if not same else f'{times:.2f} times plain, {AIM:.0f} are asked'}")
                sent = statistics.median(came["outside"][2] for came in rounds) / BYTES
                cells = [name, device, *(f"{seconds[arm]:.2f}" for arm in ARMS), f"{seconds['plain'] / seconds['library']:.2f}", f"{times:.2f}", f"{seconds['plain'] / seconds['perf']:.2f}", f"{sent:.2f}", "same" if same else "DIFFERS"]
                lines.append("| " + " | ".join(cells) + " |")
                print(" ".join(cell.ljust(10) for cell in cells), flush=True)
    head = f"""# Programs that no library reaches

`./x outside` measures this and writes it: one file of {BYTES >> 20} MiB read through, {options.pairs} round{'s' if options.pairs > 1 else ''}, medians, plain with 128 KiB of
`read_ahead_kb`. *library* is `bowwave run --observer preload`, *outside* `--observer outside` (BPF programs), *perf* the same where those are
refused; bytes are the store's count under *outside*, per byte of the file.
{os.cpu_count()} processors, Linux {os.uname().release.split('-')[0]}, shared with other work. On s3 five times the plain speed is asked of the observer outside.

| program | device | plain s | library s | outside s | perf s | plain/library | plain/outside | plain/perf | bytes per byte | output |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|
"""
    watched = f"""

What being watched costs, seconds, {options.price_pairs} rounds by turns, median (lowest to highest):

| what runs | plain | library | outside | perf |
|---|---:|---:|---:|---:|
"""
    lines.append(watched + "\n".join(price))
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text(head + "\n".join(lines) + "\n")
    print("\n" + head + "\n".join(lines))
    for sentence in bad:
        print(f"x outside: {sentence}")
    sys.exit(1 if bad else 0)


main()
