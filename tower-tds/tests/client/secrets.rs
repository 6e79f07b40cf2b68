//! The assembled client prints and logs no secret and no token, and hyper logs none.

use std::{error::Error as _, fmt::Write as _};

use bytes::Bytes;
use tower_tds::{Client, Credentials};
use tracing_subscriber::filter::LevelFilter;

use crate::client::{
    log::Log,
    raw::{Act, Raw, say},
    world::{Built as _, PATH},
};

/// The responses of the service in order.
const ANSWERS: [&str; 7] = [
    "HTTP/1.1 200 OK\r\nset-cookie: canary\r\ncontent-length: 2\r\n\r\n{}",
    "HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n\"canary-t0k3n\"",
    // The service echoes the token, and the secret that its gateway knows.
    "HTTP/1.1 400 Bad Request\r\ncontent-length: 47\r\n\r\ncanary-t0k3n is not canary%2Bs3cr3t of %63lient",
    "HTTP/1.1 401 Unauthorized\r\ncontent-length: 27\r\n\r\n{\"message\":\"invalid token\"}",
    "HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\ncut",
    "no HTTP at all\r\n\r\n",
];

#[tokio::test]
async fn no_secret_or_token_is_printed_or_logged() {
    let (log, _guard) = Log::listen(LevelFilter::TRACE);
    let raw = Raw::issuing(Some("canary-t0k3n"), |asked| {
        let answer = ANSWERS.get(asked.call - 1).unwrap_or(&ANSWERS[6]);
        vec![say(*answer), Act::Close]
    });
    let raw = raw.listen("127.0.0.1").await;

    let mut said = String::new();
    let credentials = Credentials::new("client", "canary+s3cr3t").expect("usable");
    let builder = Client::builder(&raw.url, &raw.url, credentials);
    write!(said, "{builder:?}\n{builder:#?}").expect("room");
    let client = builder.built();
    let (mut whole, mut failed) = (0, 0);
    for n in 0..7 {
        let call = client.get(format!("{PATH}?n={n}&key=canary"));
        let call = call.header("x-api-key", "canary");
        write!(said, "{call:?}").expect("room");
        let called = async {
            let answer = call.await?;
            write!(said, "{answer:?}").expect("room");
            match n {
                1 => answer.json::<()>().await.map(|()| Bytes::new()),
                _ => answer.bytes().await,
            }
        };
        match called.await {
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
        let (tokens, status) = (client.tokens(), client.status());
        write!(said, "{client:?}{client:#?}{tokens:?}{status}{status:#?}").expect("room");
    }

    let asked = raw.all().concat();
    assert!(asked.contains("client_secret=canary%2Bs3cr3t"), "{asked}");
    assert!(asked.contains("Bearer canary-t0k3n"), "{asked}");
    assert!(whole >= 1 && failed >= 4, "{whole} and {failed}: {said}");
    assert!(
        said.contains("[redacted] is not [redacted] of %63lient"),
        "{said}"
    );
    let traced = log.text();
    assert!(traced.contains("hyper_util"), "hyper is silent: {traced}");
    for text in [said, traced] {
        // Whole, percent-encoded or cut: the first word stays.
        for part in ["canary", "s3cr3t", "t0k3n"] {
            assert!(!text.contains(part), "{text}");
        }
    }
}
