#!/usr/bin/env python3
"""Reads of sixty algorithms, as traces: `scripts/algorithms.py DIR` writes each to DIR/NAME.csv (file,offset,length);
`scripts/algorithms.py DIR records` those of forty drawn files of records instead, that are not as long as whole pages;
`scripts/algorithms.py DIR random` those of 75 uniformly random readers, who stop before they have read much of their file or after,
and of twelve who touch four columns of a matrix;
`scripts/algorithms.py DIR copies` those of 48 programs that copy tensors out of a mapped file, upwards and downwards (play them `told`).

What a merge, a search by halves, a b-tree, a pack of objects, columns of a table, tiles of a picture, a player that
seeks, an archive that is listed and the like read, one reader each, drawn from fixed seeds. They were written without
regard to any rule, from what such programs do, to see what the rules make of reads that no pattern of the bench has:

    cargo run --release -p bowwave-lab --example play -- hdd root [told] trace=DIR/NAME.csv
    bowwave lab replay DIR/NAME.csv
"""

import argparse
import random
from pathlib import Path

PAGE, KIB, MIB = 4096, 1 << 10, 1 << 20


def pieces(file, start, length, block):
    """`length` bytes from `start` on, in reads of `block`."""
    return [(file, start + at, min(block, length - at)) for at in range(0, length, block)]


# Merges.


def merge(runs, run, block, seed, skew):
    """So many sorted runs of one file, of which some are used up sooner than others."""
    r = random.Random(seed)
    at, end = [i * run for i in range(runs)], [(i + 1) * run for i in range(runs)]
    weight, live = [r.random() ** skew + 0.02 for _ in range(runs)], list(range(runs))
    while live:
        i = r.choices(live, [weight[j] for j in live])[0]
        yield ("m", at[i], block)
        at[i] += block
        if at[i] >= end[i]:
            live.remove(i)


def compaction(seed):
    r = random.Random(seed)
    at = {f: 0 for f in range(10)}
    while at:
        f = r.choice(list(at))
        for _ in range(r.randrange(1, 6)):
            yield (f"sst{f}", at[f], PAGE + r.randrange(200))
            at[f] += PAGE
        if at[f] > 8 * MIB:
            del at[f]


# Indexes and what they point to.


def btree(seed):
    """Ranges of leaves, one to twenty of which lie one behind the other."""
    r = random.Random(seed)
    leaves, chunks, i = list(range(100, 40000)), [], 0
    while i < len(leaves):
        n = r.choice([1, 2, 3, 8, 20])
        chunks.append(leaves[i : i + n])
        i += n
    r.shuffle(chunks)
    order = [leaf for chunk in chunks for leaf in chunk]
    for _ in range(60):
        start = r.randrange(len(order) - 300)
        for _ in range(2):
            yield ("b", r.randrange(50) * 8192, 8192)
        for leaf in order[start : start + r.randrange(20, 300)]:
            yield ("b", leaf * 8192, 8192)


def bisect(seed):
    r = random.Random(seed)
    for _ in range(60):
        low, high = 0, 100000
        wanted = r.randrange(100000)
        while high - low > 1:
            middle = (low + high) // 2
            yield ("d", middle * PAGE, PAGE)
            low, high = (middle, high) if middle <= wanted else (low, middle)


def bitmap(seed, density, blocks):
    r = random.Random(seed)
    for block in range(blocks):
        if r.random() < density:
            yield ("t", block * 8192, 8192)


def correlated(seed):
    r = random.Random(seed)
    block = 0
    for i in range(12000):
        block += i % 3 == 0
        yield ("t", max(0, block + (r.randrange(-30, 30) if r.random() < 0.3 else 0)) * 8192, 8192)


def nested(seed):
    """The inner side of a nested loop: runs of geometric length at random places."""
    r = random.Random(seed)
    for _ in range(800):
        start, n = r.randrange(60000), 1
        while r.random() < 0.8:
            n += 1
        for j in range(n):
            yield ("n", (start + j) * 8192, 8192)


def lucene(seed):
    r = random.Random(seed)
    for _ in range(60):
        at = [f * 400 * MIB + r.randrange(300 * MIB) for f in range(3)]
        for _ in range(r.randrange(5, 120)):
            for f, share in ((0, 1), (1, 0.5), (2, 0.2)):
                if r.random() < share:
                    yield (f"seg{f}", at[f], 1024)
                    at[f] += r.choice([1024, 1024, 1024, 5000, 40000])


