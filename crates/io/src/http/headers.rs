//! What the headers of an answer say, read strictly: a header that is not exactly as the standard has it is not there.
//!
//! ```text
//!   Content-Range: bytes 4096-8191/100000   start 4096, end 8192 (exclusive), whole 100000
//!   Content-Range: bytes */0                start 0, end 0, whole 0
//!   ETag: "v1"                              strong: asked for with If-Match
//!   ETag: W/"v1"                            weak: compared, but not asked for; Last-Modified is
//! ```

use reqwest::RequestBuilder;
use reqwest::header::{
    CONTENT_RANGE, ETAG, HeaderMap, HeaderName, IF_MATCH, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes `start..end` of an object of `whole` bytes, if the length is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ContentRange {
    pub(crate) start: u64,
    /// One past the last byte.
    pub(crate) end: u64,
    pub(crate) whole: Option<u64>,
}

impl ContentRange {
    /// The value of a header.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (range, whole) = text.strip_prefix("bytes ")?.split_once('/')?;
        let whole = if whole == "*" { None } else { Some(number(whole)?) };
        if range == "*" {
            return Some(Self { start: 0, end: 0, whole });
        }
        let (first, last) = range.split_once('-')?;
        let (start, end) = (number(first)?, number(last)?.checked_add(1)?);
        (start < end && whole.is_none_or(|whole| end <= whole)).then_some(Self { start, end, whole })
    }
}

