//! For feeds that are read for weeks: what has changed since, and no feed stops another.
//!
//! ```text
//! cargo run --bin poll -- 15
//! ```
//!
//! Every so many seconds (1 by default) each feed is asked for what is newer than its last answer.
//! Against the simulated service it ends after three rounds.

use std::{process::ExitCode, time::Duration};

use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::BodyExt;
use tds_examples::{Service, argument, causes, end, say, warn};
use tokio::{task::JoinSet, time};
use tower::{BoxError, ServiceExt};
use tower_tds::{Client, RequestBody};

const USAGE: &str = "poll [SECONDS], a whole number";

const FEEDS: [&str; 3] = ["/v1/live/bus", "/v1/live/metro", "/v1/live/rail"];

#[tokio::main]
async fn main() -> ExitCode {
    end(run().await)
}

async fn run() -> Result<(), BoxError> {
    let every = argument(USAGE)?.map_or(Ok(1), |text| text.parse::<u32>());
    let every = every.map_err(|_| format!("usage: {USAGE}"))?;
    let every = Duration::from_secs(every.max(1).into());
    let service = Service::find().await?;
    let client = service.client()?.build()?;
    let rounds = service.ledger().map_or(u64::MAX, |_| 3);
    let mut feeds = JoinSet::new();
    for feed in FEEDS {
        let (client, url) = (client.clone(), service.url(feed)?);
        feeds.spawn(async move {
            let (mut rounds_due, mut since) = (time::interval(every), None);
            // After an outage one round makes up for all that were missed.
            rounds_due.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
            for _ in 0..rounds {
                rounds_due.tick().await;
                match newer(&client, &url, &mut since).await {
                    Ok(Some(bytes)) => say(&format!("{feed}: {bytes} bytes\n"))?,
                    Ok(None) => say(&format!("{feed}: as before\n"))?,
                    Err(error) => warn(&format!("{feed}: {}; next round", causes(&*error))),
                }
            }
            Ok::<_, BoxError>(())
        });
    }
    feeds.join_all().await.into_iter().collect()
}

/// How large the feed is, if it has changed.
async fn newer(
    client: &Client,
    url: &Uri,
    since: &mut Option<HeaderValue>,
) -> Result<Option<usize>, BoxError> {
    let mut request = Request::get(url.clone()).body(RequestBody::default())?;
    let condition = since
        .clone()
        .map(|since| (header::IF_MODIFIED_SINCE, since));
    request.headers_mut().extend(condition);
    let response = client.clone().oneshot(request).await?;
    if response.status() == StatusCode::NOT_MODIFIED {
        return Ok(None);
    }
    let modified = response.headers().get(header::LAST_MODIFIED).cloned();
    let body = time::timeout(Duration::from_secs(60), response.into_body().collect()).await??;
    *since = modified; // not before the body is whole
    Ok(Some(body.to_bytes().len()))
}
