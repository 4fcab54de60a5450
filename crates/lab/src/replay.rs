//! A user's own reads, from whatever recorded them, as a plan that the world can play.
//!
//! ```text
//! strace    read(3, "..."..., 4096) = 4096       positions are followed through open, lseek, dup and close
//! fio       file read 8192 4096                  an iolog of version 2 or 3
//! blktrace  8,0 3 1 0.000 697 Q R 2048 + 8       blkparse's text; queued reads, one file: the device
//! darshan   X_POSIX 0 read 0 0 262144 0.1 0.2    darshan-dxt-parser's text
//! csv       file,offset,length[,thread]          a header names the columns, in any order
//! ```
//!
//! What a trace does not tell is not made up: reads follow one another without time between them, unless the trace says how
//! long each took and when the next began. Faults of a mapping are in none of these formats; the mappings that strace shows
//! are counted, so that nobody believes that they were replayed.

use crate::pattern::{Op, Plan, PlanFile};
use std::collections::{BTreeMap, BTreeSet};

/// Longest pause between two reads that is taken for the program's own work.
const THINK_NS_MAX: u64 = 50_000_000;
/// Bytes that a trace may read in all: 67 million pages, and each is played some fifteen times a device.
const BYTES_MAX: u64 = 256 << 30;
/// Ends of reads that a later one may continue, a file.
const ENDS_MAX: usize = 4096;

/// What recorded a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceFormat {
    /// `strace -f -e trace=file,desc` or more.
    Strace,
    /// fio's iolog, version 2 or 3.
    Fio,
    /// Text of blkparse.
    Blktrace,
    /// Text of darshan-dxt-parser.
    Darshan,
    /// Columns with a header.
    Csv,
}

impl TraceFormat {
    /// Every format by its name.
    pub const NAMED: [(&'static str, Self); 5] = [
        ("strace", Self::Strace),
        ("fio", Self::Fio),
        ("blktrace", Self::Blktrace),
        ("darshan", Self::Darshan),
        ("csv", Self::Csv),
    ];

    /// What the text looks like, from its first lines.
    pub fn guessed(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty()).take(200);
        lines.find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            if line.starts_with("fio version") {
                Some(Self::Fio)
            } else if line.starts_with("# DXT") || line.contains("darshan") {
                Some(Self::Darshan)
            } else if line.contains(") = ") && line.contains('(') {
                Some(Self::Strace)
            } else if words.len() >= 8 && words[0].contains(',') && words.contains(&"+") {
                Some(Self::Blktrace)
            } else if line.split(',').any(|column| column.trim() == "offset") {
                Some(Self::Csv)
            } else {
                None
            }
        })
    }
}

/// A trace, read.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    /// Its reads.
    pub plan: Plan,
    /// Share of reads that go on where one of the latest reads of their file ended.
    pub continued: f64,
    /// Mappings whose faults the trace does not show.
    pub mappings: u64,
}

/// A read as it was recorded.
struct Access {
    thread: u64,
    file: String,
    offset: u64,
    len: u64,
    /// When it began and how long it took, if the trace says so.
    time: Option<(u64, u64)>,
}

/// Reads a trace; `None` guesses its format.
///
/// # Errors
/// A sentence, if the format cannot be guessed, there is no read in it, or more than can be played.
pub fn read_trace(text: &str, format: Option<TraceFormat>) -> Result<Trace, String> {
    let format = format.or_else(|| TraceFormat::guessed(text)).ok_or(
        "this is no trace of strace, fio (iolog), blkparse, darshan-dxt-parser, nor a table with the columns file,offset,length",
    )?;
    let mut mappings = 0;
    let accesses = match format {
        TraceFormat::Strace => strace(text, &mut mappings),
        TraceFormat::Fio => fio(text),
        TraceFormat::Blktrace => blktrace(text),
        TraceFormat::Darshan => darshan(text),
        TraceFormat::Csv => csv(text)?,
    };
    // No file is longer than an offset can say.
    let possible =
        |a: &Access| a.len > 0 && a.offset.checked_add(a.len).is_some_and(|end| end <= i64::MAX as u64);
    let accesses: Vec<Access> = accesses.into_iter().filter(possible).collect();
    trace(&accesses, mappings)
}

