//! A hostile server. Each call ends with a typed error, at its deadline at the latest, and uses
//! little memory.

use std::{io::Write as _, sync::LazyLock, time::Duration};

use flate2::{Compression, write::GzEncoder};
use tower_tds::Kind;

use crate::client::{
    raw::{Act, Raw, answer, say},
    world::{Built as _, PATH},
};

/// A byte every 50 ms.
const DRIPS: Act = Act::Repeat(b"x", Duration::from_millis(50));

/// The attacks of the data endpoint: how an answer begins, what follows, and the error. The token endpoint of the same server is
/// honest.
fn attacks() -> Vec<(&'static str, Vec<u8>, Act, Kind)> {
    let with = |head: &str| format!("HTTP/1.1 200 OK\r\n{head}").into_bytes();
    let repeats = |bytes| Act::Repeat(bytes, Duration::ZERO);
    let kilobyte = || repeats(&[b'x'; 1_024]);
    let headers = || repeats(b"x-header: value\r\n");
    let hints = repeats(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n");
    let extensions = repeats(b";extension=value");
    let chunk = with("transfer-encoding: chunked\r\n\r\n1");
    let last = with("transfer-encoding: chunked\r\n\r\n0\r\n");
    let long = with("content-length: 1000000\r\n\r\n");
    let lengths = with("content-length: 1\r\ncontent-length: 2\r\n\r\n");
    let beyond_64_bits = with("content-length: 99999999999999999999\r\n\r\n");
    let error = b"HTTP/1.1 503 No\r\n\r\n".to_vec();
    let garbage = b"\0\x01\x02 no HTTP\r\n\r\n".to_vec();
    // A thousand times as large when it is decoded.
    let bomb = answer("503 No\r\ncontent-encoding: gzip", &*BOMB);
    vec![
        ("silence", vec![], Act::Hang, Kind::Timeout),
        ("silence of TLS", vec![], Act::Hang, Kind::Timeout),
        ("slow head", with("x: "), DRIPS, Kind::Timeout),
        ("headers", with(""), headers(), Kind::Malformed),
        ("long header", with("x: "), kilobyte(), Kind::Malformed),
        ("early hints", vec![], hints, Kind::Timeout),
        ("slow body", long, DRIPS, Kind::Timeout),
        ("chunk extensions", chunk, extensions, Kind::Truncated),
        ("trailers", last, headers(), Kind::Truncated),
        ("endless error", error, kilobyte(), Kind::Unavailable),
        ("bomb", bomb, Act::Cut, Kind::Unavailable),
        ("two lengths", lengths, DRIPS, Kind::Malformed),
        ("huge length", beyond_64_bits, DRIPS, Kind::Malformed),
        ("garbage", garbage, DRIPS, Kind::Malformed),
    ]
}

/// Created before the calls, because its creation takes as long as their deadline. 16 MiB of zeros in 16 KiB.
static BOMB: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..16 {
        encoder.write_all(&[0; 1 << 20]).expect("it is memory");
    }
    encoder.finish().expect("it is memory")
});

/// The kind of the call's error.
async fn call(name: &str, begins: Vec<u8>, then: Act, expected: Kind) -> Kind {
    let raw = Raw::start(move |_| vec![say(&*begins), then.clone()]).await;
    let client = match name {
        "silence of TLS" => raw.builder_of(&raw.url.replace("http:", "https:")).built(),
        "bomb" => raw.builder().compression().built(),
        _ => raw.client(),
    };
    // The others end by themselves, also on a slow machine.
    let seconds = if expected == Kind::Timeout { 1 } else { 60 };
    let call = client.get(PATH).deadline(Duration::from_secs(seconds));
    let error = async { call.await?.bytes().await }.await;
    error.expect_err("no honest answer").kind()
}

#[test]
fn each_attack_ends_in_its_error_with_little_memory() {
    LazyLock::force(&BOMB);
    for (name, begins, then, kind) in attacks() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        let mut ended = None;
        let seen = allocation_counter::measure(|| {
            ended = Some(runtime.block_on(call(name, begins, then, kind)));
        });
        // The most that was allocated at once.
        let bytes = seen.bytes_max;
        assert_eq!(ended, Some(kind), "{name}: {bytes} bytes at most");
        assert!(bytes < 4_000_000, "{name}: {bytes} bytes at most");
    }
}
