"""Mounts of a bucket, side by side: bowwave, rclone, s3fs and mountpoint-s3, one server, 25 ms before each answer. Run by ./x peers.

The server is a small S3 of our own on loopback: it lists, tells heads, serves ranges, waits, and counts. A peer that is not
installed is left out, and said so. Each cell: seconds, requests, bytes moved per byte used, of the median of three runs, peers turn
and turn about; every byte is compared. In scarce memory the mount and its readers live in one memory cgroup (root); a peer that dies
there, or cannot serve, has failed.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import json
import mmap
import multiprocessing
import os
import pathlib
import random
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

KIB, MIB = 1 << 10, 1 << 20
OBJECT_BYTES = 512 * MIB
BEGIN = 8 * MIB
SERVERS = 16
BUCKET = "bench"
GROUP = pathlib.Path("/sys/fs/cgroup/memory/bowwave-peers")


class Counts:
    """What the servers were asked since the last look, and sent."""

    def __init__(self):
        self.both = multiprocessing.Array("Q", 2)

    def add(self, gets, sent):
        """An answer, or a piece of one."""
        with self.both.get_lock():
            self.both[0] += gets
            self.both[1] += sent

    def take(self):
        """Reads and clears them."""
        with self.both.get_lock():
            told = tuple(self.both)
            self.both[0] = self.both[1] = 0
        return told


def server(root, delay_s, counts):
    """An S3 that serves the files of ROOT/BUCKET, each answer DELAY_S late.

    Sixteen processes take what comes, and heads are read and written by hand: in one interpreter sixty connections wait for one another longer
    than the delay is, and Python's own server takes half a millisecond for a head.
    """

    class Handler(socketserver.StreamRequestHandler):
        disable_nagle_algorithm = True  # a small body would wait 40 ms for the acknowledgement of its head

        def handle(self):
            with contextlib.suppress(OSError):  # who asked has gone
                while line := self.rfile.readline():
                    method, target, _ = line.decode().split(" ", 2)
                    wanted = None
                    while (header := self.rfile.readline().strip()):
                        if header[:6].lower() == b"range:":
                            wanted = header[6:].strip().decode()
                    time.sleep(delay_s)
                    self.answer(method, urllib.parse.urlsplit(target), wanted)

        def reply(self, status, headers, length, body=b""):
            head = "".join(f"{name}: {value}\r\n" for name, value in {**headers, "Content-Length": length}.items())
            self.connection.sendall(f"HTTP/1.1 {status} .\r\n{head}\r\n".encode() + body)

        def tell(self, method, status, text):
            self.reply(status, {"Content-Type": "application/xml"}, len(text), text if method == "GET" else b"")

        def answer(self, method, url, wanted):
            path = pathlib.Path(root, urllib.parse.unquote(url.path).lstrip("/"))
            if path.is_dir() and len(path.relative_to(root).parts) == 1:
                return self.tell(method, 200, listing(path, dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))))
            if not path.is_file():
                return self.tell(method, 404, b"<Error><Code>NoSuchKey</Code></Error>")
            size = path.stat().st_size
            headers = {
                "ETag": f'"{tag(path)}"',
                "Last-Modified": "Sat, 21 Nov 2026 12:00:00 GMT",
                "Accept-Ranges": "bytes",
                "Content-Type": "application/octet-stream",
            }
            first, last, status = 0, size - 1, 200
            if wanted:
                begin, _, end = wanted.removeprefix("bytes=").partition("-")
                first, last, status = int(begin), min(int(end or size - 1), size - 1), 206
                headers["Content-Range"] = f"bytes {first}-{last}/{size}"
            self.reply(status, headers, last + 1 - first)
            if method == "HEAD":
                return None
            counts.add(1, 0)
            with path.open("rb") as file:
                while first <= last:
                    sent = os.sendfile(self.connection.fileno(), file.fileno(), first, min(last + 1 - first, MIB))
                    counts.add(0, sent)
                    first += sent
            return None

    class Threading(socketserver.ThreadingTCPServer):
        daemon_threads, request_queue_size = True, 512

        def handle_error(self, *_):
            pass

    listening = Threading(("127.0.0.1", 0), Handler)
    for _ in range(SERVERS):
        multiprocessing.get_context("fork").Process(target=listening.serve_forever, daemon=True).start()
    return listening.server_address[1]


def tag(path):
    """The ETag of an object: one that ends in a number after a dash would be taken to have come in so many parts."""
    return hashlib.md5(f"{path.name} {path.stat().st_size}".encode()).hexdigest()


def listing(bucket, query):
    """What BUCKET holds, as QUERY asks for it."""
    if "location" in query:
        return b"<LocationConstraint>us-east-1</LocationConstraint>"
    prefix, inside, folders = query.get("prefix", ""), [], set()
    for path in sorted(bucket.rglob("*")):
        key = str(path.relative_to(bucket))
        if not path.is_file() or not key.startswith(prefix):
            continue
        rest = key[len(prefix) :]
        if query.get("delimiter") == "/" and "/" in rest:
            folders.add(prefix + rest.split("/")[0] + "/")
            continue
        size = path.stat().st_size
        inside.append(
            f"<Contents><Key>{key}</Key><LastModified>2026-11-21T12:00:00.000Z</LastModified>"
            f"<ETag>&quot;{tag(path)}&quot;</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        )
    inside += [f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>" for folder in sorted(folders)]
    text = (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>{bucket.name}</Name><Prefix>{prefix}</Prefix><MaxKeys>1000</MaxKeys><KeyCount>{len(inside)}</KeyCount>"
        f"<IsTruncated>false</IsTruncated>{''.join(inside)}</ListBucketResult>"
    )
    return text.encode()


def in_turn(starts, step, count):
    """Streams that begin at STARTS, COUNT reads of STEP each, one after the other in turn."""
    return [(start + n * step, step) for n in range(count) for start in starts]


@dataclasses.dataclass
class Row:
    """The reads of each thread: (offset, bytes); how they are made; the memory there is."""

    threads: list
    mapped: bool = False
    memory: int = 0


def members(count, size):
    """Members of a zip file by chance: its directory at the end, then of each the head, and the data in pieces of 64 KiB."""
    order = list(range(count))
    random.Random(3).shuffle(order)
    reads = [(OBJECT_BYTES - 64 * KIB, 64 * KIB)]
    for n in order:
        at = n * (OBJECT_BYTES // count - KIB)
        reads += [(at, 30)] + [(at + 30 + piece, 64 * KIB) for piece in range(0, size, 64 * KIB)]
    return reads


def patterns():
    """Name to its reads. All begin 8 MiB into the object, and streams are 32 MiB apart where there is room."""
    rows = {name: Row(threads) for name, threads in plain().items()}
    rows["mapped load"] = Row([in_turn([BEGIN], MIB, 32)], mapped=True)
    rows["64 readers, 128 MiB"] = Row([in_turn([n * 8 * MIB], 64 * KIB, 64) for n in range(64)], memory=128 * MIB)
    return rows


def plain():
    """Name to the reads of each thread, made by pread on one descriptor: (offset, bytes)."""
    shuffled = random.Random(7)
    end = BEGIN + 16 * MIB
    columns = [(BEGIN + n * 8 * MIB, 512 * KIB) for n in range(8)]
    return {
        "in order": [in_turn([BEGIN], 128 * KIB, 128)],
        "2 streams": [in_turn([BEGIN, BEGIN + 32 * MIB], 128 * KIB, 64)],
        "8 streams": [in_turn([BEGIN + n * 32 * MIB for n in range(8)], 128 * KIB, 16)],
        "32 streams": [in_turn([BEGIN + n * 15 * MIB for n in range(32)], 64 * KIB, 8)],
        "reverse": [[(end - (n + 1) * 128 * KIB, 128 * KIB) for n in range(128)]],
        "64K every 1M": [[(BEGIN + n * MIB, 64 * KIB) for n in range(64)]],
        "swapped": [[(BEGIN + (n ^ 1) * 128 * KIB, 128 * KIB) for n in range(128)]],
        "16 threads": [in_turn([BEGIN + n * 31 * MIB], 128 * KIB, 8) for n in range(16)],
        "random 4K": [[(BEGIN + shuffled.randrange(200 * MIB // 4096) * 4096, 4096) for _ in range(32)]],
        "footer, columns": [[(OBJECT_BYTES - 8, 8), (OBJECT_BYTES - 64 * KIB, 64 * KIB), *columns]],
        "zip members": [members(48, 256 * KIB)],
    }


def play(path, row, truth):
    """Makes the reads; seconds, bytes used, and how many were wrong."""
    handle = os.open(path, os.O_RDONLY)
    view = mmap.mmap(handle, 0, prot=mmap.PROT_READ) if row.mapped else None
    wrong = []

    def bytes_at(offset, count):
        if view:
            return view[offset : offset + count]
        got = b""
        while len(got) < count:
            piece = os.pread(handle, count - len(got), offset + len(got))
            if not piece:
                break
            got += piece
        return got

    def read(reads):
        for offset, count in reads:
            try:
                same = bytes_at(offset, count) == truth[offset : offset + count]
            except OSError:
                same = False
            if not same:
                wrong.append(offset)

    begun = time.perf_counter()
    workers = [threading.Thread(target=read, args=(reads,)) for reads in row.threads]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    took = time.perf_counter() - begun
    with contextlib.suppress(OSError):  # of a mount that has died
        os.close(handle)
    return took, sum(count for reads in row.threads for _, count in reads), len(wrong)


def join_group():
    """This process lives in the group from now on."""
    (GROUP / "cgroup.procs").write_text(str(os.getpid()))


@contextlib.contextmanager
def scarce(memory):
    """A memory cgroup of MEMORY bytes, for as long as it takes."""
    if memory:
        GROUP.mkdir(exist_ok=True)
        (GROUP / "memory.limit_in_bytes").write_text(str(memory))
    try:
        yield
    finally:
        for _ in range(50 if memory else 0):
            with contextlib.suppress(OSError):  # the last process may still be on its way out
                GROUP.rmdir()
                break
            time.sleep(0.1)


def play_apart(path, row, truth):
    """`play` by a process of its own: who waits for a mapped page keeps the interpreter, and the server is in this one."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if row.memory:
                join_group()
            os.write(tell, json.dumps(play(path, row, truth)).encode())
        finally:
            os._exit(0)  # whatever became of it: the mount is the parent's to take down
    os.close(tell)
    with os.fdopen(told) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else (0.0, 1, 1)


