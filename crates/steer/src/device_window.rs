//! How many pages one `readahead(2)` may bring, and how to be allowed more.
//!
//! The kernel cuts each call at the larger of the descriptor's own window and the device's request limit (spec 8.8).
//!
//! ```text
//!   the device's window 128 KiB, its requests 128 KiB       a plain descriptor of ours     32 pages a call
//!   FADV_SEQUENTIAL on it                                   twice the window               64
//!   root lends it a window: value up, FADV_NORMAL, value    the window that was lent      256
//!   back at once (20 us); nothing is left to restore
//! ```
//!
//! What is expected from the device's numbers is only the first guess: where the kernel starts fewer pages than were asked
//! of it, that is the limit from then on. Without any number at hand the guess is 32 pages (128 KiB), the kernel's default.
//!
//! Worked example: 128 KiB window, no permission to lend: 64 pages. A call for 64 starts 32: from then on 32.

use bowwave_core::{Input, PageCount};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Pages that one call shall bring if we are free to choose: 1 MiB, the largest request of a FUSE mount.
pub(crate) const CALL_PAGES_MAX: u64 = 256;
/// Calls in a row that are taken to have started all that they asked for.
const UNSEEN_MAX: u32 = 15;
/// VM_READAHEAD_PAGES: what the kernel gives a device that says nothing.
const KERNEL_DEFAULT_PAGES: u64 = 32;

/// What is known of each device's limits.
pub(crate) struct DeviceWindows {
    lend: bool,
    devices: BTreeMap<u64, Known>,
}

#[derive(Clone, Default, Debug)]
struct Known {
    /// The device's window in sysfs, where there is one.
    knob: Option<PathBuf>,
    /// Its window and its request limit, in pages.
    window: u64,
    request: u64,
    cap: u64,
    /// Calls that were cut short, and the most that one of them started.
    cut: u32,
    cut_most: u64,
    /// The most that a call was seen to start whole, and calls of no more than that since one was looked at.
    whole_most: u64,
    unseen: u32,
    lent: bool,
    lend_failed: bool,
    /// What the brain was told: pages of a request, and of a reader's own.
    told: Option<(u64, u64)>,
}

impl DeviceWindows {
    pub(crate) fn new(lend: bool) -> Self {
        Self { lend, devices: BTreeMap::new() }
    }

    /// Gives a new descriptor of ours on `device` the largest window that we are allowed.
    pub(crate) fn prepare(&mut self, device: u64, descriptor: BorrowedFd<'_>) {
        let lend = self.lend;
        let known = self.devices.entry(device).or_insert_with(|| Known::of(device));
        if lend && !known.lend_failed {
            let enough = known.window >= CALL_PAGES_MAX;
            known.lent = enough || known.knob.as_deref().is_some_and(|knob| lend_window(knob, descriptor));
            known.lend_failed = !known.lent;
        }
        if !known.lent {
            advise(descriptor, libc::POSIX_FADV_SEQUENTIAL);
        }
        if known.cut == 0 {
            let own = if known.lent { CALL_PAGES_MAX.max(known.window) } else { 2 * known.window };
            known.cap = own.max(known.request).max(1);
        }
    }

    /// Pages that one call on `device` brings.
    pub(crate) fn cap(&self, device: u64) -> u64 {
        self.devices.get(&device).map_or(KERNEL_DEFAULT_PAGES, |known| known.cap).min(CALL_PAGES_MAX)
    }

    /// Pages that a program's own read brings at once.
    pub(crate) fn reader_pages(&self, device: u64) -> u64 {
        self.devices.get(&device).map_or(KERNEL_DEFAULT_PAGES, |known| known.window.max(known.request).max(1))
    }

    /// What the brain is to know of `device`, where that is not what it was told last.
    pub(crate) fn news(&mut self, device: u64) -> Option<Input> {
        let limits = (self.cap(device), self.reader_pages(device));
        let told = &mut self.devices.get_mut(&device)?.told;
        if told.replace(limits) == Some(limits) {
            return None;
        }
        let [request_max, reader_max] = [limits.0, limits.1].map(PageCount);
        Some(Input::Device { device, request_max, reader_max })
    }

    /// Whether descriptors on `device` have been lent a window.
    pub(crate) fn lent(&self, device: u64) -> bool {
        self.devices.get(&device).is_some_and(|known| known.lent)
    }

    /// Whether what a call for `pages` pages starts is to be looked at, which takes two more calls: one in sixteen of those that
    /// ask for no more than was started whole before.
    pub(crate) fn is_doubtful(&mut self, device: u64, pages: u64) -> bool {
        let Some(known) = self.devices.get_mut(&device) else { return true };
        if pages <= known.whole_most && known.unseen < UNSEEN_MAX {
            known.unseen += 1;
            return false;
        }
        known.unseen = 0;
        true
    }

    /// A call for `asked` absent pages started `started`. Twice cut short: that is the limit.
    pub(crate) fn observed(&mut self, device: u64, asked: u64, started: u64) {
        let Some(known) = self.devices.get_mut(&device) else { return };
        if started >= asked {
            known.whole_most = known.whole_most.max(asked);
            return;
        }
        known.whole_most = known.whole_most.min(started);
        if started == 0 {
            return;
        }
        known.cut += 1;
        known.cut_most = known.cut_most.max(started);
        if known.cut >= 2 {
            known.cap = known.cut_most;
        }
    }
}

