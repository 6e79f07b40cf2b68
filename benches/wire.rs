//! Whole calls over a socket, and their server.

use std::{convert::Infallible, io::Write as _, num::NonZeroU32, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header::AUTHORIZATION};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use tokio::{net::TcpListener, runtime::Builder};
use tower::ServiceExt as _;
use tower_layer::Layer as _;
use tower_tds::{Credentials, Limits, Quota};

/// As long as Keycloak's tokens are with a few roles.
const TOKEN: usize = 1_093;

/// Answers each GET with a small body, and each POST with a token, until it is killed.
pub(crate) fn serve() {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        writeln!(std::io::stdout(), "{address}").expect("stdout is open");
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).expect("an option of a socket");
            let connection =
                http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
            tokio::spawn(connection);
        }
    });
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_token = request.method() == Method::POST;
    // The connection is free once the body has been read.
    drop(request.into_body().collect().await);
    let text = if is_token {
        let token = "x".repeat(TOKEN);
        format!(r#"{{"access_token":"{token}","token_type":"Bearer","expires_in":86400}}"#)
    } else {
        r#"{"name":"bus"}"#.to_owned()
    };
    Ok(Response::new(Full::from(text)))
}

/// Makes `count` calls after one that is made in any case.
pub(crate) fn run(which: &str, count: u64, address: &str) {
    // As in most programs there is a second thread: without one, the C library calls the kernel by a shorter way, and
    // whether a client has one would depend on when its last look-up ended.
    drop(std::thread::spawn(std::thread::park));
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let url = format!("http://{address}/v1/live/bus");
        let header = format!("Bearer {}", "x".repeat(TOKEN));
        let header = HeaderValue::from_str(&header).expect("it is ASCII");
        let http = || -> Client<HttpConnector, Full<Bytes>> {
            Client::builder(TokioExecutor::new()).build_http()
        };
        let request = || {
            let request = Request::get(&*url).body(Full::<Bytes>::default());
            request.expect("a request")
        };
        match which {
            "client" => {
                let client = client(address);
                for _ in 0..=count {
                    let bus = client.get(url.as_str()).await.expect("an answer");
                    bus.bytes().await.expect("a body");
                }
            }
            "layer" => {
                let layer = client(address).layer();
                let service = layer.layer(http());
                for _ in 0..=count {
                    let bus = (&service).oneshot(request()).await.expect("an answer");
                    bus.into_body().collect().await.expect("a body");
                }
            }
            "reqwest" => {
                let client = reqwest::Client::builder()
                    .no_proxy()
                    .build()
                    .expect("a client");
                for _ in 0..=count {
                    let bus = client.get(&*url).header(AUTHORIZATION, header.clone());
                    let bus = bus.send().await.expect("an answer");
                    bus.bytes().await.expect("a body");
                }
            }
            _ => {
                let client = http();
                for _ in 0..=count {
                    let mut request = request();
                    request.headers_mut().insert(AUTHORIZATION, header.clone());
                    let bus = client.request(request).await.expect("an answer");
                    bus.into_body().collect().await.expect("a body");
                }
            }
        }
    });
}

/// A client whose limits nothing reaches.
fn client(address: &str) -> tower_tds::Client {
    let wide = Quota::new(NonZeroU32::MAX, Duration::from_millis(1)).expect("an interval");
    let credentials = Credentials::new("id", "s3cr3t").expect("usable");
    let url = format!("http://{address}");
    let builder = tower_tds::Client::builder(url.as_str(), &url, credentials);
    let builder = builder.limits(Limits::new(wide));
    builder.build().expect("loopback is let through")
}
