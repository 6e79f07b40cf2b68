//! HTML pages in place of data: their first bytes, and their titles.

use http::HeaderMap;
use tower_tds_outcome::Secrets;

use crate::header;

/// Whether a response is an HTML page, such as a login, a captcha or a maintenance notice, whatever
/// its label. `None` if more of the body is needed.
pub(crate) fn is_page(headers: &HeaderMap, begin: &[u8]) -> Option<bool> {
    if TYPES.contains(&&*header::media(headers)) {
        return Some(true);
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
    if let Some(next) = agreeing.find_map(|tag| rest.get(tag.len())) {
        // Longer names are other elements.
        return Some(next.is_ascii_whitespace() || b"/>".contains(next));
    }
    let mut starts = tags.into_iter().chain(SKIPPED.map(|(start, _)| start));
    (!starts.any(agrees)).then_some(false)
}

/// Returns the title of a page, in one line and without secrets.
pub(crate) fn title(begin: &[u8], secrets: &Secrets) -> Option<String> {
    let text = String::from_utf8_lossy(begin);
    // Has the same length as the text, because only the case of ASCII letters changes.
    let lower = text.to_ascii_lowercase();
    let at = lower.find("<title")?;
    let from = at + lower.get(at..)?.find('>')? + 1;
    let to = from + lower.get(from..)?.find("</title")?;
    let title = text.get(from..to)?.replace(char::is_control, " ");
    let words: Vec<_> = title.split_whitespace().collect();
    let title = secrets.redact(&words.join(" "));
    Some(title.chars().take(80).collect())
}

pub(crate) const TYPES: [&str; 2] = ["text/html", "application/xhtml+xml"];

const SKIPPED: [(&[u8], &[u8]); 2] = [(b"<!--", b"-->"), (b"<?", b"?>")];

/// Byte-order mark of UTF-8.
const BOM: &[u8] = b"\xef\xbb\xbf";
