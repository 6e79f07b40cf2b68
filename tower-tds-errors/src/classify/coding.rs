//! Undoes the codings of an error body, as its own headers and first bytes tell them.

use std::borrow::Cow;
use std::io::Read;

use brotli_decompressor::Decompressor;
use flate2::read::MultiGzDecoder;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// What came out of a body.
#[derive(Debug)]
pub(super) struct Decoded<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    /// The coding in which they still are: one that is not known here.
    pub(super) unread: Option<&'a str>,
}

/// The body in plain bytes: what came out of it before it broke off or met [`MOST_DECODED`].
///
/// Servers declare codings that they did not apply and apply some that they do not declare, so
/// plain text under a coding stays as it is, and what begins like gzip is gzip. A coding that is
/// not known here is named: the status decides then. So are deflate and zstd: nothing here asks for
/// them, and a server sends what is asked for (RFC 9110, section 12.5.3), which is `br` and `gzip` at
/// this service.
pub(super) fn decoded<'a>(headers: &'a HeaderMap, body: &'a [u8]) -> Decoded<'a> {
    let mut plain = Cow::Borrowed(body);
    let declared = headers.get_all(CONTENT_ENCODING).iter();
    let declared = declared.filter_map(|value| value.to_str().ok());
    let mut declared: Vec<&str> = declared.flat_map(|value| value.split(',')).collect();
    // Applied in the order listed (RFC 9110, section 8.4), so undone from the last.
    declared.reverse();
    for (depth, coding) in declared.into_iter().map(str::trim).enumerate() {
        if coding.is_empty() || coding.eq_ignore_ascii_case("identity") {
            continue;
        }
        if is_words(&plain) {
            break;
        }
        let undone = undo(coding, &plain).filter(|_| depth < DEEPEST);
        let Some(undone) = undone else {
            let unread = (!plain.is_empty()).then_some(coding);
            return Decoded {
                bytes: plain,
                unread,
            };
        };
        plain = Cow::Owned(undone);
    }
    if plain.starts_with(GZIP) {
        plain = Cow::Owned(read(MultiGzDecoder::new(&*plain)));
    }
    Decoded {
        bytes: plain,
        unread: None,
    }
}

fn undo(coding: &str, body: &[u8]) -> Option<Vec<u8>> {
    if ["gzip", "x-gzip"]
        .iter()
        .any(|name| coding.eq_ignore_ascii_case(name))
    {
        return Some(read(MultiGzDecoder::new(body)));
    }
    // The marker of windows up to 1 GiB, which RFC 7932 (section 9.1) does not know.
    let large = body
        .first()
        .is_some_and(|first| first & 0b111_1111 == 0b001_0001);
    (coding.eq_ignore_ascii_case("br") && !large).then(|| read(Decompressor::new(body, CHUNK)))
}

/// What comes out before the end, a fault or the bound.
fn read(decoder: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    decoder.take(MOST_DECODED).read_to_end(&mut bytes).ok();
    bytes
}

/// Whether a body is text although a coding is declared: nothing that is coded looks like it. Nothing
/// at all in brotli is a semicolon, so what is shorter is none.
fn is_words(body: &[u8]) -> bool {
    let text = std::str::from_utf8(body);
    body.len() > 2
        && text.is_ok_and(|text| !text.contains(|c: char| c.is_control() && !c.is_whitespace()))
}

/// How a gzip file begins (RFC 1952, section 2.3.1).
const GZIP: &[u8] = b"\x1f\x8b";

/// Four times what is read of the wire, as text compresses; a bomb gives a thousand times.
pub(super) const MOST_DECODED: u64 = 64 * 1024;

/// No gateway stacks more than two; each costs a pass over its bytes.
const DEEPEST: usize = 3;

/// An error page of the gateways fits into it.
const CHUNK: usize = 4 * 1024;

#[cfg(test)]
mod tests;
