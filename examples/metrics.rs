//! Metrics for Prometheus: what your dashboard sees, beside what the service saw.

#![expect(clippy::print_stdout, reason = "the output of a program")]

use std::error::Error;

use metrics_exporter_prometheus::PrometheusBuilder;
use tds_sim::{Config, Server};
use tower_tds::{Client, Credentials};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Install an exporter of the `metrics` facade before the first call: earlier ones are not
    // counted.
    let scrape = PrometheusBuilder::new().install_recorder()?;

    let mut config = Config::default();
    config.faults.data.push("503@every:4".parse()?);
    let server = Server::start(config).await?;
    let credentials = Credentials::new(server.client_id(), server.client_secret())?;
    let client = Client::builder(server.auth_url(), server.base_url(), credentials)
        // This becomes the label `client`, by which you distinguish several clients of one process.
        .name("timetable")
        .build()?;

    for line in 0..12 {
        client
            .get(format!("/v1/live/bus-{line}"))
            .await?
            .bytes()
            .await?;
    }
    if let Err(error) = client.get("/v1/no/such/line").await {
        println!("{error}");
    }

    // Counters are always current, but this call sets the gauges, such as the token's life. Make it
    // before each scrape.
    client.status().record();
    for line in scrape.render().lines() {
        let names = [
            "tds_calls_total",
            "tds_attempts_total",
            "tds_sockets",
            "tds_token",
        ];
        if names.iter().any(|name| line.starts_with(name)) {
            println!("{line}");
        }
    }

    // Attempts are what the service sees: a retry is one more attempt of the same call.
    let answers = server.ledger().summary().by_status;
    println!("the service answered {answers:?}");
    Ok(())
}
