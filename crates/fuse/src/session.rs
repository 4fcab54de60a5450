//! A mount being served: from the handshake with the kernel to its end, the same for both kinds of mount.
//!
//! ```text
//!   start ── a thread receives ... ── unmounted, by whomever ──> `ended` is at its end
//!     unmount   busy? EBUSY, and it goes on          detach   out of the name space at once, open files go on
//!     drop      unmounted, or else detached
//! ```

use crate::mount::MountError;
use crate::point::unmount;
use fuser::{Filesystem, InitFlags, KernelConfig, Session};
use std::io::{self, PipeReader};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

/// Requests the kernel may have out that nobody waits for. Its default of 12 would hide every device with more slots.
const BACKGROUND: u16 = 512;
/// The kernel's own limit to a request (fs.fuse.max_pages_limit).
const REQUEST_MAX: u32 = 1 << 20;

/// Agrees with the kernel on what both can do.
///
/// # Errors
/// `ENOSYS` where the kernel lacks something of `needed`.
pub(crate) fn agree(config: &mut KernelConfig, wanted: InitFlags, needed: InitFlags) -> io::Result<()> {
    // Older kernels lack some of them.
    if let Err(lacking) = config.add_capabilities(wanted | needed) {
        if lacking.intersects(needed) {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        let _ = config.add_capabilities((wanted | needed) & !lacking);
    }
    // Each is refused only below 1 or above what fuser offers; the readahead it offers is the kernel's.
    let refused = |_| io::Error::from_raw_os_error(libc::EINVAL);
    config.set_max_background(BACKGROUND).map_err(|n| refused(u32::from(n)))?;
    config.set_congestion_threshold(BACKGROUND).map_err(|n| refused(u32::from(n)))?;
    config.set_max_write(REQUEST_MAX).map_err(refused)?;
    Ok(())
}

/// A session that is served by a thread of its own until it ends.
pub(crate) struct Serving {
    dir: PathBuf,
    /// Readable, at its end, when the kernel has let go of the mount.
    ended: PipeReader,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Serving {
    /// Starts it on `dir`, where it is mounted; its thread does `first` before anything else.
    pub(crate) fn start<F: Filesystem + Send + 'static>(
        session: Session<F>,
        dir: PathBuf,
        first: impl FnOnce() + Send + 'static,
    ) -> Result<Self, MountError> {
        let (ended, running) = io::pipe().map_err(MountError::Thread)?;
        let thread = thread::Builder::new().name("session".into()).spawn(move || {
            first();
            let result = session.run();
            drop(running);
            result
        });
        Ok(Self { dir, ended, thread: Some(thread.map_err(MountError::Thread)?) })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn ended(&self) -> &PipeReader {
        &self.ended
    }

    fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub(crate) fn unmount(&mut self) -> io::Result<()> {
        if self.is_over() {
            return Ok(());
        }
        unmount(&self.dir, 0)?;
        match self.thread.take().map(JoinHandle::join) {
            // Unmounted while it asked for the next request: that is its end too.
            Some(Ok(Err(error))) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_panic)) => Err(io::Error::other("a thread of the mount panicked")),
            None => Ok(()),
        }
    }

    pub(crate) fn detach(&mut self) -> io::Result<()> {
        if self.is_over() {
            return Ok(());
        }
        // Nobody joins the session any more: it lasts as long as the open files.
        self.thread = None;
        unmount(&self.dir, libc::MNT_DETACH)
    }

    /// Unmounts it, or else detaches it. Again: nothing.
    pub(crate) fn end(&mut self) {
        if self.unmount().is_err()
            && let Err(error) = self.detach()
        {
            eprintln!("bowwave: cannot unmount {}: {error}; try: umount -l", self.dir.display());
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end();
    }
}
