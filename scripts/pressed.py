"""A reader whose memory is taken away while he reads: how soon is that found out, and what does it cost?

    ./x pressed                        all rows (some four minutes, half of them without bowwave; root and /dev/fuse)
    ./x pressed --against OTHER        by turns with another build of bowwave

`dd` reads 1 GiB from the s3 model in blocks of 64 KiB, in a memory group of 64 MiB. Half a second after it has begun another program of the
group takes so much of that for itself and keeps it. Arms go in turn, each with a cold store and an empty group; medians, lowest and highest.
Writes docs/measured/pressed.md.
"""

import argparse
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

from group import Group
from store import Store

REPORT = pathlib.Path("docs/measured/pressed.md")
GROUP_BYTES = 64 << 20
FILE_BYTES = 1 << 30
TAKEN_MIB = [0, 16, 24, 32]
TAKES = """
import sys, time
time.sleep(0.5)
taken = bytearray(int(sys.argv[1]) << 20)
for at in range(0, len(taken), 4096):
    taken[at] = 1
time.sleep(600)
"""


def play(options, folder, bowwave, taken):
    """Seconds of one run, and bytes fetched for each that was read."""
    group = Group(GROUP_BYTES)
    if not group.works:
        sys.exit("x pressed: no memory group can be made here (root, and a memory controller)")
    with Store(options.bowwave, folder / "data", folder, "s3") as store:
        other = subprocess.Popen([sys.executable, "-c", TAKES, str(taken)], preexec_fn=group.enter)
        read = ["dd", f"if={store.dir / 'file'}", "of=/dev/null", "bs=64k"]
        steered = [bowwave, "run", "--quiet", "--"] if bowwave else []
        try:
            begun = time.monotonic()
            subprocess.run([*steered, *read], preexec_fn=group.enter, stderr=subprocess.DEVNULL, check=True)
            return time.monotonic() - begun, store.stats()["bytes"] / FILE_BYTES
        finally:
            other.kill()
            other.wait()
            group.leave()


def main():
    """Measures, prints and writes."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    parser = argparse.ArgumentParser(prog="./x pressed", description="A reader whose memory is taken away while he reads.")
    parser.add_argument("--pairs", type=int, default=5, help="how often each")
    parser.add_argument("--bowwave", default=str(target / "release/bowwave"), help="the command to measure")
    parser.add_argument("--against", help="another build of it; nothing is written")
    options = parser.parse_args()
    options.bowwave = str(pathlib.Path(options.bowwave).resolve())
    arms = {"bowwave": options.bowwave} | ({"the other": str(pathlib.Path(options.against).resolve())} if options.against else {})
    rows = []
    with tempfile.TemporaryDirectory(prefix="bowwave-pressed-", dir=target) as name:
        folder = pathlib.Path(name).resolve()
        (folder / "data").mkdir()
        with (folder / "data/file").open("wb") as sparse:
            sparse.truncate(FILE_BYTES)
        plain, _ = play(options, folder, None, 0)
        for taken in TAKEN_MIB:
            came = {arm: [] for arm in arms}
            for _ in range(options.pairs):
                for arm, bowwave in arms.items():
                    came[arm].append(play(options, folder, bowwave, taken))
            for arm, runs in came.items():
                times, fetched = sorted(took for took, _ in runs), statistics.median(bytes_ for _, bytes_ in runs)
                rows.append(f"| {taken} MiB | {arm} | {statistics.median(times):.2f} s | {times[0]:.2f} to {times[-1]:.2f} s | {fetched:.2f} |")
                print(rows[-1], flush=True)
    text = f"""# A reader whose memory is taken away

`./x pressed` measures this and writes it: {options.pairs} runs each on {os.cpu_count()} processors, Linux {platform.release().split("-")[0]}. `dd` reads 1 GiB in blocks
of 64 KiB from the s3 model, in a memory group of 64 MiB, of which another program takes a part half a second after the beginning. Without
bowwave and with nothing taken it takes {plain:.1f} s.

| taken | arm | median | lowest to highest | bytes a byte |
|---|---|---:|---:|---:|
"""
    text += "\n".join(rows) + "\n"
    if not options.against:
        REPORT.write_text(text)
    print(text)


main()
