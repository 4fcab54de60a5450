//! The transport under the library: it sends a request and believes an answer only if it is one to that request.
//!
//! ```text
//!   asked                        answered                          it is
//!   Range: bytes=0-99            206, Content-Range: bytes 0-99/*  believed
//!   Range: bytes=0-99            200                               a lie: the range was ignored
//!   If-Match: "v1"               206, ETag: "v2"                   changed: the condition was ignored
//! ```

use crate::http::{ContentRange, HttpClient};
use http::header::{CONTENT_RANGE, ETAG, IF_MATCH, RANGE};
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use opendal::{Buffer, Error, ErrorKind, HttpBody, HttpTransport};
use opendal_http_transport_reqwest::ReqwestTransport;

/// What was wrong with an answer, in words of ours.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Lie(pub(crate) &'static str);

/// A transport that looks at the answers.
pub(crate) struct Checked(ReqwestTransport);

impl Checked {
    pub(crate) fn new(client: &HttpClient) -> Self {
        Self(ReqwestTransport::new(client.inner().clone()))
    }
}

impl HttpTransport for Checked {
    async fn fetch(&self, request: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        let asked = request.headers().clone();
        let response = self.0.fetch(request).await?;
        check(&asked, response.status(), response.headers())?;
        Ok(response)
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Whether this is the head of an answer to a request with these headers.
fn check(asked: &HeaderMap, status: StatusCode, told: &HeaderMap) -> opendal::Result<()> {
    if !status.is_success() {
        return Ok(());
    }
    if let (Some(wanted), Some(got)) = (text(asked, IF_MATCH), text(told, ETAG))
        && wanted != got
    {
        return Err(Error::new(ErrorKind::ConditionNotMatch, "another version"));
    }
    let Some(wanted) = text(asked, RANGE).and_then(|range| range.strip_prefix("bytes=")) else {
        return Ok(());
    };
    let lie = |what| Error::new(ErrorKind::Unexpected, what).set_source(Lie(what));
    if status != StatusCode::PARTIAL_CONTENT {
        return Err(lie("the whole object where a range of it was asked for"));
    }
    let got = text(told, CONTENT_RANGE).and_then(ContentRange::parse);
    match got.map(|got| format!("{}-{}", got.start, got.end.saturating_sub(1))) {
        Some(got) if got == wanted => Ok(()),
        _ => Err(lie("another range than was asked for")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(HeaderName, &'static str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.clone(), http::HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn the_answers_of_the_picture() {
        let asked = headers(&[(RANGE, "bytes=0-99"), (IF_MATCH, "\"v1\"")]);
        let answer = |status, range, tag| {
            check(&asked, status, &headers(&[(CONTENT_RANGE, range), (ETAG, tag)])).map_err(|e| e.kind())
        };
        let (partial, ok) = (StatusCode::PARTIAL_CONTENT, StatusCode::OK);
        assert_eq!(answer(partial, "bytes 0-99/*", "\"v1\""), Ok(()));
        assert_eq!(answer(ok, "", "\"v1\""), Err(ErrorKind::Unexpected));
        assert_eq!(answer(partial, "bytes 0-98/*", "\"v1\""), Err(ErrorKind::Unexpected));
        assert_eq!(answer(partial, "bytes 0-99/*", "\"v2\""), Err(ErrorKind::ConditionNotMatch));
        assert_eq!(answer(StatusCode::NOT_FOUND, "", ""), Ok(()), "errors are the library's");
    }
}
