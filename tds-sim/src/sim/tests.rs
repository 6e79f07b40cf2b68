//! The simulator without a socket: limits, faults and the ledger under a paused clock.

use http::{Request, Response};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use crate::{Body, Config, Error, Sim};

mod faults;
mod limits;
mod permissions;

fn get(path: &str, token: &str) -> Request<String> {
    let request = Request::get(path).header("authorization", format!("Bearer {token}"));
    request.body(String::new()).unwrap()
}

async fn answer(sim: &Sim, request: Request<String>) -> Result<Response<Body>, Error> {
    sim.clone().oneshot(request).await
}

async fn status(sim: &Sim, request: Request<String>) -> u16 {
    answer(sim, request).await.unwrap().status().as_u16()
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn with_token(change: impl FnOnce(&mut Config)) -> (Sim, String) {
    let mut config = Config::default();
    change(&mut config);
    let sim = Sim::new(config);
    let token = sim.token(sim.client_id()).unwrap();
    (sim, token)
}
