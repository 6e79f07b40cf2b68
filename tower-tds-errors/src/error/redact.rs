//! Redaction of URLs, ids and server texts. A list of what may be shown, not a guess at what must
//! not: a secret looks like anything.

use http::Uri;

/// Scheme, host, port and path, of which each segment is shown only if it is plain.
pub(crate) fn uri(uri: &Uri) -> Box<str> {
    let mut shown = String::new();
    if let Some(scheme) = uri.scheme_str() {
        shown.push_str(scheme);
        shown.push_str("://");
    }
    if let Some(authority) = uri.authority() {
        // The part after the last `@`: user and password stand before it.
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

/// Host, and port if it is not the usual one, by which two URIs lead to the same server. What a
/// relative one leaves out is `base`'s.
pub(crate) fn server(uri: &Uri, base: &Uri) -> (String, Option<u16>) {
    // `//host/path` has no scheme, and no authority to `Uri`.
    let named = uri.path().strip_prefix("//");
    let named = named.and_then(|rest| rest.split('/').next()?.parse().ok());
    let named: Option<http::uri::Authority> = named;
    let authority = uri.authority().or(named.as_ref()).or(base.authority());
    let scheme = uri.scheme_str().or(base.scheme_str()).unwrap_or_default();
    let usual = if scheme == "https" { 443 } else { 80 };
    let port = authority.and_then(|authority| authority.port_u16());
    let host = authority.map_or("", |authority| authority.host());
    (
        host.to_ascii_lowercase(),
        port.filter(|port| *port != usual),
    )
}

/// An id of hexadecimal digits, as gateways draw them.
pub(crate) fn id(value: &str) -> Option<Box<str>> {
    let plain = |c: u8| c.is_ascii_hexdigit() || c == b'-';
    let fits = (1..=LONGEST_ID).contains(&value.len()) && value.bytes().all(plain);
    fits.then(|| value.into())
}

/// The words of a service or of a cause with secrets taken out, escaped and cut.
pub(crate) fn shown(text: &str) -> Option<Box<str>> {
    let text = text.trim();
    (!text.is_empty()).then(|| escaped(&scrubbed(text)))
}

/// `text` cut to `most` characters, with a sign that it was.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(most.saturating_sub(1)).collect();
    if most > 0 {
        cut.push_str(HIDDEN);
    }
    cut
}

/// `text` with all that reorders or hides in a terminal escaped, cut to [`LONGEST`] characters.
pub(crate) fn escaped(text: &str) -> Box<str> {
    let mut shown = String::new();
    let mut length: usize = 0;
    for c in text.chars() {
        let start = shown.len();
        let wide = if is_hidden(c) {
            shown.extend(c.escape_default());
            shown.len().saturating_sub(start)
        } else {
            shown.push(c);
            1
        };
        length = length.saturating_add(wide);
        if length > LONGEST {
            shown.truncate(start);
            break;
        }
    }
    shown.into_boxed_str()
}

/// Takes out what a server may have echoed: what follows the name of a scheme or of a secret, the
/// path and query of URLs, and long runs.
fn scrubbed(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut secret_next = false;
    let mut key_before = false;
    let mut secret_line = false;
    for word in text.split_inclusive(char::is_whitespace) {
        let body = word.trim_end();
        let space = word.get(body.len()..).unwrap_or_default();
        let name = body.trim_matches(|c: char| c.is_ascii_punctuation());
        let name = name.to_ascii_lowercase();
        let scheme = SCHEMES.contains(&&*name);
        let names = scheme || SECRETS.contains(&&*name);
        let sign = matches!(body, "=" | ":" | "=>" | "->");
        let told = secret_next && !body.is_empty() && !names && !sign;
        if told || (secret_line && !body.is_empty()) {
            kept.push_str(REDACTED);
        } else {
            scrub_word(body, &mut kept);
        }
        kept.push_str(space);
        // `token: …`, `client_secret is …`, and the sign that stands alone.
        let joins = sign || matches!(body, "" | "is" | "was" | "set" | "to");
        let key = is_key(&name);
        let opens = (key && body.ends_with([':', '='])) || (key_before && sign);
        key_before = key || (key_before && body.is_empty());
        // `Authorization:Bearer …`, in whatever quotes.
        let last = body.rsplit(|c: char| !c.is_ascii_alphanumeric());
        let scheme_last = last.into_iter().find(|part| !part.is_empty());
        let scheme_last = scheme_last
            .is_some_and(|last| SCHEMES.iter().any(|name| last.eq_ignore_ascii_case(name)));
        secret_next = names || opens || scheme_last || (secret_next && joins);
        // A cookie's line has as many as it likes.
        let cookies = name.rsplit(|c: char| !c.is_ascii_alphanumeric()).next() == Some("cookie");
        secret_line =
            (secret_line || (cookies && body.ends_with([':', '=']))) && !space.contains('\n');
    }
    kept
}

fn scrub_word(word: &str, kept: &mut String) {
    // The parser of URIs knows where the host ends; quotes and brackets around are no part of it.
    if let Some((before, rest)) = word.split_once("://") {
        let opens = |c: char| !c.is_ascii_alphanumeric();
        let at = before.rfind(opens).map_or(0, |at| at.saturating_add(1));
        let (before, scheme) = before.split_at_checked(at).unwrap_or(("", before));
        let end = rest.find(['"', '\'', '>', ')', ']', ',']);
        let (address, after) = rest.split_at(end.unwrap_or(rest.len()));
        let parsed = format!("{scheme}://{address}").parse::<Uri>();
        scrub_word(before, kept);
        kept.push_str(&parsed.map_or_else(|_| REDACTED.into(), |parsed| uri(&parsed)));
        // A comma is a sign of addresses, too: what stands right behind it may be the query.
        let goes_on = after.len() > 1 && after.contains(['?', '&', '=']) && !after.contains("://");
        if goes_on && after.starts_with([',', '\'', ')']) {
            kept.push_str(REDACTED);
        } else {
            scrub_word(after, kept);
        }
        return;
    }
    let lower = word.to_ascii_lowercase();
    // What is encoded outside of an address may be anything.
    if ["%3d", "%3a", "%3f", "%2f"]
        .iter()
        .any(|sign| lower.contains(sign))
    {
        kept.push_str(REDACTED);
        return;
    }
    let query = word
        .find('?')
        .filter(|at| word.get(..*at).is_some_and(|path| path.contains('/')));
    let valued = |name: &&str| {
        lower.match_indices(*name).find_map(|(at, _)| {
            let end = at.saturating_add(name.len());
            let value = lower.get(end..)?.trim_start_matches(['"', '\'', '\\']);
            let told = !value
                .trim_start_matches(['=', ':', '"', '\'', '\\'])
                .is_empty();
            (value.starts_with(['=', ':']) && told).then_some(end)
        })
    };
    let names = KEYS.iter().chain(&SECRETS).chain(&SCHEMES);
    let form = names.filter_map(valued).min();
    let cut = query.into_iter().chain(form).min().unwrap_or(word.len());
    let (clear, secret) = word.split_at_checked(cut).unwrap_or((word, ""));
    let matrix = clear.contains('/') && clear.contains(';');
    for run in clear.split_inclusive(|c| !is_token(c)) {
        if matrix || run.len() > LONGEST_RUN || run.starts_with("eyJ") || is_drawn(run) {
            kept.push_str(REDACTED);
            kept.extend(run.chars().next_back().filter(|c| !is_token(*c)));
        } else {
            kept.push_str(run);
        }
    }
    if !secret.is_empty() {
        kept.push_str(REDACTED);
    }
}

/// Whether what has this name is a secret: by the end of it, however its words are joined.
fn is_key(name: &str) -> bool {
    // A path is a place, whatever it ends by.
    let mut keys = KEYS.iter().chain(&SECRETS);
    !name.contains('/') && keys.any(|key| name.ends_with(key))
}

/// Whether a segment of a path may be shown: short, of letters and digits, and not drawn.
fn is_plain(segment: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'~' | b'$');
    segment.len() <= LONGEST_SEGMENT && segment.bytes().all(plain) && !is_drawn(segment)
}

