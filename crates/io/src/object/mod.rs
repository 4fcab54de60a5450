//! Objects in a bucket, through a library that knows the stores (`opendal`): which requests to make, and what to believe.
//!
//! The library signs, finds credentials and speaks each store's dialect; our own transport under it looks at every answer,
//! because a store that ignores a condition or a range would otherwise mix two versions without a word:
//!
//! ```text
//!   ObjectStorage::read_at ──> opendal ── GET, Range, If-Match, signature ──> Checked ──> the store
//!   frames  <── pieces of the body ───────────────────────────────────────── 206? this range? this tag?
//! ```
//!
//! The version is the object's entity tag. Nothing that a store says is repeated in an error, since what it says of a bad
//! signature holds parts of the request; nor is a URL, which may be signed.
//!
//! A key is shown as a path. Keys that are no paths (`a//b`, `../x`, `/x`, a name over 255 bytes) are left out of listings
//! and counted, and so are those that begin or end with a blank: the library would ask for another key. `data/` as a key of its own,
//! which consoles make for folders, is the folder.

mod checked;
#[cfg(feature = "s3")]
mod s3;

#[cfg(feature = "s3")]
pub use s3::S3Options;

use crate::http::{HttpClient, drive, io_error};
use crate::{Attr, Entry, Error, Kind, Listing, Meta, Scatter, Storage, Tree, TreePath, Until};
use checked::{Checked, Lie};
use futures_core::Stream;
use opendal::{ErrorKind, HttpTransporter, OperationContext, Operator};
use std::ffi::OsString;
use std::future::poll_fn;
use std::io::IoSliceMut;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

/// Names of one folder; what a listing with more holds is left out. At some 200 bytes a name that is 200 MB.
const NAMES_MAX: usize = 1_000_000;

/// A bucket, or what is below a prefix in it, as a source.
pub struct BucketTree {
    name: String,
    operator: Operator,
    endpoint: u64,
}

impl BucketTree {
    /// What `operator` reaches, called `name` in errors; objects behind one `endpoint` share a device model. Requests go through
    /// our own transport.
    ///
    /// # Errors
    /// [`Error::Io`] if there can be no client for HTTP.
    pub fn new(name: &str, operator: Operator, endpoint: u64) -> Result<Self, Error> {
        let transport = HttpTransporter::new(Checked::new(&HttpClient::new()?));
        let context = OperationContext::new().with_http_transport(transport);
        Ok(Self { name: name.into(), operator: operator.with_context(context), endpoint })
    }

    fn key<'p>(&self, path: &'p TreePath) -> Result<&'p str, Error> {
        let no_key = || Error::NotFound { object: path.shown_under(&self.name) };
        path.as_key().filter(|key| key.trim() == *key && !key.is_empty()).ok_or_else(no_key)
    }

    /// Whether any key begins with this path and a slash.
    async fn is_folder(&self, key: &str, object: &Arc<str>) -> Result<bool, Error> {
        let below = format!("{key}/");
        let lister = self.operator.lister_with(&below).recursive(true).limit(1).await;
        let mut lister = lister.map_err(|error| of_store(object, &error))?;
        match next(&mut lister).await {
            None => Ok(false),
            Some(Ok(_)) => Ok(true),
            Some(Err(error)) => match of_store(object, &error) {
                Error::NotFound { .. } => Ok(false),
                error => Err(error),
            },
        }
    }
}

impl Tree for BucketTree {
    fn name(&self) -> &str {
        &self.name
    }

    fn list(&self, folder: &TreePath, until: &Until) -> Result<Listing, Error> {
        let object = folder.shown_under(&self.name);
        let prefix = if folder.is_root() { String::new() } else { format!("{}/", self.key(folder)?) };
        drive(until, &object, async {
            let mut listing = Listing::default();
            let lister = self.operator.lister(&prefix).await;
            let mut lister = lister.map_err(|error| of_store(&object, &error))?;
            while let Some(entry) = next(&mut lister).await {
                let entry = entry.map_err(|error| of_store(&object, &error))?;
                let Some(below) = entry.path().strip_prefix(&prefix) else {
                    listing.left_out += 1;
                    continue;
                };
                let (name, kind) = match below.strip_suffix('/') {
                    Some(name) => (name, Kind::Folder),
                    None => (below, Kind::File),
                };
                if name.is_empty() && below.is_empty() {
                    continue; // the folder's own key
                }
                let known = entry.metadata();
                let attr = match kind {
                    Kind::File => Attr::file(known.content_length(), modified(known)),
                    _ => Attr::folder(),
                };
                let shown = folder.join(name).is_ok_and(|path| self.key(&path).is_ok());
                if shown && listing.entries.len() < NAMES_MAX {
                    listing.entries.push(Entry { name: OsString::from(name), kind, attr: Some(attr) });
                } else {
                    listing.left_out += 1;
                }
            }
            one_of_each_name(&mut listing);
            Ok(listing)
        })
    }

    fn look_up(&self, path: &TreePath, until: &Until) -> Result<Attr, Error> {
        if path.is_root() {
            return Ok(Attr::folder());
        }
        let object = path.shown_under(&self.name);
        let key = self.key(path)?;
        drive(until, &object, async {
            match self.operator.stat(key).await {
                Ok(known) if known.is_file() => Ok(Attr::file(known.content_length(), modified(&known))),
                Ok(_) => Ok(Attr::folder()),
                Err(error) => match of_store(&object, &error) {
                    missing @ Error::NotFound { .. } => {
                        if self.is_folder(key, &object).await? {
                            Ok(Attr::folder())
                        } else {
                            Err(missing)
                        }
                    }
                    error => Err(error),
                },
            }
        })
    }

