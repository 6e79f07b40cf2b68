//! Runs the suites of all crates in one program. You find each suite in the folder of its crate.

#[path = "../tower-tds/tests/client/main.rs"]
mod client;
#[path = "../tower-tds-limits/tests/connections/main.rs"]
mod connections;
#[path = "../tower-oidc-cc/tests/keycloak/main.rs"]
mod keycloak;
#[path = "../tower-oidc-cc/tests/layer/main.rs"]
mod layer;
#[path = "../tower-tds-limits/tests/requests/main.rs"]
mod requests;
#[path = "../tower-oidc-cc/tests/servers/main.rs"]
mod servers;
#[path = "../tower-tds-fleet/tests/shares/main.rs"]
mod shares;
