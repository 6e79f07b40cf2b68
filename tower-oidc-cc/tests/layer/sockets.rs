//! The rules for tokens over sockets, on several threads and in real time. The tests assert on what the server saw.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{io, time::Duration};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header::CONTENT_TYPE,
};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::mpsc,
    task::JoinSet,
    time::sleep,
};
use tower::{Layer as _, ServiceExt as _};
use tower_oidc_cc::{
    Assertion, BearerAuthLayer, Credentials, CredentialsProvider, FileStore, Origin, TokenEndpoint,
    TokenSource, TokenSourceBuilder,
};

use crate::layer::{
    programs::{Http, http},
    providers::Dir,
    support::{Body, Endpoint, endpoint::Reply, is_worth_a_resend, secs},
};

/// The authorization server, and a service behind a gateway that accepts tokens by their age.
async fn served(
    endpoint: &Endpoint,
    accepts: impl Fn(Duration) -> bool + Copy + Send + 'static,
) -> Uri {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let endpoint = endpoint.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let endpoint = endpoint.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let endpoint = endpoint.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
                    if head.method == Method::POST {
                        let request = Request::from_parts(head, Full::new(body));
                        return endpoint.oneshot(request).await;
                    }
                    let token = head.headers["authorization"].to_str().unwrap();
                    let mut response = Response::new(Full::new(Bytes::from(token.to_owned())));
                    if !accepts(endpoint.age(token)) {
                        *response.status_mut() = StatusCode::UNAUTHORIZED;
                    }
                    Ok::<_, io::Error>(response)
                }
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    format!("http://{address}/token").parse().unwrap()
}

fn builder(uri: &Uri, credentials: impl Into<CredentialsProvider>) -> TokenSourceBuilder {
    TokenSource::builder(TokenEndpoint::new(uri.clone()).unwrap(), credentials)
}

fn secret(secret: &str) -> Credentials {
    Credentials::new("client", secret).unwrap()
}

