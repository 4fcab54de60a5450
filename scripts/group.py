"""Memory groups as the measurements use them: version 1 or 2, whichever the machine has."""

import os
import pathlib
import time


class Group:
    """A memory group of so many bytes, or none."""

    def __init__(self, limit):
        self.path = None
        version_2 = pathlib.Path("/sys/fs/cgroup")
        version_1 = version_2 / "memory"
        if limit:
            root, name = (version_1, "memory.limit_in_bytes") if version_1.is_dir() else (version_2, "memory.max")
            path = root / f"bowwave-measured-{os.getpid()}"
            try:
                path.mkdir()
                (path / name).write_text(str(limit))
                self.path = path
            except OSError:
                if path.exists():
                    path.rmdir()
        self.works = not limit or self.path is not None

    def enter(self):
        """In the child."""
        if self.path:
            (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def leave(self):
        """Gone with its processes."""
        for _ in range(50):
            try:
                if self.path:
                    self.path.rmdir()
                return
            except OSError:
                time.sleep(0.05)
