//! nginx: `limit_req` of 50 a second with a burst, `limit_conn` of 60.

use std::{fs, net::SocketAddr, path::Path, process::Command};

/// Its command in `folder`, with its configuration written there.
pub(crate) fn command(
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
    // `$msec - $request_time` is the time at which the request was read, by the clock that
    // `limit_req` counts with.
    let config = format!(
        "daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 2048; }}
http {{
    client_body_temp_path {folder};
    proxy_temp_path {folder};
    fastcgi_temp_path {folder};
    uwsgi_temp_path {folder};
    scgi_temp_path {folder};
    log_format judged '$status $msec $request_time $connections_active $http_user_agent';
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
    // Names the sockets that nginx inherits, as at an upgrade of its program. With this, nginx 1.22
    // crashes unless it has a master process.
    command.env("NGINX", "0;");
    command
}