/// One call, sent once more for each other token that the layer has.
async fn call(service: &tower_oidc_cc::BearerAuth<Http>, uri: &Uri) -> StatusCode {
    let mut sent = 0;
    loop {
        let request = Request::get(uri).body(Body::default()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        sent += 1;
        if sent == 3 || !is_worth_a_resend(&response) {
            return response.status();
        }
    }
}

/// Eight callers, from the first success until the endpoint has issued so many tokens.
async fn fails_no_call(
    endpoint: &Endpoint,
    tokens: usize,
    accepts: impl Fn(Duration) -> bool + Copy + Send + 'static,
) {
    let uri = served(endpoint, accepts).await;
    let origin = Origin::from_uri(&uri).unwrap();
    let source = builder(&uri, secret("s")).build(http());
    let service = BearerAuthLayer::new(source, [origin]).layer(http());
    while call(&service, &uri).await != StatusCode::OK {
        sleep(Duration::from_millis(50)).await;
    }
    assert!(endpoint.count() <= 2, "one refresh at the start");
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let (endpoint, service, uri) = (endpoint.clone(), service.clone(), uri.clone());
        callers.spawn(async move {
            while endpoint.count() < tokens {
                assert_eq!(
                    call(&service, &uri).await,
                    StatusCode::OK,
                    "{}",
                    endpoint.count()
                );
                sleep(Duration::from_millis(20)).await;
            }
        });
    }
    callers.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_behind_fails_no_call_at_a_renewal() {
    // A renewal leaves at least four seconds of the older token, and calls keep to it for half of them. So this machine may be
    // one and a half seconds late.
    let endpoint = Endpoint::always(Reply::token(20));
    fails_no_call(&endpoint, 3, |age| age >= Duration::from_millis(500)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_tokens_that_die_early_fail_no_call() {
    let endpoint = Endpoint::default();
    fails_no_call(&endpoint, 5, |age| age < Duration::from_millis(2_500)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_programs_ask_once_where_the_endpoint_said_wait_and_again_with_another_secret() {
    let busy = Reply::body(429, r#"{"error":"slow_down"}"#).header("retry-after", "60");
    for (reply, text) in [(busy, "429"), (Reply::refusal(), "unauthorized_client")] {
        let (endpoint, dir) = (Endpoint::always(reply), Dir::new("said"));
        let uri = served(&endpoint, |_| true).await;
        let program = |text: &str| {
            let store = FileStore::new(dir.0.join("token.json"));
            builder(&uri, secret(text)).store(store).build(http())
        };
        let mut programs = JoinSet::new();
        for _ in 0..20 {
            let program = program("one");
            programs.spawn(async move { program.ready().await.unwrap_err() });
        }
        for error in programs.join_all().await {
            assert!(error.to_string().contains(text), "{error}");
        }
        assert_eq!(endpoint.count(), 1, "{text}");
        endpoint.heal();
        program("two").ready().await.unwrap();
        assert_eq!(endpoint.count(), 2, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_secret_is_sent_by_a_running_program_in_spite_of_refusals_and_outages() {
    for script in [
        vec![Reply::refusal()],
        vec![Reply::refusal(), Reply::down()],
        vec![Reply::down(), Reply::down()],
    ] {
        let dir = Dir::new("rotated");
        let endpoint = Endpoint::scripted(script);
        let uri = served(&endpoint, |_| true).await;
        dir.swap("old");
        let provider = CredentialsProvider::file("client", dir.secret());
        let source = builder(&uri, provider).build(http());
        drop(source.ready().await.unwrap_err());
        dir.swap("new");
        // More than one if this task was late, and the backoff was over.
        let before = endpoint.count();
        while source.ready().await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
        let posts = endpoint.posts();
        let sent = posts.iter().map(|it| it.body.rsplit_once('=').unwrap().1);
        let (old, new): (Vec<_>, Vec<_>) = sent.partition(|it| *it == "old");
        assert_eq!(old.len(), before);
        assert!(!new.is_empty());
    }
}

/// A server that goes on and on after these bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_and_trickling_replies_end_the_request() {
    let (length, late) = ("content-length: 10000000\r\n\r\n", "did not answer in time");
    for (status, rest, size, text) in [
        ("200 OK", "\r\n", 65_536, "larger than 64 KiB"),
        ("200 OK", length, 65_536, "larger than 64 KiB"),
        ("500 No", length, 65_536, "answered 500"),
        ("200 OK", "\r\n{\"access_token\":\"", 1, late),
        ("200 OK", "x: ", 1, late),
    ] {
        let head = format!("HTTP/1.1 {status}\r\n{rest}");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let uri = format!("http://{address}/token").parse().unwrap();
        let (ended, mut written) = mpsc::unbounded_channel();
        // Of each connection: this task may be late, and then there is a second request.
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (head, ended) = (head.clone(), ended.clone());
                tokio::spawn(async move {
                    let _read = stream.read(&mut [0; 4_096]).await;
                    let mut written = 0;
                    let mut more = head.into_bytes();
                    while stream.write_all(&more).await.is_ok() {
                        written += more.len();
                        more = vec![b'x'; size];
                        sleep(Duration::from_millis(10)).await;
                    }
                    let _over = ended.send(written);
                });
            }
        });
        let timeout = secs(if size > 1 { 60 } else { 2 });
        let tokens = builder(&uri, secret("s")).timeout(timeout).build(http());
        let error = tokens.ready().await.unwrap_err();
        let told = error.to_string();
        assert!(told.contains(text) && error.is_transient(), "{told}");
        drop(tokens);
        let written = written.recv().await.unwrap();
        assert!(written < 20_000_000, "{written}: it closes the connection");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_with_status_200_and_names_of_clients_are_read_on_both_sides() {
    for (body, words) in [
        (r#"{"error":"key","error_description":"old"}"#, "key: old"),
        (r#"{"error":{"code":7}}"#, "refused the request"),
    ] {
        let endpoint = Endpoint::always(Reply::body(200, body).header("content-type", "text/html"));
        let uri = served(&endpoint, |_| true).await;
        let key = HeaderName::from_static("x-api-key");
        let tokens = builder(&uri, secret("s")).header(key, HeaderValue::from_static("7"));
        let tokens = tokens.header(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        let tokens = tokens.build(http());
        for _ in 0..5 {
            let error = tokens.ready().await.unwrap_err();
            assert!(
                error.to_string().contains(words) && !error.is_transient(),
                "{error}"
            );
        }
        let posts = endpoint.posts();
        assert_eq!(posts.len(), 1, "it is not asked again");
        let version = concat!("tower-oidc-cc/", env!("CARGO_PKG_VERSION"));
        // Servers refuse a form of another type.
        let form = "application/x-www-form-urlencoded";
        for (name, value) in [
            ("user-agent", version),
            ("x-api-key", "7"),
            ("content-type", form),
        ] {
            assert_eq!(posts[0].headers[name], value);
        }
    }
}

/// A server without tolerance, whose clock is off: it allows for a minute from `iat` and to `exp`.
#[expect(
    clippy::disallowed_methods,
    reason = "assertions are dated by the system's clock"
)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn assertions_are_good_for_servers_whose_clock_is_half_a_minute_off() {
    use std::time::{SystemTime, UNIX_EPOCH};

    use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};

    let endpoint = Endpoint::default();
    let uri = served(&endpoint, |_| true).await;
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let assertion = Assertion::from_pem(key.as_bytes()).unwrap();
    let credentials = Credentials::private_key_jwt("client", assertion).unwrap();
    builder(&uri, credentials)
        .build(http())
        .ready()
        .await
        .unwrap();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let form = endpoint.posts().remove(0).body;
    let mut fields = form_urlencoded::parse(form.as_bytes());
    let (_, signed) = fields.find(|(name, _)| name == "client_assertion").unwrap();
    let claims = BASE64_URL_SAFE_NO_PAD.decode(signed.split('.').nth(1).unwrap());
    let claims: serde_json::Value = serde_json::from_slice(&claims.unwrap()).unwrap();
    let [iat, nbf, exp] = ["iat", "nbf", "exp"].map(|it| claims[it].as_u64().unwrap());
    for off in [-28, 0, 28] {
        let now = now.saturating_add_signed(off);
        let is_accepted = nbf <= now && now < exp && now - iat <= 60 && exp - now <= 60;
        assert!(is_accepted, "{off}: {claims}");
    }
}
