//! The gateways that count and refuse.

use std::{net::SocketAddr, time::Duration};

use tds_sim::{Config, Server};
use tokio::time::sleep;

use crate::{
    haproxy,
    log::{Line, Log},
    nginx,
    program::{Program, find, say},
};

/// The gateway, and its way of counting.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Nginx { burst: u32 },
    Haproxy,
}

/// A running gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    program: Program,
    kind: Kind,
}

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
        Some((service, gateway))
    }
}

// === impl Gateway ===

impl Gateway {
    /// Starts one in front of a service, unless it is not installed.
    async fn start(kind: Kind, service: &Server) -> Option<Self> {
        let behind = service.base_url().trim_start_matches("http://");
        let behind: SocketAddr = behind.parse().expect("an address");
        let name = match kind {
            Kind::Nginx { .. } => "nginx",
            Kind::Haproxy => "haproxy",
        };
        let Some(path) = find(name) else {
            say(&format!("SKIPPED: there is no {name}"));
            return None;
        };
        let program = Program::start(|folder, address| match kind {
            Kind::Nginx { burst } => nginx::command(&path, folder, address, behind, burst),
            Kind::Haproxy => haproxy::command(&path, folder, behind),
        });
        Some(Self {
            program: program.await,
            kind,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.program.address()
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
        let text = self.program.text(match self.kind {
            Kind::Nginx { .. } => "access.log",
            Kind::Haproxy => "stdout",
        });
        let lines = text.lines();
        Log::new(
            lines
                .filter_map(|line| Line::read(line, self.kind))
                .collect(),
        )
    }
}
