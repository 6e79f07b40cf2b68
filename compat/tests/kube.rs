//! kube: its client takes any service; the stack gives paths their origin.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::PostParams, client::Body};
use tds_compat::{Failure, Server, answered, http};
use tower::ServiceBuilder;
use tower_tds::layers::errors::RetryLayer;

#[tokio::test]
async fn kube_reads_and_replaces_through_the_layers() -> Result<(), Failure> {
    const PATH: &str = "/api/v1/namespaces/default/configmaps";
    let map = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"map"}}"#;
    let server = Server::start(&[(&format!("{PATH}/map"), map)]).await?;
    let stack = ServiceBuilder::new()
        .map_result(answered)
        .layer(server.client()?.layer().retry(RetryLayer::new().replay(Body::try_clone)))
        .service(http());
    let maps: Api<ConfigMap> = Api::namespaced(Client::new(stack, "default"), "default");

    let map = maps.get("map").await?;
    maps.replace("map", &PostParams::default(), &map).await?;
    assert!(maps.get_opt("nobody").await?.is_none());
    let bytes = serde_json::to_vec(&map)?.len();
    assert_eq!(
        server.seen(),
        [
            format!("GET {PATH}/map 0 200"),
            format!("PUT {PATH}/map? {bytes} 503"),
            format!("PUT {PATH}/map? {bytes} 200"),
            format!("GET {PATH}/nobody 0 404"),
        ]
    );
    Ok(())
}
