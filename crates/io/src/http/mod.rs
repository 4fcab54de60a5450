//! An object behind a URL, read by ranges: one version of it or an error, each range checked before a byte is believed.
//!
//! Opening asks for the first byte: that tells the length, the version and whether the server serves ranges at all. Every
//! read after that names its range and its version, and looks at what comes back:
//!
//! ```text
//!   GET /data.bin                       206 Partial Content
//!   Range: bytes=4096-8191              Content-Range: bytes 4096-8191/100000     the range and the length asked for?
//!   If-Match: "v1"                      ETag: "v1"                                 the version that was opened?
//!   Accept-Encoding: identity           4096 bytes of body                         not one fewer, not one more
//! ```
//!
//! | the server says | it is | again? |
//! |---|---|---|
//! | 412, another tag or length, 416, the whole object instead of a range it once served | `Changed` | no |
//! | the whole object, asked for its first byte | `NoRanges` | no |
//! | 404, 410 | `NotFound` | no |
//! | 401, 403, 407, a redirect from https to http | `Denied` | no |
//! | another range, another encoding, a short or long body | `Wrong` | yes |
//! | 408, 425, 429, 5xx, a broken connection | `Io` | yes |
//!
//! The version is a strong entity tag, else `Last-Modified` (which has seconds only: what is written twice in a second looks
//! like one). The body goes straight into the frames. Connections are kept; a redirect is followed once and remembered
//! until the server refuses what it led to. Retries are the engine's.
//!
//! Requests run on two threads that all of them share; the reading thread waits, and looks every 20 ms whether anybody
//! still wants the bytes.

mod client;
mod headers;
mod tree;

pub use client::HttpClient;
pub use tree::HttpTree;

#[cfg(feature = "object-store")]
pub(crate) use client::{cause, drive, endpoint, parse, shown};
#[cfg(feature = "object-store")]
pub(crate) use headers::ContentRange;

