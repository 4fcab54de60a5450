//! A plan made ready to be played: who reads what, and through which descriptors or mappings.

use super::{PAGE, Spec};
use crate::cmd::mapping::Mapping;
use bowwave_fuse::content;
use bowwave_lab::{Dispatch, Pace, Plan};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

/// One read, as small as it can be: pace and memory are measured together.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) offset: u64,
    pub(super) think_ns: u32,
    pub(super) fd: u32,
    pub(super) asked: u32,
    pub(super) used: u32,
}

/// A plan made ready: reads by thread, descriptors to open.
pub(super) struct Stage {
    root: PathBuf,
    names: Vec<String>,
    pub(super) ids: Vec<u64>,
    pub(super) files: Vec<u32>,
    doors: Vec<Door>,
    pub(super) steps: Vec<Vec<Step>>,
    pub(super) threads: usize,
    pub(super) dispatch: Dispatch,
    pub(super) pace: Option<Pace>,
    pub(super) phases: Vec<(usize, String)>,
    pub(super) spans: Vec<(u32, u64, u64)>,
    pub(super) verify: bool,
    random_advice: bool,
    pub(super) mapped: bool,
}

/// A descriptor: opened at its first read, closed after its last.
struct Door {
    pub(super) fd: AtomicI32,
    opening: Mutex<()>,
    /// Where the file is mapped, if it is one to be touched; it stays so until the player ends.
    map: OnceLock<Mapping>,
    /// Reads left; never reaches 0 where it is not known beforehand who reads what.
    left: AtomicU64,
}

const CLOSED: i32 = -1;

impl Stage {
    pub(super) fn of(plan: Plan, spec: &Spec) -> Self {
        let queue = plan.dispatch != Dispatch::Assigned;
        let mut steps = vec![Vec::new(); if queue { 1 } else { plan.threads as usize }];
        let mut left = vec![if queue { 1 } else { 0 }; plan.descriptors.len()];
        for op in &plan.ops {
            let thread = if queue { 0 } else { op.thread as usize };
            left[op.fd as usize] += 1;
            steps[thread].push(Step {
                offset: op.offset,
                think_ns: u32::try_from(op.think_ns).unwrap_or(u32::MAX),
                fd: op.fd,
                asked: op.asked as u32,
                used: op.used as u32,
            });
        }
        steps.iter_mut().for_each(Vec::shrink_to_fit);
        Self {
            root: spec.root.clone(),
            ids: plan.files.iter().map(|file| content::file_id(&file.name)).collect(),
            files: plan.descriptors.clone(),
            doors: left
                .into_iter()
                .map(|left| Door {
                    fd: AtomicI32::new(CLOSED),
                    opening: Mutex::new(()),
                    map: OnceLock::new(),
                    left: AtomicU64::new(left),
                })
                .collect(),
            threads: plan.threads as usize,
            dispatch: plan.dispatch,
            pace: plan.pace,
            phases: plan.phases.iter().map(|phase| (phase.first_op, phase.name.clone())).collect(),
            spans: plan.spans().into_iter().map(|(file, (from, to))| (file, from, to)).collect(),
            names: plan.files.into_iter().map(|file| file.name).collect(),
            steps,
            verify: spec.verify,
            random_advice: spec.random_advice,
            mapped: plan.mapped,
        }
    }

    pub(super) fn path(&self, file: u32) -> PathBuf {
        self.root.join(&self.names[file as usize])
    }

    /// The open descriptor behind `door`.
    pub(super) fn enter(&self, door: u32) -> io::Result<i32> {
        let slot = &self.doors[door as usize];
        let fd = slot.fd.load(Relaxed);
        if fd != CLOSED {
            return Ok(fd);
        }
        let _one_opens = slot.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.fd.load(Relaxed) == CLOSED {
            let fd = open(&self.path(self.files[door as usize]))?;
            if self.random_advice {
                // SAFETY: a descriptor of our own; the call touches no memory.
                unsafe { libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_RANDOM) };
            }
            slot.fd.store(fd, Relaxed);
        }
        Ok(slot.fd.load(Relaxed))
    }

    /// Touches each page of `[offset, offset + len)` once, and puts what it found into `buffer`, a word a page.
    pub(super) fn touch(&self, door: u32, buffer: &mut [u8], offset: u64, len: usize) -> io::Result<usize> {
        let fd = self.enter(door)?;
        let slot = &self.doors[door as usize];
        if slot.map.get().is_none() {
            let _one_maps = slot.opening.lock().unwrap_or_else(PoisonError::into_inner);
            if slot.map.get().is_none() {
                let _ = slot.map.set(map(fd, self.random_advice)?);
            }
        }
        let map = slot.map.get().expect("set above");
        for at in (0..len).step_by(PAGE as usize) {
            let place = offset as usize + at;
            if place + 8 > map.len() {
                return Ok(at);
            }
            // SAFETY: eight bytes inside a mapping that lives as long as the stage, of a file that nobody shortens; aligned,
            // since offsets of touches are whole pages.
            let word = unsafe { map.at(place, 8).cast::<u64>().read_volatile() };
            buffer[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        Ok(len)
    }

    /// One read through `door` is done.
    pub(super) fn leave(&self, door: u32) {
        let slot = &self.doors[door as usize];
        if slot.left.fetch_sub(1, Relaxed) == 1 {
            // SAFETY: opened by us, and its last read is done.
            unsafe { libc::close(slot.fd.swap(CLOSED, Relaxed)) };
        }
    }
}

/// The whole file behind `fd`, to be touched.
fn map(fd: i32, random_advice: bool) -> io::Result<Mapping> {
    // SAFETY: all-zero bytes are a stat, which the call fills.
    let (found, stat) = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut stat), stat)
    };
    if found != 0 {
        return Err(io::Error::last_os_error());
    }
    let mapping = Mapping::of(fd, stat.st_size as usize, false)?;
    if random_advice {
        let _ = mapping.advise(libc::MADV_RANDOM);
    }
    Ok(mapping)
}

pub(super) fn open(path: &Path) -> io::Result<i32> {
    let text = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a string that ends with a zero byte.
    match unsafe { libc::open(text.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) } {
        CLOSED => Err(io::Error::last_os_error()),
        fd => Ok(fd),
    }
}

/// `pread` until all of `buffer` is filled or the file ends.
pub(super) fn read_all(fd: i32, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        let rest = &mut buffer[got..];
        // SAFETY: `rest` is writable for its whole length.
        let n = unsafe {
            libc::pread(fd, rest.as_mut_ptr().cast(), rest.len(), (offset + got as u64) as libc::off_t)
        };
        match n {
            0 => break,
            1.. => got += n as usize,
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(got)
}

/// The offset of the first word of `bytes` that is not what the file holds; one word of each page is looked at.
pub(super) fn first_wrong(id: u64, offset: u64, bytes: &[u8]) -> Option<u64> {
    let end = offset + bytes.len() as u64;
    if offset.next_multiple_of(8) + 8 > end {
        return content::first_wrong(id, offset, bytes);
    }
    let mut at = offset.next_multiple_of(8);
    while at + 8 <= end {
        let here = (at - offset) as usize;
        let word = u64::from_le_bytes(bytes[here..here + 8].try_into().expect("eight bytes"));
        if word != content::word(id, at / 8) {
            return Some(at);
        }
        at = (at / PAGE + 1) * PAGE;
    }
    None
}
