//! `bowwave lab judge`: the running kernel as judge of the policy that claims to be it.
//!
//! Live: a file is read by each pattern, cold, while a trace instance of our own listens to the kernel's readahead events
//! of that file; the same reads are played through the policy. Recorded: the same from text, on any machine.
//!
//! Mapped patterns touch a byte of a page, and the next one when all that the first had fetched is there.

use crate::cmd::failure::{DATA, Failure, UNAVAILABLE};
use crate::cmd::mapping::Mapping;
use crate::cmd::out::{print, writable, write_file};
use anyhow::{Context as _, bail};
use bowwave_core::{MapAdvice, PAGE_SIZE, PageCount, Touched};
use bowwave_io::cached_pages;
use bowwave_lab::{
    JudgeAccess, JudgeCase, JudgeRecord, Judged, judge_cases, judge_compare, judge_trace_line,
};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// A window differs.
const DIFFERS: u8 = 1;
/// Pages in the file that is read live: 64 MiB.
const PAGES: u64 = 16_384;

/// Compare the kernel's own readahead with the policy that claims to be it, window for window.
///
/// Patterns are read, or touched through a mapping: as it is, advised, or written so that each page becomes a private copy.
/// Needs Linux 6.18 or newer with tracefs (as root: it is mounted if it is not), or records of such a kernel. Exits with 1 if a
/// window differs, with 69 where no kernel can be asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Records to compare instead of asking the running kernel
    #[arg(value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// Where to make the file that is read (64 MiB); its file system decides the ceiling of a window
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Keep what the kernel did in this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

pub(crate) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let mut records = Vec::new();
    for path in &args.records {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::on(path, "read", &error))?;
        let record = JudgeRecord::parse(&text)
            .map_err(|why| Failure::new(DATA, format_args!("{}: {why}", path.display())))?;
        records.push((path.display().to_string(), record));
    }
    if records.is_empty() {
        args.record.as_deref().map_or(Ok(()), writable)?;
        let record = live(&args.dir).map_err(|error| {
            let advice = "give it a record instead, such as crates/lab/tests/judge/*.txt";
            Failure::new(UNAVAILABLE, format_args!("{error:#}; {advice}"))
        })?;
        args.record.as_deref().map_or(Ok(()), |path| write_file(path, record.to_text()))?;
        records.push(("the running kernel".into(), record));
    }
    let shown: Vec<(String, bool)> = records.iter().map(|(name, record)| shown(name, record)).collect();
    print(shown.iter().map(|(text, _)| text.as_str()).collect::<String>())?;
    let differs = shown.iter().any(|(_, differs)| *differs);
    Ok(if differs { ExitCode::from(DIFFERS) } else { ExitCode::SUCCESS })
}

/// The comparison in words, and whether a window differed.
fn shown(name: &str, record: &JudgeRecord) -> (String, bool) {
    let compared = judge_compare(record);
    let mut text = format!("{name}: Linux {}, windows of at most {} pages\n", record.kernel, record.max);
    for c in &compared {
        let verdict = c.difference.clone().unwrap_or_else(|| "equal".into());
        text.push_str(&format!("  {:<28} {:>5} of {:>5}  {verdict}\n", c.name, c.equal, c.windows));
    }
    let (all, equal) = compared.iter().fold((0, 0), |sum, c| (sum.0 + c.windows, sum.1 + c.equal));
    let patterns = compared.iter().filter(|c| c.difference.is_none()).count();
    let count = compared.len();
    text.push_str(&format!("  {equal} of {all} windows equal, {patterns} of {count} patterns\n"));
    (text, patterns < count)
}

/// A trace instance of our own, gone when it is dropped.
struct Trace {
    instance: PathBuf,
    /// Dropped after it: a file system that we mounted goes with us.
    _mounted: Option<Tracefs>,
}

/// Where tracefs lies.
const TRACEFS: (&str, &CStr) = ("/sys/kernel/tracing", c"/sys/kernel/tracing");

/// Mounted by us.
struct Tracefs;

impl Tracefs {
    fn mount() -> io::Result<Self> {
        // SAFETY: three strings that end in a zero byte, and no data.
        let mounted = unsafe {
            libc::mount(c"nodev".as_ptr(), TRACEFS.1.as_ptr(), c"tracefs".as_ptr(), 0, std::ptr::null())
        };
        if mounted == 0 { Ok(Self) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        // SAFETY: a string that ends in a zero byte. Who uses it meanwhile keeps it.
        unsafe { libc::umount2(TRACEFS.1.as_ptr(), 0) };
    }
}

impl Trace {
    fn open() -> anyhow::Result<Self> {
        let root = Path::new(TRACEFS.0);
        let mounted = match root.join("events").exists() {
            true => None,
            false => Some(Tracefs::mount().context("there is no tracefs here and it cannot be mounted")?),
        };
        if !root.join("events/readahead/page_cache_ra_order").exists() {
            bail!("this kernel has no readahead events (they are new in Linux 6.18)");
        }
        let instance = root.join(format!("instances/bowwave-judge-{}", std::process::id()));
        std::fs::create_dir(&instance).context("cannot make a trace instance")?;
        let trace = Self { instance, _mounted: mounted };
        trace.write("buffer_size_kb", "16384")?;
        trace.write("events/readahead/enable", "1")?;
        Ok(trace)
    }

