//! The admin listener: the ledger to read, and the controls to change what happens next.

use http::{HeaderValue, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde::Serialize;

use crate::{body::Body, error::Error, server::controls, sim::Sim};

/// Answers `GET /ledger`, `GET /summary`, `GET /` and the controls.
pub(super) async fn answer(sim: Sim, request: Request<Incoming>) -> Result<Response<Body>, Error> {
    let (head, body) = request.into_parts();
    if head.method == Method::GET {
        return Ok(match head.uri.path() {
            "/ledger" => json(&sim.ledger().full()),
            "/summary" => json(&sim.ledger().summary()),
            "/" => text(StatusCode::OK, controls::help()),
            path => text(
                StatusCode::NOT_FOUND,
                format!("no {path}; GET / lists what there is\n"),
            ),
        });
    }
    let form = Limited::new(body, FORM_MOST)
        .collect()
        .await
        .map_err(Error::request)?
        .to_bytes();
    let fields: Vec<(String, String)> = form_urlencoded::parse(&form).into_owned().collect();
    Ok(match controls::apply(&sim, head.uri.path(), &fields) {
        Ok(done) => text(StatusCode::OK, done),
        Err(refused) => text(StatusCode::BAD_REQUEST, refused),
    })
}

fn json(value: &impl Serialize) -> Response<Body> {
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    text.push(b'\n');
    let mut response = Response::new(Body::whole(text));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn text(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::whole(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// The longest form that is read.
const FORM_MOST: usize = 64 * 1024;