/// Digits and nothing else.
fn number(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

pub(crate) fn content_range(headers: &HeaderMap) -> Option<ContentRange> {
    ContentRange::parse(text(headers, CONTENT_RANGE)?)
}

/// When the object last changed, as the server says.
pub(crate) fn modified(headers: &HeaderMap) -> Option<SystemTime> {
    http_date(text(headers, LAST_MODIFIED)?)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// By what a version of an object is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Validator {
    tag: Option<Arc<str>>,
    modified: Option<Arc<str>>,
}

impl Validator {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let known = |name| text(headers, name).map(Arc::from);
        Self { tag: known(ETAG), modified: known(LAST_MODIFIED) }
    }

    pub(crate) fn version(&self) -> Option<Arc<str>> {
        self.tag.clone().or_else(|| self.modified.clone())
    }

    /// Makes a request hold for this version only.
    pub(crate) fn ask(&self, request: RequestBuilder) -> RequestBuilder {
        match (&self.tag, &self.modified) {
            (Some(tag), _) if !tag.starts_with("W/") => request.header(IF_MATCH, &**tag),
            (_, Some(modified)) => request.header(IF_UNMODIFIED_SINCE, &**modified),
            _ => request,
        }
    }

    /// Whether an answer is of this version: whoever ignores conditions still tells what he sent. A header that is missing
    /// from the answer proves nothing.
    pub(crate) fn agrees(&self, headers: &HeaderMap) -> bool {
        let told = Self::of(headers);
        let differ = |ours: &Option<Arc<str>>, theirs: &Option<Arc<str>>| matches!((ours, theirs), (Some(ours), Some(theirs)) if ours != theirs);
        let tags_differ = differ(&self.tag, &told.tag);
        // Caches in front of a server may tell another date for one tag.
        let tags_agree = self.tag.is_some() && self.tag == told.tag;
        !tags_differ && (tags_agree || !differ(&self.modified, &told.modified))
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, the one form that is still sent.
fn http_date(text: &str) -> Option<SystemTime> {
    let (_, rest) = text.split_once(", ")?;
    let mut words = rest.split_ascii_whitespace();
    let day = number(words.next()?).filter(|day| (1..=31).contains(day))?;
    let month = words.next()?;
    let month = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        .iter()
        .position(|name| *name == month)? as u64;
    let year = number(words.next()?).filter(|year| (1970..10_000).contains(year))?;
    let mut clock = words.next()?.split(':').map(number);
    let mut below = |end| clock.next()?.filter(|number| (0..end).contains(number));
    // A leap second is the 61st.
    let (hours, minutes, seconds) = (below(24)?, below(60)?, below(61)?);
    // Days since 1970 by counting years from March, so that a leap day is the last of its year.
    let (year, month) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some(UNIX_EPOCH + Duration::from_secs(days * 86_400 + hours * 3600 + minutes * 60 + seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    #[test]
    fn ranges_are_read_strictly() {
        let range = |start, end, whole| Some(ContentRange { start, end, whole });
        assert_eq!(ContentRange::parse("bytes 4096-8191/100000"), range(4096, 8192, Some(100_000)));
        assert_eq!(ContentRange::parse("bytes 0-0/*"), range(0, 1, None));
        assert_eq!(ContentRange::parse("bytes */0"), range(0, 0, Some(0)));
        for wrong in [
            "",
            "bytes",
            "bytes 1-0/5",
            "bytes 0-5/5",
            "bytes +0-4/5",
            "bytes 0-4/-5",
            "bytes 0-18446744073709551615/*",
            "bytes=0-4/5",
            "bytes 0-4",
            "bytes  0-4/5",
            "items 0-4/5",
        ] {
            assert_eq!(ContentRange::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn versions_agree_by_tag_or_by_date() {
        let headers = |tag: &'static str, date: &'static str| {
            let mut headers = HeaderMap::new();
            for (name, value) in [(ETAG, tag), (LAST_MODIFIED, date)] {
                if !value.is_empty() {
                    headers.insert(name, HeaderValue::from_static(value));
                }
            }
            headers
        };
        let (old, new) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:38 GMT");
        let opened = Validator::of(&headers("\"v1\"", old));
        assert!(opened.agrees(&headers("\"v1\"", new)), "the tag decides");
        assert!(!opened.agrees(&headers("\"v2\"", old)));
        assert!(opened.agrees(&headers("", old)) && !opened.agrees(&headers("", new)));
        assert!(opened.agrees(&headers("", "")), "who says nothing did not say another");
    }

    #[test]
    fn dates_are_seconds() {
        let seconds = |text| {
            http_date(text).map(|time| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
        };
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(seconds("Thu, 29 Feb 2024 00:00:00 GMT"), Some(1_709_164_800));
        assert_eq!(seconds("yesterday"), None);
        assert_eq!(seconds("Sun, 06 Nov 99999999999 08:49:37 GMT"), None);
        assert_eq!(seconds("Sun, 06 Nov 1994 99999999999999:49:37 GMT"), None, "it would be no time at all");
    }

    #[test]
    fn what_is_read_of_a_range_prints_back_to_it() {
        let corpus = [
            "bytes 4096-8191/100000",
            "bytes 0-0/*",
            "bytes */0",
            "bytes=0-4/5",
            "bytes 0-18446744073709551615/*",
        ];
        bowwave_fuzz::fuzz_text("Content-Range", &corpus, |text| {
            let Some(range) = ContentRange::parse(text) else { return };
            let whole = range.whole.map_or("*".into(), |whole| whole.to_string());
            let printed = match range.end {
                0 => format!("bytes */{whole}"),
                end => format!("bytes {}-{}/{whole}", range.start, end - 1),
            };
            assert_eq!(ContentRange::parse(&printed), Some(range), "{printed}");
            assert!(range.end <= range.whole.unwrap_or(u64::MAX));
        });
    }

    #[test]
    fn a_version_agrees_with_itself_whatever_a_server_says() {
        let corpus =
            ["\"v1\"\nSun, 06 Nov 1994 08:49:37 GMT", "W/\"v1\"\nThu, 29 Feb 2024 23:59:60 GMT", "\n"];
        bowwave_fuzz::fuzz_text("validators", &corpus, |text| {
            let (tag, date) = text.split_once('\n').unwrap_or((text, ""));
            let mut headers = HeaderMap::new();
            for (name, value) in [(ETAG, tag), (LAST_MODIFIED, date)] {
                headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
            }
            assert!(Validator::of(&headers).agrees(&headers));
            let year_10000 = UNIX_EPOCH + Duration::from_secs(253_402_300_800 + 86_400);
            assert!(modified(&headers).is_none_or(|time| (UNIX_EPOCH..year_10000).contains(&time)), "{date}");
        });
    }
}
