//! HTTP as servers speak it: nginx, and one that lies.
#![cfg(feature = "http")]

mod servers;

use bowwave_io::{Error, HttpClient, HttpStorage, HttpTree, Kind, Storage, Tree, TreePath, Until};
use servers::{Asked, Liar, Server, answer, bytes};
use std::io::IoSliceMut;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

fn until() -> Until {
    Until::after(Duration::from_secs(20))
}

fn read(storage: &dyn Storage, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
    servers::read(storage, offset, len, &until())
}

#[test]
fn ranges_of_nginx_are_the_bytes_of_the_file() {
    let Some(server) = Server::nginx() else { return };
    let body = bytes(3_000_000);
    std::fs::write(server.www().join("data.bin"), &body).unwrap();
    let client = HttpClient::new().unwrap();
    let storage = HttpStorage::open(&client, &server.url("data.bin"), &until()).unwrap();
    assert_eq!(storage.meta().len, 3_000_000);
    assert!(storage.meta().version.as_ref().is_some_and(|tag| tag.starts_with('"')));
    thread::scope(|scope| {
        for n in 0..8u64 {
            let (storage, body) = (&storage, &body);
            scope.spawn(move || {
                for at in (n * 1000..2_900_000).step_by(370_000) {
                    assert!(read(storage, at, 70_000).unwrap() == body[at as usize..][..70_000], "at {at}");
                }
            });
        }
    });
    assert_eq!(read(&storage, 2_999_999, 1).unwrap(), &body[2_999_999..]);
}

#[test]
fn a_change_under_a_reader_is_an_error() {
    let Some(server) = Server::nginx() else { return };
    std::fs::write(server.www().join("data.bin"), bytes(100_000)).unwrap();
    let client = HttpClient::new().unwrap();
    let storage = HttpStorage::open(&client, &server.url("data.bin"), &until()).unwrap();
    std::fs::write(server.www().join("data.bin"), bytes(100_001)).unwrap();
    let told = read(&storage, 0, 4096);
    assert!(matches!(told, Err(Error::Changed { .. })), "{told:?}");
    std::fs::remove_file(server.www().join("data.bin")).unwrap();
    let gone = read(&storage, 0, 4096);
    assert!(matches!(gone, Err(Error::NotFound { .. })), "{gone:?}");
}

#[test]
fn redirects_are_followed_and_what_they_sign_is_not_shown() {
    let Some(server) = Server::nginx() else { return };
    std::fs::write(server.www().join("data.bin"), bytes(9000)).unwrap();
    let client = HttpClient::new().unwrap();
    let url = server.url("go/data.bin?token=secret").replace("http://", "http://ann:secret@");
    let storage = HttpStorage::open(&client, &url, &until()).unwrap();
    assert_eq!(read(&storage, 100, 5000).unwrap(), bytes(9000)[100..5100]);
    assert_eq!(&*storage.meta().name, server.url("go/data.bin"));
    std::fs::remove_file(server.www().join("data.bin")).unwrap();
    let error = read(&storage, 0, 10).unwrap_err().to_string();
    assert!(!error.contains("secret") && !error.contains("ann"), "{error}");
    let error = HttpStorage::open(&client, &server.url("private/x?token=secret"), &until()).unwrap_err();
    assert!(matches!(error, Error::Denied { .. }) && !error.to_string().contains("secret"), "{error}");
}

#[test]
fn a_server_that_dies_and_comes_back() {
    let Some(mut server) = Server::nginx() else { return };
    std::fs::write(server.www().join("data.bin"), bytes(100_000)).unwrap();
    let client = HttpClient::new().unwrap();
    let storage = HttpStorage::open(&client, &server.url("data.bin"), &until()).unwrap();
    assert!(read(&storage, 0, 10).is_ok());
    server.kill();
    let begun = Instant::now();
    // The first may go out on the connection that was kept, before its end is noticed: it says that one closed.
    let errors = [(); 2].map(|()| read(&storage, 0, 10).unwrap_err());
    assert!(errors.iter().all(Error::transient) && begun.elapsed() < Duration::from_secs(15), "{errors:?}");
    assert!(errors[1].to_string().contains("data.bin: Connection refused"), "{errors:?}");
    server.nginx_again();
    assert_eq!(read(&storage, 5, 100).unwrap(), bytes(100_000)[5..105]);
}

#[test]
fn empty_files_and_folders() {
    let Some(server) = Server::nginx() else { return };
    std::fs::create_dir(server.www().join("deep dir")).unwrap();
    std::fs::write(server.www().join("empty"), b"").unwrap();
    std::fs::write(server.www().join("deep dir/a&b#c"), bytes(77)).unwrap();
    let client = HttpClient::new().unwrap();
    let tree = HttpTree::new(&client, &server.url("")).unwrap();
    let listing = tree.list(&TreePath::root(), &until()).unwrap();
    let told: Vec<_> = listing.entries.iter().map(|e| (e.name.to_str().unwrap(), e.kind)).collect();
    assert_eq!(told, [("deep dir", Kind::Folder), ("empty", Kind::File)]);
    let path = |text| TreePath::parse(text).unwrap();
    assert_eq!(tree.look_up(&path("deep dir"), &until()).unwrap().kind, Kind::Folder);
    let attr = tree.look_up(&path("deep dir/a&b#c"), &until()).unwrap();
    assert_eq!((attr.kind, attr.len), (Kind::File, 77));
    assert!(attr.modified.is_some());
    let file = tree.open(&path("deep dir/a&b#c"), &until()).unwrap();
    assert_eq!(read(&*file, 7, 70).unwrap(), bytes(77)[7..]);
    assert_eq!(tree.open(&path("empty"), &until()).unwrap().meta().len, 0);
    assert!(matches!(tree.look_up(&path("nowhere"), &until()), Err(Error::NotFound { .. })));
    let one = HttpTree::new(&client, &server.url("deep%20dir/a&b%23c")).unwrap();
    assert_eq!(one.list(&TreePath::root(), &until()).unwrap().entries[0].name, "a&b#c");
    assert_eq!(one.look_up(&path("a&b#c"), &until()).unwrap().len, 77);
}

