use std::{
    collections::VecDeque,
    convert::Infallible,
    task::{Context, Poll},
};

use async_compression::{
    Level,
    tokio::write::{BrotliEncoder, GzipEncoder},
};
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use tokio::io::AsyncWriteExt;
use tower::{ServiceExt, service_fn};

use super::*;

type Named = [Option<String>; 2];

/// The encodings that a request names below the layer.
async fn named_by(compression: Compression, request: Request<RequestBody>) -> Named {
    let echo = service_fn(async |request: Request<RequestBody>| {
        let named: Named = [CONTENT_ENCODING, ACCEPT_ENCODING].map(|name| {
            let value = request.headers().get(name)?;
            Some(value.to_str().expect("it is text").to_owned())
        });
        let mut response = Response::new(Full::<Bytes>::default());
        response.extensions_mut().insert(named);
        Ok::<_, Infallible>(response)
    });
    let response = compression.around(echo).oneshot(request).await;
    let mut response = response.expect("it cannot fail");
    let named = response.extensions_mut().remove::<Named>();
    named.expect("the echo put it there")
}

async fn named(compression: Compression) -> Named {
    named_by(compression, Request::new(RequestBody::default())).await
}

#[tokio::test]
async fn the_contracts_header_is_sent_word_for_word_beside_the_standard_one() {
    let [contract, standard] = named(Compression::On).await;
    assert_eq!(contract.as_deref(), Some("br,gzip"));
    let standard = standard.expect("the standard header");
    assert!(
        standard.contains("br") && standard.contains("gzip"),
        "{standard}"
    );
}

/// These tests are built with every decompression that tower-http has.
#[tokio::test]
async fn what_another_crate_turns_on_changes_no_request() {
    let [_, standard] = named(Compression::On).await;
    let standard = standard.expect("the standard header");
    assert!(
        !standard.contains("deflate") && !standard.contains("zstd"),
        "{standard}"
    );
    for (name, value) in [("x", "1"), ("range", "bytes=5-8")] {
        let request = Request::get("/").header(name, value);
        let request = request.body(RequestBody::default()).expect("a request");
        let named = named_by(Compression::Off, request).await;
        assert_eq!(named, [None, None], "{name}");
    }
}

#[tokio::test]
async fn nothing_is_asked_for_by_default() {
    assert_eq!(named(Compression::Off).await, [None, None]);
}

#[tokio::test]
async fn a_range_is_asked_for_as_it_is() {
    let request = Request::get("/").header(RANGE, "bytes=5-8");
    let request = request.body(RequestBody::default()).expect("a request");
    let named = named_by(Compression::On, request).await;
    assert_eq!(named, [None, Some("identity".into())]);
}

#[tokio::test]
async fn the_coding_of_a_requests_own_body_is_the_callers_to_name() {
    for (coding, expected) in [(None, None), (Some("gzip"), Some("gzip"))] {
        let mut request = Request::post("/");
        if let Some(coding) = coding {
            request = request.header(CONTENT_ENCODING, coding);
        }
        let request = request.body(RequestBody::default()).expect("a request");
        let [named, _] = named_by(Compression::On, request).await;
        assert_eq!(named.as_deref(), expected);
    }
}

#[tokio::test]
async fn a_part_of_a_coded_body_is_handed_on_as_it_is_and_says_so() {
    for compression in [Compression::On, Compression::Off] {
        let part = service_fn(async |_: Request<RequestBody>| {
            let response = Response::builder().status(206);
            let response = response.header(CONTENT_ENCODING, "gzip");
            let response = response.body(Full::new(Bytes::from_static(b"abcd")));
            Ok::<_, Infallible>(response.expect("a response"))
        });
        let request = Request::new(RequestBody::default());
        let response = compression.around(part).oneshot(request).await;
        let response = response.expect("it cannot fail");
        assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
        let body = response.into_body().collect().await;
        assert_eq!(body.expect("it is left alone").to_bytes(), "abcd");
    }
}

/// A body that comes in pieces of any size, some of them empty, with pauses, and trailers at its end.
struct Pieces(VecDeque<Option<Frame<Bytes>>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.0.pop_front() {
            Some(Some(frame)) => Poll::Ready(Some(Ok(frame))),
            Some(None) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }
}

fn pieces(random: &mut fastrand::Rng, mut bytes: Bytes) -> Pieces {
    let mut frames = VecDeque::new();
    while !bytes.is_empty() {
        match random.u8(..8) {
            0 => frames.push_back(None),
            1 => frames.push_back(Some(Frame::data(Bytes::new()))),
            _ => {
                let most = if random.bool() { 3 } else { 5000 };
                let length = random.usize(1..=most).min(bytes.len());
                frames.push_back(Some(Frame::data(bytes.split_to(length))));
            }
        }
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("digest", HeaderValue::from_static("whole"));
    frames.push_back(Some(Frame::trailers(trailers)));
    Pieces(frames)
}

async fn coded(coding: &str, data: &[u8]) -> Vec<u8> {
    let mut coded = Vec::new();
    if coding == "br" {
        let mut encoder = BrotliEncoder::with_quality(&mut coded, Level::Fastest);
        encoder.write_all(data).await.expect("memory");
        encoder.shutdown().await.expect("memory");
    } else {
        let mut encoder = GzipEncoder::new(&mut coded);
        encoder.write_all(data).await.expect("memory");
        encoder.shutdown().await.expect("memory");
    }
    coded
}

#[tokio::test]
async fn what_was_coded_comes_back_however_it_is_cut_up() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let coding = if random.bool() { "gzip" } else { "br" };
        let members = if coding == "gzip" {
            random.usize(1..5)
        } else {
            1
        };
        let (mut data, mut wire) = (Vec::new(), Vec::new());
        for _ in 0..members {
            let length = random.usize(..20_000);
            let letters = random.u8(1..);
            let member: Vec<u8> = (0..length).map(|_| random.u8(..letters)).collect();
            wire.extend(coded(coding, &member).await);
            data.extend(member);
        }
        let damage = random.u8(..3);
        match damage {
            0 => wire.truncate(random.usize(1..wire.len())),
            1 => wire.extend_from_slice(b"more"),
            _ => {}
        }
        let mut response = Response::new(pieces(&mut random, wire.into()));
        let header = HeaderValue::from_static(coding);
        response.headers_mut().insert(CONTENT_ENCODING, header);
        let body = decode(response).into_body().collect().await;
        match (damage, body) {
            (2, Ok(body)) => {
                assert_eq!(body.trailers().map(HeaderMap::len), Some(1), "{seed}");
                assert!(body.to_bytes() == data, "{seed}: {coding}");
            }
            // A cut between two members leaves whole ones: that is for the length of the body to tell.
            (0, Ok(body)) => assert!(data.starts_with(&body.to_bytes()), "{seed}: {coding}"),
            (0 | 1, Err(_)) => {}
            (_, body) => panic!("{seed}: {coding}, {damage}: {body:?}"),
        }
    }
}
