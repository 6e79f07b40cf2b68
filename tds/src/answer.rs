//! Whole responses: a 200 with data, without a content coding, with all of its body.

use std::{io, mem, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE},
};
use tokio::time::{Instant, sleep};
use tower_tds::{Call, Client, Error, Kind, Response, layers::errors::Sent};

use crate::ending::Trouble;

/// Media types that a job accepts. HTML pages are accepted only if they are named.
#[derive(Debug, Clone)]
pub(crate) struct Accept(HeaderValue);

/// Response that is no page, with the part of its body that was read to find that out.
#[derive(Debug)]
pub(crate) struct Data {
    begin: Bytes,
    response: Response,
}

// === impl Accept ===

impl Accept {
    /// Parses the value of an `Accept` header.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let value = HeaderValue::from_str(text.trim()).ok();
        let value = value.filter(|value| value.to_str().is_ok_and(|text| text.contains('/')));
        let value = value.map(Self);
        value.ok_or_else(|| "write media types, as in application/json".to_owned())
    }

    pub(crate) const fn any() -> Self {
        Self(HeaderValue::from_static("*/*"))
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    pub(crate) fn on(&self, call: Call) -> Call {
        call.header(ACCEPT, self.0.clone())
    }

    /// Requests data without a content coding. This needs a header, because without one any coding
    /// is allowed (RFC 9110, section 12.5.3).
    pub(crate) fn plain(&self, call: Call) -> Call {
        let identity = HeaderValue::from_static("identity");
        self.on(call).header(ACCEPT_ENCODING, identity)
    }

    /// Gets one response of data. If it is a page, requests it again, as the client does after a
    /// 503.
    pub(crate) async fn get(
        &self,
        client: &Client,
        target: &str,
        deadline: Duration,
    ) -> Result<Data, Trouble> {
        let begun = Instant::now();
        let mut pauses = [1, 2].map(Duration::from_secs).into_iter();
        loop {
            let left = deadline.saturating_sub(begun.elapsed());
            let mut response = self.plain(client.get(target)).deadline(left).await?;
            usable(&response, target)?;
            let trouble = match self.begin(&mut response, target).await {
                Ok(begin) => return Ok(Data { begin, response }),
                Err(trouble @ Trouble::Page(_)) => trouble,
                Err(trouble) => return Err(trouble),
            };
            match pauses.next().filter(|pause| *pause < left) {
                Some(pause) => sleep(pause).await,
                None => return Err(trouble),
            }
        }
    }

    /// Reads the whole body of a 200 for `target`.
    pub(crate) async fn whole(&self, response: Response, target: &str) -> Result<Bytes, Trouble> {
        usable(&response, target)?;
        let headers = response.headers().clone();
        let body = response.bytes().await?;
        self.check(&headers, &body)?;
        Ok(body)
    }

    /// Reads a body until it is clear whether it is a page, and returns what was read.
    pub(crate) async fn begin(
        &self,
        response: &mut Response,
        target: &str,
    ) -> Result<Bytes, Trouble> {
        let mut begin = BytesMut::new();
        let is_open = |headers: &HeaderMap, begin: &[u8]| match is_page(headers, begin) {
            Some(is_page) => is_page && title(begin).is_none(),
            None => true,
        };
        while !self.has_pages() && begin.len() < BEGIN && is_open(response.headers(), &begin) {
            let chunk = response.chunk().await;
            match chunk.map_err(|error| named(error, target))? {
                Some(data) => begin.extend_from_slice(&data),
                None => break,
            }
        }
        self.check(response.headers(), &begin)?;
        Ok(begin.freeze())
    }

    fn check(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), Trouble> {
        let begin = body.get(..BEGIN).unwrap_or(body);
        match is_page(headers, begin) {
            Some(true) if !self.has_pages() => Err(Trouble::Page(title(begin))),
            _ => Ok(()),
        }
    }

    fn has_pages(&self) -> bool {
        let types = self.as_str().to_ascii_lowercase();
        PAGES.iter().any(|page| types.contains(page))
    }
}

// === impl Data ===

