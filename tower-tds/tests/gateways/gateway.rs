//! The gateways, their configuration and their logs.

use std::{fs, net::SocketAddr, path::Path, process::Command, time::Duration};

use tokio::time::sleep;

use crate::{
    log::{Line, Log},
    program::{Program, find, free, say},
};

/// Which gateway, and how it counts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// `limit_req` of 50 a second with this burst, `limit_conn` of 60.
    Nginx { burst: u32 },
    /// `http_req_rate` over a second and `conn_cur`.
    Haproxy,
}

/// A running gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    kind: Kind,
    address: SocketAddr,
    program: Program,
}

// === impl Gateway ===

impl Gateway {
    /// Starts one in front of a service, unless it is not installed.
    pub(crate) async fn start(kind: Kind, service: SocketAddr) -> Option<Self> {
        let (name, switch) = match kind {
            Kind::Nginx { .. } => ("nginx", "-v"),
            Kind::Haproxy => ("haproxy", "-v"),
        };
        let Some(program) = find(name, switch) else {
            say(&format!("SKIPPED: there is no {name}"));
            return None;
        };
        // A port that was free may be taken by the time it is used.
        let mut tries = 0;
        loop {
            tries += 1;
            assert!(tries <= 5, "{name} does not start");
            let address = free();
            let started = Program::start(address, |folder| match kind {
                Kind::Nginx { burst } => nginx(&program, folder, address, service, burst),
                Kind::Haproxy => haproxy(&program, folder, address, service),
            });
            if let Some(program) = started.await {
                return Some(Self {
                    kind,
                    address,
                    program,
                });
            }
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has logged, once that is as much as is expected or no more comes.
    pub(crate) async fn log(&self, expected: usize) -> Log {
        let file = match self.kind {
            Kind::Nginx { .. } => "access.log",
            Kind::Haproxy => "stdout",
        };
        // A line is written after the answer's last byte, which the client may have read by then.
        let mut log = self.read(&self.program.text(file));
        for _ in 0..100 {
            if log.len() >= expected {
                break;
            }
            sleep(Duration::from_millis(10)).await;
            log = self.read(&self.program.text(file));
        }
        log
    }

    /// Reads lines of a status, a time, a duration and the number of sockets. The time is the end
    /// for nginx and the beginning for HAProxy; milliseconds, or seconds with three decimals.
    fn read(&self, text: &str) -> Log {
        let millis = |time: &str| time.replace('.', "").parse::<i64>().ok();
        let lines = text.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let status = words.next()?.parse().ok()?;
            let (time, took) = (millis(words.next()?)?, millis(words.next()?)?);
            let (at, ended) = match self.kind {
                Kind::Nginx { .. } => (time - took, time),
                Kind::Haproxy => (time, time + took),
            };
            Some(Line {
                at,
                ended,
                status,
                sockets: words.next()?.parse().ok()?,
            })
        });
        Log::new(lines.collect())
    }
}

fn nginx(
    program: &str,
    folder: &Path,
    address: SocketAddr,
    service: SocketAddr,
    burst: u32,
) -> Command {
    let folder = folder.display();
    let burst = match burst {
        0 => String::new(),
        burst => format!("burst={burst} nodelay"),
    };
    // One process, so that stopping it is enough. `$msec - $request_time` is the time at which the
    // request was read, by the clock that `limit_req` counts with.
    let config = format!(
        "daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 2048; }}
http {{
    client_body_temp_path {folder};
    proxy_temp_path {folder};
    fastcgi_temp_path {folder};
    uwsgi_temp_path {folder};
    scgi_temp_path {folder};
    log_format judged '$status $msec $request_time $connections_active';
    access_log {folder}/access.log judged;
    limit_req_zone $binary_remote_addr zone=requests:1m rate=50r/s;
    limit_req_status 423;
    limit_conn_zone $binary_remote_addr zone=connections:1m;
    limit_conn_status 416;
    upstream service {{ server {service}; keepalive 100; }}
    server {{
        listen {address};
        location / {{
            limit_req zone=requests {burst};
            limit_conn connections 60;
            proxy_pass http://service;
            proxy_http_version 1.1;
            proxy_set_header Connection '';
            proxy_buffering off;
        }}
    }}
}}
"
    );
    let file = format!("{folder}/nginx.conf");
    fs::write(&file, config).expect("the folder is there");
    let mut command = Command::new(program);
    command.args(["-c", &file, "-e", &format!("{folder}/error.log")]);
    command
}

fn haproxy(program: &str, folder: &Path, address: SocketAddr, service: SocketAddr) -> Command {
    // HAProxy's own times begin with the connection or the first byte; the variable is the time of
    // the count. Without `http-no-delay` it asks the kernel to send full segments, for which that
    // waits 200 ms; on a loopback interface they are of 64 KiB, and no network is like that.
    let config = format!(
        "global
    log stdout format raw local0
    maxconn 2000
defaults
    mode http
    log global
    option dontlognull
    option http-no-delay
    timeout connect 5s
    timeout client 60s
    timeout server 60s
backend requests
    stick-table type ip size 1k expire 1m store http_req_rate(1s)
backend connections
    stick-table type ip size 1k expire 1m store conn_cur
frontend gateway
    bind {address}
    log-format '%ST %[var(txn.at)] %Ta %fc'
    tcp-request connection track-sc1 src table connections
    http-request set-var(txn.at) date(0,ms)
    http-request track-sc0 src table requests
    http-request deny status 423 content-type text/plain string locked if {{ sc_http_req_rate(0) gt 50 }}
    http-request deny status 416 content-type text/plain string full if {{ sc_conn_cur(1) gt 60 }}
    default_backend service
backend service
    server service {service}
"
    );
    let file = folder.join("haproxy.cfg");
    fs::write(&file, config).expect("the folder is there");
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(file);
    command
}
