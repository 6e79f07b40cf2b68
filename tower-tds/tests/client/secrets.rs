//! The assembled client prints and logs no secret and no token, and hyper logs none.

use std::{
    error::Error as _,
    fmt::Write as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Request;
use http_body_util::BodyExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower::ServiceExt;
use tower_tds::{Client, Credentials, CredentialsProvider, RequestBody};
use tracing_subscriber::filter::LevelFilter;

use crate::client::log::{Log, listen};

const TOKEN: &str = r#"{"access_token":"canary-t0k3n","expires_in":86400,"token_type":"Bearer"}"#;

/// The responses of the service in order; the last one repeats.
const ANSWERS: [&str; 4] = [
    "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
    "HTTP/1.1 401 Unauthorized\r\ncontent-length: 27\r\n\r\n{\"message\":\"invalid token\"}",
    "HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\ncut",
];

const LAST_ANSWER: &str = "no HTTP at all\r\n\r\n";

/// A token endpoint and a service on one port. Keeps the requests.
async fn answer(listener: TcpListener, asked: Arc<Mutex<Vec<String>>>) {
    let mut answers = ANSWERS.iter();
    while let Ok((mut socket, _)) = listener.accept().await {
        let request = head(&mut socket).await;
        let sent = if request.starts_with("POST") {
            let length = TOKEN.len();
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{TOKEN}")
        } else {
            let answer = answers.next().unwrap_or(&LAST_ANSWER);
            (*answer).to_owned()
        };
        asked.lock().expect("no panic under it").push(request);
        socket
            .write_all(sent.as_bytes())
            .await
            .expect("the client reads");
    }
}

/// One request; its body, if there is one, comes in one piece with the end of its head or next.
async fn head(socket: &mut TcpStream) -> String {
    let mut request = Vec::new();
    loop {
        let mut piece = [0; 4_096];
        let read = socket.read(&mut piece).await.expect("the client writes");
        request.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&request);
        let form = !text.starts_with("POST") || text.contains("client_secret");
        if read == 0 || (text.contains("\r\n\r\n") && form) {
            return text.into_owned();
        }
    }
}

#[tokio::test]
async fn no_secret_or_token_is_printed_or_logged() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = listen(subscriber);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let asked = Arc::default();
    tokio::spawn(answer(listener, Arc::clone(&asked)));

    let mut said = String::new();
    let credentials = Credentials::new("client", "canary+s3cr3t").expect("usable");
    let builder = Client::builder(&url, &url, credentials).loopback_http();
    write!(said, "{builder:?}\n{builder:#?}").expect("room");
    let client = builder.build().expect("loopback is let through");
    let (mut whole, mut failed) = (0, 0);
    for n in 0..5 {
        let request = Request::get(format!("{url}/v1/live/bus?n={n}")).body(RequestBody::default());
        match client.clone().oneshot(request.expect("a request")).await {
            Ok(response) => match response.into_body().collect().await {
                Ok(_) => whole += 1,
                Err(error) => write!(said, "{error}{error:?}{error:#?}").expect("room"),
            },
            Err(error) => {
                failed += 1;
                write!(said, "{error}{error:?}{error:#?}").expect("room");
                let mut cause = error.source();
                while let Some(error) = cause {
                    write!(said, "{error}{error:?}").expect("room");
                    cause = error.source();
                }
            }
        }
        write!(said, "{client:?}{client:#?}{:?}", client.tokens()).expect("room");
    }

    let asked = asked.lock().expect("no panic under it").concat();
    assert!(asked.contains("client_secret=canary%2Bs3cr3t"), "{asked}");
    assert!(asked.contains("Bearer canary-t0k3n"), "{asked}");
    assert!(whole >= 1 && failed >= 2, "{whole} and {failed}: {said}");
    let traced = log.text();
    assert!(traced.contains("hyper_util"), "hyper is silent: {traced}");
    for text in [said, traced] {
        // Whole, percent-encoded or cut: the first word stays.
        assert!(
            !text.contains("canary") && !text.contains("s3cr3t"),
            "{text}"
        );
        assert!(!text.contains("t0k3n"), "{text}");
    }
}

