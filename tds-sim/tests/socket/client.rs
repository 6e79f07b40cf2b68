//! A plain HTTP client for the tests.

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use tds_sim::Server;

/// A client with a pool of its own.
pub(crate) struct Client(legacy::Client<HttpConnector, Full<Bytes>>);

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl Got {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Client {
    pub(crate) fn new() -> Self {
        Self(legacy::Client::builder(TokioExecutor::new()).build_http())
    }

    /// A client that speaks nothing but HTTP/2.
    pub(crate) fn http2() -> Self {
        Self(
            legacy::Client::builder(TokioExecutor::new())
                .http2_only(true)
                .build_http(),
        )
    }

    /// A token by the contract's text.
    pub(crate) async fn token(&self, server: &Server) -> String {
        let (id, secret) = (server.client_id(), server.client_secret());
        let url = token_url(server);
        let form = format!("grant_type=client_credentials&client_id={id}&client_secret={secret}");
        let got = self.post(&url, form).await.unwrap();
        assert_eq!(got.status, 200);
        let reply: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
        assert_eq!(reply["token_type"], "Bearer");
        reply["access_token"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn get(&self, url: &str, headers: &[(&str, String)]) -> Result<Got, Failed> {
        let mut request = Request::get(url);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        self.send(request.body(Full::default())?).await
    }

    pub(crate) async fn post(&self, url: &str, form: String) -> Result<Got, Failed> {
        let request = Request::post(url)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Full::from(form))?;
        self.send(request).await
    }

    /// Sends a request with this method, content type and body.
    pub(crate) async fn ask(
        &self,
        method: &str,
        url: &str,
        kind: &str,
        body: &str,
    ) -> (u16, String) {
        let mut request = Request::builder().method(method).uri(url);
        if !kind.is_empty() {
            request = request.header("content-type", kind);
        }
        let request = request.body(Full::from(body.to_owned())).unwrap();
        let got = self.send(request).await.unwrap();
        (got.status, String::from_utf8(got.body.to_vec()).unwrap())
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Got, Failed> {
        let (head, body) = self.0.request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Got {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
        })
    }
}

pub(crate) fn bearer(token: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {token}"))
}

pub(crate) fn token_url(server: &Server) -> String {
    format!(
        "{}/auth/realms/ServiceConnect/protocol/openid-connect/token",
        server.auth_url()
    )
}
