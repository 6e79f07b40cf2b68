//! The gateways that count and refuse.

use std::{net::SocketAddr, path::Path, process::Command, time::Duration};

use tds_sim::{Config, Server};
use tokio::time::sleep;

use crate::{
    haproxy,
    log::{Line, Log},
    nginx,
    program::{Program, find, free, say},
};

/// The gateway, and its way of counting.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Nginx {
        burst: u32,
    },
    Haproxy,
    /// The same, which begins to count at the connection. A socket that closes without a request
    /// then counts as one.
    HaproxyFromConnection,
}

/// A running gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    address: SocketAddr,
    program: Program,
    /// Its log, and how a line of it is read.
    file: &'static str,
    read: fn(&str) -> Option<Line>,
}

/// Makes the command of a program for a folder and an address.
type Configure = dyn Fn(&str, &Path, SocketAddr) -> Command + Send + Sync;

// === impl Kind ===

impl Kind {
    /// Starts it and the service behind it, unless it is not installed.
    pub(crate) async fn start(self) -> Option<(Server, Gateway)> {
        // It leaves all refusals to the gateway.
        let mut config = Config::default();
        config.rate = u32::MAX;
        config.connections = u32::MAX;
        let service = Server::start(config).await.expect("free ports");
        let gateway = Gateway::start(self, &service).await?;
        if let Self::HaproxyFromConnection = self {
            // The check that it listens was a socket without a request.
            sleep(Duration::from_secs(2)).await;
        }
        Some((service, gateway))
    }
}

// === impl Gateway ===

impl Gateway {
    /// Starts one in front of a service, unless it is not installed.
    async fn start(kind: Kind, service: &Server) -> Option<Self> {
        let behind = service.base_url().trim_start_matches("http://");
        let behind: SocketAddr = behind.parse().expect("an address");
        let (name, file, read, command): (_, _, fn(&str) -> _, Box<Configure>) = match kind {
            Kind::Nginx { burst } => (
                "nginx",
                "access.log",
                nginx::read,
                Box::new(move |path, folder, address| {
                    nginx::command(path, folder, address, behind, burst)
                }),
            ),
            Kind::Haproxy | Kind::HaproxyFromConnection => (
                "haproxy",
                "stdout",
                haproxy::read,
                Box::new(move |path, folder, address| {
                    let tracks = match kind {
                        Kind::HaproxyFromConnection => "tcp-request connection",
                        _ => "http-request",
                    };
                    haproxy::command(path, folder, address, behind, tracks)
                }),
            ),
        };
        let Some(path) = find(name) else {
            say(&format!("SKIPPED: there is no {name}"));
            return None;
        };
        // A port that was free may be taken by the time it is used.
        let mut tries = 0;
        loop {
            tries += 1;
            assert!(tries <= 5, "{name} does not start");
            let address = free();
            let started = Program::start(address, |folder| command(&path, folder, address));
            if let Some(program) = started.await {
                return Some(Self {
                    address,
                    program,
                    file,
                    read,
                });
            }
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many sockets closed without a request, as `HAProxy` logs them.
    pub(crate) fn unused(&self) -> usize {
        let log = self.program.text(self.file);
        log.lines().filter(|line| line.ends_with(" CR")).count()
    }

    /// The log of the gateway, once it has the expected length or stops growing.
    pub(crate) async fn log(&self, expected: usize) -> Log {
        let mut log = self.read_log();
        // A line is written after the answer's last byte, which the client may have read by then.
        for _ in 0..1_000 {
            if log.len() >= expected {
                break;
            }
            sleep(Duration::from_millis(10)).await;
            log = self.read_log();
        }
        log
    }

    fn read_log(&self) -> Log {
        let text = self.program.text(self.file);
        Log::new(text.lines().filter_map(self.read).collect())
    }
}
