//! A URL as names: one object, or a folder of them that a server lists.
//!
//! A URL that ends in a slash is a folder. Its names come from the page that servers make of a folder (`autoindex` of
//! nginx, Apache, `python3 -m http.server`): the targets of its links that are plain names. Where a server lists nothing,
//! a name is still found by asking for it.
//!
//! ```text
//!   http://host/data/          <a href="../">  <a href="part%200">  <a href="deep/">  <a href="?C=N">  <a href="/etc/">
//!                                   -            part 0              deep, a folder       -                -
//!   http://host/data/one.bin   one name: one.bin
//! ```
//!
//! A page is read up to 16 MiB; the rest of a longer one is left out, and counted as one name that is.

use super::client::{self, HttpClient, cause, drive, shown, status_error};
use super::{HttpStorage, headers};
use crate::tree::Listing;
use crate::{Attr, Entry, Error, Kind, Storage, Tree, TreePath, Until};
use reqwest::{StatusCode, Url};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of a page that are read: some 200,000 names.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// A URL as a source.
#[derive(Debug)]
pub struct HttpTree {
    name: String,
    client: HttpClient,
    base: Url,
    /// The one name that there is, if the URL is no folder.
    only: Option<OsString>,
}

impl HttpTree {
    /// What `url` names; nothing is asked yet.
    ///
    /// # Errors
    /// [`Error::Wrong`] of what is no URL of HTTP.
    pub fn new(client: &HttpClient, url: &str) -> Result<Self, Error> {
        let base = client::parse(url)?;
        let last = base.path().rsplit('/').next().unwrap_or_default();
        let only = (!last.is_empty()).then(|| unescape(last));
        if let Some(name) = &only
            && TreePath::root().join(name).is_err()
        {
            return Err(Error::Wrong {
                object: shown(&base).into(),
                what: "its last part is no file name".into(),
            });
        }
        Ok(Self { name: shown(&base), client: client.clone(), base, only })
    }

    /// The URL of a path; of a folder if `folder`.
    fn url(&self, path: &TreePath, folder: bool) -> Result<Url, Error> {
        if let Some(only) = &self.only {
            if path.as_path().as_os_str() == only {
                return Ok(self.base.clone());
            }
            return Err(Error::NotFound { object: path.shown_under(&self.name) });
        }
        let mut text = self.base.path().to_owned();
        text.push_str(&escape(path.as_path().as_os_str()));
        if folder && !text.ends_with('/') {
            text.push('/');
        }
        let mut url = self.base.clone();
        url.set_path(&text);
        Ok(url)
    }

    fn page(&self, url: Url, until: &Until) -> Result<(Vec<u8>, bool), Error> {
        let object: Arc<str> = shown(&url).into();
        drive(until, &object, async {
            let failed = |error| cause(&object, error);
            let mut response = self.client.inner().get(url).send().await.map_err(failed)?;
            if response.status() != StatusCode::OK {
                return Err(status_error(&object, response.status()));
            }
            let mut page = Vec::new();
            while let Some(piece) = response.chunk().await.map_err(failed)? {
                if page.len() + piece.len() > PAGE_BYTES_MAX {
                    return Ok((page, true));
                }
                page.extend_from_slice(&piece);
            }
            Ok((page, false))
        })
    }

    /// The head of an answer, and whether asking led to a folder.
    fn head(&self, url: Url, until: &Until) -> Result<(Attr, bool), Error> {
        let object: Arc<str> = shown(&url).into();
        let response = drive(until, &object, async {
            self.client.inner().head(url).send().await.map_err(|error| cause(&object, error))
        })?;
        if !response.status().is_success() {
            return Err(status_error(&object, response.status()));
        }
        let told = response.headers();
        let len = told.get("content-length").and_then(|len| len.to_str().ok()?.parse().ok());
        let folder = response.url().path().ends_with('/');
        let Some(len) = len.or(folder.then_some(0)) else {
            return Err(Error::Wrong { object, what: "it does not tell its length".into() });
        };
        Ok((Attr::file(len, headers::modified(told)), folder))
    }
}

impl Tree for HttpTree {
    fn name(&self) -> &str {
        &self.name
    }

    fn list(&self, folder: &TreePath, until: &Until) -> Result<Listing, Error> {
        if let Some(only) = &self.only
            && folder.is_root()
        {
            let entry = Entry { name: only.clone(), kind: Kind::File, attr: None };
            return Ok(Listing { entries: vec![entry], left_out: 0 });
        }
        let url = self.url(folder, true)?;
        let (page, cut) = self.page(url, until)?;
        let mut listing = names(&page);
        listing.left_out += u64::from(cut);
        Ok(listing)
    }

