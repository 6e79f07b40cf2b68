//! The surface: auto traits, object safety, what `Debug` and `Display` show.

use std::{io, num::NonZeroU32};

use http::{Request, Response, Uri};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioIo,
};
use tokio::net::TcpStream;
use tower::{Layer, Service, ServiceExt as _, service_fn};
use tower_tds_limits::{
    ConnectionLimit, Error, LimitedIo, Limiter, Limits, PermitBody, Quota, RequestLimit,
    RequestLimitLayer, future,
};

fn assert_send_sync<T: Send + Sync>() {}
fn assert_send<T: Send>() {}
fn assert_unpin<T: Unpin>() {}
fn assert_static_error<T: std::error::Error + Send + Sync + Unpin + 'static>() {}

#[test]
fn public_types_have_the_required_auto_traits() {
    assert_send_sync::<Limiter>();
    assert_send_sync::<Limits>();
    assert_send_sync::<RequestLimit<()>>();
    assert_send_sync::<ConnectionLimit<HttpConnector>>();
    assert_send_sync::<PermitBody<String>>();
    assert_send_sync::<LimitedIo<TokioIo<TcpStream>>>();
    type Legacy = Client<HttpConnector, String>;
    type Response = future::ResponseFuture<Legacy, String>;
    assert_send::<Response>();
    assert_unpin::<Response>();
    type Connecting = <ConnectionLimit<HttpConnector> as Service<Uri>>::Future;
    assert_send::<Connecting>();
    // The hyper-util client requires that a connector's future is Unpin.
    assert_unpin::<Connecting>();
    assert_unpin::<LimitedIo<TokioIo<TcpStream>>>();
    assert_static_error::<Error>();
}

#[test]
fn limiter_is_created_and_formatted_outside_a_runtime() {
    let five = NonZeroU32::new(5).expect("5 is not zero");
    let limiter = Limiter::new(Limits::new(Quota::per_second(five)).in_flight(five));
    let shown = format!("{limiter:?}");
    assert!(shown.contains("in_flight: 0"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn error_below_is_the_source_and_needs_no_type_parameter() {
    let below = service_fn(async |_: Request<String>| {
        Err::<Response<String>, _>(io::Error::other("the cable is out"))
    });
    let limiter = Limiter::new(Limits::default());
    let service = RequestLimitLayer::new(limiter).layer(below);
    let call = || service.clone().oneshot(Request::new(String::new()));
    let error: Error = call().await.expect_err("it fails below");
    assert_eq!(error.cause(), None);
    assert!(!error.is_timeout() && !error.is_rejected());
    let source = std::error::Error::source(&error).expect("the error below");
    assert_eq!(source.to_string(), "the cable is out");
    // `?` converts it wherever an error of the standard library is expected.
    let boxed = async || -> Result<(), Box<dyn std::error::Error>> {
        call().await?;
        Ok(())
    };
    assert!(boxed().await.expect_err("it fails").is::<Error>());
    assert!(source.is::<io::Error>());
}