def peers(bowwave, mountpoint, port, home):
    """Name to the command that mounts the bucket on a directory, and stays."""
    endpoint = f"http://127.0.0.1:{port}"
    found = {"bowwave": lambda at: [bowwave, "mount", f"s3://{BUCKET}", at, "--endpoint", endpoint, "--anonymous"]}
    config = home / "rclone.conf"
    config.write_text(
        f"[t]\ntype = s3\nprovider = Other\naccess_key_id = k\nsecret_access_key = s\nendpoint = {endpoint}\nregion = us-east-1\n"
        "force_path_style = true\n"
    )
    if shutil.which("rclone"):
        base = ["rclone", "--config", str(config), "mount", f"t:{BUCKET}"]
        found["rclone"] = lambda at: [*base, at, "--read-only", "--allow-non-empty"]
        found["rclone full"] = lambda at: [
            *base, at, "--read-only", "--vfs-cache-mode", "full", "--cache-dir", tempfile.mkdtemp(dir=home)
        ]
    else:
        print("skipped: rclone is not installed (apt-get install rclone)", file=sys.stderr)
    password = home / "password"
    password.write_text("k:s")
    password.chmod(0o600)
    if shutil.which("s3fs"):
        found["s3fs"] = lambda at: [
            "s3fs", BUCKET, at, "-f", "-o", f"passwd_file={password}", "-o", f"url={endpoint}", "-o", "use_path_request_style,ro",
        ]
    else:
        print("skipped: s3fs is not installed (apt-get install s3fs)", file=sys.stderr)
    if mountpoint:
        found["mountpoint"] = lambda at: [mountpoint, BUCKET, at, endpoint, "2048"]
    return found


