//! Compressed bodies (RFC 9110, section 8.4): the client allows them by two request headers, and
//! decodes them.

use std::{io, pin::Pin, sync::Arc};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder};
use bytes::BytesMut;
use futures_util::{
    TryFutureExt as _, TryStreamExt as _,
    future::ready,
    stream::{once, try_unfold},
};
use http::{
    HeaderMap, HeaderValue, Method, Request, Response,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, RANGE},
};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, StreamBody};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _};
use tokio_util::io::StreamReader;
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
    let codings = codings(response.headers());
    // The response to a HEAD has no body.
    if codings.is_empty() || response.body().is_end_stream() {
        return response;
    }
    let is_known = |coding: &&String| matches!(&***coding, "gzip" | "x-gzip" | "br");
    let unknown = codings.iter().find(|coding| !is_known(coding));
    if let Some(unknown) = unknown.or(codings.get(MOST_CODINGS)) {
        let unknown = unknown.clone();
        return if is_named {
            response
        } else {
            response.map(|_| coded(&unknown))
        };
    }
    for header in [CONTENT_ENCODING, CONTENT_LENGTH] {
        response.headers_mut().remove(header);
    }
    // The last coding was applied last, so it is decoded first.
    response.map(|body| {
        codings
            .iter()
            .rev()
            .fold(body, |body, coding| match &**coding {
                "br" => members(body, BrotliDecoder::new, BrotliDecoder::into_inner),
                _ => members(body, GzipDecoder::new, GzipDecoder::into_inner),
            })
    })
}

/// Returns a body that fails, in place of one that the client cannot decode.
fn coded(coding: &str) -> AnyBody {
    let coded = format!("the body is coded with {coding:?}, which was not requested");
    let error = Error::new(Kind::Malformed, coded).with_advice(
        "have the server send br, gzip or no coding, or set Accept-Encoding and decode it",
    );
    AnyBody::new(StreamBody::new(once(ready(Err(error.into())))))
}

/// Returns the codings of a body, in the order in which they were applied.
fn codings(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(CONTENT_ENCODING).iter();
    let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase());
    let all = values.collect::<Vec<_>>().join(",");
    let codings = all.split(',').map(str::trim);
    let codings = codings.filter(|coding| !matches!(*coding, "" | "identity"));
    codings.map(str::to_owned).collect()
}

type Coded = Pin<Box<dyn AsyncBufRead + Send + Sync>>;

/// Decodes the members of a body, one after the other (RFC 1952, section 2.2).
fn members<D>(body: AnyBody, decode: fn(Coded) -> D, rest: fn(D) -> Coded) -> AnyBody
where
    D: AsyncRead + Send + Sync + Unpin + 'static,
{
    let coded: Coded = Box::pin(StreamReader::new(
        body.into_data_stream().map_err(io::Error::other),
    ));
    // Between two members there is no decoder.
    let decoded = try_unfold(
        (Err(coded), BytesMut::new()),
        move |(mut place, mut buffer)| async move {
            loop {
                place = match place {
                    Err(mut coded) => match has_more(&mut coded).await? {
                        true => Ok(decode(coded)),
                        false => return Ok::<_, BoxError>(None),
                    },
                    Ok(mut decoder) => {
                        buffer.reserve(CHUNK);
                        if decoder.read_buf(&mut buffer).await? > 0 {
                            let data = Frame::data(buffer.split().freeze());
                            return Ok(Some((data, (Ok(decoder), buffer))));
                        }
                        Err(rest(decoder))
                    }
                };
            }
        },
    );
    AnyBody::new(StreamBody::new(decoded))
}

/// Skips zeros, which pad the end of some files. Returns whether anything follows.
async fn has_more(coded: &mut Coded) -> io::Result<bool> {
    loop {
        let data = coded.fill_buf().await?;
        let zeros = data.iter().take_while(|byte| **byte == 0).count();
        let (is_over, has_more) = (data.is_empty(), zeros < data.len());
        coded.consume(zeros);
        if is_over || has_more {
            return Ok(has_more);
        }
    }
}

/// Value of both headers, as the service documents it.
const CODINGS: &str = "br,gzip";

/// The decoder of each coding takes memory.
const MOST_CODINGS: usize = 4;

const CHUNK: usize = 8 * 1024;
