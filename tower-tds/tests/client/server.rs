//! A server that writes given bytes. It ends with its runtime.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::sleep,
};
use tower_tds::{Builder, Client, Credentials};

#[derive(Clone)]
pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    answer: Vec<u8>,
    /// The tokens of data calls in order, and `POST` for each token call.
    seen: Mutex<Vec<String>>,
}

// === impl Server ===

impl Server {
    /// Answers data calls with these bytes, and closes the connection after `/close`. It answers `/late/n` after as many
    /// milliseconds, and reads nothing of the body for `/pause/n` for as many seconds.
    pub(crate) async fn start(answer: &[u8]) -> Self {
        Self::start_at("127.0.0.1", answer).await
    }

    pub(crate) async fn start_at(address: &str, answer: &[u8]) -> Self {
        let listener = TcpListener::bind((address, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            answer: answer.to_vec(),
            seen: Mutex::default(),
        });
        let server = Self { address, shared };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&serving.shared)));
            }
        });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn port(&self) -> String {
        self.address.port().to_string()
    }

    /// Builds a client for tokens and data from this server.
    pub(crate) fn builder(&self) -> Builder {
        let credentials = Credentials::new("id", "s3cr3t").expect("it can be sent");
        Client::builder(&self.url(), &self.url(), credentials).loopback_http()
    }

    pub(crate) fn seen(&self) -> Vec<String> {
        self.shared.seen.lock().expect("nobody panicked").clone()
    }
}

// === impl Shared ===

impl Shared {
    /// Returns the number of such requests, including this one.
    fn note(&self, what: &str) -> usize {
        let mut seen = self.seen.lock().expect("nobody panicked");
        seen.push(what.to_owned());
        seen.iter().filter(|each| *each == what).count()
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    while let Some(request) = read(&mut stream).await {
        let has = |path: &str| request.starts_with(path);
        let line = request.lines().next().expect("a line");
        let answer = if line.contains("/token ") {
            let number = shared.note("POST");
            let token = format!(
                r#"{{"access_token":"t{number}","expires_in":86400,"token_type":"Bearer"}}"#
            );
            let length = token.len();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
            format!("{head} {length}\r\n\r\n{token}").into_bytes()
        } else {
            let (_, token) = request.split_once("Bearer ").expect("a token");
            shared.note(token.split("\r\n").next().expect("a line"));
            sleep(Duration::from_millis(named(&request, "/late/"))).await;
            shared.answer.clone()
        };
        if stream.write_all(&answer).await.is_err() || has("GET /close") {
            break;
        }
    }
    stream.shutdown().await.ok();
}

/// The number behind this part of a path, or zero.
fn named(request: &str, part: &str) -> u64 {
    let number = request.split_once(part).map(|(_, rest)| {
        let number = rest.split(' ').next().expect("the version behind it");
        number.parse().expect("a number")
    });
    number.unwrap_or(0)
}

/// The head of a request, and its body behind it if it announces one.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).expect("it is text");
    let lower = head.to_ascii_lowercase();
    let length = lower.split_once("content-length: ").map(|(_, rest)| {
        let length = rest.split("\r\n").next().expect("a line");
        length.parse().expect("a length")
    });
    sleep(Duration::from_secs(named(&head, "/pause/"))).await;
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    Some(head)
}
