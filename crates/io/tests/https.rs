//! HTTPS against a server on loopback whose certificate nobody has signed: trusted where the system trusts it, refused elsewhere.
//!
//! Which certificates the system trusts is read once a process, so each case is a process of its own: this file's test runs
//! itself again with `SSL_CERT_FILE`.
#![cfg(feature = "http")]

mod servers;

use bowwave_io::{Error, HttpClient, HttpStorage, Until};
use servers::{Server, bytes};
use std::process::{Command, Output};
use std::time::Duration;

/// In the environment of the process that reads: what it is to read.
const URL: &str = "BOWWAVE_TEST_HTTPS_URL";

/// Reads the object that the environment names; nothing where it names none.
#[test]
fn the_reader() {
    let Ok(url) = std::env::var(URL) else { return };
    let until = Until::after(Duration::from_secs(20));
    match HttpStorage::open(&HttpClient::new().unwrap(), &url, &until) {
        Ok(storage) => {
            assert!(servers::read(&storage, 5000, 70_000, &until).unwrap() == bytes(100_000)[5000..75_000]);
            println!("read");
        }
        Err(error) => {
            assert!(matches!(error, Error::Io { .. }), "{error:?}");
            println!("refused: {error}");
        }
    }
}

fn read_by_another_process(url: &str, trusted: &std::path::Path) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_reader", "--nocapture"])
        .env(URL, url)
        .env("SSL_CERT_FILE", trusted)
        .env_remove("SSL_CERT_DIR")
        .output()
        .unwrap()
}

#[test]
fn a_certificate_is_trusted_where_the_system_trusts_it() {
    let Some(server) = Server::nginx_over_tls() else { return };
    std::fs::write(server.www().join("data.bin"), bytes(100_000)).unwrap();
    let url = server.url("data.bin?token=secret").replace("http://", "https://");
    let trusting = read_by_another_process(&url, &server.dir.path().join("cert"));
    let said = String::from_utf8_lossy(&trusting.stdout);
    assert!(trusting.status.success() && said.contains("read"), "{said}");
    // Another certificate is trusted: this one is not.
    let other = Server::nginx_over_tls().unwrap();
    let wary = read_by_another_process(&url, &other.dir.path().join("cert"));
    let said = String::from_utf8_lossy(&wary.stdout);
    assert!(wary.status.success() && said.contains("refused"), "{said}");
    assert!(said.to_lowercase().contains("certificate") && !said.contains("secret"), "{said}");
}