impl Known {
    fn of(device: u64) -> Self {
        let (major, minor) = (libc::major(device), libc::minor(device));
        let block = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok();
        let disk = block.as_deref().map(|block| {
            if block.join("partition").exists() { block.parent().unwrap_or(block) } else { block }
        });
        let knob = [
            Some(PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"))),
            disk.map(|disk| disk.join("bdi/read_ahead_kb")),
        ]
        .into_iter()
        .flatten()
        .find(|knob| knob.exists());
        let pages = |path: &Path| {
            fs::read_to_string(path).ok().and_then(|text| Some(text.trim().parse::<u64>().ok()? / 4))
        };
        let window = knob.as_deref().and_then(pages).unwrap_or(KERNEL_DEFAULT_PAGES);
        let request = disk.and_then(|disk| pages(&disk.join("queue/max_sectors_kb")));
        Self { knob, window, request: request.unwrap_or(KERNEL_DEFAULT_PAGES), ..Self::default() }
    }
}

/// Raises the device's window for the instant in which `descriptor` takes it over. A lock on the knob keeps a second run
/// from taking our value for the device's own.
fn lend_window(knob: &Path, descriptor: BorrowedFd<'_>) -> bool {
    let Ok(mut file) = fs::OpenOptions::new().read(true).write(true).open(knob) else { return false };
    // SAFETY: locks a descriptor that is ours; closing it unlocks.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        return false;
    }
    let Ok(before) = fs::read_to_string(knob) else { return false };
    let raised = file.write_all((CALL_PAGES_MAX * 4).to_string().as_bytes()).is_ok();
    let taken = raised && advise(descriptor, libc::POSIX_FADV_NORMAL);
    // Whatever happened: back to what it was. A second try through a descriptor of its own, should the first fail.
    let back = fs::OpenOptions::new().write(true).open(knob).and_then(|mut f| f.write_all(before.as_bytes()));
    if back.is_err() {
        let _ = fs::write(knob, &before);
    }
    taken
}

fn advise(descriptor: BorrowedFd<'_>, advice: i32) -> bool {
    // SAFETY: advice on an open descriptor touches no memory of ours.
    unsafe { libc::posix_fadvise(descriptor.as_raw_fd(), 0, 0, advice) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn two_calls_cut_short_are_the_limit() {
        let mut windows = DeviceWindows::new(false);
        let known = Known { window: 32, request: 32, ..Known::default() };
        windows.devices.insert(9, known);
        let file = tempfile::tempfile().unwrap();
        windows.prepare(9, file.as_fd());
        assert_eq!(windows.cap(9), 64);
        windows.observed(9, 64, 64);
        windows.observed(9, 64, 32);
        assert_eq!(windows.cap(9), 64, "once may be chance");
        windows.observed(9, 64, 32);
        assert_eq!(windows.cap(9), 32);
        windows.prepare(9, file.as_fd());
        assert_eq!(windows.cap(9), 32, "what was seen outweighs what was expected");
    }

    #[test]
    fn what_was_started_whole_is_looked_at_now_and_then() {
        let mut windows = DeviceWindows::new(false);
        windows.devices.insert(9, Known { window: 32, request: 32, ..Known::default() });
        let looked =
            |windows: &mut DeviceWindows, pages| (0..32).filter(|_| windows.is_doubtful(9, pages)).count();
        assert_eq!(looked(&mut windows, 8), 32, "nothing is known yet");
        windows.observed(9, 8, 8);
        assert_eq!((looked(&mut windows, 8), looked(&mut windows, 9)), (2, 32));
        windows.observed(9, 8, 4);
        assert_eq!(
            (looked(&mut windows, 4), looked(&mut windows, 5)),
            (2, 32),
            "that was less than we thought"
        );
        windows.observed(9, 4, 0);
        assert_eq!(looked(&mut windows, 1), 32, "the device starts nothing any more");
    }

    #[test]
    fn a_device_s_limits_are_news_once() {
        let mut windows = DeviceWindows::new(false);
        let file = tempfile::tempfile().unwrap();
        assert_eq!(windows.news(9), None, "no file of it was opened");
        for (device, window) in [(9, 32), (8, 256)] {
            windows.devices.insert(device, Known { window, request: 32, ..Known::default() });
            windows.prepare(device, file.as_fd());
        }
        let limits = |device, request, reader| {
            let [request_max, reader_max] = [request, reader].map(PageCount);
            Some(Input::Device { device, request_max, reader_max })
        };
        assert_eq!([windows.news(9), windows.news(8)], [limits(9, 64, 32), limits(8, 256, 256)]);
        assert_eq!([windows.news(9), windows.news(8)], [None, None]);
        (0..2).for_each(|_| windows.observed(9, 64, 48));
        assert_eq!([windows.news(9), windows.news(8)], [limits(9, 48, 32), None]);
    }

    #[test]
    fn an_unknown_device_is_taken_for_the_kernels_default() {
        let mut windows = DeviceWindows::new(false);
        assert_eq!(windows.cap(7), 32);
        windows.prepare(libc::makedev(4095, 1_000_000), tempfile::tempfile().unwrap().as_fd());
        assert_eq!(windows.cap(libc::makedev(4095, 1_000_000)), 64);
    }
}
