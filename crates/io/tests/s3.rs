//! A bucket as a server has it: moto on loopback.
#![cfg(feature = "s3")]

mod servers;

use bowwave_io::{BucketTree, Error, Kind, S3Options, Storage, Tree, TreePath, Until};
use servers::{Liar, Server, answer, bytes};
use std::time::Duration;

fn until() -> Until {
    Until::after(Duration::from_secs(30))
}

fn read(storage: &dyn Storage, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
    servers::read(storage, offset, len, &until())
}

fn path(text: &str) -> TreePath {
    TreePath::parse(text).unwrap()
}

fn anonymous(endpoint: &str) -> S3Options {
    S3Options { endpoint: Some(endpoint.into()), anonymous: true, ..S3Options::default() }
}

#[test]
fn a_bucket_is_listed_and_read() {
    let Some(server) = Server::s3() else { return };
    let body = bytes(500_000);
    server.put("shelf", b"");
    for key in [
        "data/a.bin",
        "data/deep/b.bin",
        "data/gr%C3%BC%C3%9F%20e",
        "data/x//y",
        "data/../up",
        "data/both",
        "data/both/c",
        "top",
    ] {
        server.put(&format!("shelf/{key}"), &body);
    }
    server.put("shelf/data/empty", b"");
    server.put("shelf/data/made/", b"");
    let tree = BucketTree::s3("s3://shelf/data", &anonymous(&server.url("")), &until()).unwrap();
    assert_eq!(tree.name(), "s3://shelf/data");
    let listing = tree.list(&TreePath::root(), &until()).unwrap();
    let mut told: Vec<_> = listing.entries.iter().map(|e| (e.name.to_str().unwrap(), e.kind)).collect();
    told.sort_by_key(|(name, _)| *name);
    assert_eq!(
        told,
        [
            ("a.bin", Kind::File),
            ("both", Kind::Folder),
            ("deep", Kind::Folder),
            ("empty", Kind::File),
            ("gr\u{fc}\u{df} e", Kind::File),
            ("made", Kind::Folder),
            ("x", Kind::Folder),
        ]
    );
    assert_eq!(listing.left_out, 2, "`..`, and the object that a folder hides");
    assert_eq!(tree.look_up(&path("deep"), &until()).unwrap().kind, Kind::Folder);
    assert_eq!(tree.look_up(&path("a.bin"), &until()).unwrap().len, 500_000);
    for missing in ["nowhere", "dee", " a.bin", "deep/b"] {
        assert!(matches!(tree.look_up(&path(missing), &until()), Err(Error::NotFound { .. })), "{missing}");
    }
    let storage = tree.open(&path("deep/b.bin"), &until()).unwrap();
    assert_eq!(&*storage.meta().name, "s3://shelf/data/deep/b.bin");
    assert_eq!(read(&*storage, 123_456, 300_000).unwrap(), body[123_456..423_456]);
    assert_eq!(read(&*tree.open(&path("gr\u{fc}\u{df} e"), &until()).unwrap(), 1, 9).unwrap(), body[1..10]);
    assert_eq!(tree.open(&path("empty"), &until()).unwrap().meta().len, 0);
    let whole = BucketTree::s3("s3://shelf", &anonymous(&server.url("")), &until()).unwrap();
    assert_eq!(whole.list(&TreePath::root(), &until()).unwrap().entries.len(), 2);
}

#[test]
fn a_change_under_a_reader_is_an_error() {
    let Some(server) = Server::s3() else { return };
    server.put("shelf", b"");
    server.put("shelf/a", &bytes(100_000));
    let tree = BucketTree::s3("s3://shelf", &anonymous(&server.url("")), &until()).unwrap();
    let storage = tree.open(&path("a"), &until()).unwrap();
    assert!(read(&*storage, 0, 100).is_ok());
    server.put("shelf/a", &bytes(100_001));
    let error = read(&*storage, 0, 100).unwrap_err();
    assert_eq!(error.to_string(), "s3://shelf/a: changed while it was read; open it again");
}

#[test]
fn no_bucket_and_bad_urls_are_one_sentence() {
    let at = |endpoint: &str, url: &str| {
        BucketTree::s3(url, &anonymous(endpoint), &until()).map(|_| ()).unwrap_err().to_string()
    };
    let local = "http://127.0.0.1:9";
    assert!(at(local, "s3://").contains("no name that a bucket can have"));
    assert!(at(local, "s3://AKIA:secret@bucket/").contains("no name that a bucket can have"));
    assert!(!at(local, "s3://AKIA:secret@bucket/").contains("secret"));
    assert!(at(local, "s3://b/../x").contains("no plain path"));
    assert!(at("http://AKIA:secret@127.0.0.1:9", "s3://b").contains("put them into the environment"));
    assert!(at("127.0.0.1:9000", "s3://b").starts_with("the URL: "));
    let refused = "s3://nobody/a at http://127.0.0.1:9/: Connection refused (os error 111)";
    assert_eq!(at(local, "s3://nobody/a"), refused);
    let Some(server) = Server::s3() else { return };
    let tree = BucketTree::s3("s3://nobody", &anonymous(&server.url("")), &until()).unwrap();
    let error = tree.list(&TreePath::root(), &until()).unwrap_err();
    assert!(error.to_string().starts_with("s3://nobody/: no such bucket"), "{error}");
}

#[test]
fn lies_of_a_store_are_found_out() {
    let lie = |status: &'static str, headers: &'static [&'static str], body: &'static [u8]| {
        let liar = Liar::start(move |_, asked| {
            if asked.line.starts_with("HEAD") {
                return answer("200 OK", &["Content-Length: 1000", "ETag: \"v1\""], b"");
            }
            assert_eq!(
                (asked.header("range"), asked.header("if-match")),
                (Some("bytes=10-29"), Some("\"v1\""))
            );
            answer(status, headers, body)
        });
        let tree = BucketTree::s3("s3://b", &anonymous(&liar.url("")), &until()).unwrap();
        read(&*tree.open(&path("a"), &until()).unwrap(), 10, 20)
    };
    const RANGE: &str = "Content-Range: bytes 10-29/1000";
    const TWENTY: &[u8] = b"01234567890123456789";
    assert_eq!(lie("206 P", &[RANGE, "Content-Length: 20", "ETag: \"v1\""], TWENTY).unwrap(), TWENTY);
    for (headers, body) in [
        (&["Content-Range: bytes 11-30/1000", "Content-Length: 20"][..], TWENTY),
        (&["Content-Length: 20"], TWENTY),
        (&[RANGE, "Content-Length: 4"], b"0123"),
        (&[RANGE, "Content-Length: 20"], b"0123"),
    ] {
        let error = lie("206 P", headers, body).unwrap_err();
        assert!(error.transient(), "{error}");
    }
    assert!(lie("200 OK", &["Content-Length: 1000"], &[b'x'; 1000]).is_err());
    let changed = |result| matches!(result, Err(Error::Changed { .. }));
    assert!(changed(lie("206 P", &[RANGE, "Content-Length: 20", "ETag: \"v2\""], TWENTY)));
    assert!(changed(lie("412 F", &["Content-Length: 0"], b"")));
    let error = lie("403 No", &["Content-Length: 12"], b"AKIASECRET!!").unwrap_err();
    assert!(matches!(error, Error::Denied { .. }) && !error.to_string().contains("SECRET"), "{error}");
    let error = lie("503 Down", &["Content-Length: 6"], b"SECRET").unwrap_err();
    assert!(error.transient() && !error.to_string().contains("SECRET"), "{error}");
}
