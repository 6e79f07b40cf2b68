//! HAProxy: `http_req_rate` over a second, which counts the refused too, and `conn_cur`.

use std::{fs, net::SocketAddr, path::Path, process::Command};

/// Its command in `folder`, with its configuration written there.
pub(crate) fn command(program: &str, folder: &Path, service: SocketAddr) -> Command {
    // HAProxy's own times begin with the connection or the first byte; the variable is the time of
    // the count. Without `http-no-delay` HAProxy makes the kernel wait 200 ms for full segments. On
    // a loopback interface they are of 64 KiB, which no network has. Of two threads that write to
    // standard output at once, one drops its line after a few attempts.
    let config = format!(
        "global
    log stdout format raw local0
    nbthread 1
    maxconn 2000
defaults
    mode http
    log global
    option http-no-delay
    timeout connect 5s
    timeout client 60s
    timeout server 60s
backend requests
    stick-table type ip size 1k expire 1m store http_req_rate(1s)
backend connections
    stick-table type ip size 1k expire 1m store conn_cur
frontend gateway
    bind fd@0
    log-format '%ST %[var(txn.at)] %Ta %fc %[var(txn.whose)]'
    tcp-request connection track-sc1 src table connections
    http-request track-sc0 src table requests
    http-request set-var(txn.at) date(0,ms)
    http-request set-var(txn.whose) req.hdr(user-agent)
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
