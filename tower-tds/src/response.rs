//! The answer to a call: a success, with its body still to be read.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tower_tds_errors::Error;

use crate::ResponseBody;

/// The answer to a [`Call`](crate::Call): always a success (2xx or 304), or the 101 that was asked for.
///
/// Its request counts as in flight until the body has been read or dropped.
///
/// # Examples
/// ```no_run
/// # async fn run(client: tower_tds::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let mut timetable = client.get("/v1/historical/timetable").await?;
/// let mut file = std::fs::File::create("timetable")?;
/// while let Some(chunk) = timetable.chunk().await? {
///     std::io::Write::write_all(&mut file, &chunk)?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Response(http::Response<ResponseBody>);

// === impl Response ===

impl Response {
    /// The status: 2xx or 304.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.0.status()
    }

    /// The headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.0.headers()
    }

    /// The whole body, of up to 64 MiB. Larger ones are read by [`chunk`](Self::chunk).
    ///
    /// # Errors
    /// See [`ResponseBody`]; and [`Kind::InvalidRequest`](crate::Kind::InvalidRequest) if there is more.
    ///
    /// # Cancel safety
    /// What was read is lost.
    pub async fn bytes(self) -> Result<Bytes, Error> {
        self.0.into_body().bytes().await
    }

    /// The whole body as text, of up to 64 MiB; what is not UTF-8 in it is replaced.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    pub async fn text(self) -> Result<String, Error> {
        let bytes = self.bytes().await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The whole body as JSON, of up to 64 MiB.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes); and [`Kind::Malformed`](crate::Kind::Malformed) if it is not what `T` asks for.
    #[cfg(feature = "json")]
    #[cfg_attr(docsrs, doc(cfg(feature = "json")))]
    pub async fn json<T: serde::de::DeserializeOwned>(self) -> Result<T, Error> {
        let bytes = self.bytes().await?;
        serde_json::from_slice(&bytes).map_err(|error| {
            let error = Error::new(tower_tds_errors::Kind::Malformed, error)
                .with_sent(tower_tds_errors::Sent::Answered);
            error.with_advice("compare it with the type that it is read into")
        })
    }

    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// See [`ResponseBody`].
    ///
    /// # Cancel safety
    /// Nothing is lost: the next call gives what this one would have.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        self.0.body_mut().chunk().await
    }

    /// The response as the `http` crate has it.
    #[must_use]
    pub fn into_http(self) -> http::Response<ResponseBody> {
        self.0
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A server's headers may be secret, and long.
        f.debug_struct("Response")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

impl From<http::Response<ResponseBody>> for Response {
    fn from(response: http::Response<ResponseBody>) -> Self {
        Self(response)
    }
}
