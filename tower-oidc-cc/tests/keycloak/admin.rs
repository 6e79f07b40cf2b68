//! The tasks of an administrator.

use http::{Method, Request};
use serde_json::{Value, json};

use crate::keycloak::{
    server::{ADMIN, Keycloak, TOKEN},
    wire::{self, Body},
};

// === impl Keycloak ===

impl Keycloak {
    /// Disables a client, so that it gets no token.
    pub(crate) async fn disable_client(&self, client: &str) {
        self.set_client(client, json!({ "enabled": false })).await;
    }

    /// Enables a client again.
    pub(crate) async fn enable_client(&self, client: &str) {
        self.set_client(client, json!({ "enabled": true })).await;
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
