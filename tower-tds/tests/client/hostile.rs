//! A hostile server. Each call ends with a typed error, at its deadline at the latest, and uses
//! little memory.

use std::{io::Write as _, sync::LazyLock, time::Duration};

use flate2::{Compression, write::GzEncoder};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::sleep,
};
use tower_tds::{Client, Credentials, Kind};

use crate::client::server::read;

/// An attack of the data endpoint; the token endpoint of the same server is honest.
#[derive(Debug, Clone, Copy)]
enum Attack {
    /// Accepts and never writes.
    Silence,
    /// The same where the client expects TLS.
    TlsSilence,
    /// A byte of the head every 50 ms.
    SlowHead,
    /// Headers without an end.
    Headers,
    /// One header without an end.
    LongHeader,
    /// `103 Early Hints` without an end.
    EarlyHints,
    /// A byte of the body every 50 ms.
    SlowBody,
    /// Chunk extensions without an end.
    ChunkExtensions,
    /// Trailers without an end.
    Trailers,
    /// A 503 whose body never ends.
    EndlessError,
    /// A 503 with a body that is a thousand times as large when it is decoded.
    BombError,
    /// Two different lengths.
    TwoLengths,
    /// A length that does not fit into 64 bits.
    HugeLength,
    /// Bytes that are not HTTP.
    Garbage,
}

async fn start(attack: Attack) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, attack));
        }
    });
    url
}

async fn serve(mut stream: TcpStream, attack: Attack) -> Option<()> {
    loop {
        let request = read(&mut stream).await?;
        if request.starts_with("POST") {
            let token = r#"{"access_token":"t","expires_in":86400,"token_type":"Bearer"}"#;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
            let reply = format!("{head} {}\r\n\r\n{token}", token.len());
            stream.write_all(reply.as_bytes()).await.ok()?;
        } else {
            return harm(stream, attack).await;
        }
    }
}

async fn harm(mut stream: TcpStream, attack: Attack) -> Option<()> {
    let pause = Duration::from_millis(50);
    let (head, each, pause): (&[u8], &[u8], _) = match attack {
        Attack::Silence | Attack::TlsSilence => {
            // The client closes the connection at its deadline.
            stream.read_u8().await.ok();
            return None;
        }
        Attack::SlowHead => (b"HTTP/1.1 200 OK\r\nx: ", b"x", Some(pause)),
        Attack::Headers => (b"HTTP/1.1 200 OK\r\n", b"x-header: value\r\n", None),
        Attack::LongHeader => (b"HTTP/1.1 200 OK\r\nx: ", &[b'x'; 1_024], None),
        Attack::EarlyHints => (b"", b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n", None),
        Attack::SlowBody => (
            b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n",
            b"x",
            Some(pause),
        ),
        Attack::ChunkExtensions => (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1",
            b";extension=value",
            None,
        ),
        Attack::Trailers => (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
            b"x-trailer: value\r\n",
            None,
        ),
        Attack::EndlessError => (b"HTTP/1.1 503 No\r\n\r\n", &[b'x'; 1_024], None),
        Attack::BombError => {
            let body = &*BOMB;
            let head = "HTTP/1.1 503 No\r\ncontent-encoding: gzip\r\ncontent-length:";
            let head = format!("{head} {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).await.ok()?;
            stream.write_all(body).await.ok()?;
            return None;
        }
        Attack::TwoLengths => (
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            b"x",
            Some(pause),
        ),
        Attack::HugeLength => (
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
            b"x",
            Some(pause),
        ),
        Attack::Garbage => (b"\0\x01\x02 no HTTP\r\n\r\n", b"\xff", Some(pause)),
    };
    stream.write_all(head).await.ok()?;
    loop {
        stream.write_all(each).await.ok()?;
        if let Some(pause) = pause {
            sleep(pause).await;
        }
    }
}

/// Created before the calls, because its creation takes as long as their deadline.
static BOMB: LazyLock<Vec<u8>> = LazyLock::new(bomb);

/// 64 MiB of zeros in 64 KiB.
fn bomb() -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..64 {
        encoder.write_all(&[0; 1 << 20]).expect("it is memory");
    }
    encoder.finish().expect("it is memory")
}

/// The kind of the call's error.
async fn call(attack: Attack) -> Kind {
    let url = start(attack).await;
    let credentials = Credentials::new("id", "secret").expect("usable");
    let base = match attack {
        Attack::TlsSilence => url.replace("http:", "https:"),
        _ => url.clone(),
    };
    let client = Client::builder(&url, &base, credentials).loopback_http();
    let client = client.build().expect("loopback is let through");
    let deadline = match attack {
        Attack::Silence
        | Attack::TlsSilence
        | Attack::SlowHead
        | Attack::EarlyHints
        | Attack::SlowBody => Duration::from_secs(1),
        // These end by themselves, also on a slow machine.
        _ => Duration::from_secs(60),
    };
    let call = client.get("/v1/live/bus").deadline(deadline);
    let error = async { call.await?.bytes().await }.await;
    error.expect_err("no honest answer").kind()
}

/// The kind, and the most bytes that were allocated at once.
fn measured(attack: Attack) -> (Kind, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let mut kind = None;
    let seen = allocation_counter::measure(|| kind = Some(runtime.block_on(call(attack))));
    (kind.expect("it ran"), seen.bytes_max)
}

#[test]
fn each_attack_ends_in_its_error_with_little_memory() {
    LazyLock::force(&BOMB);
    for (attack, kind) in [
        (Attack::Silence, Kind::Timeout),
        (Attack::TlsSilence, Kind::Timeout),
        (Attack::SlowHead, Kind::Timeout),
        (Attack::Headers, Kind::Malformed),
        (Attack::LongHeader, Kind::Malformed),
        (Attack::EarlyHints, Kind::Timeout),
        (Attack::SlowBody, Kind::Timeout),
        (Attack::ChunkExtensions, Kind::Truncated),
        (Attack::Trailers, Kind::Truncated),
        (Attack::EndlessError, Kind::Unavailable),
        (Attack::BombError, Kind::Unavailable),
        (Attack::TwoLengths, Kind::Malformed),
        (Attack::HugeLength, Kind::Malformed),
        (Attack::Garbage, Kind::Malformed),
    ] {
        let (seen, bytes) = measured(attack);
        assert_eq!(seen, kind, "{attack:?}: {bytes} bytes at most");
        assert!(bytes < 4_000_000, "{attack:?}: {bytes} bytes at most");
    }
}
