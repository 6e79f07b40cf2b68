//! Reply bodies that arrive compressed. No token request asks for that, but proxies do it.

use http::{HeaderMap, header};
use zeroize::Zeroizing;

#[cfg(feature = "compression")]
use crate::request::LARGEST;
use crate::{TokenError, error::token::Kind};

type Whole = Zeroizing<Vec<u8>>;

/// Undoes what `Content-Encoding` says was done (RFC 9110, section 8.4), within the same bound on
/// bytes as the wire has: a small body may be a large one in disguise.
pub(crate) async fn decode(headers: &HeaderMap, wire: Whole) -> Result<Whole, TokenError> {
    let Some(coding) = headers.get(header::CONTENT_ENCODING) else {
        return Ok(wire);
    };
    let coding = coding.as_bytes().trim_ascii();
    if coding.is_empty() || coding.eq_ignore_ascii_case(b"identity") {
        return Ok(wire);
    }
    decompress(coding, &wire)
        .await
        .map_err(|reason| TokenError::new(Kind::Malformed(reason)))
}

#[cfg(feature = "compression")]
async fn decompress(coding: &[u8], wire: &[u8]) -> Result<Whole, &'static str> {
    use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder};
    use tokio::io::{AsyncRead, AsyncReadExt};

    let decoder: Box<dyn AsyncRead + Send + Unpin + '_> =
        if coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip") {
            Box::new(GzipDecoder::new(wire))
        } else if coding.eq_ignore_ascii_case(b"br") {
            Box::new(BrotliDecoder::new(wire))
        } else {
            return Err("its Content-Encoding is neither gzip nor br");
        };
    let room = LARGEST.saturating_add(1);
    let mut whole = Zeroizing::new(Vec::with_capacity(room));
    let mut bounded = decoder.take(u64::try_from(room).unwrap_or(u64::MAX));
    bounded
        .read_to_end(&mut whole)
        .await
        .map_err(|_| "it does not decompress")?;
    if whole.len() > LARGEST {
        return Err("it is larger than 64 KiB");
    }
    Ok(whole)
}

#[cfg(not(feature = "compression"))]
#[expect(
    clippy::unused_async,
    reason = "with the feature there is something to wait for"
)]
async fn decompress(_: &[u8], _: &[u8]) -> Result<Whole, &'static str> {
    Err("it is compressed: ask the proxy not to, or use the feature `compression`")
}
