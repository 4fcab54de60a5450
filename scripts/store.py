"""The slow store as the measurements start it: a fresh mount at a device's pace, of which nothing is cached."""

import json
import subprocess
import sys
import time


class Store:
    """`bowwave slow` on a folder, from its first answer to its end; `dir` is where it is mounted.

    Use it with `with`. `window` is the kernel's window in KiB; without it the mount's own default holds."""

    def __init__(self, bowwave, source, work, device, window=None):
        self.dir, ready = work / "mount", work / "ready"
        self.dir.mkdir(exist_ok=True)
        ready.unlink(missing_ok=True)
        command = [bowwave, "slow", source, self.dir, "--device", device, "--exit-with-parent", "--ready-file", ready]
        if window is not None:
            command += ["--read-ahead-kb", str(window)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while not ready.exists():
            if self.process.poll() is not None:
                sys.exit(self.process.stderr.read())
            time.sleep(0.005)

    def stats(self):
        """The store's counters, once all that was asked has been sent."""
        for _ in range(200):
            stats = json.loads((self.dir / ".bowwave/stats").read_text())
            if stats["in_flight"] == 0:
                break
            time.sleep(0.01)
        return {key: stats[key] for key in ("requests", "bytes", "unique_bytes", "resent_bytes")}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate()
