//! Reduces URLs and ids to their plain parts, and cuts texts.

use http::Uri;
use tower_tds_outcome::Secrets;

/// Returns the scheme, host, port and path of a URI. Segments of the path that are not plain are
/// hidden.
pub(crate) fn uri(uri: &Uri) -> Box<str> {
    let mut shown = String::new();
    if let Some(scheme) = uri.scheme_str() {
        shown.push_str(scheme);
        shown.push_str("://");
    }
    if let Some(authority) = uri.authority() {
        // User and password end at the last `@`.
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        let plain =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
        shown.push_str(if host.chars().all(plain) {
            host
        } else {
            HIDDEN
        });
    }
    for (n, segment) in uri.path().split('/').enumerate() {
        if n > 0 {
            shown.push('/');
        }
        shown.push_str(if is_plain(segment) { segment } else { HIDDEN });
    }
    shown.into_boxed_str()
}

/// Redacts a URI reference (RFC 3986, section 4.1). If it is invalid it is not shown, because it
/// may contain a secret.
pub(crate) fn reference(target: &str) -> Option<Box<str>> {
    if target.starts_with("//") {
        // Without a scheme the host would be parsed as a path.
        let whole = format!("http:{target}").parse().ok()?;
        return uri(&whole).strip_prefix("http:").map(Box::from);
    }
    target.parse().ok().as_ref().map(uri)
}

/// Returns an id, if it has the form of a gateway's: hexadecimal digits and hyphens.
pub(crate) fn id(value: &str) -> Option<Box<str>> {
    let plain = |c: u8| c.is_ascii_hexdigit() || c == b'-';
    let fits = (1..=LONGEST_ID).contains(&value.len()) && value.bytes().all(plain);
    fits.then(|| value.into())
}

/// Cuts a text to `most` characters, after a word if there is one, and marks the cut.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(most.saturating_sub(1)).collect();
    if let Some((words, _)) = cut.rsplit_once(char::is_whitespace) {
        cut.truncate(words.len());
    }
    if most > 0 {
        cut.push_str(HIDDEN);
    }
    cut
}

/// Whether a path segment may be shown: it is short, has letters and digits of any script, and does
/// not look random.
fn is_plain(segment: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '~' | '$');
    let is_short = segment.chars().count() <= LONGEST_SEGMENT;
    // The redactor escapes invisible letters, so a segment with one is not shown.
    let is_visible = || Secrets::default().line(segment) == segment;
    is_short && segment.chars().all(plain) && !is_random(segment) && is_visible()
}

/// Whether a word looks random, like a client secret of Keycloak (32 letters and digits).
fn is_random(run: &str) -> bool {
    let has = |class: fn(&u8) -> bool| run.as_bytes().iter().any(class);
    run.len() >= SHORTEST_RANDOM
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_digit)
}

/// Stands for a hidden segment of a path, and for the rest of a text that was cut.
const HIDDEN: &str = "…";

/// Names of resources are words. Longer segments may be keys.
const LONGEST_SEGMENT: usize = 24;

/// Fits a UUID, or two numbers of 32 digits.
const LONGEST_ID: usize = 64;

/// Secrets are not shorter: 16 random letters and digits have 95 bits.
const SHORTEST_RANDOM: usize = 16;
