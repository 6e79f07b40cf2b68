//! A plain HTTP client for the tests, and a server for one test.

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use tds_sim::{Config, Server};

/// A client with a pool of its own.
pub(crate) struct Client(legacy::Client<HttpConnector, Full<Bytes>>);

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A server, with a token for its data.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) token: String,
}

pub(crate) type Failed = Box<dyn std::error::Error + Send + Sync>;

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

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| ()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        change(&mut config);
        let server = Server::start(config).await.unwrap();
        let token = server.token(server.client_id()).unwrap();
        Self { server, token }
    }

    /// Calls data on a connection of its own.
    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Got {
        let headers = headers
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let headers: Vec<_> = headers.chain([bearer(&self.token)]).collect();
        Client::new().get(&self.url(path), &headers).await.unwrap()
    }

    pub(crate) async fn status(&self, path: &str) -> u16 {
        self.status_of(path, &self.token).await
    }

    pub(crate) async fn status_of(&self, path: &str, token: &str) -> u16 {
        let got = Client::new().get(&self.url(path), &[bearer(token)]).await;
        got.unwrap().status
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server.base_url())
    }

    /// Sends a request to the admin listener.
    pub(crate) async fn admin(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: &str,
    ) -> (u16, String) {
        let url = format!("{}{path}", self.server.admin_url());
        Client::new().ask(method, &url, kind, body).await
    }

    /// Runs a control, which has to succeed.
    pub(crate) async fn control(&self, path: &str, form: &str) -> String {
        let (status, text) = self.admin("POST", path, FORM, form).await;
        assert_eq!(status, 200, "{path} {form}: {text}");
        text
    }
}

pub(crate) const FORM: &str = "application/x-www-form-urlencoded";
pub(crate) const JSON: &str = "application/json";

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
            .header("content-type", FORM)
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
