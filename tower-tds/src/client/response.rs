//! A success with its body, as a call returns it.

use std::fmt;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tower_tds_errors::{Error, Kind, Sent};
use tower_tds_outcome::unmarked;

use crate::client::body::ResponseBody;

/// The response of a [`Call`](crate::Call): a success (2xx or 304).
///
/// Its request counts as in flight until the body has been read or dropped. So read or drop the bodies of earlier
/// responses: if you await 60 heads together and only then read, for example by `join_all`, the next call waits in vain.
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
    /// Returns the status: 2xx or 304.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.0.status()
    }

    /// Returns the headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.0.headers()
    }

    /// Reads the whole body, up to 64 MiB. Read a larger body with [`chunk`](Self::chunk).
    ///
    /// # Errors
    /// See [`ResponseBody`], and [`Kind::TooLarge`](crate::Kind::TooLarge) if the body is larger.
    ///
    /// # Cancel safety
    /// The data read so far is lost.
    pub async fn bytes(mut self) -> Result<Bytes, Error> {
        self.whole().await
    }

    async fn whole(&mut self) -> Result<Bytes, Error> {
        // If the announced length is larger, nothing is read at all.
        let announced = self.0.body().size_hint().lower();
        let announced = usize::try_from(announced).unwrap_or(usize::MAX);
        if announced > MOST {
            return Err(self.too_large());
        }
        let first = self.chunk().await?.unwrap_or_default();
        let mut next = self.chunk().await?;
        // Most bodies are one chunk, which is not copied.
        if next.is_none() {
            return Ok(first);
        }
        let mut whole = BytesMut::with_capacity(announced);
        whole.extend_from_slice(&first);
        while let Some(chunk) = next {
            if whole.len() + chunk.len() > MOST {
                return Err(self.too_large());
            }
            whole.extend_from_slice(&chunk);
            next = self.chunk().await?;
        }
        Ok(whole.freeze())
    }

    /// Reads the whole body as text, up to 64 MiB, without its byte-order mark. Invalid bytes are
    /// replaced.
    ///
    /// Decodes UTF-8, or with the feature `charset` the charset that the `Content-Type` names.
    ///
    /// # Errors
    /// See [`bytes`](Self::bytes), and [`Kind::Malformed`](crate::Kind::Malformed) if the charset
    /// is unknown, or is not UTF-8 while the feature `charset` is off. Plain ASCII is returned in
    /// any case.
    pub async fn text(mut self) -> Result<String, Error> {
        let charset = charset(self.0.headers());
        let bytes = self.whole().await?;
        let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r');
        match charset {
            Some(charset) if !bytes.iter().all(is_plain) => {
                decode(&charset, &bytes).map_err(|error| self.0.body().named(error))
            }
            _ => Ok(String::from_utf8_lossy(unmarked(&bytes)).into_owned()),
        }
    }

    /// Reads the whole body as JSON, up to 64 MiB.
    ///
    /// # Errors
    /// See [`bytes`](Self::bytes), and [`Kind::Malformed`](crate::Kind::Malformed) if it does not
    /// deserialize into `T`.
    #[cfg(feature = "json")]
    #[cfg_attr(docsrs, doc(cfg(feature = "json")))]
    pub async fn json<T: serde::de::DeserializeOwned>(mut self) -> Result<T, Error> {
        let bytes = self.whole().await?;
        let body = self.0.body();
        serde_json::from_slice(unmarked(&bytes)).map_err(|error| {
            let error = Error::new(Kind::Malformed, body.redacted(&error));
            let next = "compare the body with the type that it is deserialized into";
            body.named(error.with_sent(Sent::Answered).with_advice(next))
        })
    }

    fn too_large(&self) -> Error {
        let error = Error::new(Kind::TooLarge, "it has more than 64 MiB");
        self.0.body().named(error)
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

    /// Returns the number of bytes that are left of the body, if the server announced its length.
    ///
    /// Returns `None` for a compressed body that the client decodes.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.0.body().size_hint().exact()
    }

    /// Converts this into a response of the `http` crate, for example for a proxy or a reader of bodies.
    /// Its extensions have the [number of the attempt](crate::layers::errors::Attempt).
    #[must_use]
    pub fn into_http(self) -> http::Response<ResponseBody> {
        self.0
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers of a server may be secret, and long.
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

/// Returns the charset of a text, unless it is UTF-8.
fn charset(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let named = kind.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_charset = name.trim().eq_ignore_ascii_case("charset");
        is_charset.then(|| value.trim().trim_matches('"').to_ascii_lowercase())
    });
    named.filter(|name| !matches!(&**name, "" | "utf-8" | "utf8" | "us-ascii"))
}

#[cfg(feature = "charset")]
fn decode(charset: &str, bytes: &[u8]) -> Result<String, Error> {
    let encoding = encoding_rs::Encoding::for_label(charset.as_bytes());
    let encoding =
        encoding.ok_or_else(|| unreadable(charset, "read the body with `bytes`, and decode it"))?;
    // `decode` follows a byte-order mark rather than the label.
    Ok(encoding.decode(bytes).0.into_owned())
}

#[cfg(not(feature = "charset"))]
fn decode(charset: &str, _: &[u8]) -> Result<String, Error> {
    Err(unreadable(
        charset,
        "turn on the feature `charset` of tower-tds, or read the body with `bytes`",
    ))
}

fn unreadable(charset: &str, next: &'static str) -> Error {
    let text = format!("the text has the charset {charset:?}");
    let error = Error::new(Kind::Malformed, text).with_sent(Sent::Answered);
    error.with_advice(next)
}

/// Most memory of a body that is read as a whole: more than any live response needs, and less than
/// a small container has.
const MOST: usize = 64 << 20;