    fn look_up(&self, path: &TreePath, until: &Until) -> Result<Attr, Error> {
        if path.is_root() {
            return Ok(Attr::folder());
        }
        match self.head(self.url(path, false)?, until) {
            Ok((attr, folder)) if self.only.is_some() || !folder => Ok(attr),
            Ok(_) => Ok(Attr::folder()),
            Err(Error::NotFound { .. }) if self.only.is_none() => {
                self.head(self.url(path, true)?, until).map(|_| Attr::folder())
            }
            Err(error) => Err(error),
        }
    }

    fn open(&self, path: &TreePath, until: &Until) -> Result<Arc<dyn Storage>, Error> {
        let storage = HttpStorage::open_url(&self.client, self.url(path, false)?, until)?;
        Ok(Arc::new(storage))
    }

    fn read_link(&self, path: &TreePath, _: &Until) -> Result<PathBuf, Error> {
        Err(Error::NotFound { object: path.shown_under(&self.name) })
    }
}

/// The names in a page of links.
fn names(page: &[u8]) -> Listing {
    let mut found = BTreeMap::new();
    let mut left_out = 0;
    let mut rest = page;
    while let Some(at) = find(rest, b"href=") {
        rest = &rest[at + 5..];
        let Some((quote @ (b'"' | b'\''), text)) = rest.split_first() else { continue };
        let Some(end) = text.iter().position(|byte| byte == quote) else { break };
        let target = &text[..end];
        rest = &text[end..];
        let (target, kind) = match target.strip_suffix(b"/") {
            Some(folder) => (folder, Kind::Folder),
            None => (target, Kind::File),
        };
        let target = target.strip_prefix(b"./").unwrap_or(target);
        // Another page, another order of this one, a folder above: no name of this folder.
        if target.is_empty() || target == b".." || target.iter().any(|byte| b"/?#:".contains(byte)) {
            continue;
        }
        let name = unescape(&String::from_utf8_lossy(target).replace("&amp;", "&"));
        match TreePath::root().join(&name) {
            Ok(_) => _ = found.insert(name, kind),
            Err(_) => left_out += 1,
        }
    }
    let entries = found.into_iter().map(|(name, kind)| Entry { name, kind, attr: None }).collect();
    Listing { entries, left_out }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// `part%200` is `part 0`; a percent sign that begins no byte is one.
fn unescape(text: &str) -> OsString {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let byte = (first == b'%')
            .then(|| tail.get(..2).filter(|two| two.iter().all(u8::is_ascii_hexdigit)))
            .flatten()
            .and_then(|two| u8::from_str_radix(str::from_utf8(two).ok()?, 16).ok());
        match byte {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// Everything but letters, digits, `-._~` and the slash by its number.
fn escape(path: &OsStr) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(*byte as char)
            }
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_picture() {
        let page = br#"<a href="../">..</a><a href="part%200">p</a> <a href='deep/'>d</a>
            <a href="?C=N">n</a><a href="/etc/">e</a><a href="http://other/">o</a><a href="%2e%2e/">x</a>
            <a href="a%2Fb">x</a><a href="t&amp;c">x</a><a href=bare><a href="open"#;
        let listing = names(page);
        let told: Vec<_> = listing.entries.iter().map(|e| (e.name.to_str().unwrap(), e.kind)).collect();
        assert_eq!(told, [("deep", Kind::Folder), ("part 0", Kind::File), ("t&c", Kind::File)]);
        assert_eq!(listing.left_out, 2, "two names that are more than names");
    }

    #[test]
    fn names_go_into_urls_and_back() {
        let odd = OsStr::from_bytes(b"a b/\xff?#%\n");
        assert_eq!(escape(odd), "a%20b/%FF%3F%23%25%0A");
        assert_eq!(unescape(&escape(odd)), odd);
        assert_eq!(unescape("100%"), "100%");
        assert_eq!(unescape("%+1"), "%+1");
    }

    #[test]
    fn whatever_a_page_holds_gives_names_of_its_folder() {
        let corpus: [&[u8]; 4] = [
            br#"<a href="../">..</a><a href="part%200">p</a> <a href='deep/'>d</a><a href="?C=N">n</a>"#,
            br#"<a href="/etc/">e</a><a href="http://other/">o</a><a href="%2e%2e/">x</a><a href="a%2Fb">x</a>"#,
            br#"<a href="t&amp;c">x</a><a href="./x">x</a><a href=bare><a href="open"#,
            b"<a href='%00%ff%c3%28%0a/'>",
        ];
        bowwave_fuzz::fuzz("a page of links", &corpus, |page| {
            let listing = names(page);
            for entry in &listing.entries {
                let path = TreePath::root().join(&entry.name).expect("a name of the folder");
                let asked = escape(path.as_path().as_os_str());
                assert!(
                    asked.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#".contains(&byte)),
                    "{asked}"
                );
                assert_eq!(unescape(&asked), entry.name, "it is asked for as what it was called");
            }
            let links = page.windows(5).filter(|window| window == b"href=").count();
            assert!(listing.entries.len() as u64 + listing.left_out <= links as u64);
        });
    }
}
