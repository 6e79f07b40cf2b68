//! Any answer of a token endpoint, and of a discovery address, gives a token or an error without a panic. The error does not
//! contain the answer's token.
//!
//! Input: a byte whose lowest bit selects discovery, two bytes of status, the value of `Retry-After` as a line, then the body.

#![no_main]

use std::convert::Infallible;

use http::{HeaderValue, Request, Response, StatusCode, header::RETRY_AFTER};
use http_body_util::Full;
use libfuzzer_sys::fuzz_target;
use tokio::runtime::Builder;
use tower::service_fn;
use tower_oidc_cc::{Credentials, TokenEndpoint, TokenSource};

const CANARY: &str = "canary-of-a-token";

fuzz_target!(|input: &[u8]| {
    let &[kind, high, low, ref rest @ ..] = input else {
        return;
    };
    let status = 100 + u16::from_be_bytes([high, low]) % 900;
    let mut lines = rest.splitn(2, |byte| *byte == b'\n');
    let hint = lines
        .next()
        .and_then(|line| HeaderValue::from_bytes(line).ok());
    let body = lines.next().unwrap_or_default().to_vec();
    let answer = move |_: Request<Full<bytes::Bytes>>| {
        // Half of the inputs are a token that only its life can spoil.
        let body = match kind & 2 {
            0 => body.clone(),
            _ => [
                format!(r#"{{"access_token":"{CANARY}","token_type":"Bearer","expires_in":"#)
                    .as_bytes(),
                &body,
                b"}",
            ]
            .concat(),
        };
        let mut response = Response::new(Full::<bytes::Bytes>::from(body));
        *response.status_mut() = StatusCode::from_u16(status).expect("from 100 to 999");
        if let Some(hint) = &hint {
            response.headers_mut().insert(RETRY_AFTER, hint.clone());
        }
        std::future::ready(Ok::<_, Infallible>(response))
    };
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(async {
        let endpoint = match kind & 1 {
            0 => TokenEndpoint::keycloak("https://auth.example.org", "realm"),
            _ => TokenEndpoint::discover("https://auth.example.org/realms/realm"),
        };
        let credentials = Credentials::new("id", CANARY).expect("usable");
        let source =
            TokenSource::builder(endpoint.expect("https"), credentials).build(service_fn(answer));
        let shown = match source.token().await {
            Ok(token) => format!("{token:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        let shown = format!("{shown} {source:?} {:?}", source.health());
        assert!(!shown.contains(CANARY), "{shown}");
    });
});