/// Whether somebody drew it from all letters and digits, as a Keycloak does its secrets of 32.
fn is_drawn(run: &str) -> bool {
    let has = |class: fn(&u8) -> bool| run.as_bytes().iter().any(class);
    run.len() >= SHORTEST_DRAWN
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_digit)
}

/// The characters of base64url and of JWTs.
fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~' | '+' | '=')
}

/// Control characters, and what reorders or hides text in a terminal: Unicode's bidirectional
/// controls, its default-ignorable characters, tags and selectors.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

const REDACTED: &str = "[redacted]";

/// In a path, and where a text was cut.
const HIDDEN: &str = "…";

/// What a log line and a terminal bear; the longest text known of the service has 83 characters.
pub(crate) const LONGEST: usize = 200;

/// Longer runs without a break are tokens or keys: a UUID has 36 characters.
const LONGEST_RUN: usize = 40;

/// Names of resources are words; what is longer may be a key.
const LONGEST_SEGMENT: usize = 24;

/// A UUID, or twice 32 digits.
const LONGEST_ID: usize = 64;

/// Drawn ones that are shorter are no secrets that a service should give out: 16 have 95 bits.
const SHORTEST_DRAWN: usize = 16;

/// The registry of RFC 9110, section 16.4.1, as of 2026. Written in any case.
const SCHEMES: [&str; 16] = [
    "basic",
    "bearer",
    "concealed",
    "digest",
    "dpop",
    "gnap",
    "hoba",
    "mutual",
    "negotiate",
    "ntlm",
    "oauth",
    "privatetoken",
    "scram-sha-1",
    "scram-sha-256",
    "vapid",
    "aws4-hmac-sha256",
];

/// Names after which the next word is a secret, whatever stands in between.
const SECRETS: [&str; 12] = [
    "authorization",
    "client_secret",
    "access_token",
    "refresh_token",
    "id_token",
    "client_assertion",
    "password",
    "api_key",
    "api-key",
    "x-api-key",
    "apikey",
    "cookie",
];

/// Names whose value is a secret, where one is given to them by `=` or `:`.
const KEYS: [&str; 12] = [
    "secret",
    "token",
    "passwd",
    "pwd",
    "key",
    "code",
    "session",
    "sid",
    "signature",
    "sig",
    "credential",
    "assertion",
];

#[cfg(test)]
mod tests;
