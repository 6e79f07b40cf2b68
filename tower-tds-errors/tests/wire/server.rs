//! A server that writes given bytes, and counts connections. It ends with its runtime.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A server that is not there. The kernel never gives this port to a socket by itself.
pub(crate) const NOBODY: &str = "http://127.0.0.1:1/";

/// The reaction of the server to a request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Writes this and waits for the next request.
    Write(Vec<u8>),
    /// Writes this, and closes on reading the next request.
    WriteOnce(Vec<u8>),
    /// Writes this and closes.
    WriteAndClose(Vec<u8>),
    /// Writes this and waits forever.
    WriteAndHold(Vec<u8>),
    /// Writes this and closes by a reset.
    WriteAndReset(Vec<u8>),
    /// Writes this, and then a body until the client closes.
    Flood(Vec<u8>),
}

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    count: Arc<Count>,
}

#[derive(Default)]
struct Count {
    connections: AtomicUsize,
    requests: AtomicUsize,
}

// === impl Server ===

impl Server {
    pub(crate) async fn start(act: Act) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let count = Arc::<Count>::default();
        let server = Self {
            address,
            count: Arc::clone(&count),
        };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.connections.fetch_add(1, SeqCst);
                tokio::spawn(serve(stream, act.clone(), Arc::clone(&count)));
            }
        });
        server
    }

    pub(crate) fn uri(&self) -> String {
        format!("http://{}/v2/rail", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.count.connections.load(SeqCst)
    }

    pub(crate) fn requests(&self) -> usize {
        self.count.requests.load(SeqCst)
    }
}

async fn serve(mut stream: TcpStream, act: Act, count: Arc<Count>) {
    while read_head(&mut stream).await {
        count.requests.fetch_add(1, SeqCst);
        match &act {
            Act::Write(bytes) => {
                if stream.write_all(bytes).await.is_err() {
                    return;
                }
            }
            Act::WriteOnce(bytes) => {
                stream.write_all(bytes).await.ok();
                if read_head(&mut stream).await {
                    count.requests.fetch_add(1, SeqCst);
                }
                return;
            }
            Act::WriteAndClose(bytes) => {
                stream.write_all(bytes).await.ok();
                stream.shutdown().await.ok();
                return;
            }
            Act::WriteAndHold(bytes) => {
                stream.write_all(bytes).await.ok();
                std::future::pending().await
            }
            Act::WriteAndReset(bytes) => {
                stream.write_all(bytes).await.ok();
                stream.set_zero_linger().unwrap();
                return;
            }
            Act::Flood(head) => {
                stream.write_all(head).await.ok();
                while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
                return;
            }
        }
    }
}

/// Reads to the empty line; the tests send no bodies here.
pub(crate) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return false,
        }
    }
    true
}

pub(crate) fn client() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}
