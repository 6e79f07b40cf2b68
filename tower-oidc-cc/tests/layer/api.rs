//! The surface: auto-traits, object safety, and the bounds on other types.

use crate::layer::support;

use std::{future::Ready, io};

use http::{Request, Response};
use support::{Body, DATA, Endpoint, echo, endpoint::Reply, get, layer, tokens};
use tower::{Layer, ServiceExt, util::BoxCloneSyncService};
use tower_oidc_cc::{
    Assertion, BearerAuth, BearerAuthLayer, ConfigError, Credentials, Error, Origin, Outcome,
    ResponseFuture, TokenEndpoint, TokenError, TokenSource, TokenSourceBuilder,
};

#[test]
fn auto_traits_are_as_promised() {
    fn all<T: Send + Sync + Unpin + 'static>() {}
    fn clone<T: Clone>() {}
    fn error<T: std::error::Error + Send + Sync + 'static>() {}
    all::<Assertion>();
    all::<Credentials>();
    all::<Outcome>();
    all::<Origin>();
    all::<ResponseFuture<Ready<()>, ()>>();
    all::<BearerAuth<()>>();
    all::<TokenEndpoint>();
    all::<BearerAuthLayer>();
    all::<TokenSource>();
    all::<TokenSourceBuilder>();
    clone::<BearerAuth<()>>();
    clone::<BearerAuthLayer>();
    clone::<TokenSource>();
    error::<ConfigError>();
    error::<Error>();
    error::<TokenError>();
    let service = layer(&tokens(&Endpoint::default())).layer(echo());
    let boxed = BoxCloneSyncService::<Request<Body>, Response<String>, Error>::new(service);
    drop(boxed);
    assert_eq!(size_of::<Error>(), size_of::<usize>());
    assert_eq!(size_of::<TokenError>(), size_of::<usize>());
}

#[tokio::test(start_paused = true)]
async fn errors_keep_their_source_and_name_the_endpoint() {
    let link = |link: &(dyn std::error::Error + 'static)| link.downcast_ref().map(io::Error::kind);
    let below = tower::service_fn(async |_: Request<Body>| {
        Err::<Response<String>, _>(io::Error::from(io::ErrorKind::BrokenPipe))
    });
    let service = layer(&tokens(&Endpoint::default())).layer(below);
    let error: Error = service.oneshot(get(DATA)).await.unwrap_err();
    let kind = tower_tds_outcome::chain(&error).find_map(link);
    assert_eq!(kind, Some(io::ErrorKind::BrokenPipe));

    let tokens = tokens(&Endpoint::always(Reply::broken()));
    let error = tokens.ready().await.unwrap_err();
    let kind = tower_tds_outcome::chain(&error).find_map(link);
    assert_eq!(kind, Some(io::ErrorKind::ConnectionReset));
    let place =
        "(https://sso.example.com/auth/realms/ServiceConnect/protocol/openid-connect/token)";
    let text = error.to_string();
    assert!(
        text.contains("connection reset") && text.contains(place),
        "{text}"
    );
    assert_eq!(format!("{error:?}").lines().count(), 2);
    assert_eq!(format!("{error:#?}").lines().count(), 2);
}
