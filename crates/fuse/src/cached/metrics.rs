//! The figures of a mount for Prometheus, over HTTP on an address of the user's choice; on loopback unless he names another.
//!
//! ```text
//!   --metrics 9184                 127.0.0.1:9184          --metrics 0.0.0.0:9184       everywhere, because he said so
//!   GET /metrics  ->  bowwave_fetched_bytes_total{source="s3://b/"} 1048576
//! ```
//!
//! Eight threads answer a client each. Each client has 5 s in all, however he shares them out: a scrape is small, and nobody
//! waits for one who is slow, unless there are eight of those.

use super::control;
use super::filesystem::Inner;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text::encode};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// A client who takes longer from being accepted to his answer's last byte is left.
const PATIENCE: Duration = Duration::from_secs(5);
/// Clients that are answered at once.
const CLIENTS: usize = 8;
/// Where nobody can be accepted (no descriptor is left), it is tried again so much later.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a request that are read.
const REQUEST_BYTES_MAX: u64 = 8192;

/// The address that a text means: a port is one of loopback.
pub(crate) fn address(text: &str) -> Option<SocketAddr> {
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
    port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).ok().or_else(|| text.parse().ok())
}

#[derive(Debug)]
struct Figures {
    source: String,
    inner: Weak<Inner>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("source", &self.source()).finish_non_exhaustive()
    }
}

/// What goes up and down; the rest counts up.
const GAUGES: [&str; 7] = [
    "open_files",
    "streams",
    "files",
    "memory_bytes_max",
    "memory_bytes",
    "metadata_bytes",
    "in_flight_bytes",
];

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(inner) = self.inner.upgrade() else { return Ok(()) };
        let labels = [("source", self.source.as_str())];
        for (name, help, value) in control::figures(inner.served(), &inner.files.cache().stats()) {
            let name = format!("bowwave_{name}");
            if GAUGES.iter().any(|gauge| name.ends_with(gauge) && name.len() == gauge.len() + 8) {
                let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
                let mut family = encoder.encode_descriptor(&name, help, None, gauge.metric_type())?;
                gauge.encode(family.encode_family(&labels)?)?;
            } else {
                let counter = ConstCounter::new(value);
                let mut family = encoder.encode_descriptor(&name, help, None, counter.metric_type())?;
                counter.encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// Answers scrapes until the process ends.
pub(crate) fn serve(address: SocketAddr, inner: &Arc<Inner>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    let mut registry = Registry::default();
    let figures = Figures { source: inner.source().to_owned(), inner: Arc::downgrade(inner) };
    registry.register_collector(Box::new(figures));
    let (listener, registry) = (Arc::new(listener), Arc::new(registry));
    for _ in 0..CLIENTS {
        let (listener, registry) = (Arc::clone(&listener), Arc::clone(&registry));
        thread::Builder::new().name("metrics".into()).spawn(move || {
            for stream in listener.incoming() {
                match stream {
                    // Whoever went away needs no answer.
                    Ok(stream) => drop(answer(&stream, &registry, PATIENCE)),
                    Err(_) => thread::sleep(PAUSE),
                }
            }
        })?;
    }
    Ok(bound)
}

/// A client, each of whose calls waits for what is left of his time at most.
struct Client<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Client<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        // The system takes a wait of 0 for one without an end.
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Client<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buf)
    }
}

impl Write for Client<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn answer(stream: &TcpStream, registry: &Registry, patience: Duration) -> io::Result<()> {
    let mut client = Client { stream, until: Instant::now() + patience };
    let mut lines = BufReader::new((&mut client).take(REQUEST_BYTES_MAX)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let (status, body) = match request.split(' ').collect::<Vec<_>>()[..] {
        ["GET", "/metrics" | "/", _] => {
            let mut text = String::new();
            encode(&mut text, registry).map_err(io::Error::other)?;
            ("200 OK", text)
        }
        _ => ("404 Not Found", "ask for /metrics\n".into()),
    };
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_one_of_loopback() {
        for text in ["9184", ":9184", "127.0.0.1:9184"] {
            assert_eq!(address(text), Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9184))));
        }
        assert_eq!(address("0.0.0.0:1").unwrap().ip(), Ipv4Addr::UNSPECIFIED);
        for text in ["", "host", "70000", "127.0.0.1"] {
            assert_eq!(address(text), None, "{text}");
        }
    }

    #[test]
    fn who_sends_a_byte_now_and_then_is_left_all_the_same() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let begun = Instant::now();
        thread::scope(|scope| {
            scope.spawn(move || {
                // He is never silent for as long as anybody may be, but would go on for 8 s.
                for byte in b"GET /metrics".iter().chain(&[b'/'; 68]) {
                    if slow.write_all(&[*byte]).is_err() {
                        break;
                    }
                    thread::sleep(Duration::from_millis(100));
                }
            });
            let error = answer(&stream, &Registry::default(), Duration::from_millis(500)).unwrap_err();
            let _ = stream.shutdown(std::net::Shutdown::Both);
            assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error}");
        });
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    }

    #[test]
    fn who_names_no_host_stays_on_loopback() {
        let corpus = ["9184", ":9184", "127.0.0.1:9184", "[::1]:9184", "0.0.0.0:1", "host:9"];
        bowwave_fuzz::fuzz_text("an address for metrics", &corpus, |text| {
            let Some(found) = address(text) else { return };
            let host = text.rsplit_once(':').map_or("", |(host, _)| host);
            assert!(
                found.ip().is_loopback() || host.contains(&*found.ip().to_string()) || host.contains(':')
            );
            assert_eq!(address(&found.to_string()), Some(found));
        });
    }
}
