//! An arm: under which readahead a pattern is played.

use std::fmt;
use std::str::FromStr;

/// The kernel's default window in KiB; the arms that do not choose one run under it.
pub(crate) const DEFAULT_KIB: u64 = 128;

/// Under which readahead a pattern is played.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arm {
    /// Readahead off: every descriptor is advised that reads are random, so exactly what is asked is fetched.
    Off,
    /// The kernel's own readahead with a window of so many KiB.
    Window(u64),
    /// `cat` of the used spans first, its time included, under the default window.
    Cat,
    /// `bowwave run`, under the default window.
    Bowwave,
    /// `bowwave run` without what only root can do.
    BowwaveUser,
    /// The files through `bowwave mount`.
    Mount(Kernel),
}

impl Arm {
    /// The mount's window while it plays.
    pub(crate) fn window_kib(self) -> u64 {
        match self {
            Self::Window(kib) => kib,
            _ => DEFAULT_KIB,
        }
    }

    /// What its files lie on.
    pub(crate) fn ground(self) -> Ground {
        match self {
            Self::Mount(kernel) => Ground::Mount(kernel),
            _ => Ground::SlowStore,
        }
    }

    /// Whether it is played under `bowwave run`.
    pub(crate) fn is_bowwave(self) -> bool {
        matches!(self, Self::Bowwave | Self::BowwaveUser)
    }
}

/// What files lie on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ground {
    /// `bowwave slow`.
    SlowStore,
    /// `bowwave mount` over the same device, one of its own for each cell: what a mount learnt in the cell before is none of the
    /// next one's, as with `bowwave run`.
    Mount(Kernel),
}

impl Ground {
    /// Whether arms on it are played by turns with those on the other.
    pub(crate) fn is_like(self, other: Self) -> bool {
        matches!((self, other), (Self::SlowStore, Self::SlowStore) | (Self::Mount(_), Self::Mount(_)))
    }
}

/// What stands before a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kernel {
    /// The kernel's page cache, with the window that the mount chooses: as users have it.
    Chosen,
    /// Its page cache, with a window of so many KiB.
    Window(u64),
    /// Nothing: reads go past it.
    Past,
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.pad("off"),
            Self::Window(kib) if *kib >= 1024 && kib % 1024 == 0 => f.pad(&format!("{}m", kib / 1024)),
            Self::Window(kib) => f.pad(&format!("{kib}k")),
            Self::Cat => f.pad("cat"),
            Self::Bowwave => f.pad("bowwave"),
            Self::BowwaveUser => f.pad("bowwave-user"),
            Self::Mount(Kernel::Chosen) => f.pad("mount"),
            Self::Mount(Kernel::Past) => f.pad("mount-direct"),
            Self::Mount(Kernel::Window(kib)) => f.pad(&format!("mount-{}", Self::Window(*kib))),
        }
    }
}

impl FromStr for Arm {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let window = |suffix: char, kib: u64| {
            let number: u64 = text.strip_suffix(suffix)?.parse().ok()?;
            Some(Self::Window(number.checked_mul(kib)?))
        };
        match text {
            "off" => Ok(Self::Off),
            "cat" => Ok(Self::Cat),
            "bowwave" => Ok(Self::Bowwave),
            "bowwave-user" => Ok(Self::BowwaveUser),
            "mount" => Ok(Self::Mount(Kernel::Chosen)),
            "mount-direct" => Ok(Self::Mount(Kernel::Past)),
            _ if text.starts_with("mount-") => match text[6..].parse()? {
                Self::Window(kib) => Ok(Self::Mount(Kernel::Window(kib))),
                _ => Err(format!("no arm '{text}': mount, mount-direct, mount-128k, mount-1m")),
            },
            _ => window('k', 1).or_else(|| window('m', 1024)).ok_or_else(|| {
                format!("no arm '{text}': off, a window such as 128k or 8m, cat, bowwave, bowwave-user, mount, mount-direct, mount-128k")
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_are_written_as_they_are_read() {
        let of_mounts = ["mount", "mount-direct", "mount-128k", "mount-1m"];
        let others = ["off", "0k", "128k", "512k", "1m", "8m", "cat", "bowwave", "bowwave-user"];
        for text in of_mounts.into_iter().chain(others) {
            assert_eq!(text.parse::<Arm>().unwrap().to_string(), text);
        }
        assert!("fast".parse::<Arm>().is_err());
        assert_eq!("8m".parse::<Arm>().unwrap().window_kib(), 8192);
    }
}