@contextlib.contextmanager
def mounted(command, at, inside):
    """Mounted by COMMAND on AT for as long as it takes, INSIDE the group or not."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment["AWS_EC2_METADATA_DISABLED"] = "true"
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=join_group if inside else None,
    )
    try:
        begun = time.monotonic()
        while not os.path.ismount(at):
            if child.poll() is not None or time.monotonic() - begun > 30:
                sys.exit(f"peers: {command[0]} did not mount: {child.stderr.read().decode(errors='replace')[-300:]}")
            time.sleep(0.05)
        yield
    finally:
        subprocess.run(["umount", "-l", at], check=False, stderr=subprocess.DEVNULL)
        child.terminate()
        child.wait()


def main():
    """Plays every pattern under every peer, cold, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bowwave", default="target/release/bowwave")
    parser.add_argument("--mountpoint", metavar="BINARY", help="mountpoint-s3 as scripts/mountpoint builds it")
    parser.add_argument("--delay-ms", type=float, default=25)
    parser.add_argument("--only", help="patterns with this in their name")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each cell, peers turn and turn about; the median is shown")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bowwave-peers-") as made:
        home = pathlib.Path(made)
        (home / "root" / BUCKET).mkdir(parents=True)
        counts = Counts()
        port = server(home / "root", args.delay_ms / 1000, counts)  # before there is much to fork
        chance = random.Random(1)
        truth = b"".join(chance.randbytes(MIB) for _ in range(OBJECT_BYTES // MIB))
        found = peers(args.bowwave, args.mountpoint, port, home)
        at = home / "at"
        at.mkdir()
        chosen = {name: reads for name, reads in patterns().items() if not args.only or args.only in name}
        (home / "object").write_bytes(truth)
        for number in range(len(chosen)):
            os.link(home / "object", home / "root" / BUCKET / f"o{number}")
        print("| pattern | " + " | ".join(f"{peer}: s, requests, bytes per byte" for peer in found) + " |")
        print("|---|" + "---|" * len(found))
        for number, (name, row) in enumerate(chosen.items()):
            path = at / f"o{number}"
            (home / "root" / BUCKET / path.name).read_bytes()  # or whoever comes first pays for memory that the host has not given yet
            runs = {peer: [] for peer in found}
            for _ in range(args.rounds):
                for peer, command in found.items():
                    # What a user would do there: the cache has to leave room for what the kernel caches.
                    more = ["--memory", "64M"] if row.memory and peer == "bowwave" else []
                    with scarce(row.memory), mounted([*command(str(at)), *more], str(at), bool(row.memory)):
                        os.stat(path)
                        counts.take()
                        took, used, wrong = play_apart(path, row, truth)
                        gets, sent = counts.take()
                    if wrong and not row.memory:
                        sys.exit(f"peers: {peer}: {name}: {wrong} reads were wrong")
                    text = f"{took:.2f} s, {gets}, {sent / used:.2f}"
                    runs[peer].append((took, text) if not wrong else (float("inf"), f"failed: {wrong} reads"))
            cells = [sorted(of_peer)[len(of_peer) // 2] for of_peer in runs.values()]
            best = min(took for took, _ in cells)
            print(f"| {name} | " + " | ".join(f"**{text}**" if took <= 1.05 * best else text for took, text in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