fn trace(accesses: &[Access], mappings: u64) -> Result<Trace, String> {
    if accesses.is_empty() {
        return Err("there is no read in this trace".into());
    }
    let bytes = accesses.iter().fold(0_u64, |sum, access| sum.saturating_add(access.len));
    if bytes > BYTES_MAX {
        let gib = bytes >> 30;
        return Err(format!("its reads come to {gib} GiB; at most {} are played: cut it", BYTES_MAX >> 30));
    }
    let (plan, continued) = planned(accesses);
    Ok(Trace { plan, continued, mappings })
}

/// Reads of a program that a driver already has: `(file, offset, bytes)` of one thread, in order.
///
/// # Errors
/// A sentence, if there are none, or more than can be played.
pub fn trace_of(reads: impl Iterator<Item = (String, u64, u64)>) -> Result<Trace, String> {
    let access = |(file, offset, len)| Access { thread: 0, file, offset, len, time: None };
    trace(&reads.map(access).collect::<Vec<_>>(), 0)
}

fn planned(accesses: &[Access]) -> (Plan, f64) {
    let mut plan = Plan::new();
    let mut files: BTreeMap<&str, u32> = BTreeMap::new();
    let mut threads: BTreeMap<u64, u32> = BTreeMap::new();
    let mut descriptors: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    let mut ends: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    let mut last: BTreeMap<u32, usize> = BTreeMap::new();
    let mut continued = 0_u64;
    for (at, access) in accesses.iter().enumerate() {
        let next = files.len() as u32;
        let file = *files.entry(&access.file).or_insert(next);
        if file == next {
            plan.files.push(PlanFile { name: access.file.clone(), size: 0 });
        }
        let next = threads.len() as u32;
        let thread = *threads.entry(access.thread).or_insert(next);
        let next = descriptors.len() as u32;
        let fd = *descriptors.entry((thread, file)).or_insert(next);
        if fd == next {
            plan.descriptors.push(file);
        }
        let size = &mut plan.files[file as usize].size;
        *size = (*size).max(access.offset + access.len);
        let of_file = ends.entry(file).or_default();
        let goes_on = of_file.remove(&access.offset);
        continued += u64::from(goes_on);
        of_file.insert(access.offset + access.len);
        if of_file.len() > ENDS_MAX {
            of_file.pop_first();
        }
        // The pause before this read was the program's work behind its last one.
        if let (Some(before), Some((began, _))) = (last.insert(thread, at), access.time)
            && let Some((earlier, took)) = accesses[before].time
            && let Some(op) = plan.ops.get_mut(before)
        {
            op.think_ns = began.saturating_sub(earlier.saturating_add(took)).min(THINK_NS_MAX);
        }
        plan.ops.push(Op {
            thread,
            fd,
            file,
            offset: access.offset,
            asked: access.len,
            used: access.len,
            think_ns: 0,
            fresh: !goes_on,
        });
    }
    plan.threads = threads.len() as u32;
    (plan, continued as f64 / accesses.len() as f64)
}

// ---- strace ----------------------------------------------------------------------------------------------------------

/// An open file of a process.
#[derive(Clone)]
struct Open {
    path: String,
    position: u64,
}

