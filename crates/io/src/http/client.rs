//! The client that all requests share: its time-outs, its threads, and how its errors become ours without a secret.
//!
//! ```text
//!   reading thread          drive(until, request) ── waits ──> bytes in the frames
//!                                   |   every 20 ms: still wanted? in time?
//!   two threads of the client       sockets, TLS
//! ```

use crate::http::io_error;
use crate::{Error, Until};
use reqwest::{StatusCode, Url, redirect};
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::runtime::Runtime;

/// A connection that is not there by then never comes.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// A kept connection that was not used for so long is closed: shorter than servers and balancers wait (60 s and more).
const IDLE: Duration = Duration::from_secs(45);
/// How often a waiting read looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(20);
/// Redirects that are followed one after another.
const REDIRECTS_MAX: usize = 10;
/// Sockets and TLS need no more; the bodies are copied by the reading threads.
const THREADS: usize = 2;

static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("bowwave-http")
        .enable_all()
        .build()
});

/// Keeps connections for many objects. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpClient(reqwest::Client);

impl HttpClient {
    /// A client with its own connections.
    ///
    /// # Errors
    /// [`Error::Io`] if the system's certificates cannot be had.
    pub fn new() -> Result<Self, Error> {
        ensure_tls();
        let object: Arc<str> = "the HTTP client".into();
        reqwest::Client::builder()
            .connect_timeout(CONNECT_WAIT)
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            .referer(false)
            .http1_only()
            .user_agent(concat!("bowwave/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::custom(|attempt| {
                let downgraded = attempt.url().scheme() != "https"
                    && attempt.previous().iter().any(|url| url.scheme() == "https");
                if downgraded {
                    attempt.stop()
                } else if attempt.previous().len() > REDIRECTS_MAX {
                    attempt.error("too many redirects")
                } else {
                    attempt.follow()
                }
            }))
            .build()
            .map(Self)
            .map_err(|error| cause(&object, error))
    }

    pub(crate) fn inner(&self) -> &reqwest::Client {
        &self.0
    }
}

/// Chooses the provider of cryptography, unless the program has chosen one.
fn ensure_tls() {
    // An error says that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Runs `request` until it is done, out of time, or no longer wanted; what is dropped on the way closes its connection.
pub(crate) fn drive<T>(
    until: &Until,
    object: &Arc<str>,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let runtime =
        RUNTIME.as_ref().map_err(|error| io_error(object, format!("no threads for HTTP: {error}")))?;
    runtime.block_on(async {
        let mut request = pin!(request);
        loop {
            match tokio::time::timeout(LOOK, &mut request).await {
                Ok(result) => return result,
                Err(_elapsed) => until.check(object)?,
            }
        }
    })
}

/// A URL that HTTP can be asked for.
pub(crate) fn parse(text: &str) -> Result<Url, Error> {
    // The text may hold a password: it is not repeated.
    let wrong = |what: &str| Error::Wrong { object: "the URL".into(), what: what.into() };
    let url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong("it is no http:// or https:// URL with a host"));
    }
    Ok(url)
}

/// A URL as it may be shown: without user, password, query and fragment.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // They fail for URLs without a host only, which `parse` refuses.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

/// One number for all objects of a server.
pub(crate) fn endpoint(url: &Url) -> u64 {
    let mut hasher = DefaultHasher::new();
    (url.scheme(), url.host_str(), url.port_or_known_default()).hash(&mut hasher);
    hasher.finish()
}

/// An error of the client as one of ours: what lies at its bottom, without the URL.
pub(crate) fn cause(object: &Arc<str>, error: reqwest::Error) -> Error {
    let error = error.without_url();
    let mut bottom: &dyn std::error::Error = &error;
    while let Some(source) = bottom.source() {
        bottom = source;
    }
    let what = match bottom.downcast_ref::<io::Error>() {
        Some(error) => error.to_string(),
        None if error.is_timeout() => "no connection in 10 s".into(),
        None => bottom.to_string(),
    };
    io_error(object, what)
}

/// What a status other than the one hoped for means.
pub(crate) fn status_error(object: &Arc<str>, status: StatusCode) -> Error {
    let object = object.clone();
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Error::NotFound { object },
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            Error::Denied { object }
        }
        // A redirect that was not followed leads from https to http.
        status if status.is_redirection() => Error::Denied { object },
        status if status.is_server_error() => io_error(&object, format!("the server said {status}")),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            io_error(&object, format!("the server said {status}"))
        }
        status => Error::Wrong { object, what: format!("status {}", status.as_u16()).into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        let url = parse("https://ann:secret@host:8443/a%20b?token=secret#secret").unwrap();
        assert_eq!(shown(&url), "https://host:8443/a%20b");
        for wrong in
            ["ftp://ann:secret@host/", "ann:secret@host", "http://ann:secret@:0", "file:///etc/passwd"]
        {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(!error.contains("secret") && !error.contains("ann"), "{error}");
        }
        assert_eq!(endpoint(&parse("http://h/a").unwrap()), endpoint(&parse("http://h:80/b?c").unwrap()));
    }

    #[test]
    fn no_url_shows_what_stands_before_its_host_or_behind_its_path() {
        let corpus = [
            "https://ann:hunter2@host:8443/a%20b?token=hunter2#hunter2",
            "http://hunter2@[::1]:80/",
            "ftp://ann:hunter2@host/",
            "http://h/../a/./b//c",
        ];
        bowwave_fuzz::fuzz_text("a source URL", &corpus, |text| match parse(text) {
            Err(error) => assert!(!error.to_string().contains("hunter2"), "{error}"),
            Ok(url) => {
                let shown = shown(&url);
                assert!(!shown.contains(['@', '?', '#']) || url.path().contains('@'), "{shown}");
                assert!(!shown.chars().any(char::is_control), "{shown:?}");
                let again = parse(&shown).expect("what is shown is a URL");
                assert_eq!((again.host_str(), again.path()), (url.host_str(), url.path()));
                assert_eq!(endpoint(&again), endpoint(&url));
            }
        });
    }
}