/// The first answer, to opening, is right; then come lies.
fn lie(lie: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) -> Result<Vec<u8>, Error> {
    let liar = Liar::start(move |number, asked| match number {
        0 => answer("206 P", &["Content-Range: bytes 0-0/1000", "Content-Length: 1", "ETag: \"v1\""], b"x"),
        _ => lie(asked),
    });
    let client = HttpClient::new().unwrap();
    let storage = HttpStorage::open(&client, &liar.url("o?secret"), &until()).unwrap();
    let result = read(&storage, 10, 20);
    let asked = liar.asked.lock().unwrap()[1].clone();
    assert_eq!((asked.header("range"), asked.header("if-match")), (Some("bytes=10-29"), Some("\"v1\"")));
    assert_eq!(asked.header("accept-encoding"), Some("identity"));
    if let Err(error) = &result {
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    result
}

#[test]
fn lies_are_found_out() {
    const RANGE: &str = "Content-Range: bytes 10-29/1000";
    let says = |status: &'static str, headers: &'static [&'static str], body: &'static [u8]| {
        let error = lie(move |_| answer(status, headers, body)).unwrap_err();
        error.to_string()
    };
    let changed = "changed while it was read; open it again";
    const TWENTY: &[u8] = b"01234567890123456789";
    assert!(says("412 F", &[], b"").ends_with(changed));
    assert!(says("206 P", &[RANGE, "ETag: \"v2\""], TWENTY).ends_with(changed));
    assert!(says("206 P", &["Content-Range: bytes 10-29/1001"], TWENTY).ends_with(changed));
    assert!(says("200 OK", &["Content-Length: 1000"], &[b'x'; 1000]).ends_with(changed));
    assert!(says("416 R", &["Content-Range: bytes */5"], b"").ends_with(changed));
    let wrong = "the store answered wrongly: ";
    for (headers, body, what) in [
        (&["Content-Range: bytes 11-30/1000"][..], TWENTY, "another range than was asked for"),
        (&[], TWENTY, "another range than was asked for"),
        (&["Content-Range: bytes 10-99999999999999999999/1000"], TWENTY, "another range than was asked for"),
        (&[RANGE, "Content-Encoding: gzip"], TWENTY, "it is encoded, which was not asked for"),
        (
            &["Content-Type: multipart/byteranges; boundary=x"],
            TWENTY,
            "several ranges where one was asked for",
        ),
        (&[RANGE], b"0123", "a shorter body than it said"),
        (&[RANGE], b"01234567890123456789x", "a longer body than it said"),
    ] {
        let said = says("206 P", headers, body);
        assert!(said.ends_with(&format!("{wrong}{what}")), "{said} is not {what}");
    }
    // A body that ends before its Content-Length is a broken connection.
    assert!(lie(|_| answer("206 P", &[RANGE, "Content-Length: 20"], b"0123")).unwrap_err().transient());
    assert!(lie(|_| answer("503 Down", &[], b"")).unwrap_err().transient());
    assert!(lie(|_| b"what?".to_vec()).unwrap_err().transient());
    assert!(matches!(lie(|_| answer("401 No", &[], b"")), Err(Error::Denied { .. })));
    assert!(matches!(lie(|_| answer("404 No", &[], b"")), Err(Error::NotFound { .. })));
    assert_eq!(lie(|_| answer("206 P", &[RANGE, "ETag: \"v1\""], TWENTY)).unwrap(), TWENTY);
}

#[test]
fn a_server_without_ranges_or_an_end_is_refused() {
    let client = HttpClient::new().unwrap();
    let open = |reply: Vec<u8>| {
        let liar = Liar::start(move |_, _| reply.clone());
        HttpStorage::open(&client, &liar.url("o"), &until()).map(|_| ()).unwrap_err().to_string()
    };
    assert!(open(answer("200 OK", &["Content-Length: 3"], b"abc")).contains("does not serve ranges"));
    assert!(
        open(answer("206 P", &["Content-Range: bytes 0-0/*"], b"a")).contains("does not tell its length")
    );
    let round = Liar::start(|_, _| answer("302 Found", &["Location: /again", "Content-Length: 0"], b""));
    let error = HttpStorage::open(&client, &round.url("o"), &until()).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("too many redirects"), "{error}");
}

#[test]
fn what_nobody_wants_any_more_closes_its_connection() {
    let liar = Liar::start(|number, _| {
        if number > 0 {
            thread::sleep(Duration::from_secs(30));
        }
        answer("206 P", &["Content-Range: bytes 0-0/1000", "Content-Length: 1"], b"x")
    });
    let client = HttpClient::new().unwrap();
    let storage = HttpStorage::open(&client, &liar.url("o"), &until()).unwrap();
    let until = Until::after(Duration::from_secs(60));
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(100));
            until.cancel();
        });
        let error = storage.read_at(0, &mut [IoSliceMut::new(&mut [0; 8])], &until).unwrap_err();
        assert!(matches!(error, Error::Cancelled { .. }));
    });
    let soon = Until::after(Duration::from_millis(200));
    let error = storage.read_at(0, &mut [IoSliceMut::new(&mut [0; 8])], &soon).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(liar.connections.load(Ordering::Relaxed) >= 3);
}
