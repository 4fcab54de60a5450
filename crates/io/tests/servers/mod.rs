//! Servers on loopback for tests: nginx, an S3 of moto, and one that says what it is told to.
//!
//! A server that cannot be had makes its tests say `skipped: why` and pass.
#![allow(dead_code, unreachable_pub, reason = "each test file uses some of them")]

use bowwave_io::{Error, Storage, Until};
use std::io::{BufRead, BufReader, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of which no two pages are alike.
pub fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

/// How often a read is tried while its errors are of those that pass.
const TRIES: usize = 5;

/// A read into slices of a page, as the engine makes it: a storage does not try again, and a connection that was lost on a busy
/// machine says nothing of the object.
pub fn read(storage: &dyn Storage, offset: u64, len: usize, until: &Until) -> Result<Vec<u8>, Error> {
    let mut buffer = vec![0; len];
    let mut left = TRIES;
    loop {
        left -= 1;
        let mut slices: Vec<_> = buffer.chunks_mut(4096).map(IoSliceMut::new).collect();
        match storage.read_at(offset, &mut slices, until) {
            Err(error) if error.transient() && left > 0 => println!("asked again: {error}"),
            result => return result.map(|_| buffer),
        }
    }
}

/// A program that ends with the test.
pub struct Server {
    child: Child,
    pub port: u16,
    pub dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Server {
    /// As a machine that loses its power does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// With an answer to its first question; a server that gives none within a minute fails the test.
    fn ready(mut self) -> Self {
        let begun = Instant::now();
        while !answers(self.port) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "the server at port {} has ended: {ended:?}", self.port);
            assert!(begun.elapsed() < Duration::from_secs(60), "no answer at port {}", self.port);
            thread::sleep(Duration::from_millis(20));
        }
        self
    }

    /// nginx over `dir/www`, with listings; `None`, and a line why, if it is not installed.
    pub fn nginx() -> Option<Self> {
        if !nginx_runs() {
            println!(
                "skipped: tests over HTTP need nginx (apt-get install nginx-light, or BOWWAVE_NGINX=its path)"
            );
            return None;
        }
        Some(Self::nginx_in(tempfile::tempdir().unwrap(), free_port(), ""))
    }

    /// nginx over TLS with a certificate that nobody has signed but itself, for 127.0.0.1; the certificate is `dir/cert`. `None`, and
    /// a line why, where nginx or openssl is missing.
    pub fn nginx_over_tls() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
            ])
            .args(["-subj", "/CN=bowwave", "-addext", "subjectAltName=IP:127.0.0.1"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-keyout".as_ref(), dir.path().join("key").as_os_str()])
            .args(["-out".as_ref(), dir.path().join("cert").as_os_str()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !made.is_ok_and(|status| status.success()) || !nginx_runs() {
            println!(
                "skipped: tests over HTTPS need nginx and openssl (apt-get install nginx-light openssl)"
            );
            return None;
        }
        let tls = format!("ssl_certificate {0}/cert; ssl_certificate_key {0}/key;", dir.path().display());
        Some(Self::nginx_in(dir, free_port(), &tls))
    }

    /// The same again after [`Server::kill`].
    pub fn nginx_again(&mut self) {
        self.child = run_nginx(self.dir.path());
        let begun = Instant::now();
        while !answers(self.port) && begun.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// With `tls`, its lines about certificates, over TLS.
    fn nginx_in(dir: tempfile::TempDir, port: u16, tls: &str) -> Self {
        let ssl = if tls.is_empty() { "" } else { " ssl" };
        std::fs::create_dir_all(dir.path().join("www")).unwrap();
        // Its worker is another user where we are root.
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let conf = format!(
            "daemon off; master_process off; pid {0}/pid; error_log {0}/error.log;\n\
             events {{ worker_connections 256; }}\n\
             http {{ access_log off; client_body_temp_path {0}/b; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f;\n\
             uwsgi_temp_path {0}/u; scgi_temp_path {0}/s; types {{ }} default_type application/octet-stream;\n\
             server {{ listen 127.0.0.1:{port}{ssl}; {tls} root {0}/www; autoindex on;\n\
             location /go/ {{ rewrite ^/go/(.*)$ /$1?signature=secret redirect; }}\n\
             location /private/ {{ return 403; }} }} }}\n",
            dir.path().display()
        );
        std::fs::write(dir.path().join("conf"), conf).unwrap();
        let child = run_nginx(dir.path());
        Self { child, port, dir }.ready()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    pub fn www(&self) -> PathBuf {
        self.dir.path().join("www")
    }

    /// An S3 of moto; `None`, and a line why, if there is none.
    pub fn s3() -> Option<Self> {
        let Some(program) = moto() else {
            println!(
                "skipped: tests over S3 need moto_server (pip install 'moto[s3,server]', or BOWWAVE_MOTO=its path)"
            );
            return None;
        };
        let port = free_port();
        let child = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Self { child, port, dir: tempfile::tempdir().unwrap() }.ready())
    }

    /// Stores an object, or makes a bucket of a path without a slash.
    pub fn put(&self, path: &str, body: &[u8]) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let head = format!(
            "PUT /{path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Length: {}\r\nConnection: close\r\n\
             x-amz-acl: public-read\r\nContent-Type: application/octet-stream\r\n\r\n",
            self.port,
            body.len()
        );
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "PUT {path}: {answer}");
    }
}

fn run_nginx(dir: &Path) -> Child {
    Command::new(nginx_program())
        .args(["-p".as_ref(), dir.as_os_str(), "-c".as_ref(), dir.join("conf").as_os_str()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Where `./x test` unpacks it, or the system's.
fn nginx_program() -> PathBuf {
    std::env::var_os("BOWWAVE_NGINX").map_or_else(|| "/usr/sbin/nginx".into(), PathBuf::from)
}

/// It is there, and so are the libraries that it needs.
fn nginx_runs() -> bool {
    let asked = Command::new(nginx_program()).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// Where `./x test` puts it, where the developer says it is, or on the path.
fn moto() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("BOWWAVE_MOTO") {
        return Some(path.into()).filter(|path: &PathBuf| path.exists());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("moto_server")).find(|program| program.exists())
}

/// Does somebody at `port` answer a request with anything at all? That somebody can be knocked at says less: [`free_port`] listens for a
/// moment, a program that another test starts just then inherits its socket until it has become that program, and meanwhile knocks
/// are taken that nobody will answer.
fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let asked = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
    asked.is_ok() && stream.read(&mut [0]).is_ok_and(|len| len == 1)
}

/// A port that nobody listens at, below those that the kernel gives to clients: of those one may be taken by a client before the server
/// comes to it, and who knocks at it until somebody answers may be answered by himself. Two test programs with numbers side by side
/// begin 37 ports apart.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 12_000 + (u64::from(std::process::id()) * 37 % 15_000) as u16;
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut ports = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed)).take(5_000);
    ports.find(free).expect("a port of five thousand is free")
}

