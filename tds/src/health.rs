//! `tds health`: checks that a backend answers, in containers that have no other program.

use std::{io, time::Duration};

use clap::Args;
use http::Uri;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    time::timeout,
};

use crate::exit::{Exit, Failure};

/// Check that a backend answers, for health checks of containers
#[derive(Debug, Args)]
pub(crate) struct Health {
    /// Address of the backend; without a path, /livez is requested
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:8080", value_parser = url)]
    url: Uri,
}

// === impl Health ===

impl Health {
    pub(crate) async fn run(self) -> Result<Exit, Failure> {
        let line = timeout(LONGEST, self.line()).await;
        let line = line.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let failed = |exit, why: &str| Failure::new(exit, format!("{}: {why}", self.url));
        let line = line.map_err(|error| {
            let why = format!("{error}; start the backend, or give the address of its --listen");
            failed(Exit::Unreachable, &why)
        })?;
        match line.split_once(' ') {
            Some((version, status)) if version.starts_with("HTTP/") => match status.get(..3) {
                Some("200") => Ok(Exit::Whole),
                _ => Err(failed(Exit::SomeFailed, status.trim())),
            },
            _ => Err(failed(Exit::SomeFailed, "the answer is not HTTP")),
        }
    }

    /// Returns the first line of the response.
    async fn line(&self) -> io::Result<String> {
        let host = self.url.host().unwrap_or_default();
        let port = self.url.port_u16().unwrap_or(80);
        let mut stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
        let target = match self.url.path() {
            "/" => "/livez",
            path => path,
        };
        let head =
            format!("GET {target} HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut line = String::new();
        BufReader::new(stream.take(256))
            .read_line(&mut line)
            .await?;
        Ok(line)
    }
}

/// Parses the address. It has no TLS, because a backend speaks none.
fn url(text: &str) -> Result<Uri, String> {
    let uri = text.parse::<Uri>().ok();
    let uri = uri.filter(|uri| uri.scheme_str() == Some("http"));
    uri.ok_or_else(|| "write an address, as in http://127.0.0.1:8080/livez".to_owned())
}

/// Shorter than the time after which health checks usually give up.
const LONGEST: Duration = Duration::from_secs(5);
