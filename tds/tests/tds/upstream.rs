//! A data service whose every answer a test writes itself, byte for byte.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// Answers each request on a connection of its own, and keeps their heads.
pub(crate) struct Upstream {
    pub(crate) url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

// === impl Upstream ===

impl Upstream {
    /// Starts the service. `answer` gets the head of a request and the number of requests before it.
    pub(crate) fn start(answer: impl Fn(&str, usize) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let (answer, seen) = (Arc::new(answer), Arc::clone(&heads));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
                let stream = stream.expect("a connection");
                thread::spawn(move || serve(stream, &*answer, &seen));
            }
        });
        Self { url, heads }
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("no panic").clone()
    }
}

fn serve(
    mut stream: TcpStream,
    answer: &(impl Fn(&str, usize) -> Vec<u8> + ?Sized),
    seen: &Mutex<Vec<String>>,
) {
    let mut head = String::new();
    let mut lines = BufReader::new(stream.try_clone().expect("a handle"));
    while !head.ends_with("\r\n\r\n") {
        if lines.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    // Names are compared without their case, and values with it.
    let named = |line: &str| match line.split_once(": ") {
        Some((name, value)) => format!("{}: {value}", name.to_lowercase()),
        None => line.to_owned(),
    };
    let head: String = head.split_inclusive("\r\n").map(named).collect();
    // The form of a token request, which is small: otherwise its connection would end with a reset.
    if head.starts_with("POST") {
        drop(lines.fill_buf());
    }
    let nth = {
        let mut seen = seen.lock().expect("no panic");
        seen.push(head.clone());
        seen.len() - 1
    };
    // The client may have closed the connection.
    drop(stream.write_all(&answer(&head, nth)));
}

/// A response with these lines in its head, and a body that may be shorter than announced.
pub(crate) fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

/// A response of this length, with these other headers.
pub(crate) fn sized(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let headers = format!("{headers}content-length: {}\r\n", body.len());
    answer(status, &headers, body)
}

/// Delays a response. Each request has its own thread, so no other request waits.
#[expect(
    clippy::disallowed_methods,
    reason = "there is no runtime here: the clock is the program's own, which is another process"
)]
pub(crate) fn late(answer: Vec<u8>, seconds: u64) -> Vec<u8> {
    thread::sleep(std::time::Duration::from_secs(seconds));
    answer
}