/// What a request asked for.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub line: String,
    pub headers: Vec<(String, String)>,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// A server whose answers a function makes, byte for byte; then it closes the connection.
pub struct Liar {
    pub port: u16,
    pub asked: Arc<Mutex<Vec<Asked>>>,
    pub connections: Arc<AtomicUsize>,
}

impl Liar {
    pub fn start(answer: impl Fn(usize, &Asked) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asked, connections) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::<AtomicUsize>::default());
        let (log, count, answer) = (asked.clone(), connections.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                let (log, answer) = (log.clone(), answer.clone());
                thread::spawn(move || serve(stream, &log, &*answer));
            }
        });
        Self { port, asked, connections }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }
}

fn serve(mut stream: TcpStream, log: &Mutex<Vec<Asked>>, answer: &dyn Fn(usize, &Asked) -> Vec<u8>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut asked =
        Asked { line: lines.next().and_then(Result::ok).unwrap_or_default(), headers: Vec::new() };
    for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
        if let Some((key, value)) = line.split_once(": ") {
            asked.headers.push((key.into(), value.into()));
        }
    }
    let number = {
        let mut log = log.lock().unwrap();
        log.push(asked.clone());
        log.len() - 1
    };
    let _ = stream.write_all(&answer(number, &asked));
}

/// An answer with these header lines and this body.
pub fn answer(status: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status}\r\nConnection: close\r\n").into_bytes();
    for header in headers {
        bytes.extend(format!("{header}\r\n").bytes());
    }
    bytes.extend(b"\r\n");
    bytes.extend(body);
    bytes
}
