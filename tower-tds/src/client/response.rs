//! The response of a call: a success with its body.

use std::{fmt, ops::Deref};

use bytes::Bytes;
use http_body::Body as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tower_tds_errors::{Error, Kind, Sent};

use crate::client::body::ResponseBody;

/// The response of a [`Call`](crate::Call): a success (2xx or 304).
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
    /// Reads the whole body, up to 64 MiB. Read a larger body with [`chunk`](Self::chunk).
    ///
    /// # Errors
    /// See [`ResponseBody`], and [`Kind::InvalidRequest`](crate::Kind::InvalidRequest) if the body
    /// is larger.
    ///
    /// # Cancel safety
    /// The data read so far is lost.
    pub async fn bytes(self) -> Result<Bytes, Error> {
        let body = self.0.into_body();
        // A body with a larger announced length is not read at all.
        if body.size_hint().lower() > MOST {
            return Err(too_large());
        }
        let most = usize::try_from(MOST).unwrap_or(usize::MAX);
        match Limited::new(body, most).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
            Err(error) => Err(Error::from(error)),
        }
    }

    /// Reads the whole body as text, up to 64 MiB. Invalid UTF-8 is replaced.
    ///
    /// # Errors
    /// See [`bytes`](Self::bytes).
    pub async fn text(self) -> Result<String, Error> {
        let bytes = self.bytes().await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads the whole body as JSON, up to 64 MiB.
    ///
    /// # Errors
    /// See [`bytes`](Self::bytes), and [`Kind::Malformed`](crate::Kind::Malformed) if it does not
    /// deserialize into `T`.
    #[cfg(feature = "json")]
    #[cfg_attr(docsrs, doc(cfg(feature = "json")))]
    pub async fn json<T: serde::de::DeserializeOwned>(self) -> Result<T, Error> {
        let bytes = self.bytes().await?;
        serde_json::from_slice(&bytes).map_err(|error| {
            let error = Error::new(Kind::Malformed, error).with_sent(Sent::Answered);
            error.with_advice("compare the body with the type that it is deserialized into")
        })
    }

    /// Reads the next chunk of the body, or `None` at its end.
    ///
    /// # Errors
    /// See [`ResponseBody`].
    ///
    /// # Cancel safety
    /// No data is lost: the next call returns the chunk.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(frame) = self.0.body_mut().frame().await {
            // Trailers are skipped.
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Converts it into a response of the `http` crate.
    #[must_use]
    pub fn into_http(self) -> http::Response<ResponseBody> {
        self.0
    }
}

/// Gives access to status, headers and extensions of the [`http::Response`].
impl Deref for Response {
    type Target = http::Response<ResponseBody>;

    fn deref(&self) -> &Self::Target {
        &self.0
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

fn too_large() -> Error {
    let error = Error::new(Kind::InvalidRequest, TOO_LARGE).with_sent(Sent::Answered);
    error.with_advice("read it with `chunk`")
}

/// The most memory of a body that is read as a whole: more than any live response needs, and less
/// than a small container has.
const MOST: u64 = 64 << 20;

const TOO_LARGE: &str = "the body is larger than 64 MiB";
