//! Token replies that a proxy compressed unasked.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/support.rs"]
mod support;

use async_compression::tokio::bufread::{BrotliEncoder, GzipEncoder};
use support::{Endpoint, endpoint::Reply, tokens};
use tokio::io::AsyncReadExt;

const REPLY: &str = r#"{"access_token":"canary-token-1","token_type":"Bearer","expires_in":60}"#;

async fn gzip(body: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut encoder = GzipEncoder::new(body);
    encoder.read_to_end(&mut packed).await.unwrap();
    packed
}

async fn br(body: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut encoder = BrotliEncoder::new(body);
    encoder.read_to_end(&mut packed).await.unwrap();
    packed
}

async fn outcome(coding: &str, body: Vec<u8>) -> Result<(), String> {
    let reply = Reply::body(200, body).header("content-encoding", coding);
    let outcome = tokens(&Endpoint::always(reply)).ready().await;
    outcome.map_err(|error| {
        assert!(error.is_transient());
        error.to_string()
    })
}

#[cfg(feature = "compression")]
#[tokio::test(start_paused = true)]
async fn compressed_replies_decode() {
    outcome("gzip", gzip(REPLY.as_bytes()).await).await.unwrap();
    outcome("X-GZIP", gzip(REPLY.as_bytes()).await)
        .await
        .unwrap();
    outcome("br", br(REPLY.as_bytes()).await).await.unwrap();
}

#[cfg(feature = "compression")]
#[tokio::test(start_paused = true)]
async fn a_bomb_a_torn_body_and_an_unknown_coding_are_typed_failures() {
    let bomb = vec![b' '; 50_000_000];
    for (coding, bomb) in [("gzip", gzip(&bomb).await), ("br", br(&bomb).await)] {
        assert!(bomb.len() < 64 * 1024, "small on the wire");
        let text = outcome(coding, bomb).await.unwrap_err();
        assert!(text.contains("64 KiB"), "{text}");
    }
    let mut torn = gzip(REPLY.as_bytes()).await;
    torn.truncate(20);
    for (coding, body) in [("gzip", torn), ("br", b"\xff\xff".to_vec())] {
        let text = outcome(coding, body).await.unwrap_err();
        assert!(text.contains("does not decompress"), "{text}");
    }
    let text = outcome("zstd", Vec::new()).await.unwrap_err();
    assert!(text.contains("neither gzip nor br"), "{text}");
}

#[cfg(not(feature = "compression"))]
#[tokio::test(start_paused = true)]
async fn without_the_feature_a_compressed_reply_says_what_to_do() {
    for (coding, body) in [
        ("gzip", gzip(REPLY.as_bytes()).await),
        ("br", br(REPLY.as_bytes()).await),
    ] {
        let text = outcome(coding, body).await.unwrap_err();
        assert!(text.contains("feature `compression`"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn identity_is_no_coding() {
    outcome("identity", REPLY.into()).await.unwrap();
    outcome("", REPLY.into()).await.unwrap();
}