def bam(seed):
    r = random.Random(seed)
    for _ in range(70):
        for _ in range(2):
            yield ("bai", r.randrange(2000) * PAGE, PAGE)
        start = r.randrange(30000) * 64 * KIB
        yield from (("bam", start + i * 64 * KIB, 64 * KIB) for i in range(r.randrange(2, 40)))


# Archives, packs, journals.


def pack(seed):
    """Objects of a pack, each behind its bases, which lie before it."""
    r = random.Random(seed)
    for _ in range(600):
        at = r.randrange(400 * MIB)
        for _ in range(r.randrange(1, 12)):
            yield ("pack", max(0, at), r.randrange(400, 12000))
            at -= r.randrange(2000, 60000)


def checkout(seed):
    r = random.Random(seed)
    at = 0
    for _ in range(8000):
        yield ("pack", at, r.randrange(300, 6000))
        if r.random() < 0.25:
            yield ("pack", max(0, at - r.randrange(3 * MIB)), r.randrange(300, 6000))
        at += r.randrange(500, 20000)


def tar_list(seed):
    r = random.Random(seed)
    at = 0
    for _ in range(3000):
        yield ("tar", at, 512)
        at += 512 + (int(r.lognormvariate(9, 2)) + 511) // 512 * 512


def journal(seed):
    """Records followed back to the begin, with gaps between some."""
    r = random.Random(seed)
    at, reads = 400 * MIB, 0
    while at > 40 * MIB and reads < 6000:
        n = r.randrange(200, 9000)
        yield ("j", at, n)
        reads += 1
        at -= n + r.choice([0, 0, 0, 4096, 65536, 300000])


def mailbox(seed):
    r = random.Random(seed)
    at = 0
    for _ in range(1500):
        at += int(r.expovariate(1 / 120000.0))
        n = r.randrange(3000, 30000)
        yield ("m", at, n)
        at += n


def head_and_body(seed):
    r = random.Random(seed)
    for _ in range(600):
        base = r.randrange(1500) * MIB
        yield ("h", base, 512)
        n = r.randrange(20, 80) * KIB
        yield from pieces("h", base + r.randrange(8, 900) * KIB, n, 16 * KIB)


# Columns, arrays, pictures, films.


def parquet(seed):
    r = random.Random(seed)
    sizes = [[r.randrange(200 << 10, 6 * MIB) for _ in range(12)] for _ in range(30)]
    at, starts = 4, []
    for group in sizes:
        starts.append([])
        for size in group:
            starts[-1].append(at)
            at += size
    yield ("p", at + 200000, 8)
    yield ("p", at, 200008)
    for start, size in zip(starts, sizes):
        for column in (1, 4, 5):
            yield from pieces("p", start[column], size[column], MIB)


def orc(seed):
    r = random.Random(seed)
    yield ("o", 40 * 64 * MIB - 16 * KIB, 16 * KIB)
    for stripe in range(40):
        base, at = stripe * 64 * MIB, 0
        yield ("o", base + 64 * MIB - 32 * KIB, 32 * KIB)
        for column in range(10):
            n = r.randrange(1 * MIB, 9 * MIB)
            if column in (2, 3, 7):
                yield from pieces("o", base + at, n, 256 * KIB)
            at += n
            if at > 54 * MIB:
                break


def windows_of_tiles(seed):
    r = random.Random(seed)
    for _ in range(25):
        x0, y0 = r.randrange(188), r.randrange(188)
        wide, high = r.randrange(2, 12), r.randrange(2, 12)
        for y in range(y0, y0 + high):
            for x in range(x0, x0 + wide):
                yield ("c", 16384 + (y * 200 + x) * 50000, 50000 - r.randrange(9000))


