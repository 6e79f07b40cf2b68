//! The simulated token endpoint answers as the real one does, request by request.

use self::{shape::Shape, side::Side};
use crate::keycloak::server::Keycloak;

mod rows;
mod shape;
mod side;

#[tokio::test]
async fn simulated_endpoint_matches_the_real_keycloak() {
    let Some(keycloak) = Keycloak::shared().await else {
        return;
    };
    let (real, fake) = (Side::real(keycloak), Side::fake());
    let mut drift = String::new();
    for (name, row) in rows::rows() {
        let (of_real, of_fake) = (real.send(&row).await, fake.send(&row).await);
        if of_real != of_fake {
            drift += &format!("{name}:\n  real: {of_real:?}\n  fake: {of_fake:?}\n");
        }
    }
    assert!(drift.is_empty(), "the simulator has drifted:\n{drift}");
}
