//! Makes text of the bytes of an error body.

use std::borrow::Cow;
use std::str;

use http::HeaderMap;

/// The text, or nothing for what is none. A character that the byte bound cut in two is left out.
///
/// UTF-8 is tried before what is declared: gateways declare for pages that they did not write.
pub(super) fn text<'a>(headers: &HeaderMap, bytes: &'a [u8]) -> Option<Cow<'a, str>> {
    let text = match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        _ => utf8(bytes)
            .map(Cow::Borrowed)
            .or_else(|| declared(headers, bytes))?,
    };
    // A NUL means UTF-16 that does not say so, or an archive.
    (!text.contains('\0')).then_some(text)
}

fn utf8(bytes: &[u8]) -> Option<&str> {
    let error = match str::from_utf8(bytes) {
        Ok(text) => return Some(text),
        Err(error) => error,
    };
    // Any fault but the end of the bytes means that this is no UTF-8.
    if error.error_len().is_some() {
        return None;
    }
    str::from_utf8(bytes.get(..error.valid_up_to())?).ok()
}

fn utf16<'a>(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Cow<'a, str> {
    let (pairs, _) = bytes.as_chunks::<2>();
    let units = pairs.iter().map(|pair| unit(*pair));
    char::decode_utf16(units).map_while(Result::ok).collect()
}

#[cfg(feature = "charset")]
fn declared<'a>(headers: &HeaderMap, bytes: &'a [u8]) -> Option<Cow<'a, str>> {
    let kind = headers.get(http::header::CONTENT_TYPE)?.to_str().ok()?;
    let mut parameters = kind.split(';').filter_map(|part| part.split_once('='));
    let (_, label) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))?;
    let label = label.trim().trim_matches('"');
    let encoding = encoding_rs::Encoding::for_label(label.as_bytes())?;
    let (text, _) = encoding.decode_without_bom_handling(bytes);
    Some(text)
}

#[cfg(not(feature = "charset"))]
const fn declared<'a>(_: &HeaderMap, _: &'a [u8]) -> Option<Cow<'a, str>> {
    None
}

#[cfg(test)]
mod tests;
