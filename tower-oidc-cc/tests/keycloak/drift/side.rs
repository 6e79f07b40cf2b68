//! One of the two servers, and the requests to it.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Request;
use http_body_util::BodyExt as _;
use tds_sim::{Config, Sim};
use tower::ServiceExt as _;

use super::Shape;
use crate::keycloak::{
    server::Keycloak,
    wire::{self, Answer, Body},
};

/// A request with placeholders for the values that differ between the two servers.
///
/// `<id:NAME>` and `<secret:NAME>` are the id and the secret of a client. `<encoded:NAME>` is both,
/// with every byte percent-encoded.
pub(super) struct Row {
    method: &'static str,
    path: &'static str,
    kind: Option<&'static str>,
    /// The text after `Basic of` is encoded as base64.
    authorization: Option<&'static str>,
    body: String,
}

/// A server with the clients of the realm file.
pub(super) struct Side {
    /// Simulator, if this is the simulated one.
    sim: Option<Sim>,
    origin: String,
    clients: BTreeMap<&'static str, (String, String)>,
}

// === impl Row ===

impl Row {
    pub(super) fn new(body: &str) -> Self {
        Self {
            method: "POST",
            path: "/auth/realms/ServiceConnect/protocol/openid-connect/token",
            kind: Some("application/x-www-form-urlencoded"),
            authorization: None,
            body: body.to_owned(),
        }
    }

    pub(super) fn method(self, method: &'static str) -> Self {
        Self { method, ..self }
    }

    pub(super) fn path(self, path: &'static str) -> Self {
        Self { path, ..self }
    }

    pub(super) fn kind(self, kind: Option<&'static str>) -> Self {
        Self { kind, ..self }
    }

    pub(super) fn authorization(self, value: &'static str) -> Self {
        Self {
            authorization: Some(value),
            ..self
        }
    }
}

// === impl Side ===

impl Side {
    pub(super) fn real(keycloak: &Keycloak) -> Self {
        let client = |name: &'static str| (name, (name.to_owned(), format!("secret-of-{name}")));
        Self {
            sim: None,
            origin: keycloak.origin(),
            clients: CLIENTS.into_iter().map(client).collect(),
        }
    }

    pub(super) fn fake() -> Self {
        let sim = Sim::new(Config::default());
        let clients = CLIENTS.into_iter().enumerate().map(|(nth, name)| {
            let member = format!("member-{nth}");
            let key = sim.add_key(&member).unwrap();
            let (id, secret) = (key.client_id.to_string(), key.client_secret.to_string());
            if name == "off" {
                sim.disable_key(&id).unwrap();
            }
            (name, (id, secret))
        });
        Self {
            clients: clients.collect(),
            sim: Some(sim),
            origin: "http://127.0.0.1".to_owned(),
        }
    }

    pub(super) async fn send(&self, row: &Row) -> Shape {
        Shape::of(&self.answer(row).await)
    }

    async fn answer(&self, row: &Row) -> Answer {
        let mut request = Request::builder()
            .method(row.method)
            .uri(format!("{}{}", self.origin, row.path));
        if let Some(kind) = row.kind {
            request = request.header("content-type", kind);
        }
        if let Some(authorization) = row.authorization {
            let value = match authorization.strip_prefix("Basic of ") {
                Some(pair) => format!("Basic {}", BASE64_STANDARD.encode(self.fill(pair))),
                None => authorization.to_owned(),
            };
            request = request.header("authorization", value);
        }
        let request = request.body(Body::from(self.fill(&row.body))).unwrap();
        let Some(sim) = &self.sim else {
            return wire::send(request).await;
        };
        let (head, body) = sim.clone().oneshot(request).await.unwrap().into_parts();
        Answer {
            status: head.status,
            headers: head.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    fn fill(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, (id, secret)) in &self.clients {
            text = text
                .replace(&format!("<id:{name}>"), id)
                .replace(&format!("<secret:{name}>"), secret)
                .replace(
                    &format!("<encoded:{name}>"),
                    &format!("{}:{}", encoded(id), encoded(secret)),
                );
        }
        text
    }
}

/// Percent-encodes every byte, which is allowed but never necessary.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

const CLIENTS: [&str; 2] = ["post", "off"];
