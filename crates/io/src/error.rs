//! What can go wrong with a read, in one sentence that names the object and carries no secret.

use std::io;
use std::sync::Arc;

/// Why bytes could not be had. It is cheap to clone: every reader that waits for one fetch is told the same.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The object is not the one that was opened: its version or length differs. The bytes read so far are of the old one.
    #[error("{object}: changed while it was read; open it again")]
    Changed {
        /// Which object.
        object: Arc<str>,
    },
    /// There is no such object.
    #[error("{object}: not found")]
    NotFound {
        /// Which object.
        object: Arc<str>,
    },
    /// The store refuses.
    #[error("{object}: permission denied; {}", refused(.object))]
    Denied {
        /// Which object.
        object: Arc<str>,
    },
    /// The store wants to know who asks, and nobody is named anywhere.
    #[error(
        "{object}: no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or \
         ask without (--anonymous) if it is public"
    )]
    NoCredentials {
        /// Which object.
        object: Arc<str>,
    },
    /// The server sends objects whole: no part of one can be read.
    #[error(
        "{object}: the server does not serve ranges (it ignores Range); use one that does (nginx, Apache, Caddy), or mount a \
         directory that holds a copy"
    )]
    NoRanges {
        /// Which object.
        object: Arc<str>,
    },
    /// The time that the reader gave it is over.
    #[error("{object}: no answer in {waited_ms} ms")]
    TimedOut {
        /// Which object.
        object: Arc<str>,
        /// Milliseconds that were waited.
        waited_ms: u64,
    },
    /// Nobody wants the bytes any more. Only speculation is cancelled.
    #[error("{object}: cancelled")]
    Cancelled {
        /// Which object.
        object: Arc<str>,
    },
    /// The store broke its own rules: a short body, a wrong range, a wrong length.
    #[error("{object}: the store answered wrongly: {what}")]
    Wrong {
        /// Which object.
        object: Arc<str>,
        /// What was wrong, without a word that the store sent.
        what: Arc<str>,
    },
    /// Everything else, as the system says it.
    #[error("{object}: {source}")]
    Io {
        /// Which object.
        object: Arc<str>,
        /// The system's error.
        source: Arc<io::Error>,
    },
}

/// What to look at: stores have names with a scheme.
fn refused(object: &str) -> &'static str {
    if object.contains("://") {
        "look at the credentials and the policy of the store"
    } else {
        "look at its owner and permissions"
    }
}

impl Error {
    /// The system's error about `object`.
    pub fn io(object: &Arc<str>, source: io::Error) -> Self {
        let object = object.clone();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { object },
            io::ErrorKind::PermissionDenied => Self::Denied { object },
            _ => Self::Io { object, source: Arc::new(source) },
        }
    }

    /// The object that it is about.
    pub fn object(&self) -> &str {
        match self {
            Self::Changed { object }
            | Self::NotFound { object }
            | Self::Denied { object }
            | Self::NoCredentials { object }
            | Self::NoRanges { object }
            | Self::TimedOut { object, .. }
            | Self::Cancelled { object }
            | Self::Wrong { object, .. }
            | Self::Io { object, .. } => object,
        }
    }

    /// Whether asking again may help: the network, a spell of errors, a short body; not a missing or a changed object.
    pub fn transient(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Wrong { .. } | Self::Io { .. })
    }
}
