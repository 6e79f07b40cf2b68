//! The tasks of an administrator.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{Method, Request};
use serde_json::{Value, json};

use crate::{
    server::{ADMIN, Keycloak, TOKEN},
    wire::{self, Body},
};

// === impl Keycloak ===

impl Keycloak {
    /// Gives a client a new secret; the old one stops working at once.
    pub(crate) async fn rotate_secret(&self, client: &str) -> String {
        let reply = self
            .administer(
                Method::POST,
                &format!("clients/{client}/client-secret"),
                Value::Null,
            )
            .await;
        reply["value"].as_str().unwrap().to_owned()
    }

    /// Disables a client, so that it gets no token.
    pub(crate) async fn disable_client(&self, client: &str) {
        self.set_client(client, json!({ "enabled": false })).await;
    }

    /// Enables a client again.
    pub(crate) async fn enable_client(&self, client: &str) {
        self.set_client(client, json!({ "enabled": true })).await;
    }

    /// Revokes all tokens of a client that were issued before a second.
    pub(crate) async fn call_back_before(&self, client: &str, second: i64) {
        self.set_client(client, json!({ "notBefore": second }))
            .await;
    }

    /// Waits for the next second, and returns it.
    pub(crate) async fn wait_for_the_next_second(&self) -> i64 {
        let first = self.second().await;
        loop {
            let second = self.second().await;
            if second > first {
                return second;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The second in which tokens are issued now.
    async fn second(&self) -> i64 {
        let form = "grant_type=client_credentials&client_id=post&client_secret=secret-of-post";
        let reply = wire::post(&self.place(TOKEN), form).await.json();
        let claims = reply["access_token"].as_str().unwrap().split('.').nth(1);
        let claims = BASE64_URL_SAFE_NO_PAD.decode(claims.unwrap()).unwrap();
        let claims: Value = serde_json::from_slice(&claims).unwrap();
        claims["iat"].as_i64().unwrap()
    }

    async fn set_client(&self, client: &str, change: Value) {
        self.administer(Method::PUT, &format!("clients/{client}"), change)
            .await;
    }

    async fn administer(&self, method: Method, path: &str, body: Value) -> Value {
        let origin = self.origin();
        let form = format!(
            "grant_type=password&client_id=admin-cli&username={}&password={}",
            ADMIN.0, ADMIN.1
        );
        let login = wire::post(&format!("{origin}/auth/realms/master/{TOKEN}"), &form).await;
        let token = login.json()["access_token"].as_str().unwrap().to_owned();
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("{origin}/auth/admin/realms/ServiceConnect/{path}"))
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .body(Body::from(body));
        let answer = wire::send(request.unwrap()).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.status);
        serde_json::from_slice(&answer.body).unwrap_or_default()
    }
}
