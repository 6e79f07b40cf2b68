//! Errors as the responses that they were: status, headers, and what was read of the body.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tokio::time::Instant;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_tds_errors::{ClassifyLayer, Error, Kind, RetryLayer};
use tower_tds_outcome::{Cause, Outcome};

use crate::probe::{Probe, get, status_of};

/// The response, success or not, that a crate gets which reads statuses itself.
async fn answered<B: Body<Data = Bytes, Error: std::fmt::Debug>>(
    result: Result<Response<B>, Error>,
) -> Result<Response<Bytes>, Error> {
    match result {
        Ok(response) => {
            let (head, body) = response.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            Ok(Response::from_parts(head, body))
        }
        Err(error) => error.into_response(),
    }
}

async fn send(probe: &Probe, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, Error> {
    let stack = RetryLayer::new().layer(ClassifyLayer::new().layer(probe.clone()));
    answered(stack.oneshot(request).await).await
}

fn headers(of: &[(&'static str, &'static str)]) -> HeaderMap {
    let pairs = of
        .iter()
        .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    pairs.collect()
}

#[tokio::test(start_paused = true)]
async fn each_refusal_is_the_response_that_it_was() {
    for status in (200..=599).chain([999]) {
        let probe = Probe::new(move |_| {
            let mut response = status_of(status).map(|_| Full::from("no such stop"));
            *response.headers_mut() = headers(&[
                ("content-type", "text/plain"),
                ("etag", "\"1\""),
                ("set-cookie", "a=1"),
            ]);
            response
                .headers_mut()
                .append("set-cookie", "b=2".parse().unwrap());
            Ok(response)
        });
        let response = send(&probe, get("/")).await.unwrap();
        assert_eq!(response.status(), status);
        let cookies = response.headers().get_all("set-cookie").iter();
        assert_eq!(cookies.collect::<Vec<_>>(), ["a=1", "b=2"]);
        assert_eq!(response.headers()["etag"], "\"1\"");
        assert_eq!(response.body(), "no such stop");
    }
}

#[tokio::test(start_paused = true)]
async fn framing_is_set_anew_and_headers_of_the_connection_go() {
    for method in [Method::GET, Method::HEAD] {
        let probe = Probe::new(|_| {
            let mut response = status_of(404).map(|_| Full::from("none"));
            *response.headers_mut() = headers(&[
                ("content-length", "50"),
                ("transfer-encoding", "chunked"),
                ("trailer", "x-sum"),
                ("connection", "close, x-hop"),
                ("keep-alive", "timeout=5"),
                ("upgrade", "h2c"),
                ("x-hop", "1"),
                ("x-stays", "1"),
            ]);
            Ok(response)
        });
        let mut request = get("/");
        *request.method_mut() = method.clone();
        let response = send(&probe, request).await.unwrap();
        let length = if method == Method::HEAD { "50" } else { "4" };
        let left = headers(&[("content-length", length), ("x-stays", "1")]);
        assert_eq!(*response.headers(), left, "{method}");
    }
}

/// Journey planners answer a 300 or a 422 with documents that a program needs.
#[tokio::test(start_paused = true)]
async fn a_long_body_of_an_error_is_read_within_the_bounds_that_are_set() {
    let wide = ClassifyLayer::new().error_bodies(64 << 10, Duration::from_secs(2));
    let narrow = ClassifyLayer::new();
    for (layer, length, most) in [
        (&narrow, 0, 16_384),
        (&narrow, 16_384, 16_384),
        (&narrow, 16_385, 16_384),
        (&wide, 60_000, 65_536),
    ] {
        for status in [300, 422] {
            let body = Bytes::from(vec![b'x'; length]);
            let probe = Probe::new(move |_| Ok(status_of(status).map(|_| body.clone().into())));
            let error = layer.layer(probe).oneshot(get("/")).await.unwrap_err();
            let read = (error.body().len(), error.is_body_cut());
            assert_eq!(read, (length.min(most), length > most));
        }
    }
    // Without a layer that reads it, nothing of the body is known.
    let unread = RetryLayer::new().layer(Probe::always(404));
    let error = unread.oneshot(get("/")).await.unwrap_err();
    assert!(error.is_body_cut());
}

#[tokio::test(start_paused = true)]
async fn body_that_breaks_or_stalls_is_marked() {
    for stalls in [true, false] {
        let service = service_fn(move |_: Request<Full<Bytes>>| async move {
            let (mut sender, body) = http_body_util::channel::Channel::<Bytes, io::Error>::new(2);
            sender.send_data("half".into()).await.unwrap();
            if stalls {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                    drop(sender);
                });
            } else {
                sender.abort(io::ErrorKind::ConnectionReset.into());
            }
            let mut response = Response::new(body);
            *response.status_mut() = 404.try_into().unwrap();
            Ok::<_, BoxError>(response)
        });
        let stack = ClassifyLayer::new().layer(service);
        let start = Instant::now();
        let error = stack.oneshot(get("/")).await.unwrap_err();
        assert_eq!(start.elapsed().as_secs(), u64::from(stalls));
        assert!(error.is_body_cut(), "{stalls}");
        assert_eq!(error.body(), b"half");
    }
}

#[tokio::test(start_paused = true)]
async fn error_without_a_response_of_its_own_stays_an_error() {
    let unsent = || Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
    let error = send(&Probe::new(move |_| unsent()), get("/"))
        .await
        .unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (Kind::Connect, 3));

    let upgrade = Probe::always(101);
    let error = send(&upgrade, get("/")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::UnexpectedResponse);
    assert!(error.to_string().contains("WebSocket"), "{error}");
    assert_eq!(upgrade.seen().len(), 1);

    // The refusal of a token request, as a token layer passes it on.
    let probe = Probe::always(404);
    let stack = ClassifyLayer::new().layer(probe).map_err(|error: Error| {
        let cause = Cause::new(Outcome::TokenDenied).over(error);
        Error::from(BoxError::from(cause))
    });
    let error = answered(stack.oneshot(get("/")).await).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (Kind::TokenRefused, None));
}
