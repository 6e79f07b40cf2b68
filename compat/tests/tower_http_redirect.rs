//! tower-http follows a redirect to another origin, under the layers: the token stays here.

use bytes::Bytes;
use http::{Request, StatusCode, header::LOCATION};
use http_body_util::Empty;
use tds_compat::{Failure, Seen, Server, http, json};
use tower::{ServiceBuilder, ServiceExt};
use tower_http::follow_redirect::FollowRedirectLayer;

#[tokio::test]
async fn redirect_to_another_origin_carries_no_token() -> Result<(), Failure> {
    let other = Server::start(&[]).await?;
    let location = other.url.clone();
    let server = Server::answering(move |_: &Seen| {
        let mut response = json(302, "");
        response.headers_mut().insert(LOCATION, location.parse().expect("a URL"));
        response
    })
    .await?;
    let stack = ServiceBuilder::new().layer(server.client()?.layer()).layer(FollowRedirectLayer::new()).service(http());

    let request = Request::get(server.uri("/moved")?).body(Empty::<Bytes>::new())?;
    let error = stack.oneshot(request).await.expect_err("the other one asks for a token");
    assert_eq!(error.status(), Some(StatusCode::UNAUTHORIZED));
    assert!(server.seen().iter().all(|seen| seen == "GET /moved 0 302"), "{:?}", server.seen());
    let leaked = other.calls().iter().filter(|call| call.headers.contains_key("authorization")).count();
    assert_eq!((leaked, other.calls().is_empty()), (0, false));
    Ok(())
}
