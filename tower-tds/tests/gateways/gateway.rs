//! The gateways that count and refuse, and the service itself.

use std::{net::SocketAddr, path::Path, process::Command, time::Duration};

use tds_sim::{Config, Ledger, Rule, Server};
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
    /// None: the simulated service itself.
    Simulator(Rule),
}

/// A running gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    address: SocketAddr,
    records: Records,
}

/// The source of its log.
#[derive(Debug)]
enum Records {
    Program {
        program: Program,
        file: &'static str,
        read: fn(&str) -> Option<Line>,
    },
    Ledger(Ledger),
}

/// Makes the command of a program for a folder and an address.
type Configure = dyn Fn(&str, &Path, SocketAddr) -> Command + Send + Sync;

// === impl Kind ===

impl Kind {
    /// Starts it and the service behind it, unless it is not installed.
    pub(crate) async fn start(self) -> Option<(Server, Gateway)> {
        let service = self.service().await;
        let gateway = Gateway::start(self, &service).await?;
        if let Self::HaproxyFromConnection = self {
            // The check that it listens was a socket without a request.
            sleep(Duration::from_secs(2)).await;
        }
        Some((service, gateway))
    }

    /// The service behind the gateway, which leaves all refusals to the gateway.
    async fn service(self) -> Server {
        let mut config = Config::default();
        if let Self::Simulator(rule) = self {
            config.rule = rule;
        } else {
            config.rate = u32::MAX;
            config.connections = u32::MAX;
        }
        Server::start(config).await.expect("free ports")
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
            Kind::Simulator(_) => {
                return Some(Self {
                    address: behind,
                    records: Records::Ledger(service.ledger()),
                });
            }
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
                    records: Records::Program {
                        program,
                        file,
                        read,
                    },
                });
            }
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many sockets closed without a request, as `HAProxy` logs them.
    pub(crate) fn unused(&self) -> usize {
        match &self.records {
            Records::Program { program, file, .. } => program
                .text(file)
                .lines()
                .filter(|line| line.ends_with(" CR"))
                .count(),
            Records::Ledger(_) => 0,
        }
    }

    /// The log of the gateway, once it has the expected length or stops growing.
    pub(crate) async fn log(&self, expected: usize) -> Log {
        let mut log = self.records.read();
        // A line is written after the answer's last byte, which the client may have read by then.
        for _ in 0..1_000 {
            if log.len() >= expected {
                break;
            }
            sleep(Duration::from_millis(10)).await;
            log = self.records.read();
        }
        log
    }
}

// === impl Records ===

impl Records {
    fn read(&self) -> Log {
        Log::new(match self {
            Self::Program {
                program,
                file,
                read,
            } => program.text(file).lines().filter_map(read).collect(),
            Self::Ledger(ledger) => {
                let millis = |time: Duration| i64::try_from(time.as_millis()).expect("a short run");
                let sockets = u32::try_from(ledger.summary().peak_sockets).expect("few");
                let arrivals = ledger.arrivals().into_iter();
                let lines = arrivals.filter_map(|arrival| {
                    Some(Line {
                        at: millis(arrival.at),
                        ended: millis(arrival.ended?),
                        status: arrival.status?,
                        sockets,
                    })
                });
                lines.collect()
            }
        })
    }
}
