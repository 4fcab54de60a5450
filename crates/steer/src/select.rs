//! `--only` and `--except`: which files a run is asked to steer, by their names.
//!
//! ```text
//!   *.gguf         no slash: the last part of the path        /models/a.gguf      yes
//!   /data/*        with a slash: the whole path; * crosses /  /data/x/y.bin       yes
//!   [ab]?.bin      one of these, any one
//! ```
//!
//! Worked example: `--only '*.bin' --except '/tmp/*'` steers /data/x.bin, and neither /tmp/x.bin nor /data/x.txt.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Patterns that a path must match, and those that it must not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// If there are any, one of these must match.
    pub only: Vec<String>,
    /// None of these may match.
    pub except: Vec<String>,
}

impl Selection {
    /// Whether the run is asked to steer the file at `path`.
    pub fn takes(&self, path: &Path) -> bool {
        let hit = |glob: &String| matches(glob, path);
        (self.only.is_empty() || self.only.iter().any(hit)) && !self.except.iter().any(hit)
    }
}

fn matches(glob: &str, path: &Path) -> bool {
    let whole = path.as_os_str().as_bytes();
    let name = whole.rsplit(|&b| b == b'/').next().unwrap_or(whole);
    glob_matches(glob.as_bytes(), if glob.contains('/') { whole } else { name })
}

/// O(glob x text): a failed match goes back to the last star only.
fn glob_matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut g, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if g < glob.len() && glob[g] == b'*' {
            star = Some((g, t));
            g += 1;
            continue;
        }
        if t == text.len() {
            return g == glob.len();
        }
        let step = if g < glob.len() { one(&glob[g..], text[t]) } else { None };
        match (step, star) {
            (Some(step), _) => (g, t) = (g + step, t + 1),
            (None, Some((at, from))) => {
                star = Some((at, from + 1));
                (g, t) = (at + 1, from + 1);
            }
            (None, None) => return false,
        }
    }
}

/// How much of the glob matches this byte, if any does.
fn one(glob: &[u8], byte: u8) -> Option<usize> {
    match glob[0] {
        b'?' => Some(1),
        b'[' => {
            let (negated, body) = match glob.get(1) {
                Some(b'!' | b'^') => (true, 2),
                _ => (false, 1),
            };
            let Some(end) = glob[body..].iter().skip(1).position(|&b| b == b']').map(|i| i + body + 1) else {
                return (byte == b'[').then_some(1);
            };
            let set = &glob[body..end];
            let mut inside = false;
            let mut i = 0;
            while i < set.len() {
                if i + 2 < set.len() && set[i + 1] == b'-' {
                    inside |= (set[i]..=set[i + 2]).contains(&byte);
                    i += 3;
                } else {
                    inside |= set[i] == byte;
                    i += 1;
                }
            }
            (inside != negated).then_some(end + 1)
        }
        b'\\' if glob.len() > 1 => (glob[1] == byte).then_some(2),
        plain => (plain == byte).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_the_shell_has_it() {
        let check = |glob: &str, path: &str, expected: bool| {
            assert_eq!(matches(glob, Path::new(path)), expected, "{glob} {path}");
        };
        check("*.gguf", "/models/a.gguf", true);
        check("*.gguf", "/models/a.gguf.part", false);
        check("/data/*", "/data/x/y.bin", true);
        check("/data/*", "/other/data/x", false);
        check("[ab]?.bin", "/x/b7.bin", true);
        check("[!ab]?.bin", "/x/b7.bin", false);
        check("[0-9]*", "/x/7", true);
        check("*a*b*c", "/x/xxaxxbxxbxc", true);
        check("[", "/x/[", true);
        check("\\*", "/x/y", false);
    }

    #[test]
    fn exceptions_win() {
        let selection = Selection { only: vec!["*.bin".into()], except: vec!["/tmp/*".into()] };
        let takes = |path: &str| selection.takes(Path::new(path));
        assert!(takes("/data/x.bin") && !takes("/tmp/x.bin") && !takes("/data/x.txt"));
        assert!(Selection::default().takes(Path::new("/any")));
    }
}