/// Texts that a provider, a store or a proxy may produce. Each secret stands between `«` and `»`.
const FOREIGN: [&str; 5] = [
    "not valid: «eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJl»",
    "GET https://vault.example/v1/kv?token=«4bT9x0Qz1kW7»: 404",
    "GET https://me:«hunter2»@vault.example/v1/kv: 404",
    "Authorization: Bearer «mF_9.B5f-4.1JqM7» was refused",
    "Authorization: Basic «bWU6cGFzc3dvcmQx» was refused",
];

/// Makes a call, and returns the client's texts about it: the error, the status, the log.
async fn told(client: &Client, log: &Log) -> String {
    let mut said = String::new();
    if let Err(error) = client.get("/v1/live/bus").await {
        write!(said, "{error}\n{error:#}\n{error:?}\n{error:#?}\n").expect("room");
    }
    let status = client.status();
    write!(said, "{status}\n{status:?}\n{status:#?}\n{}", log.text()).expect("room");
    said
}

fn logged() -> (Log, tracing::subscriber::DefaultGuard) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    (log, listen(subscriber))
}

#[tokio::test]
async fn the_status_of_a_client_shows_no_secret_of_a_provider_or_a_connector() {
    let mut shown = Vec::new();
    for marked in FOREIGN {
        let secret = marked.split(['«', '»']).nth(1).expect("a mark");
        for by_provider in [true, false] {
            let (log, _guard) = logged();
            let text = marked.replace(['«', '»'], "");
            let error = text.clone();
            let provider = CredentialsProvider::from_fn(move || {
                let error = error.clone();
                async move {
                    if by_provider {
                        return Err(tower::BoxError::from(error));
                    }
                    Ok(Credentials::new("client", "correct horse")?)
                }
            });
            let connector = tower::service_fn(move |_: http::Uri| {
                let error = format!("{text}, not correct horse");
                async move { Err::<hyper_util::rt::TokioIo<TcpStream>, _>(std::io::Error::other(error)) }
            });
            let url = "https://localhost";
            let builder = Client::builder(url, url, provider).connector(connector);
            let client = builder
                .deadline(Duration::from_secs(2))
                .build()
                .expect("usable");
            let said = told(&client, &log).await;
            assert!(said.contains("token request failed"), "{said}");
            if said.contains(secret) || said.contains("correct horse") {
                shown.push(said);
            }
        }
    }
    assert!(
        shown.is_empty(),
        "{} of {}: {shown:#?}",
        shown.len(),
        FOREIGN.len()
    );
}

/// The service echoes the token, and the secret that its gateway knows.
#[tokio::test]
async fn the_error_of_a_call_shows_no_token_and_no_secret_that_the_client_sent() {
    let (log, _guard) = logged();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let request = head(&mut socket).await;
            let (status, sent) = if request.starts_with("POST") {
                (
                    "200 OK",
                    r#"{"access_token":"staple-of-words","token_type":"Bearer","expires_in":86400}"#,
                )
            } else {
                (
                    "400 Bad Request",
                    "staple-of-words is not correct%20horse of %63lient",
                )
            };
            let length = sent.len();
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{sent}");
            socket
                .write_all(answer.as_bytes())
                .await
                .expect("the client reads");
        }
    });
    let credentials = Credentials::new("client", "correct horse").expect("usable");
    let client = Client::builder(&url, &url, credentials)
        .loopback_http()
        .build()
        .expect("usable");
    let said = told(&client, &log).await;
    assert!(
        said.contains("[redacted] is not [redacted] of %63lient"),
        "{said}"
    );
    assert!(
        !said.contains("staple") && !said.contains("correct"),
        "{said}"
    );
}
