//! Your own code over the client, and its unit tests, with a fake in place of the service.
//!
//! Run the program against the simulator like the other examples. Its tests need neither sockets nor a simulator:
//! `cargo test -p tds-examples --example unit_test`.

#![expect(clippy::print_stdout, reason = "the output of a program")]

use std::error::Error;

use tds_sim::{Config, Server};
use tower_tds::{Client, Credentials, Kind};

/// The code under test. It treats a line that does not exist as no failure.
async fn bus(client: &Client, line: &str) -> Result<Option<String>, tower_tds::Error> {
    match client.get(format!("/v1/live/{line}")).await {
        Ok(bus) => bus.text().await.map(Some),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start(Config::default()).await?;
    let credentials = Credentials::new(server.client_id(), server.client_secret())?;
    let client = Client::builder(server.auth_url(), server.base_url(), credentials).build()?;
    for line in ["307", "no/such/line"] {
        let found = bus(&client, line).await?.is_some();
        println!("{line}: {}", if found { "a bus" } else { "no bus" });
    }
    let statuses = server.ledger().summary().by_status;
    println!("the service answered {statuses:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use tower::service_fn;
    use tower_tds::{Client, Kind, RequestBody};

    /// A client whose service answers each request for `line` with this status.
    fn client(line: &'static str, status: u16) -> Client {
        // The client reads the fake's response as it reads a real one, and turns it into a success
        // or an error.
        Client::from_service(service_fn(
            move |request: Request<RequestBody>| async move {
                assert_eq!(request.uri().path(), format!("/v1/live/{line}"));
                Response::builder()
                    .status(status)
                    .body(Full::<Bytes>::from("{}"))
            },
        ))
    }

    #[tokio::test]
    async fn missing_line_is_none_and_an_outage_is_an_error() {
        assert_eq!(
            super::bus(&client("307", 200), "307").await.unwrap(),
            Some("{}".to_owned())
        );
        assert_eq!(super::bus(&client("9", 404), "9").await.unwrap(), None);
        let outage = super::bus(&client("307", 503), "307").await.unwrap_err();
        assert_eq!(outage.kind(), Kind::Unavailable);
    }
}
