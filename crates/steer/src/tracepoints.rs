//! Tracepoints of the page cache: their numbers and where their fields lie, as tracefs describes them at run time.
//!
//! ```text
//!   readahead:page_cache_sync_ra    a read is about to miss             dev, inode, first page, pages wanted
//!   filemap:mm_filemap_get_pages    a read has its pages                dev, inode, first page, last page
//!   filemap:mm_filemap_fault        a fault that the mapped pages around did not serve       dev, inode, page
//! ```
//!
//! Nothing is assumed of their layout but the names of the fields: it differs between kernels.

use std::fs;
use std::path::{Path, PathBuf};

/// Where tracefs is mounted.
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A field: where it lies, and how many bytes it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Field {
    offset: usize,
    size: usize,
}

/// A tracepoint that names pages of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tracepoint {
    pub(crate) id: u64,
    dev: Field,
    ino: Field,
    index: Field,
    /// The last page, or how many there are.
    end: Option<(Field, bool)>,
}

/// What a tracepoint says of pages of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A read is about to miss.
    Miss,
    /// A read has its pages.
    Read,
    /// A fault that the mapped pages around did not serve.
    Fault,
}

/// Pages of a file, as a tracepoint names them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl Named {
    /// Whether the first of the other's pages is among these.
    pub(crate) fn holds(self, other: Self) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
            && other.first.checked_sub(self.first).is_some_and(|at| at < self.count)
    }
}

impl Tracepoint {
    /// Reads the description of `name`, a system and an event: `filemap/mm_filemap_fault`.
    pub(crate) fn find(name: &str) -> Option<Self> {
        let path = |root: &&str| -> PathBuf { Path::new(root).join("events").join(name).join("format") };
        let text = ROOTS.iter().find_map(|root| fs::read_to_string(path(root)).ok())?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID: "))?.trim().parse().ok()?;
        let field = |name: &str| text.lines().find_map(|line| parse_field(line, name));
        let last = field("last_index").map(|field| (field, true));
        Some(Self {
            id,
            dev: field("s_dev")?,
            ino: field("i_ino")?,
            index: field("index")?,
            end: last.or_else(|| field("req_count").map(|field| (field, false))),
        })
    }

    /// What a sample says.
    pub(crate) fn read(&self, raw: &[u8]) -> Option<Named> {
        let dev = self.dev.of(raw)?;
        let first = self.index.of(raw)?;
        let count = match self.end {
            Some((field, true)) => field.of(raw)?.checked_sub(first)?.saturating_add(1),
            Some((field, false)) => field.of(raw)?.max(1),
            None => 1,
        };
        Some(Named { dev: device(dev as u32), ino: self.ino.of(raw)?, first, count })
    }
}

/// A device by the kernel's own dev_t, twelve bits and twenty.
pub(crate) fn device(kernels: u32) -> u64 {
    libc::makedev(kernels >> 20, kernels & 0xF_FFFF)
}

/// The kernel's own dev_t of a device.
pub(crate) fn kernels_device(dev: u64) -> u32 {
    libc::major(dev) << 20 | libc::minor(dev)
}

impl Field {
    fn of(self, raw: &[u8]) -> Option<u64> {
        let bytes = raw.get(self.offset..self.offset.checked_add(self.size)?)?;
        let mut word = [0u8; 8];
        word.get_mut(..self.size)?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(word))
    }
}

/// A line of a description: `field:dev_t s_dev; offset:16; size:4; signed:0;`, with tabs.
fn parse_field(line: &str, name: &str) -> Option<Field> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
    let named = parts.next()?.rsplit(' ').next()? == name;
    let number = |part: Option<&str>, key: &str| part?.strip_prefix(key)?.parse().ok();
    let (offset, size) = (number(parts.next(), "offset:")?, number(parts.next(), "size:")?);
    named.then_some(Field { offset, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: mm_filemap_get_pages\nID: 599\nformat:\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long i_ino;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:dev_t s_dev;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long index;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long last_index;\toffset:32;\tsize:8;\tsigned:0;\n";

    #[test]
    fn fields_are_found_by_name() {
        let point = Tracepoint::parse(FORMAT).unwrap();
        assert_eq!(point.id, 599);
        let mut raw = vec![0u8; 40];
        raw[8] = 77;
        raw[16..20].copy_from_slice(&((254 << 20) | 3u32).to_le_bytes());
        raw[24] = 5;
        raw[32] = 12;
        let named = point.read(&raw).unwrap();
        assert_eq!(named, Named { dev: libc::makedev(254, 3), ino: 77, first: 5, count: 8 });
        assert_eq!(point.read(&raw[..20]), None);
    }

    /// Descriptions and samples come from the kernel, of whatever version.
    #[test]
    fn no_description_and_no_sample_is_too_odd() {
        let sample = [0, 1, 5, 40, 255].map(|byte| vec![byte; 40]);
        bowwave_fuzz::fuzz_text("a description of a tracepoint", &[FORMAT], |text| {
            let Some(point) = Tracepoint::parse(text) else { return };
            for raw in &sample {
                assert!(point.read(raw).is_none_or(|named| named.count > 0));
            }
        });
        let point = Tracepoint::parse(FORMAT).unwrap();
        let corpus: Vec<&[u8]> = sample.iter().map(|raw| &raw[..]).collect();
        bowwave_fuzz::fuzz("a sample of a tracepoint", &corpus, |raw| {
            assert!(point.read(raw).is_none_or(|named| named.count > 0));
        });
    }
}