def hilbert(side):
    for d in range(side * side):
        x = y = 0
        t, s = d, 1
        while s < side:
            rx = 1 & (t // 2)
            ry = 1 & (t ^ rx)
            if ry == 0:
                if rx == 1:
                    x, y = s - 1 - x, s - 1 - y
                x, y = y, x
            x, y, t, s = x + s * rx, y + s * ry, t // 4, s * 2
        yield ("h", (y * side + x) * 32768, 32768)


def morton(bits):
    def axis(d, shift):
        return sum(((d >> (2 * b + shift)) & 1) << b for b in range(bits))

    for d in range(1 << 2 * bits):
        yield ("h", ((axis(d, 1) << bits) + axis(d, 0)) * 32768, 32768)


def player(seed):
    r = random.Random(seed)
    for _ in range(20):
        start = r.randrange(2 * 1024 * MIB - 32 * MIB)
        yield ("v", r.randrange(64) * PAGE, 16384)
        for i in range(r.randrange(8, 60)):
            yield ("v", start + i * (256 << 10), 256 << 10)


def film(seed):
    r = random.Random(seed)
    at = MIB
    for i in range(2000):
        n = r.randrange(20000, 90000)
        yield ("mp4", at, n)
        yield ("mp4", at + n, 4000)
        if i % 50 == 0:
            yield ("mp4", r.randrange(MIB) // PAGE * PAGE, PAGE)
        at += n + 4000


def pyramid():
    for i in range(3000):
        yield ("y", 400 * MIB + i * 16384, 16384)
        if i % 4 == 0:
            yield ("y", 200 * MIB + i // 4 * 16384, 16384)
        if i % 16 == 0:
            yield ("y", i // 16 * 16384, 16384)


# Programs and their data.


def debugger(seed):
    r = random.Random(seed)
    yield ("elf", 0, 64)
    yield ("elf", 300 * MIB - 4096, 4096)
    for _ in range(300):
        yield ("elf", 250 * MIB + r.randrange(20 * MIB), 64)
    yield from (("elf", 10 * MIB + i * 65536, 65536) for i in range(1000))
    for _ in range(500):
        yield ("elf", 280 * MIB + r.randrange(8 * MIB), 32)


def samples(seed):
    """What a loader of samples reads of four shards, shuffled."""
    r = random.Random(seed)
    known = []
    for shard in range(4):
        at = 0
        while at < 100 * MIB:
            n = r.randrange(60 << 10, 400 << 10)
            known.append((f"s{shard}", at, n))
            at += n
    r.shuffle(known)
    for file, at, n in known[:600]:
        yield from pieces(file, at, n, 131072)


def torrent(seed):
    r = random.Random(seed)
    order = list(range(800))
    r.shuffle(order)
    for piece in order:
        yield from pieces("b", piece * (256 << 10), 256 << 10, 16384)


def checkpoint(seed):
    r = random.Random(seed)
    at, tensors = 0, []
    while at < 600 * MIB:
        n = r.randrange(MIB, 40 * MIB)
        tensors.append((at, n))
        at += n
    r.shuffle(tensors)
    yield from (("c", 0, 8), ("c", 8, 200 * KIB))
    for start, n in tensors:
        yield from pieces("c", 210 * KIB + start, n, 8 * MIB)


def small_files(files, seed):
    r = random.Random(seed)
    for i in range(files):
        size = int(min(2 * MIB, max(500, r.lognormvariate(10.3, 1.4))))
        yield from pieces(f"d0_{i}", 0, size, 32 * KIB)


def index_and_data(seed):
    r = random.Random(seed)
    at = 0
    for i in range(4000):
        if i % 64 == 0:
            yield ("idx", i * 64, 4096)
        n = r.randrange(500, 60000)
        yield ("dat", at, n)
        at += n


def pager(seed):
    """Forward by 64 KiB, now and then a look at the end, and sometimes elsewhere for good."""
    r = random.Random(seed)
    at = 0
    for i in range(1500):
        yield ("l", at, 64 * KIB)
        at += 64 * KIB
        if i % 200 == 150:
            yield from (("l", 300 * MIB - 64 * KIB * j, 64 * KIB) for j in range(1, 5))
        if i % 300 == 299:
            at = r.randrange(200) * MIB


def growing():
    at, n = 0, 4096
    while at < 300 * MIB:
        yield ("g", at, n)
        at += n
        n = min(MIB, int(n * 1.02) + 1)


def sawtooth():
    at = 0
    while at < 150 * MIB:
        yield from (("s", at + i * 32 * KIB, 32 * KIB) for i in range(32))
        at += 512 * KIB


def skips(seed):
    r = random.Random(seed)
    at = 0
    for _ in range(20000):
        at += r.randrange(0, 9000)
        yield ("n", at, r.randrange(100, 5000))


def files_of(r, sizes, block):
    return [read for i, size in enumerate(sizes) for read in pieces(f"f{i}", 0, size, block)]


def families(seed):
    """Trees of files, which share their random numbers in this order."""
    r = random.Random(seed)
    big = [("big", i * 64 * KIB, 64 * KIB) for i in range(4800)]
    yield "small_then_big", files_of(r, [r.randrange(300, 900) * KIB for _ in range(60)], 64 * KIB) + big
    yield "small_mid", files_of(r, [r.randrange(1, 12) * MIB for _ in range(40)], 64 * KIB)
    yield "logs", files_of(r, [r.randrange(4, 24) * MIB for _ in range(30)], 128 * KIB)
    some = []
    for i in range(150):
        file = pieces(f"f{i}", 0, r.randrange(100, 600) * KIB, 32 * KIB)
        some += file if r.random() < 0.6 else file[:1]
    yield "some_whole", some


def all_of_them():
    yield "kmerge8", merge(8, 16 * MIB, 64 << 10, 1, 2)
    yield "kmerge40", merge(40, 4 * MIB, 16 << 10, 2, 1)
    by_file = 8 * MIB
    yield "kmerge_files", ((f"r{o // by_file}", o % by_file, n) for _, o, n in merge(12, by_file, 32 << 10, 3, 2))
    yield "video", player(4)
    yield "btree", btree(5)
    yield "gitpack", pack(6)
    yield "checkout", checkout(7)
    yield "parquet3", parquet(8)
    yield "cog", windows_of_tiles(9)
    yield "hilbert", hilbert(64)
    yield "zorder", morton(6)
    yield "blocktrans", (("t", (b * 16 + i) * 65536 + c * 4096, 4096) for c in range(16) for b in range(128) for i in range(16))
    yield "blocktrans2", (("t", (b * 16 + i) * 65536 + c * 4096, 4096) for b in range(128) for c in range(16) for i in range(16))
    yield "plane_y", (("a", z * 4 * MIB + y * 32768, 32768) for y in range(0, 64, 7) for z in range(100))
    yield "sub3d", (("a", z * 4 * MIB + y * 32768 + 4096, 8192) for z in range(40) for y in range(20, 52))
    yield "diff2", ((f, i * 65536, 65536) for i in range(1500) for f in ("x", "y"))
    yield "tac", (("f", i * 8192, 8192) for i in range(20000, 0, -1))
    yield "bisect", bisect(10)
    build, probe = (8 * MIB, 128), (16 * MIB, 256)
    sides = (("build", build), ("probe", probe))
    yield "hashjoin", ((f, p * size + i * 65536, 65536) for p in range(16) for f, (size, n) in sides for i in range(n))
    yield "bitmap10", bitmap(12, 0.1, 40000)
    yield "bitmap35", bitmap(13, 0.35, 20000)
    yield "bitmap02", bitmap(14, 0.02, 100000)
    yield "corr", correlated(15)
    yield "lsm", compaction(16)
    yield "tarlist", tar_list(17)
    yield "mp4", film(18)
    yield "elf", debugger(19)
    yield "loader", samples(20)
    yield "webds", ((f"s{(i * 7 + i // 50) % 3}", (i // 3) * 100000, 100000) for i in range(1800))
    yield "evenodd", (("e", i * MIB, MIB) for odd in (0, 1) for i in range(odd, 200, 2))
    yield "shrinkstep", (("s", sum(range(400, 400 - i, -1)) * 16384, 16384) for i in range(390))
    yield "growstep", (("s", sum(range(i)) * 16384, 16384) for i in range(400))
    yield "nested", nested(21)
    yield "pyramid", pyramid()
    yield "torrent", torrent(22)
    yield "maildir", small_files(1200, 2)
    yield "idxdata", index_and_data(4)
    yield "journal", journal(5)
    yield "bam", bam(6)
    yield "orc", orc(7)
    yield "tiff_cols", (("t", (y * 40 + x) * 65536, 65536) for x in range(40) for y in range(60))
    yield "ckpt", checkpoint(8)
    yield "layers", (("l", i * MIB, MIB) for _ in range(3) for i in range(256))
    yield "lucene", lucene(9)
    yield "everythird", (("e", i * 192 * KIB, 64 * KIB) for i in range(1500))
    yield "growreq", growing()
    yield "records7", ((f"r{i % 7}", i // 7 * 100, 100) for i in range(150000))
    yield "less", pager(10)
    yield "fsck", (("disk", g * 128 * MIB + MIB + i * 128 * KIB, 128 * KIB) for g in range(100) for i in range(16))
    yield "mbox", mailbox(11)
    yield "headbody", head_and_body(13)
    yield "updown", (("u", at, 16 * KIB) for i in range(3000) for at in (i * 16 * KIB, 200 * MIB - i * 16 * KIB))
    yield "sawtooth", sawtooth()
    yield "skipforward", skips(14)
    yield from families(3)


def records(seed):
    """A file of records of 10 kB to 5 MB, of each of which the same is read: its begin, that and a piece behind it,
    several columns, a piece in smaller reads, or the begin from the last record to the first."""
    r = random.Random(seed)
    period = int(10 ** r.uniform(4, 6.7))
    kind = r.choice(["begin", "begin", "two", "columns", "backwards", "pieces"])
    length = min(int(10 ** r.uniform(1.5, 5.2)), period // 3)
    count = max(60, min(4000, int(3e8 / period)))
    first = r.randrange(100000)
    columns, apart = r.choice([2, 5, 9]), 0
    second = max(1, min(length * r.choice([1, 3, 10]), period // 3))
    if kind == "columns":
        length = min(length, period // (2 * columns))
        apart = min(r.choice([0, length, 3 * length]), (period - length * columns) // columns)
    order = range(count - 1, -1, -1) if kind == "backwards" else range(count)
    for record in order:
        at = first + record * period
        if kind == "columns":
            yield from (("r", at + column * (length + apart), length) for column in range(columns))
        elif kind == "pieces":
            yield from pieces("r", at, length, max(512, length // 8))
        else:
            yield ("r", at, length)
            if kind == "two":
                yield ("r", at + length, second)


def random_readers():
    """Files of 8 to 512 MiB, of which 150 to 2,500 blocks of 4, 16 or 64 KiB are read; and a page of each row, column by column."""
    for size in (8, 16, 32, 64, 128, 256, 512):
        for reads in (150, 400, 1000, 2500):
            for kib in (4, 16, 64):
                r, blocks = random.Random(size * reads + kib), size * 1024 // kib
                if reads <= 2 * blocks:
                    yield f"rand_{size}M_{reads}_{kib}k", [
                        ("f", r.randrange(blocks) * kib * KIB, kib * KIB) for _ in range(reads)
                    ]
    for rows in (100, 300, 1000, 2600):
        for row in (40_000, 80_000, 200_000):
            yield f"columns_{rows}_{row}", [
                ("m", (i * row + column * row // 5) // PAGE * PAGE, PAGE) for column in range(4) for i in range(rows)
            ]


def copied(first, pages, manner):
    """Pages in the order in which they are touched by who copies memory: glibc has both ends first, and goes up or down as the addresses are."""
    last = first + pages - 1
    ends = {"up": [first, last, last - 1], "down": [first, last], "end_first": [last], "backwards": []}[manner]
    between = range(first, last + 1) if manner in ("up", "end_first") else range(last, first - 1, -1)
    return list(dict.fromkeys([*ends, *between]))


def tensors(sizes, shuffled, part, manner, seed):
    """64 MB of tensors, behind one another in a mapped file, of which one in `part` is copied to memory."""
    r, at, places = random.Random(seed), 1, []
    while at < 16_384:
        pages = {"equal": 257, "drawn": int(20 * 2 ** r.uniform(0, 6)), "growing": 60 + 16 * len(places)}[sizes]
        places.append((at, pages))
        at += pages - r.randrange(2)
    if shuffled:
        r.shuffle(places)
    return [("t", page * PAGE, PAGE) for first, pages in places[::part] for page in copied(first, pages, manner)]


def copies():
    """What is copied out of mapped files, page by page."""
    for sizes in ("equal", "drawn", "growing"):
        for shuffled in (False, True):
            for part in (1, 4):
                for manner in ("up", "down", "end_first", "backwards"):
                    name = f"{sizes}_{'shuffled' if shuffled else 'in_order'}_{part}_{manner}"
                    yield name, tensors(sizes, shuffled, part, manner, 7)


SETS = {
    "algorithms": all_of_them,
    "records": lambda: ((f"records{seed}", records(seed)) for seed in range(40)),
    "random": random_readers,
    "copies": copies,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR", help="where the traces go")
    parser.add_argument("set", nargs="?", choices=SETS, default="algorithms", help="which of them (algorithms)")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, reads in SETS[args.set]():
        rows = "".join(f"{file},{offset},{length}\n" for file, offset, length in reads)
        (args.folder / f"{name}.csv").write_text("file,offset,length\n" + rows)


main()
