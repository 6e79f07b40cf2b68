//! Client over a service in place of the network, for your unit tests.

use std::{future::ready, num::NonZeroU32, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::TryFutureExt as _;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use tower::{BoxError, ServiceExt as _};
use tower_oidc_cc::Credentials;
use tower_service::Service;
use tower_tds_errors::RetryLayer;
use tower_tds_limits::{Limits, Quota};

use crate::{
    client::{Client, request::RequestBody},
    http::{
        http1::{AnyBody, Http},
        pool::Pool,
        transport::Clients,
    },
};

// === impl Client ===

impl Client {
    /// Creates a client over `service`, without sockets, for unit tests.
    ///
    /// `service` receives the requests with a fake token and the base URL `https://localhost`. Its
    /// responses and errors are classified like those of the real service. Each call is one
    /// attempt, without limits.
    ///
    /// # Examples
    /// ```
    /// use http::{Request, Response, StatusCode};
    /// use http_body_util::Full;
    /// use tower_tds::{Client, Kind, RequestBody};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let fake = tower::service_fn(async |request: Request<RequestBody>| {
    ///     let mut response = Response::new(Full::<bytes::Bytes>::from("{}"));
    ///     if request.uri().path() != "/v1/live/bus" {
    ///         *response.status_mut() = StatusCode::NOT_FOUND;
    ///     }
    ///     Ok::<_, std::io::Error>(response)
    /// });
    /// let client = Client::from_service(fake);
    /// assert_eq!(client.get("/v1/live/bus").await?.text().await?, "{}");
    /// assert_eq!(client.get("/v1/none").await.unwrap_err().kind(), Kind::NotFound);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[expect(
        clippy::expect_used,
        clippy::missing_panics_doc,
        reason = "its settings are constants"
    )]
    pub fn from_service<S, B>(service: S) -> Self
    where
        S: Service<
                Request<RequestBody>,
                Response = Response<B>,
                Error: Into<BoxError>,
                Future: Send + 'static,
            > + Clone
            + Send
            + Sync
            + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Sync + 'static,
    {
        let data = Http(Arc::new(move |request| {
            let called = service.clone().oneshot(request).err_into();
            let boxed = |body: B| AnyBody::new(body.map_err(Into::into));
            Box::pin(called.map_ok(move |response| response.map(boxed)))
        }));
        let token = || AnyBody::new(Full::from(FAKE_TOKEN).map_err(Into::into));
        let clients = Clients {
            tokens: Http(Arc::new(move |_| {
                Box::pin(ready(Ok(Response::new(token()))))
            })),
            data,
            pool: Pool::new(false, false),
        };
        let fake = Credentials::new("fake", "fake").expect("they are ASCII");
        let quota = Quota::new(NonZeroU32::MAX, Duration::from_millis(1)).expect("an interval");
        let most = NonZeroU32::MAX;
        let mut builder = Self::builder("https://localhost", "https://localhost", fake)
            .limits(Limits::new(quota).in_flight(most).connections(most))
            .retry(RetryLayer::new().attempts(NonZeroU32::MIN));
        builder.clients = Some(Box::new(|_, _| clients));
        builder.build().expect("its settings are valid")
    }
}

/// Reply of the token endpoint of a fake.
const FAKE_TOKEN: &str = r#"{"access_token":"fake","token_type":"Bearer","expires_in":86400}"#;