fn strace(text: &str, mappings: &mut u64) -> Vec<Access> {
    let mut open: BTreeMap<(u64, u64), Open> = BTreeMap::new();
    let mut unfinished: BTreeMap<u64, String> = BTreeMap::new();
    let mut all = Vec::new();
    for line in text.lines() {
        let (pid, rest) = pid_of(line);
        let joined;
        let rest = if let Some(begun) = rest.split_once("<unfinished ...>") {
            unfinished.insert(pid, begun.0.trim_end().to_string());
            continue;
        } else if rest.contains(" resumed>") {
            let Some(begun) = unfinished.remove(&pid) else { continue };
            joined = begun + rest.split_once(" resumed>").map_or("", |parts| parts.1);
            &joined
        } else {
            rest
        };
        let Some(call) = Call::parse(rest) else { continue };
        followed(&call, pid, &mut open, mappings, &mut all);
    }
    all
}

/// What one call does to positions, and the read that it makes.
fn followed(
    call: &Call<'_>,
    pid: u64,
    open: &mut BTreeMap<(u64, u64), Open>,
    mappings: &mut u64,
    all: &mut Vec<Access>,
) {
    let fd = call.arguments.first().and_then(|a| a.split('<').next()?.trim().parse::<u64>().ok());
    let argument = |i: usize| call.arguments.get(i).and_then(|a| a.trim().parse::<u64>().ok());
    let Ok(returned) = u64::try_from(call.returned) else { return };
    match call.name {
        "open" | "openat" | "openat2" => {
            let path =
                call.arguments.iter().find_map(|a| Some(a.trim().strip_prefix('"')?.trim_end_matches('"')));
            let Some(path) = path else { return };
            if !path.starts_with("/proc") && !path.starts_with("/sys") && !path.starts_with("/dev") {
                open.insert((pid, returned), Open { path: path.into(), position: 0 });
            }
        }
        "close" => drop(fd.and_then(|fd| open.remove(&(pid, fd)))),
        "dup" | "dup2" | "dup3" => {
            if let Some(file) = fd.and_then(|fd| open.get(&(pid, fd)).cloned()) {
                open.insert((pid, returned), file);
            }
        }
        "lseek" | "_llseek" => {
            if let Some(file) = fd.and_then(|fd| open.get_mut(&(pid, fd))) {
                file.position = returned;
            }
        }
        "mmap" | "mmap2" => {
            let file = call.arguments.get(4).and_then(|a| a.split('<').next()?.trim().parse::<u64>().ok());
            *mappings += u64::from(file.is_some_and(|fd| open.contains_key(&(pid, fd))));
        }
        "read" | "readv" | "pread64" | "preadv" | "preadv2" => {
            let Some(file) = fd.and_then(|fd| open.get_mut(&(pid, fd))) else { return };
            let at = if call.name.starts_with('p') { argument(3) } else { Some(file.position) };
            let Some(offset) = at else { return };
            if !call.name.starts_with('p') {
                file.position = file.position.saturating_add(returned);
            }
            all.push(Access { thread: pid, file: file.path.clone(), offset, len: returned, time: call.time });
        }
        _ => {}
    }
}

/// The process at the start of a line, if any, and the rest.
fn pid_of(line: &str) -> (u64, &str) {
    if let Some((pid, rest)) = line.strip_prefix("[pid ").and_then(|rest| rest.split_once(']')) {
        return (pid.trim().parse().unwrap_or(0), rest.trim_start());
    }
    match line.split_once(' ') {
        Some((pid, rest)) if pid.parse::<u64>().is_ok() => (pid.parse().unwrap_or(0), rest.trim_start()),
        _ => (0, line),
    }
}

/// One system call: `12.345678 pread64(3, "..."..., 4096, 8192) = 4096 <0.000012>`.
struct Call<'a> {
    name: &'a str,
    arguments: Vec<&'a str>,
    returned: i64,
    time: Option<(u64, u64)>,
}