    fn open(&self, path: &TreePath, until: &Until) -> Result<Arc<dyn Storage>, Error> {
        let name = path.shown_under(&self.name);
        let key = self.key(path)?;
        let known = drive(until, &name, async {
            self.operator.stat(key).await.map_err(|error| of_store(&name, &error))
        })?;
        let version = known.etag().or(known.version()).map(Arc::from);
        let meta = Meta { name, len: known.content_length(), version, endpoint: self.endpoint };
        let tag = known.etag().filter(|tag| !tag.starts_with("W/")).map(str::to_owned);
        Ok(Arc::new(ObjectStorage { meta, operator: self.operator.clone(), key: key.to_owned(), tag }))
    }

    fn read_link(&self, path: &TreePath, _: &Until) -> Result<PathBuf, Error> {
        Err(Error::NotFound { object: path.shown_under(&self.name) })
    }
}

/// A bucket may hold both `a` and `a/b`. A folder hides the object of its name, as every mount of a bucket has it: what is
/// below stays within reach.
fn one_of_each_name(listing: &mut Listing) {
    listing.entries.sort_by(|a, b| (&a.name, a.kind == Kind::File).cmp(&(&b.name, b.kind == Kind::File)));
    let before = listing.entries.len();
    listing.entries.dedup_by(|later, first| later.name == first.name);
    listing.left_out += (before - listing.entries.len()) as u64;
}

/// An object in a bucket.
pub struct ObjectStorage {
    meta: Meta,
    operator: Operator,
    key: String,
    /// What a read is conditional on.
    tag: Option<String>,
}

impl ObjectStorage {
    async fn read(&self, offset: u64, mut scatter: Scatter<'_, '_>) -> Result<(), Error> {
        let object = &self.meta.name;
        let failed = |error: opendal::Error| of_store(object, &error);
        let wrong = |what: &str| Error::Wrong { object: object.clone(), what: what.into() };
        let end = offset + scatter.wanted() as u64;
        let mut reader = self.operator.reader_with(&self.key);
        if let Some(tag) = &self.tag {
            reader = reader.if_match(tag);
        }
        let reader = reader.await.map_err(failed)?;
        let mut body = reader.into_stream(offset..end).await.map_err(failed)?;
        while let Some(pieces) = next(&mut body).await {
            for piece in pieces.map_err(failed)? {
                if scatter.put(&piece) < piece.len() {
                    return Err(wrong("a longer body than was asked for"));
                }
            }
        }
        if scatter.wanted() > 0 { Err(wrong("a shorter body than was asked for")) } else { Ok(()) }
    }
}

impl Storage for ObjectStorage {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn read_at(&self, offset: u64, into: &mut [IoSliceMut<'_>], until: &Until) -> Result<(), Error> {
        until.check(&self.meta.name)?;
        let scatter = Scatter::new(into);
        if scatter.wanted() == 0 {
            return Ok(());
        }
        drive(until, &self.meta.name, self.read(offset, scatter))
    }
}

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

fn modified(known: &opendal::Metadata) -> Option<SystemTime> {
    known.last_modified().map(SystemTime::from)
}

/// An error of the library as one of ours; its words are not repeated, what lies at its bottom is.
fn of_store(object: &Arc<str>, error: &opendal::Error) -> Error {
    let object = object.clone();
    let mut bottom: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(deeper) = bottom.and_then(std::error::Error::source) {
        bottom = Some(deeper);
    }
    if let Some(Lie(what)) = bottom.and_then(|bottom| bottom.downcast_ref()) {
        return Error::Wrong { object, what: (*what).into() };
    }
    match error.kind() {
        ErrorKind::NotFound => Error::NotFound { object },
        ErrorKind::PermissionDenied => Error::Denied { object },
        ErrorKind::ConditionNotMatch | ErrorKind::RangeNotSatisfied => Error::Changed { object },
        ErrorKind::RateLimited => io_error(&object, "the store asks to slow down".into()),
        ErrorKind::IsADirectory => Error::Wrong { object, what: "it is a folder".into() },
        ErrorKind::ConfigInvalid => io_error(
            &object,
            "no such bucket, or not where it is said to be; look at its name, region and endpoint".into(),
        ),
        ErrorKind::Unsupported => Error::Wrong { object, what: "the store cannot do that".into() },
        // The library has no kind of its own for a chain of credentials that came to its end.
        ErrorKind::Unexpected if error.to_string().contains("credential") => Error::NoCredentials { object },
        kind => {
            // Of system and network only: what else is at the bottom may hold parts of a request.
            let system = bottom.and_then(|bottom| bottom.downcast_ref::<std::io::Error>());
            let what = system.map_or_else(|| format!("the store failed ({kind})"), ToString::to_string);
            io_error(&object, what)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_hides_the_object_of_its_name() {
        let entry = |name: &str, kind| Entry { name: name.into(), kind, attr: None };
        let entries = vec![entry("a", Kind::File), entry("b", Kind::File), entry("a", Kind::Folder)];
        let mut listing = Listing { entries, left_out: 0 };
        one_of_each_name(&mut listing);
        assert_eq!(listing.entries, [entry("a", Kind::Folder), entry("b", Kind::File)]);
        assert_eq!(listing.left_out, 1);
    }

    #[test]
    fn the_words_of_a_store_are_not_repeated() {
        let said = opendal::Error::new(ErrorKind::Unexpected, "AKIASECRET signed wrongly")
            .with_context("url", "https://b/?X-Amz-Signature=SECRET");
        let error = of_store(&"s3://b/k".into(), &said).to_string();
        assert_eq!(error, "s3://b/k: the store failed (Unexpected)");
    }
}