    fn write(&self, file: &str, text: &str) -> anyhow::Result<()> {
        std::fs::write(self.instance.join(file), text)
            .with_context(|| format!("cannot write {file} of the trace"))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = self.write("events/readahead/enable", "0");
        let _ = std::fs::remove_dir(&self.instance);
    }
}

fn live(dir: &Path) -> anyhow::Result<JudgeRecord> {
    let trace = Trace::open()?;
    let mut file = tempfile::NamedTempFile::new_in(dir)
        .with_context(|| format!("cannot make a file in {}", dir.display()))?;
    let block = vec![0xb0_u8; 1 << 20];
    for _ in 0..PAGES * PAGE_SIZE / (1 << 20) {
        file.write_all(&block).context("cannot write the file that is to be read")?;
    }
    file.as_file().sync_all()?;
    let mut record = JudgeRecord {
        kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().into(),
        max: PageCount(0),
        request_max: request_max(file.as_file()),
        pages: PageCount(PAGES),
        judged: Vec::new(),
    };
    for case in judge_cases(PAGES) {
        let judged = asked(&trace, file.path(), case, &mut record.max)?;
        record.judged.push(judged);
    }
    Ok(record)
}

/// Looks so often for what is to come about, two milliseconds apart at most.
const LOOKS: usize = 1000;

/// Pages of the file that have a frame, those too that are still being read in.
fn framed(file: &File) -> anyhow::Result<u64> {
    cached_pages(file, 0, 0).context("cannot look which pages are cached")
}

/// Drops the file's pages, and waits for those that are still being read in: the kernel does not drop them, and mincore(2)
/// does not see them.
fn make_cold(file: &File) -> anyhow::Result<()> {
    let mut left = 0;
    for _ in 0..LOOKS {
        // SAFETY: a descriptor that is open, and plain numbers.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        left = framed(file)?;
        if left == 0 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    bail!("{left} pages of the file stay cached, so its reads are not cold")
}

/// The whole file, mapped and advised.
fn mapped(file: &File, advice: MapAdvice, how: Touched) -> anyhow::Result<Mapping> {
    let len = file.metadata()?.len() / PAGE_SIZE * PAGE_SIZE;
    let mapping = Mapping::of(file.as_raw_fd(), len as usize, how == Touched::Written)
        .context("cannot map the file that is to be read")?;
    let advice = match advice {
        MapAdvice::Normal => libc::MADV_NORMAL,
        MapAdvice::Sequential => libc::MADV_SEQUENTIAL,
        MapAdvice::Random => libc::MADV_RANDOM,
    };
    mapping.advise(advice).context("cannot advise the kernel of the mapping")?;
    Ok(mapping)
}

/// Touches a byte, and waits until no page of the file is on its way any more: what the next touch finds must not depend on
/// the device.
fn touch(mapping: &Mapping, file: &File, how: Touched, offset: u64) -> anyhow::Result<()> {
    let byte = mapping.at(offset as usize, 1);
    match how {
        // SAFETY: of the mapping, of which every byte may be read.
        Touched::Read => _ = unsafe { byte.read_volatile() },
        // SAFETY: of which every byte may be written, and nobody else has the copy.
        Touched::Written => unsafe { byte.write_volatile(0) },
    }
    let mut there = vec![0_u8; mapping.len() / PAGE_SIZE as usize];
    for _ in 0..LOOKS {
        let all = mapping.at(0, mapping.len()).cast();
        // SAFETY: the mapping, and a byte for each of its pages.
        if unsafe { libc::mincore(all, mapping.len(), there.as_mut_ptr()) } != 0 {
            return Err(std::io::Error::last_os_error()).context("cannot look which pages are there");
        }
        if there.iter().filter(|&&page| page & 1 == 1).count() as u64 == framed(file)? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    bail!("pages of the file do not come")
}

/// Pages of the largest request that the file's device takes; 0 if it does not say.
fn request_max(file: &File) -> PageCount {
    let Ok(dev) = file.metadata().map(|meta| meta.dev()) else { return PageCount(0) };
    let path = format!("/sys/dev/block/{}:{}/queue/max_sectors_kb", libc::major(dev), libc::minor(dev));
    let kib = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    PageCount(kib.unwrap_or(0) * 1024 / PAGE_SIZE)
}

/// Plays one pattern, cold, and returns what the kernel did.
fn asked(trace: &Trace, path: &Path, case: JudgeCase, max: &mut PageCount) -> anyhow::Result<Judged> {
    let file = File::open(path)?;
    make_cold(&file)?;
    trace.write("trace", "")?;
    let each = case.reads.iter().flat_map(|reads| reads.each());
    match case.access {
        JudgeAccess::Read => {
            let mut buffer = Vec::new();
            for (offset, len) in each {
                buffer.resize(len as usize, 0);
                file.read_at(&mut buffer, offset)?;
            }
        }
        JudgeAccess::Mapped(advice, how) => {
            let mapping = mapped(&file, advice, how)?;
            for (offset, _) in each {
                touch(&mapping, &file, how, offset)?;
            }
        }
    }
    let (ino, text) = (file.metadata()?.ino(), std::fs::read_to_string(trace.instance.join("trace"))?);
    let mut submitted = Vec::new();
    for (_, ceiling, window) in text.lines().filter_map(judge_trace_line).filter(|line| line.0 == ino) {
        *max = ceiling.map_or(*max, PageCount);
        submitted.push(window);
    }
    Ok(Judged { case, submitted })
}