impl<'a> Call<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (head, rest) = text.split_once('(')?;
        let name = head.split_whitespace().last()?;
        let end = rest.rfind(") = ").or_else(|| rest.rfind(") ="))?;
        let result = rest[end + 1..].trim_start().trim_start_matches('=').trim_start();
        let digits = result.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next()?;
        let returned = match digits.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16).ok()?,
            None => digits.parse().ok()?,
        };
        let began = head.split_whitespace().next().filter(|_| head.contains(' ')).and_then(seconds);
        let took = result.rsplit_once('<').and_then(|(_, t)| t.strip_suffix('>')).and_then(seconds);
        Some(Self { name, arguments: arguments(&rest[..end]), returned, time: began.zip(took) })
    }
}

/// Seconds, or hours:minutes:seconds, as nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let sum = text.split(':').try_fold(0.0, |sum, part| Some(sum * 60.0 + part.parse::<f64>().ok()?))?;
    (sum >= 0.0).then_some((sum * 1e9).round() as u64)
}

/// Arguments at the top level: commas inside of strings and brackets do not part them.
fn arguments(text: &str) -> Vec<&str> {
    let (mut all, mut start, mut depth, mut quoted, mut escaped) = (Vec::new(), 0, 0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '[' | '{' | '(' => depth += 1,
            ']' | '}' | ')' => depth -= 1,
            ',' if depth == 0 => {
                all.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    all.push(&text[start..]);
    all
}

// ---- the others ------------------------------------------------------------------------------------------------------

fn fio(text: &str) -> Vec<Access> {
    let read = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "read")?;
        let file = words.get(at.checked_sub(1)?)?;
        let (offset, len) = (words.get(at + 1)?.parse().ok()?, words.get(at + 2)?.parse().ok()?);
        Some(Access { thread: 0, file: (*file).to_string(), offset, len, time: None })
    };
    text.lines().filter_map(read).collect()
}

fn blktrace(text: &str) -> Vec<Access> {
    let queued = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let plus = words.iter().position(|word| *word == "+")?;
        let (action, kind) = (words.get(plus.checked_sub(3)?)?, words.get(plus - 2)?);
        if *action != "Q" || !kind.contains('R') {
            return None;
        }
        let (sector, sectors) =
            (words[plus - 1].parse::<u64>().ok()?, words.get(plus + 1)?.parse::<u64>().ok()?);
        let thread = words.get(plus.checked_sub(4)?)?.parse().unwrap_or(0);
        Some(Access {
            thread,
            file: words[0].to_string(),
            offset: sector.checked_mul(512)?,
            len: sectors.checked_mul(512)?,
            time: None,
        })
    };
    text.lines().filter_map(queued).collect()
}

