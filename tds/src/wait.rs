//! Waits of a job, and their lines on the standard error.

use std::{pin::pin, time::Duration};

use tokio::time::timeout;
use tower_tds::Client;

use crate::{exit::plain, output::note};

/// Awaits `work`. If that takes long, prints what it waits for, after two seconds and then ever more
/// rarely.
pub(crate) async fn patiently<T>(
    work: impl Future<Output = T>,
    waits_for: impl Fn() -> String,
) -> T {
    let (mut work, mut next) = (pin!(work), SOON);
    loop {
        if let Ok(done) = timeout(next, &mut work).await {
            return done;
        }
        note(&format!("waiting for {}", waits_for()));
        next *= 2;
    }
}

/// Describes the token that a job waits for, by its endpoint and the last failure.
pub(crate) fn token_of(client: &Client) -> String {
    let health = client.tokens().health();
    let last = health.last_error.as_ref();
    let last = last.map(|error| format!(" ({})", plain(&error.to_string())));
    let last = last.unwrap_or_default();
    format!("a token from {}{last}", health.endpoint)
}

/// Describes what a job of one request waits for, which had `granted` permits before.
pub(crate) fn response_of(client: &Client, granted: u64) -> String {
    let status = client.status();
    if !status.token.is_ready() {
        return token_of(client);
    }
    let cause = match (status.limits.in_flight, status.limits.granted > granted) {
        (1.., _) => "the response",
        (0, true) => "another attempt, because there is no data yet",
        (0, false) => "its turn, because all runs on this machine share --rate",
    };
    status.waits_for().unwrap_or_else(|| cause.to_owned())
}

const SOON: Duration = Duration::from_secs(2);
