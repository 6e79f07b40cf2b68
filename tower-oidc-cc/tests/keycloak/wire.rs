//! HTTP for the tests: the client under the layer, and requests beside it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

pub(crate) type Body = Full<Bytes>;
pub(crate) type Http = Client<HttpConnector, Body>;

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

// === impl Answer ===

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

pub(crate) fn client() -> Http {
    Client::builder(TokioExecutor::new()).build_http()
}

pub(crate) async fn send(request: Request<Body>) -> Answer {
    let (head, body) = client().request(request).await.unwrap().into_parts();
    Answer {
        status: head.status,
        headers: head.headers,
        body: body.collect().await.unwrap().to_bytes(),
    }
}

pub(crate) async fn get(uri: &str) -> Answer {
    send(Request::get(uri).body(Body::default()).unwrap()).await
}

/// Posts an encoded form.
pub(crate) async fn post(uri: &str, form: &str) -> Answer {
    let request = Request::post(uri)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from(form.to_owned()));
    send(request.unwrap()).await
}

/// Moves the clock of the layer. The server's own clock goes on unchanged.
pub(crate) async fn skip(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