fn darshan(text: &str) -> Vec<Access> {
    let (mut all, mut file) = (Vec::new(), String::from("?"));
    for line in text.lines() {
        if let Some((_, name)) = line.split_once("file_name:") {
            file = name.trim().to_string();
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let [module, rank, "read", _, offset, len, start, end, ..] = words[..] else { continue };
        let (Ok(offset), Ok(len)) = (offset.parse(), len.parse()) else { continue };
        if !module.starts_with("X_") {
            continue;
        }
        let time = seconds(start).zip(seconds(end)).map(|(start, end)| (start, end.saturating_sub(start)));
        all.push(Access { thread: rank.parse().unwrap_or(0), file: file.clone(), offset, len, time });
    }
    all
}

fn csv(text: &str) -> Result<Vec<Access>, String> {
    let mut lines =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let header: Vec<&str> =
        lines.next().map_or(Vec::new(), |(_, line)| line.split(',').map(str::trim).collect());
    let column = |names: &[&str]| header.iter().position(|column| names.contains(column));
    let offset = column(&["offset"]).ok_or("the header names no column offset")?;
    let len = column(&["length", "len", "bytes", "size"]).ok_or("the header names no column length")?;
    let (file, thread) = (column(&["file", "path", "name"]), column(&["thread", "tid", "pid"]));
    let access = |(number, line): (usize, &str)| {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
        let number_of = |at: usize| {
            let bad = || format!("line {}: '{}' is no number of bytes", number + 1, cell(at));
            cell(at).parse::<u64>().map_err(|_| bad())
        };
        Ok(Access {
            thread: thread.map_or(0, |at| cell(at).parse().unwrap_or(0)),
            file: file.map_or("file", cell).to_string(),
            offset: number_of(offset)?,
            len: number_of(len)?,
            time: None,
        })
    };
    lines.map(access).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(trace: &Trace) -> Vec<(&str, u64, u64, u32)> {
        let name = |op: &Op| trace.plan.files[op.file as usize].name.as_str();
        trace.plan.ops.iter().map(|op| (name(op), op.offset, op.asked, op.thread)).collect()
    }

    #[test]
    fn positions_are_followed_through_a_strace() {
        let text = r#"
[pid 7] 10.000000 openat(AT_FDCWD, "/d/a, b", O_RDONLY) = 3 <0.000020>
[pid 7] 10.000100 read(3, "ab\",)"..., 4096) = 4096 <0.000050>
[pid 8] 10.000100 openat(AT_FDCWD, "/d/c", O_RDONLY) = 3 <0.000020>
[pid 7] 10.001150 read(3, "x"..., 4096) = 4096 <0.000050>
[pid 8] 10.001300 pread64(3, "y"..., 512, 8192) = 512 <0.000050>
[pid 7] lseek(3, 0, SEEK_SET) = 0
[pid 7] read(3,  <unfinished ...>
[pid 8] read(0, "tty", 10) = 3
[pid 7] <... read resumed>"ab"..., 100) = 100
[pid 7] mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3, 0) = 0x7f00
[pid 7] read(3, 0x7f, 10) = -1 EINTR (Interrupted system call)
"#;
        let trace = read_trace(text, None).unwrap();
        let file = "/d/a, b";
        assert_eq!(
            reads(&trace),
            [(file, 0, 4096, 0), (file, 4096, 4096, 0), ("/d/c", 8192, 512, 1), (file, 0, 100, 0)]
        );
        // 1,050 us from the first to the second, of which 50 were the read.
        assert_eq!(trace.plan.ops[0].think_ns, 1_000_000);
        assert_eq!(trace.mappings, 1);
        assert_eq!(trace.continued, 0.25);
    }

    #[test]
    fn the_other_formats() {
        let fio =
            "fio version 2 iolog\n/d/a add\n/d/a open\n/d/a read 8192 4096\n/d/a write 0 4096\n/d/a close\n";
        assert_eq!(reads(&read_trace(fio, None).unwrap()), [("/d/a", 8192, 4096, 0)]);
        let blk = "  8,0    3        1     0.000000000   697  Q   R 2048 + 8 [cat]\n  8,0    3        2     0.1   697  C   R 2048 + 8 [0]\n";
        assert_eq!(reads(&read_trace(blk, None).unwrap()), [("8,0", 1 << 20, 4096, 0)]);
        let dxt = "# DXT, file_id: 1, file_name: /d/h5\n X_POSIX  0  read  0  262144  1024  0.01  0.02\n X_POSIX 0 write 1 0 5 0.1 0.2\n";
        assert_eq!(reads(&read_trace(dxt, None).unwrap()), [("/d/h5", 262_144, 1024, 0)]);
        let csv = "thread,offset,length,file\n3,0,10,x\n4,10,20,x\n";
        assert_eq!(reads(&read_trace(csv, None).unwrap()), [("x", 0, 10, 0), ("x", 10, 20, 1)]);
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        assert!(read_trace("hello\n", None).is_err());
        assert!(read_trace("offset,length\n1,x\n", None).unwrap_err().contains("line 2"));
        assert!(read_trace("fio version 2 iolog\n", None).unwrap_err().contains("no read"));
        let long = format!("offset,length\n0,{}\n0,1\n", BYTES_MAX);
        assert!(read_trace(&long, None).unwrap_err().contains("at most 256 are played"));
    }
}
