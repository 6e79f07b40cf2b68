//! Client over a service in place of the network, for your unit tests.

use std::{num::NonZeroU32, time::Duration};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use tower::{BoxError, service_fn};
use tower_oidc_cc::{Credentials, Origin, TokenEndpoint, TokenSource};
use tower_tds_errors::RetryLayer;
use tower_tds_limits::{Limiter, Limits, Quota};

use crate::{
    client::{
        base::Base,
        body::READ_TIMEOUT,
        request::{ReplayBytes, RequestBody},
        sender::{CallTracker, Sender, stack},
    },
    http::http1::Http,
    stack::TdsLayer,
};

/// Builds a sender with a fake token and without limits, over a client in place of the network.
pub(crate) fn fake(http: Http<RequestBody>) -> Result<Sender, BoxError> {
    let url = Uri::from_static("https://localhost");
    let origin = Origin::from_uri(&url)?;
    let token = service_fn(async |_: Request<Full<Bytes>>| {
        Ok::<_, BoxError>(Response::new(Full::<Bytes>::from(FAKE_TOKEN)))
    });
    let endpoint = TokenEndpoint::new(url.clone())?;
    let tokens = TokenSource::builder(endpoint, Credentials::new("fake", "fake")?).build(token);
    let quota = Quota::new(NonZeroU32::MAX, Duration::from_millis(1)).ok_or("no interval")?;
    let limiter = Limiter::new(Limits::new(quota).in_flight(NonZeroU32::MAX));
    let once = RetryLayer::new()
        .attempts(NonZeroU32::MIN)
        .replay(ReplayBytes);
    let layer = TdsLayer::new(tokens.clone(), [origin.clone()], limiter).retry(once);
    Ok(Sender {
        stack: stack(&layer, http),
        pool: None,
        name: None,
        base: Base::new(url)?,
        deadline: None,
        read_timeout: READ_TIMEOUT,
        calls: CallTracker::default(),
        tokens,
        origin,
        limiter: layer.limiter().clone(),
    })
}

/// Reply of the token endpoint of a fake.
const FAKE_TOKEN: &str = r#"{"access_token":"fake","token_type":"Bearer","expires_in":86400}"#;
