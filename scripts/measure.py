"""The long measurement: every read() pattern on every device under every arm, one raw JSON file a cell.

    ./x measure                  what is missing of everything (hours; stop it and start it again at will)
    ./x measure --sample         a small fixed part of it (minutes)
    ./x measure --pairs 5        as often as a verdict needs
    ./x measure --table          no measuring: the table of what docs/measured holds

A cell is docs/measured/SET/DEVICE/PATTERN.json: what `bowwave bench --json` wrote, all arms in turn. It is measured if
its file is missing or holds fewer pairs than asked for.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path("docs/measured")
DEVICES = ["hdd", "s3", "nfs", "ssd"]
SETS = ["published", "drawn:1"]
WINDOWS = ["128k", "512k", "1m", "8m"]
OURS = ["bowwave", "bowwave-user"]
# What the table is held against: shares of the online bound by device, as root and as a user.
FLOORS = {"hdd": (0.70, 0.70), "nfs": (0.75, 0.75), "ssd": (0.85, 0.85), "s3": (0.60, 0.25)}
DEFAULT_FLOOR = 0.97  # by the kernel's default window
BEST_FLOOR = 0.90  # by the kernel's best window
PLAN_MAX = 1.15  # bytes by those of the bound's plan,
PLAN_MAX_LOOSE = 1.5  # and where reads lie in clusters or an archive
LOOSE = {"rnd_clu", "rnd_clu_loose", "zip"}


def patterns(bowwave):
    """The names that the command itself lists."""
    listed = subprocess.run([bowwave, "bench", "--list"], capture_output=True, text=True, check=True).stdout
    rows = [line.split("|") for line in listed.splitlines() if line.startswith("|")]
    return [row[1].strip() for row in rows[2:]]


def commit():
    """The state of the program, if git knows it."""
    said = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"


def pairs_in(path):
    """How many pairs a cell's file holds."""
    try:
        return 1 + max(run["pair"] for run in json.loads(path.read_text())["runs"])
    except (OSError, ValueError, KeyError):
        return 0


