//! octocrab: its builder takes a service and layers.

use octocrab::{AuthState, Error, OctoBody, OctocrabBuilder, service::middleware::base_uri::BaseUriLayer};
use serde_json::{Value, json};
use tds_compat::{Failure, Server, answered, http};
use tower::ServiceBuilder;
use tower_tds::layers::errors::RetryLayer;

#[tokio::test]
async fn octocrab_reads_and_writes_through_the_layers() -> Result<(), Failure> {
    let server = Server::start(&[("/zen", r#""Keep it simple.""#), ("/topics", "{}")]).await?;
    // A clone of this body shares what is left of its bytes, so name how it is copied.
    let layer = server.client()?.layer().retry(RetryLayer::new().replay(OctoBody::try_clone));
    let layer = ServiceBuilder::new().map_result(answered).layer(layer);
    let crab = OctocrabBuilder::new_empty()
        .with_service(http())
        .with_layer(&layer)
        .with_layer(&BaseUriLayer::new(server.uri("/")?))
        .with_auth(AuthState::None)
        .build()?;

    let zen: String = crab.get("/zen", None::<&()>).await?;
    assert_eq!(zen, "Keep it simple.");
    let _: Value = crab.put("/topics", Some(&json!({"names": ["bus"]}))).await?;
    let missing = crab.get::<Value, _, ()>("/nobody", None).await;
    assert!(matches!(missing, Err(Error::GitHub { .. })), "{missing:?}");
    assert_eq!(server.seen(), ["GET /zen 0 200", "PUT /topics 17 503", "PUT /topics 17 200", "GET /nobody 0 404",]);
    Ok(())
}
