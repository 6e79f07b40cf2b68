//! The assembled client prints and logs no secret and no token, and hyper logs none.

use std::{error::Error as _, fmt::Write as _, time::Duration};

use tower_tds::{Client, Credentials, CredentialsProvider, Response};
use tracing_subscriber::filter::LevelFilter;

use crate::client::{
    log::Log,
    raw::{Act, Raw, answer, say},
    world::{Built as _, PATH, connector, read, served},
};

/// The responses of the service in order.
const ANSWERS: [&str; 5] = [
    "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
    "HTTP/1.1 401 Unauthorized\r\ncontent-length: 27\r\n\r\n{\"message\":\"invalid token\"}",
    "HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\ncut",
    "no HTTP at all\r\n\r\n",
];

#[tokio::test]
async fn no_secret_or_token_is_printed_or_logged() {
    let (log, _guard) = Log::listen(LevelFilter::TRACE);
    let raw = Raw::issuing(Some("canary-t0k3n"), |asked| {
        let answer = ANSWERS.get(asked.call - 1).unwrap_or(&ANSWERS[4]);
        vec![say(*answer), Act::Close]
    });
    let raw = raw.listen("127.0.0.1").await;

    let mut said = String::new();
    let credentials = Credentials::new("client", "canary+s3cr3t").expect("usable");
    let builder = Client::builder(&raw.url, &raw.url, credentials).loopback_http();
    write!(said, "{builder:?}\n{builder:#?}").expect("room");
    let client = builder.built();
    let (mut whole, mut failed) = (0, 0);
    for n in 0..5 {
        match read(client.get(format!("{PATH}?n={n}"))).await {
            Ok(_) => whole += 1,
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

    let asked = raw.all().concat();
    assert!(asked.contains("client_secret=canary%2Bs3cr3t"), "{asked}");
    assert!(asked.contains("Bearer canary-t0k3n"), "{asked}");
    assert!(whole >= 1 && failed >= 3, "{whole} and {failed}: {said}");
    let traced = log.text();
    assert!(traced.contains("hyper_util"), "hyper is silent: {traced}");
    for text in [said, traced] {
        // Whole, percent-encoded or cut: the first word stays.
        for part in ["canary", "s3cr3t", "t0k3n"] {
            assert!(!text.contains(part), "{text}");
        }
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
    if let Err(error) = client.get(PATH).await {
        write!(said, "{error}\n{error:#}\n{error:?}\n{error:#?}\n").expect("room");
    }
    let status = client.status();
    write!(said, "{status}\n{status:?}\n{status:#?}\n{}", log.text()).expect("room");
    said
}

#[tokio::test]
async fn the_status_of_a_client_shows_no_secret_of_a_provider_or_a_connector() {
    let mut shown = Vec::new();
    for marked in FOREIGN {
        let secret = marked.split(['«', '»']).nth(1).expect("a mark");
        for by_provider in [true, false] {
            let (log, _guard) = Log::listen(LevelFilter::TRACE);
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
            let connector = connector(move |_| {
                let error = format!("{text}, not correct horse");
                std::future::ready(Err(std::io::Error::other(error)))
            });
            let url = "https://localhost";
            let builder = Client::builder(url, url, provider).connector(connector);
            let client = builder.deadline(Duration::from_secs(2)).built();
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
    let (log, _guard) = Log::listen(LevelFilter::TRACE);
    let raw = Raw::issuing(Some("staple-of-words"), |_| {
        let echo = "staple-of-words is not correct%20horse of %63lient";
        vec![say(answer("400 Bad Request", echo))]
    });
    let raw = raw.listen("127.0.0.1").await;
    let credentials = Credentials::new("client", "correct horse").expect("usable");
    let client = Client::builder(&raw.url, &raw.url, credentials);
    let said = told(&client.loopback_http().built(), &log).await;
    let redacted = "[redacted] is not [redacted] of %63lient";
    assert!(said.contains(redacted), "{said}");
    for part in ["staple", "correct"] {
        assert!(!said.contains(part), "{said}");
    }
}

#[tokio::test]
async fn debug_of_call_and_response_shows_no_secret() {
    let (_server, client) = served().await;
    let call = client.get("/v1/live/bus?key=CANARY");
    let call = call.header("x-api-key", "CANARY");
    let mut answer = client.get(PATH).await.expect("data").into_http();
    let cookie = "CANARY".parse().expect("a header");
    answer.headers_mut().insert("set-cookie", cookie);
    let printed = format!("{call:?} {:?}", Response::from(answer));
    assert!(!printed.contains("CANARY"), "{printed}");
}
