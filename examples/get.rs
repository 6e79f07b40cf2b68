//! For scripts and cron: writes one answer to the standard output; the exit code says what to do.
//!
//! ```text
//! cargo run --bin get -- /v1/live/bus > bus.json || echo "exit code $?"
//! ```
//!
//! Nothing is written unless the answer came whole, so that no error page is taken for data. The
//! exit codes are those of sysexits(3): 75 come back later, 77 somebody has to correct the key.

use std::{error::Error, process::ExitCode};

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use tds_examples::{Service, argument, causes, warn};
use tower::{BoxError, ServiceExt};
use tower_tds::RequestBody;

#[tokio::main]
async fn main() -> ExitCode {
    match get().await {
        Ok(data) => write(&data),
        Err(error) => {
            warn(&format!("get: {}", causes(&*error)));
            exit_code(&*error)
        }
    }
}

async fn get() -> Result<Bytes, BoxError> {
    let path = argument("get [PATH]")?.unwrap_or_else(|| "/v1/live/bus".to_owned());
    let service = Service::find().await?;
    let client = service.client()?.build()?;
    let request = Request::get(service.url(&path)?).body(RequestBody::default())?;
    let response = client.oneshot(request).await?;
    Ok(response.into_body().collect().await?.to_bytes())
}

fn exit_code(error: &(dyn Error + 'static)) -> ExitCode {
    let code = match tower_tds::Error::find(error) {
        Some(error) if error.is_retryable() => 75,
        Some(error) if error.is_auth() => 77,
        Some(_) | None => 1,
    };
    ExitCode::from(code)
}

fn write(data: &[u8]) -> ExitCode {
    use std::io::{Write, stdout};
    match stdout().write_all(data).and_then(|()| stdout().flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            warn(&format!("get: {error}"));
            ExitCode::FAILURE
        }
    }
}
