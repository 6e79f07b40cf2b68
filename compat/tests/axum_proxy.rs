//! A reverse proxy of axum: its handler passes requests to the client.

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::{Router, http::StatusCode};
use tds_compat::{Failure, Server, answered, http};
use tower::ServiceExt;
use tower_tds::{Client, RequestBody};

async fn proxy(State(client): State<Client>, mut request: Request) -> Response {
    request.headers_mut().remove("host");
    match answered(client.oneshot(request.map(RequestBody::stream)).await) {
        Ok(response) => response.map(Body::new).into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

#[tokio::test]
async fn axum_proxies_through_the_client() -> Result<(), Failure> {
    let server = Server::start(&[("/bus", "[307]")]).await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let routes = Router::new().fallback(proxy).with_state(server.client()?);
    tokio::spawn(async move { axum::serve(listener, routes).await });

    for (path, connection, status) in [("/bus", "close", 200), ("/no", "close", 404), ("/bus", "upgrade", 200)] {
        let request = Request::get(format!("{url}{path}")).header("connection", connection);
        let response = http().request(request.header("upgrade", "websocket").body(Body::empty())?).await?;
        assert_eq!(response.status().as_u16(), status);
        let body = to_bytes(Body::new(response.into_body()), usize::MAX).await?;
        assert!(body == "[307]" || status == 404, "{body:?}");
    }
    // An upgrade would take the connection from the pool, so its headers are not passed on.
    assert!(server.calls().iter().all(|call| !call.headers.contains_key("upgrade")));
    assert_eq!(server.seen(), ["GET /bus 0 200", "GET /no 0 404", "GET /bus 0 200"]);
    Ok(())
}