def measure(options):
    """Plays the cells that are missing, and says how far it is."""
    names = options.patterns or patterns(options.bowwave)
    cells = [(s, d, p) for s in options.sets for d in options.devices for p in names]
    root = pathlib.Path(options.out)
    path = lambda s, d, p: root / s.replace(":", "-") / d / (p.replace(":", "-") + ".json")
    todo = [cell for cell in cells if pairs_in(path(*cell)) < options.pairs]
    print(f"{len(cells)} cells, {len(cells) - len(todo)} are there, {len(todo)} to measure", flush=True)
    begun, lost = time.monotonic(), 0
    for number, (s, d, p) in enumerate(todo):
        target = path(s, d, p)
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_suffix(".half")
        command = [options.bowwave, "bench", p, "--device", d, "--set", s, "--arm", ",".join(options.arms)]
        command += ["--pairs", str(options.pairs), "--cap", str(options.cap), "--volume", str(options.volume)]
        command += ["--commit", options.commit, "--against", options.arms[0], "--json", str(half)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 130:
            half.unlink(missing_ok=True)
            sys.exit("stopped; ./x measure goes on from here")
        if done.returncode != 0 or not half.exists():
            lost += 1
            half.unlink(missing_ok=True)
            print(f"{s} {d} {p}: {done.stderr.strip()}", flush=True)
            continue
        # One line a run keeps a cell readable, and its file a third as large.
        document = json.loads(half.read_text())
        runs = ",\n".join(json.dumps(run, separators=(",", ":")) for run in document.pop("runs"))
        target.write_text(json.dumps(document)[:-1] + ', "runs": [\n' + runs + "\n]}\n")
        half.unlink()
        left = (time.monotonic() - begun) / (number + 1) * (len(todo) - number - 1)
        shares = share_of(document_runs(target))
        said = "  ".join(f"{arm} {shares[arm]:.2f}" for arm in options.arms if arm in shares)
        print(f"{number + 1}/{len(todo)}  {s} {d:>4} {p:<18} {said}  (about {left / 60:.0f} min left)", flush=True)
    return lost


def document_runs(path):
    """The runs of a cell's file."""
    return json.loads(path.read_text())["runs"]


def share(run):
    """Share of the online bound."""
    return run["yardsticks"]["online_ns"] / max(run["report"]["elapsed_ns"], 1)


def share_of(runs):
    """Median share by arm."""
    arms = {}
    for run in runs:
        arms.setdefault(run["arm"], []).append(share(run))
    return {arm: statistics.median(values) for arm, values in arms.items()}


def speed(run):
    """Useful bytes a second: what arms are compared by, for a stopped run has read less."""
    return run["yardsticks"]["useful_bytes"] / max(run["report"]["elapsed_ns"], 1)


def mean(values):
    """Geometric mean."""
    return math.exp(sum(math.log(max(v, 1e-9)) for v in values) / len(values)) if values else float("nan")


class Cell:
    """One pattern on one device with one set of parameters: all its arms."""

    def __init__(self, path):
        self.set, self.device, self.pattern = path.parts[-3], path.parts[-2], path.stem
        self.document = json.loads(path.read_text())
        self.runs = self.document["runs"]
        self.arms = sorted({run["arm"] for run in self.runs})
        self.share = share_of(self.runs)
        self.pairs = 1 + max(run["pair"] for run in self.runs)

    def of(self, arm, figure):
        """Median of a figure over an arm's runs."""
        return statistics.median(figure(run) for run in self.runs if run["arm"] == arm)

    def windows(self):
        """The kernel's windows that were played."""
        return [arm for arm in WINDOWS if arm in self.arms]

    def best(self):
        """The kernel's best window for this cell."""
        return max(self.windows(), key=lambda arm: self.of(arm, speed), default=None)

    def capped(self, arm):
        """Whether any run of the arm was stopped at its time cap."""
        return any(run["report"]["capped"] for run in self.runs if run["arm"] == arm)

    def ratio(self, ours, theirs):
        """Our speed by theirs: the median of pairs, and whether the 90 % interval lies under 1 (five pairs or more)."""
        by = lambda arm: {run["pair"]: speed(run) for run in self.runs if run["arm"] == arm}
        mine, other = by(ours), by(theirs)
        logs = [math.log(max(mine[p], 1e-12) / max(other[p], 1e-12)) for p in mine if p in other]
        middle = math.exp(statistics.median(logs))
        if len(logs) < 5:
            return middle, None
        t = {5: 2.132, 6: 2.015, 7: 1.943, 8: 1.895, 9: 1.860, 10: 1.833}.get(len(logs), 1.812)
        half = t * statistics.stdev(logs) / math.sqrt(len(logs))
        return middle, math.exp(statistics.mean(logs) + half) < 1

    def fetched_per_used(self, arm):
        """Bytes that the store sent, by bytes used."""
        return self.of(arm, lambda run: run["store"]["bytes"] / max(run["yardsticks"]["useful_bytes"], 1))

    def fetched_per_plan(self, arm):
        """Bytes that the store sent, by those that the offline bound's plan fetches."""
        return self.of(arm, lambda run: run["store"]["bytes"] / max(run["yardsticks"]["plan_bytes"], 1))


def grid(head, rows):
    """A table of Markdown, numbers to the right."""
    cells = [head] + [[str(cell) for cell in row] for row in rows]
    width = [max(len(row[i]) for row in cells) for i in range(len(head))]
    line = lambda row: "| " + " | ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, width))) + " |"
    rule = "|" + "|".join(("-" * (w + 2)) if i < 2 else ("-" * (w + 1) + ":") for i, w in enumerate(width)) + "|"
    return "\n".join([line(cells[0]), rule] + [line(row) for row in cells[1:]])


def table(options):
    """Geometric means, floors, and the worst cells, ours first."""
    cells = [Cell(path) for path in sorted(pathlib.Path(options.out).glob("*/*/*.json"))]
    if not cells:
        sys.exit(f"nothing is measured in {options.out}: run ./x measure")
    print("Share of the online bound, geometric mean (offline bound in brackets)\n")
    rows = []
    for s in sorted({cell.set for cell in cells}, reverse=True):
        for d in DEVICES:
            here = [cell for cell in cells if (cell.set, cell.device) == (s, d)]
            if here:
                rows.append([s, d, len(here)] + means(here, d))
    head = ["set", "device", "cells", "128k", "best window"] + OURS + ["floor", "floor user", "met", "f/used", "f/plan"]
    print(grid(head, rows))
    for arm in OURS:
        worst(cells, arm, options.worst)
    for arm in OURS:
        wasteful(cells, arm)


def means(here, device):
    """The cells of one row of means."""

    def both(arm_of):
        known = [(cell, arm_of(cell)) for cell in here if arm_of(cell) in cell.arms]
        if not known:
            return "-", None
        online = mean([cell.share[arm] for cell, arm in known])
        offline = mean(
            [
                cell.of(arm, lambda run: run["yardsticks"]["offline_ns"] / max(run["report"]["elapsed_ns"], 1))
                for cell, arm in known
            ]
        )
        return f"{online:.2f} ({offline:.2f})", online

    root, user = both(lambda _: "bowwave"), both(lambda _: "bowwave-user")
    floors = FLOORS[device]
    met = [ours is not None and ours >= floor for (_, ours), floor in zip((root, user), floors)]
    met = " ".join("yes" if ok else ("-" if ours is None else "NO") for ok, (_, ours) in zip(met, (root, user)))
    ours = [cell for cell in here if "bowwave" in cell.arms]
    waste = [f"{mean([cell.fetched_per_used('bowwave') for cell in ours]):.2f}"] if ours else ["-"]
    waste += [f"{mean([cell.fetched_per_plan('bowwave') for cell in ours]):.2f}"] if ours else ["-"]
    figures = [both(lambda _: "128k")[0], both(lambda cell: cell.best())[0], root[0], user[0]]
    return figures + [f"{floors[0]:.2f}", f"{floors[1]:.2f}", met] + waste


def worst(cells, arm, many):
    """The cells where `arm` does worst, and how many are lost."""
    known = [cell for cell in cells if arm in cell.arms and cell.best()]
    if not known:
        return
    judged = []
    for cell in known:
        default, default_sure = cell.ratio(arm, "128k") if "128k" in cell.arms else (float("nan"), None)
        best, best_sure = cell.ratio(arm, cell.best())
        below = default < DEFAULT_FLOOR or best < BEST_FLOOR
        sure = (default < DEFAULT_FLOOR and default_sure) or (best < BEST_FLOOR and best_sure)
        verdict = "LOST" if sure else ("below" if below else "")
        if cell.capped(arm):
            verdict += " ~"
        judged.append((best, cell, default, verdict))
    judged.sort(key=lambda row: row[0])
    lost = sum(row[3].startswith("LOST") for row in judged)
    below = sum(row[3].startswith("below") for row in judged)
    print(f"\nWorst cells of {arm}: {lost} lost, {below} below a floor without proof, of {len(judged)}\n")
    rows = [
        [cell.pattern, f"{cell.device} {cell.set}", f"{cell.share[arm]:.3f}", cell.best(), f"{best:.2f}", f"{default:.2f}"]
        + [f"{cell.fetched_per_used(arm):.2f}", f"{cell.fetched_per_plan(arm):.2f}", cell.pairs, verdict]
        for best, cell, default, verdict in judged[:many]
    ]
    head = ["pattern", "where", "online", "best", "by best", "by 128k", "f/used", "f/plan", "pairs", "verdict"]
    print(grid(head, rows))
    print("\n~ stopped at its time cap; a cell is lost if the median of five pairs or more is under its floor and the")
    print("90 % interval of the ratio lies under 1")


def wasteful(cells, arm):
    """The cells in which `arm` fetched more than is asked."""
    known = [cell for cell in cells if arm in cell.arms]
    if not known:
        return
    most = lambda cell: PLAN_MAX_LOOSE if cell.pattern in LOOSE else PLAN_MAX
    above = [cell for cell in known if cell.fetched_per_plan(arm) > most(cell)]
    print(f"\n{arm}: more than {PLAN_MAX} bytes by those of the plan ({PLAN_MAX_LOOSE} in clusters and archives) in {len(above)} of {len(known)} cells\n")
    for where in sorted({(cell.set, cell.device) for cell in above}, reverse=True):
        here = sorted((cell for cell in above if (cell.set, cell.device) == where), key=lambda c: -c.fetched_per_plan(arm))
        print(f"- {where[1]} {where[0]}: " + ", ".join(f"{c.pattern} {c.fetched_per_plan(arm):.2f}" for c in here))


def main():
    """The command line."""
    words = argparse.ArgumentParser(prog="./x measure", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    words.add_argument("--bowwave", default="target/release/bowwave", help=argparse.SUPPRESS)
    words.add_argument("--table", action="store_true", help="print the table of what is measured")
    words.add_argument("--sample", action="store_true", help="a small fixed part: six patterns, a tenth of the volume")
    words.add_argument("--pairs", type=int, default=1, help="how often every arm is played, in turn (1)")
    words.add_argument("--cap", type=float, default=20.0, help="seconds after which a run is stopped and marked (20)")
    words.add_argument("--devices", default=",".join(DEVICES), help="by commas (%(default)s)")
    words.add_argument("--sets", default=",".join(SETS), help="by commas (%(default)s)")
    words.add_argument("--arms", default=",".join(WINDOWS + OURS), help="by commas (%(default)s)")
    words.add_argument("--volume", type=float, default=1.0, help="share of the published volume (1.0)")
    words.add_argument("--out", default="", help="where the cells are kept (docs/measured, the sample in target/sample)")
    words.add_argument("--worst", type=int, default=15, help="how many of the worst cells the table shows (15)")
    words.add_argument("patterns", nargs="*", help="patterns (all that bowwave bench lists)")
    options = words.parse_args()
    options.devices, options.sets = options.devices.split(","), options.sets.split(",")
    options.arms, options.commit = options.arms.split(","), commit()
    if options.sample and not options.table:
        options.patterns = options.patterns or ["seq_64k", "il32_1fd", "matrix64", "sparse_8k", "rnd_clu", "zip"]
        options.volume, options.cap, options.sets = 0.1, 6.0, ["published"]
        options.arms = ["128k", "8m", "bowwave", "bowwave-user"]
    options.out = options.out or ("target/sample" if options.sample else str(ROOT))
    if options.table:
        table(options)
        return
    lost = measure(options)
    table(options)
    sys.exit(1 if lost else 0)


main()
