"""The habits of CONTRIBUTING.md that a program can see: run by ./x tidy and ./x test.

Every finding says what to do. Sizes are a report, never a gate.
"""

import pathlib
import re
import subprocess
import sys

ARROWS = {  # which of our crates each crate may use: arrows point down only
    "bowwave-core": set(),
    "bowwave-c": {"bowwave-core"},
    "bowwave-fuzz": set(),
    "bowwave-wire": set(),
    "bowwave-lab": {"bowwave-core"},
    "bowwave-io": {"bowwave-core", "bowwave-lab"},  # the lab's models, for the storage that is slow; nothing of pages
    "bowwave-fuse": {"bowwave", "bowwave-core", "bowwave-io", "bowwave-lab"},
    "bowwave": {"bowwave-core", "bowwave-io"},
    "bowwave-preload": {"bowwave-wire"},  # it lives in other programs: nothing that allocates comes along
    "bowwave-steer": {"bowwave-core", "bowwave-wire"},
    "bowwave-cli": {"bowwave-core", "bowwave-fuse", "bowwave-io", "bowwave-lab", "bowwave-steer", "bowwave-wire"},
}


def files():
    """What git knows, and what it would take."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True, check=False
    )
    if listed.returncode == 0:
        names = listed.stdout.splitlines()
    else:
        names = [str(path) for path in pathlib.Path(".").rglob("*") if path.is_file()]
    keep = (pathlib.Path(name) for name in names if not name.startswith(("target/", ".git/")))
    return sorted(path for path in keep if path.is_file())


def findings(paths):
    """Everything that is not as it should be, one sentence each."""
    for path in paths:
        if path.suffix not in {".rs", ".md", ".py", ".toml", ".sh"} and path.name not in {"x", "run"}:
            continue
        text = path.read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            if not line.isascii() and not line.lstrip().startswith("//"):  # a comment may hold a drawing
                yield f"{path}:{number}: not ASCII: write it as an escape or in words"
            if line != line.rstrip() and path.suffix != ".md":
                yield f"{path}:{number}: blanks at the end of the line: remove them"
            if re.search(r"\b(FIX" + r"ME|TO" + r"DO|XX" + r"X)\b|\bdb" + r"g!\(", line):
                yield f"{path}:{number}: a leftover marker: do it, or write it down as an issue"
        if path.suffix == ".rs" and path.name != "tests.rs":  # a module's tests are part of that module
            if not text.startswith(("//!", "#!/")):
                yield f"{path}: opens without `//!`: say what the file decides, and what it does not"
        if path.suffix == ".md":
            for target in re.findall(r"\]\(([^)#:]+)[^):]*\)", text):
                if not (path.parent / target).exists():
                    yield f"{path}: links to {target}, which is not there: mend or remove the link"
        if path.name == "Cargo.toml" and path.parts[0] == "crates":
            name = re.search(r'^name = "([^"]+)"', text, re.M).group(1)
            used = set(re.findall(r"^(bowwave[\w-]*)[. ]", text.split("[dev-dependencies]")[0], re.M))
            if name not in ARROWS:
                yield f"{path}: {name} has no arrows: say in ARROWS of scripts/tidy.py which crates it may use"
            for crate in sorted(used - ARROWS.get(name, used)):
                yield f"{path}: {name} must not use {crate}: arrows point down only (ARCHITECTURE.md)"
    yield from decisions(paths)


def decisions(paths):
    """Decision records are numbered from 0001 without a gap."""
    numbers = sorted(path.name[:4] for path in paths if path.parts[:2] == ("docs", "decisions") and path.name[:4].isdigit())
    for wanted, number in enumerate(numbers, 1):
        if number != f"{wanted:04}":
            yield f"docs/decisions: {number} where {wanted:04} should be: number them without a gap"
            return


def main():
    """Prints the findings and the largest files."""
    paths = files()
    found = list(findings(paths))
    for sentence in found:
        print(sentence)
    sizes = sorted(((len(path.read_text().splitlines()), path) for path in paths if path.suffix == ".rs"), reverse=True)
    print("largest files: " + ", ".join(f"{path} {lines}" for lines, path in sizes[:5]))
    sys.exit(1 if found else 0)


main()