use crate::{Error, Meta, Scatter, Storage, Until};
use client::status_error;
#[cfg(not(feature = "object-store"))]
use client::{cause, drive};
#[cfg(not(feature = "object-store"))]
use headers::ContentRange;
use headers::{Validator, content_range};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, RANGE};
use reqwest::{Response, StatusCode, Url};
use std::io::{self, IoSliceMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// An object behind a URL.
#[derive(Debug)]
pub struct HttpStorage {
    meta: Meta,
    modified: Option<SystemTime>,
    client: HttpClient,
    url: Url,
    /// Where a redirect led, which may be good for a while only.
    led_to: Mutex<Url>,
    validator: Validator,
}

impl HttpStorage {
    /// The object at `url`. What is secret in it (user, password, query) is used and never shown.
    ///
    /// # Errors
    /// See the table above; [`Error::NoRanges`] of a server that does not serve ranges.
    pub fn open(client: &HttpClient, url: &str, until: &Until) -> Result<Self, Error> {
        let url = client::parse(url)?;
        Self::open_url(client, url, until)
    }

    pub(crate) fn open_url(client: &HttpClient, url: Url, until: &Until) -> Result<Self, Error> {
        let object: Arc<str> = client::shown(&url).into();
        let asked = client.inner().get(url.clone()).header(RANGE, "bytes=0-0");
        let response = drive(until, &object, async { asked.send().await.map_err(|e| cause(&object, e)) })?;
        let told = response.headers();
        let wrong = |what: &str| Error::Wrong { object: object.clone(), what: what.into() };
        let len = match response.status() {
            StatusCode::PARTIAL_CONTENT => content_range(told)
                .and_then(|range| range.whole)
                .ok_or_else(|| wrong("it does not tell its length; ranges of it cannot be read"))?,
            // An empty object has no first byte.
            StatusCode::RANGE_NOT_SATISFIABLE
                if content_range(told).is_some_and(|range| range.whole == Some(0)) =>
            {
                0
            }
            StatusCode::OK if response.content_length() == Some(0) => 0,
            StatusCode::OK => return Err(Error::NoRanges { object }),
            status => return Err(status_error(&object, status)),
        };
        let validator = Validator::of(told);
        let meta = Meta { name: object, len, version: validator.version(), endpoint: client::endpoint(&url) };
        let led_to = Mutex::new(response.url().clone());
        Ok(Self { meta, modified: headers::modified(told), client: client.clone(), url, led_to, validator })
    }

    /// When the server says that it last changed.
    pub fn modified(&self) -> Option<SystemTime> {
        self.modified
    }

    fn led_to(&self) -> Url {
        self.led_to.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks `url` for a range; the answer's head is checked, its body not read yet.
    async fn ask(&self, url: Url, range: ContentRange) -> Result<Response, Error> {
        let object = &self.meta.name;
        let asked = self
            .client
            .inner()
            .get(url)
            .header(RANGE, format!("bytes={}-{}", range.start, range.end - 1))
            .header(ACCEPT_ENCODING, "identity");
        let response = self.validator.ask(asked).send().await.map_err(|error| cause(object, error))?;
        let changed = || Error::Changed { object: object.clone() };
        let wrong = |what: &str| Error::Wrong { object: object.clone(), what: what.into() };
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {}
            StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE => return Err(changed()),
            // The object that was opened was served by ranges.
            StatusCode::OK => return Err(changed()),
            status => return Err(status_error(object, status)),
        }
        let told = response.headers();
        if !self.validator.agrees(told) {
            return Err(changed());
        }
        if told.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return Err(wrong("it is encoded, which was not asked for"));
        }
        if told.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"multipart/byteranges")) {
            return Err(wrong("several ranges where one was asked for"));
        }
        match content_range(told) {
            Some(told) if told.whole.is_some_and(|whole| whole != self.meta.len) => Err(changed()),
            Some(told) if (told.start, told.end) == (range.start, range.end) => Ok(response),
            _ => Err(wrong("another range than was asked for")),
        }
    }

    async fn read(&self, range: ContentRange, mut scatter: Scatter<'_, '_>) -> Result<(), Error> {
        let object = &self.meta.name;
        let led_to = self.led_to();
        let mut answer = self.ask(led_to.clone(), range).await;
        let refused = matches!(answer, Err(Error::Denied { .. } | Error::NotFound { .. }));
        if refused && led_to != self.url {
            // What a redirect led to was good for a while; the way to it is asked for again, once.
            answer = self.ask(self.url.clone(), range).await;
        }
        let mut response = answer?;
        if *response.url() != led_to {
            *self.led_to.lock().unwrap_or_else(PoisonError::into_inner) = response.url().clone();
        }
        while let Some(piece) = response.chunk().await.map_err(|error| cause(object, error))? {
            if scatter.put(&piece) < piece.len() {
                return Err(Error::Wrong {
                    object: object.clone(),
                    what: "a longer body than it said".into(),
                });
            }
        }
        if scatter.wanted() > 0 {
            return Err(Error::Wrong { object: object.clone(), what: "a shorter body than it said".into() });
        }
        Ok(())
    }
}

impl Storage for HttpStorage {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn read_at(&self, offset: u64, into: &mut [IoSliceMut<'_>], until: &Until) -> Result<(), Error> {
        until.check(&self.meta.name)?;
        let scatter = Scatter::new(into);
        let bytes = scatter.wanted() as u64;
        if bytes == 0 {
            return Ok(());
        }
        let range = ContentRange { start: offset, end: offset + bytes, whole: None };
        drive(until, &self.meta.name, self.read(range, scatter))
    }
}

/// A failure that is worth another try, in our words.
pub(crate) fn io_error(object: &Arc<str>, what: String) -> Error {
    Error::Io { object: object.clone(), source: Arc::new(io::Error::other(what)) }
}
