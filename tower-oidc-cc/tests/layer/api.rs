//! The surface: auto-traits, object safety, and the bounds on other types.

use crate::layer::support;

use std::{
    cell::Cell,
    convert::Infallible,
    future::{Ready, ready},
    io,
    marker::PhantomPinned,
    rc::Rc,
    task::{Context, Poll},
};

use http::{Request, Response};
use support::{Body, DATA, Endpoint, echo, endpoint::Reply, get, layer, tokens};
use tower::{Layer, Service, ServiceExt, util::BoxCloneSyncService};
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
    assert_eq!(size_of::<Error>(), size_of::<usize>());
    assert_eq!(size_of::<TokenError>(), size_of::<usize>());
}

/// A service that is not `Clone`, `Sync`, `Unpin` or even `Send`.
#[derive(Debug)]
struct Bare(Rc<Cell<u32>>, PhantomPinned);

impl Service<Request<Self>> for Bare {
    type Response = Response<Self>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Self>) -> Self::Future {
        self.0.set(self.0.get().wrapping_add(1));
        ready(Ok(Response::new(request.into_body())))
    }
}

#[tokio::test(start_paused = true)]
async fn layer_requires_no_auto_traits_of_services_and_bodies() {
    let count = Rc::new(Cell::new(0));
    let bare = || Bare(Rc::clone(&count), PhantomPinned);
    let service = layer(&tokens(&Endpoint::default())).layer(bare());
    service
        .oneshot(Request::get(DATA).body(bare()).unwrap())
        .await
        .unwrap();
    assert_eq!(count.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn layered_service_fits_box_clone_sync_service() {
    let service = layer(&tokens(&Endpoint::default())).layer(echo());
    let boxed: BoxCloneSyncService<Request<Body>, Response<String>, Error> =
        BoxCloneSyncService::new(service);
    let task = tokio::spawn(boxed.oneshot(get(DATA)));
    assert_eq!(
        task.await.unwrap().unwrap().into_body(),
        "Bearer canary-token-1"
    );
}

#[tokio::test(start_paused = true)]
async fn error_below_is_the_source_and_needs_no_type_parameter() {
    let below = tower::service_fn(async |_: Request<Body>| {
        Err::<Response<String>, _>(io::Error::other("below"))
    });
    let call = || {
        layer(&tokens(&Endpoint::default()))
            .layer(below)
            .oneshot(get(DATA))
    };
    let error: Error = call().await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(
        source.downcast_ref::<io::Error>().unwrap().to_string(),
        "below"
    );
    // `?` converts it wherever an error of the standard library is expected.
    let boxed = async || -> Result<(), Box<dyn std::error::Error>> {
        call().await?;
        Ok(())
    };
    assert!(boxed().await.unwrap_err().is::<Error>());
    let error = call().await.unwrap_err();
    let below = std::error::Error::source(&error).unwrap();
    assert!(below.is::<io::Error>());
}

#[tokio::test(start_paused = true)]
async fn transport_error_is_the_source_and_appears_in_the_text() {
    let error = tokens(&Endpoint::always(Reply::broken()))
        .ready()
        .await
        .unwrap_err();
    let link = |link: &(dyn std::error::Error + 'static)| link.downcast_ref().map(io::Error::kind);
    let kind = tower_tds_outcome::chain(&error).find_map(link);
    assert_eq!(kind, Some(io::ErrorKind::ConnectionReset));
    let text = error.to_string();
    assert!(text.contains("connection reset"), "{text}");
    let place = "https://sso.example.com/auth/realms/ServiceConnect/protocol/openid-connect/token";
    assert!(text.contains(place), "{text}");
    assert_eq!(format!("{error:?}").lines().count(), 2);
    assert_eq!(format!("{error:#?}").lines().count(), 2);
}
