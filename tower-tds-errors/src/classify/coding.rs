//! Undoes the codings of an error body, as its own headers and first bytes tell them.

use std::borrow::Cow;
use std::io::Read;

use brotli_decompressor::Decompressor;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// What came out of a body.
#[derive(Debug)]
pub(super) struct Decoded<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    /// The coding in which they still are: one that is not known here.
    pub(super) unread: Option<&'a str>,
}

/// One layer undone, and whether its end was reached.
enum Undone {
    Whole(Vec<u8>),
    Part(Vec<u8>),
}

// === impl Decoded ===

impl<'a> From<Cow<'a, [u8]>> for Decoded<'a> {
    fn from(bytes: Cow<'a, [u8]>) -> Self {
        Self {
            bytes,
            unread: None,
        }
    }
}

/// The body in plain bytes: what came out of it before it broke off or met [`MOST_DECODED`].
///
/// Servers declare codings that they did not apply and apply some that they do not declare, so
/// plain text under a coding stays as it is, and what begins like gzip is gzip. A coding that is
/// not known here is named: the status decides then. So is zstd: nothing here asks for it, and a
/// server sends what is asked for (RFC 9110, section 12.5.3), which is `br` and `gzip` at this
/// service.
pub(super) fn decoded<'a>(headers: &'a HeaderMap, body: &'a [u8]) -> Decoded<'a> {
    let mut plain = Cow::Borrowed(body);
    let declared = headers.get_all(CONTENT_ENCODING).iter();
    let declared = declared.filter_map(|value| value.to_str().ok());
    let mut declared: Vec<&str> = declared.flat_map(|value| value.split(',')).collect();
    // Applied in the order listed (RFC 9110, section 8.4), so undone from the last.
    declared.reverse();
    for (depth, coding) in declared.iter().map(|coding| coding.trim()).enumerate() {
        if coding.is_empty() || coding.eq_ignore_ascii_case("identity") {
            continue;
        }
        let undone = if depth < DEEPEST {
            undo(coding, &plain)
        } else {
            None
        };
        match undone {
            Some(Undone::Whole(bytes)) => plain = Cow::Owned(bytes),
            // Words that some decoder takes for a beginning are words.
            Some(Undone::Part(_)) if is_words(&plain) => return plain.into(),
            Some(Undone::Part(bytes)) => plain = Cow::Owned(bytes),
            None if is_words(&plain) => return plain.into(),
            None => {
                let unread = (!plain.is_empty()).then_some(coding);
                return Decoded {
                    bytes: plain,
                    unread,
                };
            }
        }
    }
    if plain.starts_with(GZIP) {
        let (Undone::Whole(bytes) | Undone::Part(bytes)) = read(MultiGzDecoder::new(&*plain));
        plain = Cow::Owned(bytes);
    }
    plain.into()
}

fn undo(coding: &str, body: &[u8]) -> Option<Undone> {
    let is = |names: &[&str]| names.iter().any(|name| coding.eq_ignore_ascii_case(name));
    if is(&["gzip", "x-gzip"]) {
        Some(read(MultiGzDecoder::new(body)))
    } else if is(&["br"]) {
        // The marker of windows up to 1 GiB, which RFC 7932 (section 9.1) does not know.
        let large = body
            .first()
            .is_some_and(|first| first & 0b111_1111 == 0b001_0001);
        (!large).then(|| read(Decompressor::new(body, CHUNK)))
    } else if is(&["deflate"]) {
        // zlib's format by the RFC, bare by habit (RFC 9110, section 8.4.1.2).
        Some(if is_zlib(body) {
            read(ZlibDecoder::new(body))
        } else {
            read(DeflateDecoder::new(body))
        })
    } else {
        None
    }
}

fn read(mut decoder: impl Read) -> Undone {
    let mut bytes = Vec::new();
    let mut chunk = [0; CHUNK];
    loop {
        let room = MOST_DECODED.saturating_sub(bytes.len()).min(CHUNK);
        let chunk = chunk.get_mut(..room).unwrap_or_default();
        if chunk.is_empty() {
            return Undone::Whole(bytes);
        }
        match decoder.read(chunk) {
            Ok(0) => return Undone::Whole(bytes),
            Ok(count) => bytes.extend_from_slice(chunk.get(..count).unwrap_or(chunk)),
            Err(_) => return Undone::Part(bytes),
        }
    }
}

/// Compression method 8, and the check of RFC 1950, section 2.2.
fn is_zlib(body: &[u8]) -> bool {
    let [method, flags, ..] = body else {
        return false;
    };
    method & 0xf == 8 && u16::from_be_bytes([*method, *flags]).checked_rem(31) == Some(0)
}

/// Whether a body is text although a coding is declared. The two bytes of a zlib header may be
/// letters, so shorter is none.
fn is_words(body: &[u8]) -> bool {
    let text = std::str::from_utf8(body);
    body.len() > 2
        && text.is_ok_and(|text| !text.contains(|c: char| c.is_control() && !c.is_whitespace()))
}

/// How a gzip file begins (RFC 1952, section 2.3.1).
const GZIP: &[u8] = b"\x1f\x8b";

/// Four times what is read of the wire, as text compresses; a bomb gives a thousand times.
pub(super) const MOST_DECODED: usize = 64 * 1024;

/// No gateway stacks more than two; each costs a pass over its bytes.
const DEEPEST: usize = 3;

/// An error page of the gateways fits into one.
const CHUNK: usize = 4 * 1024;

#[cfg(test)]
mod tests;
