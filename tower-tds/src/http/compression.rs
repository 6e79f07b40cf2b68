//! Compressed bodies (RFC 9110, section 8.4): the client allows them by two request headers, and
//! decodes them.

use std::{io, pin::Pin, sync::Arc};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder};
use futures_util::{TryFutureExt as _, TryStreamExt as _, future::ready, stream::once};
use http::{
    HeaderMap, HeaderValue, Method, Request, Response,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, RANGE},
};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, StreamBody};
use tokio::io::{AsyncBufReadExt as _, AsyncRead};
use tokio_util::io::{ReaderStream, StreamReader};
use tower::BoxError;
use tower_tds_errors::{Error, Kind};

use crate::http::http1::{AnyBody, Http};

/// Requests compressed bodies of an http client, and decodes them.
pub(crate) fn around<B: 'static>(http: Http<B>) -> Http<B> {
    Http(Arc::new(move |mut request| {
        let is_named = request_coded(&mut request);
        let response = (http.0)(request);
        Box::pin(response.map_ok(move |response| decoded(response, is_named)))
    }))
}

/// Adds the standard request header, and the one that the service defines. Returns whether the
/// request names its coding itself: then none is added.
fn request_coded<B>(request: &mut Request<B>) -> bool {
    // On other methods the header names the coding of the request's own body.
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let headers = request.headers_mut();
    let is_named =
        headers.contains_key(ACCEPT_ENCODING) || (reads && headers.contains_key(CONTENT_ENCODING));
    if !is_named {
        // RFC 9110, section 14.2: a range counts coded bytes, and a part of them cannot be decoded.
        let is_range = headers.contains_key(RANGE);
        let codings = HeaderValue::from_static(if is_range { "identity" } else { CODINGS });
        if reads && !is_range {
            headers.insert(CONTENT_ENCODING, codings.clone());
        }
        headers.insert(ACCEPT_ENCODING, codings);
    }
    is_named
}

/// Decodes a response. Where that is not possible, its body is an error, unless the request names
/// its coding.
fn decoded(mut response: Response<AnyBody>, is_named: bool) -> Response<AnyBody> {
    let coding = coding(response.headers());
    // The response to a HEAD has no body.
    if coding.is_empty() || response.body().is_end_stream() {
        return response;
    }
    match &*coding {
        "br" | "gzip" | "x-gzip" => {
            for header in [CONTENT_ENCODING, CONTENT_LENGTH] {
                response.headers_mut().remove(header);
            }
            response.map(|body| plain(body, coding == "br"))
        }
        _ if is_named => response,
        _ => response.map(|_| coded(&coding)),
    }
}

/// Returns a body that fails, in place of one that the client cannot decode.
fn coded(coding: &str) -> AnyBody {
    let coded = format!("the body is coded with {coding:?}, which was not requested");
    let error = Error::new(Kind::Malformed, coded).with_advice(
        "have the server send br, gzip or no coding, or set Accept-Encoding and decode it",
    );
    AnyBody::new(StreamBody::new(once(ready(Err(error.into())))))
}

/// Returns the coding of a body. Several ones, none of which was requested, are returned as a list.
fn coding(headers: &HeaderMap) -> String {
    let values = headers.get_all(CONTENT_ENCODING).iter();
    let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase());
    let all = values.collect::<Vec<_>>().join(",");
    let codings = all.split(',').map(str::trim);
    let codings = codings.filter(|coding| !matches!(*coding, "" | "identity"));
    codings.collect::<Vec<_>>().join(", ")
}

/// Decodes a body to its end, which is that of its last member (RFC 1952, section 2.2). An empty one
/// has none.
fn plain(body: AnyBody, is_brotli: bool) -> AnyBody {
    let coded = body.into_data_stream().map_err(io::Error::other);
    let mut coded = StreamReader::new(coded);
    let decoded = async move {
        let is_empty = coded.fill_buf().await?.is_empty();
        let plain: Pin<Box<dyn AsyncRead + Send + Sync>> = if is_empty {
            Box::pin(coded)
        } else if is_brotli {
            let mut brotli = BrotliDecoder::new(coded);
            // Otherwise what follows its end would not be read.
            brotli.multiple_members(true);
            Box::pin(brotli)
        } else {
            let mut gzip = GzipDecoder::new(coded);
            gzip.multiple_members(true);
            Box::pin(gzip)
        };
        io::Result::Ok(ReaderStream::with_capacity(plain, CHUNK))
    };
    let frames = decoded.try_flatten_stream().map_ok(Frame::data);
    AnyBody::new(StreamBody::new(frames.map_err(BoxError::from)))
}

/// Value of both headers, as the service documents it.
const CODINGS: &str = "br,gzip";

const CHUNK: usize = 8 * 1024;
