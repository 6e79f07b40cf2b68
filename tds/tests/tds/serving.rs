//! Servers of `tds`, and the users of them.

use std::{
    io::{self, BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::HANGS;

/// A server whose address is known; killed with its test.
pub(crate) struct Serving {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    /// The address of its page, if it has one.
    pub(crate) status: Option<SocketAddr>,
    /// Reads its standard error.
    log: Option<JoinHandle<String>>,
}

/// A response as received.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

// === impl Serving ===

impl Serving {
    pub(crate) fn start(command: Command) -> Self {
        Self::to(command, Stdio::null())
    }

    /// Starts it with this standard output.
    pub(crate) fn to(mut command: Command, out: Stdio) -> Self {
        command.stdout(out).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let mut log = String::new();
        let mut status = None;
        let address = loop {
            let line = lines.next().expect("it listens").expect("text");
            log += &line;
            if let Some((_, address)) = line.split_once("status at http://") {
                status = Some(address.parse().expect("an address"));
            }
            if let Some((_, address)) = line.split_once("listening on http://") {
                break address.parse().expect("an address");
            }
        };
        // Later lines are read, so that the server never waits for a reader.
        let log = thread::spawn(move || log + &lines.map_while(Result::ok).collect::<String>());
        Self {
            child,
            address,
            status,
            log: Some(log),
        }
    }

    /// Ends it, and returns its standard error.
    pub(crate) fn log(mut self) -> String {
        self.child.kill().expect("it runs");
        let log = self.log.take().expect("it is read once");
        log.join().expect("no panic")
    }

    pub(crate) async fn get(&self, target: &str) -> Answer {
        self.ask(&format!("GET {target} HTTP/1.1\r\nhost: localhost"))
            .await
    }

    /// Requests a path of another server, which may not listen yet.
    pub(crate) async fn try_get(address: SocketAddr, target: &str) -> io::Result<Answer> {
        drop(TcpStream::connect(address).await?);
        let head = format!("GET {target} HTTP/1.1\r\nhost: localhost");
        Ok(Self::read(Self::send_to(address, &head).await).await)
    }

    /// Sends a head to the status page.
    pub(crate) async fn ask_status(&self, head: &str) -> Answer {
        let address = self.status.expect("it was asked for");
        Self::read(Self::send_to(address, head).await).await
    }

    /// Sends a head, to which the empty line is added, and reads the response.
    pub(crate) async fn ask(&self, head: &str) -> Answer {
        Self::read(self.send(head).await).await
    }

    pub(crate) async fn read(mut stream: TcpStream) -> Answer {
        let mut answer = Vec::new();
        let read = timeout(HANGS, stream.read_to_end(&mut answer)).await;
        // A reset is an end as well: the bytes before it count.
        drop(read.expect("an answer ends"));
        let end = answer.windows(4).position(|end| end == b"\r\n\r\n");
        let end = end.expect("a head") + 4;
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Answer {
            status: status.expect("a status"),
            head,
            body: answer.split_off(end),
        }
    }

    /// Sends a request, and leaves the response to be read.
    pub(crate) async fn send(&self, head: &str) -> TcpStream {
        Self::send_to(self.address, head).await
    }

    async fn send_to(address: SocketAddr, head: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let head = format!("{head}\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("it reads");
        stream
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

// === impl Answer ===

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}
