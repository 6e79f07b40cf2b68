//! Typed errors and retries alone, around hyper-util's client.

#![expect(clippy::print_stdout, reason = "the output of a program")]

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tds_sim::{Config, Server};
use tower::{BoxError, ServiceBuilder, ServiceExt};
use tower_tds_errors::{Attempt, ClassifyLayer, RetryLayer};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut config = Config::default();
    // For trams every second answer is a 503, and for the metro every answer.
    config
        .faults
        .data
        .push("503@every:2@/v1/live/tram".parse()?);
    config.faults.data.push("503@/v1/live/metro".parse()?);
    let server = Server::start(config).await?;
    let token = server.token(server.client_id())?;

    let service = ServiceBuilder::new()
        // Makes up to three attempts within two minutes; change that by `.attempts(n)`,
        // `.deadline(d)` and `.budget(b)`.
        .layer(RetryLayer::new())
        // Turns a response that is no success into an error, which the retry layer then reads.
        .layer(ClassifyLayer::new())
        .service(Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>());

    let calls = [
        ("/v1/live/tram", &*token),
        ("/v1/live/tram", &*token),
        ("/v1/live/metro", &*token),
        ("/v1/no/such/line", &*token),
        ("/v1/live/rail", "expired"),
    ];
    for (path, token) in calls {
        let request = Request::get(format!("{}{path}", server.base_url()))
            .header("authorization", format!("Bearer {token}"))
            .body(Empty::new())?;
        match service.clone().oneshot(request).await {
            Ok(response) => println!("{path}: attempt {}", Attempt::of(response.extensions())),
            // Let your code decide by the kind, and show the text to people, because it names the
            // next step.
            Err(error) => println!("{path}: {}, {error}", error.kind()),
        }
    }

    for call in server.ledger().arrivals() {
        let status = call.status.unwrap_or_default();
        println!("the service answered {} with {status}", call.target);
    }
    Ok(())
}