impl Data {
    /// Reads the body to its end, passes it on in pieces, and returns its length.
    pub(crate) async fn copy(
        mut self,
        mut write: impl AsyncFnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, Trouble> {
        let mut length = 0;
        let mut next = Some(mem::take(&mut self.begin));
        while let Some(data) = next {
            write(&data).await?;
            length += data.len() as u64;
            next = self.response.chunk().await?;
        }
        Ok(length)
    }
}

/// Checks that a response is a 200 whose body can be read to a known end.
fn usable(response: &Response, target: &str) -> Result<(), Error> {
    let status = response.status();
    if status != StatusCode::OK {
        let other = format!("status {status} instead of 200");
        let other = refused(Kind::UnexpectedAnswer, &other, target);
        return Err(other.with_advice("check that the path is a data endpoint"));
    }
    if is_coded(response.headers()) {
        return Err(refused(Kind::Malformed, CODED, target));
    }
    Ok(())
}

/// Whether a response is an HTML page, such as a login, a captcha or a maintenance notice. `None`
/// if the header leaves that open and more of the body is needed.
pub(crate) fn is_page(headers: &HeaderMap, begin: &[u8]) -> Option<bool> {
    let media = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let media = media.unwrap_or_default().split(|byte| *byte == b';').next();
    let media = media.unwrap_or_default().trim_ascii();
    let is = |name: &str| media.eq_ignore_ascii_case(name.as_bytes());
    if PAGES.into_iter().any(is) {
        return Some(true);
    }
    if !["", "text/plain", "application/octet-stream"]
        .into_iter()
        .any(is)
    {
        return Some(false);
    }
    // In UTF-16 every other byte of an ASCII letter is zero.
    let begin: Vec<u8> = match begin {
        [0xff, 0xfe, rest @ ..] | [0xfe, 0xff, rest @ ..] => {
            rest.iter().copied().filter(|byte| *byte != 0).collect()
        }
        _ => begin.strip_prefix(BOM).unwrap_or(begin).to_vec(),
    };
    let mut rest = begin.trim_ascii_start();
    // Skips comments, and the declaration of XHTML.
    while let Some((_, end)) = SKIPPED.iter().find(|(start, _)| rest.starts_with(start)) {
        let at = rest.windows(end.len()).position(|bytes| bytes == *end)?;
        rest = rest.get(at + end.len()..)?.trim_ascii_start();
    }
    let agrees = |tag: &[u8]| {
        let mut pairs = rest.iter().zip(tag);
        pairs.all(|(byte, of_tag)| byte.eq_ignore_ascii_case(of_tag))
    };
    let tags = [&b"<!doctype html"[..], b"<html"];
    let mut agreeing = tags.into_iter().filter(|tag| agrees(tag));
    if agreeing.any(|tag| rest.len() >= tag.len()) {
        return Some(true);
    }
    let mut starts = tags.into_iter().chain(SKIPPED.map(|(start, _)| start));
    (!starts.any(agrees)).then_some(false)
}

/// Returns the title of a page, in one line.
pub(crate) fn title(begin: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(begin);
    // Has the same length as the text, because only the case of ASCII letters changes.
    let lower = text.to_ascii_lowercase();
    let at = lower.find("<title")?;
    let from = at + lower.get(at..)?.find('>')? + 1;
    let to = from + lower.get(from..)?.find("</title")?;
    let title = text.get(from..to)?.replace(char::is_control, " ");
    let words: Vec<_> = title.split_whitespace().collect();
    Some(words.join(" ").chars().take(80).collect())
}

/// Returns an error about an answered request.
pub(crate) fn refused(kind: Kind, what: &str, target: &str) -> Error {
    named(Error::new(kind, what).with_sent(Sent::Answered), target)
}

/// Whether the body still has a content coding, because the service ignored the request's header or
/// used two codings.
pub(crate) fn is_coded(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Adds the request to an error that does not name it.
pub(crate) fn named(error: Error, target: &str) -> Error {
    match target.parse() {
        Ok(uri) if error.uri().is_none() => error.with_request(Method::GET, &uri),
        Ok(_) | Err(_) => error,
    }
}

pub(crate) const CODED: &str = "the response has a content coding that was not requested";

const PAGES: [&str; 2] = ["text/html", "application/xhtml+xml"];

const SKIPPED: [(&[u8], &[u8]); 2] = [(b"<!--", b"-->"), (b"<?", b"?>")];

/// Byte-order mark of UTF-8.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// How much of a body is searched for the beginning of a page.
const BEGIN: usize = 16 * 1024;
