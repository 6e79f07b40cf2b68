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

/// The same of a reference (RFC 3986, section 4.1). What is none may be anything, a secret too.
pub(crate) fn reference(target: &str) -> Option<Box<str>> {
    if target.starts_with("//") {
        // A host without its scheme, which would be read as a path.
        let whole = format!("http:{target}").parse().ok()?;
        return uri(&whole).strip_prefix("http:").map(Box::from);
    }
    target.parse().ok().as_ref().map(uri)
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

/// What the run of letters before means for the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// It names what is a secret if a value is given to it, by `=` or `:`.
    Name,
    /// It names a secret, which follows.
    Secret,
}

/// Takes out what a server may have echoed: what follows the name of a scheme or of a secret, the
/// path and query of URLs, and long runs.
fn scrubbed(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut before = Before::Nothing;
    // Whether there is a slash in the word so far: what follows a `?` or a `;` is then a query.
    let mut is_path = false;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| !is_token(c)).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end.max(first.len_utf8()));
        rest = after;
        if end == 0 {
            kept.push(first);
            is_path = !first.is_whitespace() && (is_path || first == '/');
            if before == Before::Name && matches!(first, '=' | ':') {
                before = Before::Secret;
            }
            if is_path && matches!(first, '?' | ';') {
                rest = hide(rest, char::is_whitespace, &mut kept);
            }
            continue;
        }
        let name = run.trim_matches(|c: char| c.is_ascii_punctuation());
        let name = name.to_ascii_lowercase();
        let ends = |names: &str| names.split(' ').any(|known| name.ends_with(known));
        let opens = SCHEMES.split(' ').any(|known| name == known) || ends(SECRETS);
        // `client_secret is …`, and the sign that stands alone.
        let joins = ["", "is", "was", "set", "to"].contains(&&*name);
        if before == Before::Secret && !opens && !joins {
            rest = hide(rest, char::is_whitespace, &mut kept);
            before = Before::Nothing;
        } else if rest.starts_with("://") {
            rest = address(run, rest, &mut kept);
            before = Before::Nothing;
        } else if !opens && is_drawn_or_long(run) {
            kept.push_str(REDACTED);
        } else {
            kept.push_str(run);
            if name.ends_with("cookie") && rest.starts_with([':', '=']) {
                // It has as many as it likes.
                rest = hide(rest, |c| c == '\n', &mut kept);
            } else if opens {
                before = Before::Secret;
            } else if !joins {
                let is_name = !is_path && ends(KEYS);
                before = if is_name {
                    Before::Name
                } else {
                    Before::Nothing
                };
            }
        }
    }
    kept
}

/// Puts down that something was taken out, and goes on where it ends.
fn hide<'a>(text: &'a str, ends: fn(char) -> bool, kept: &mut String) -> &'a str {
    kept.push_str(REDACTED);
    let end = text.find(ends).unwrap_or(text.len());
    text.split_at(end).1
}

/// Puts down an address, as far as it may be shown, and goes on where it ends.
fn address<'a>(scheme: &str, rest: &'a str, kept: &mut String) -> &'a str {
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '<' | '>');
    let (word, _) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
    // What it is put in, and what the sentence goes on with.
    let word = word.trim_end_matches(|c: char| c.is_ascii_punctuation() && c != '/');
    let parsed = format!("{scheme}{word}").parse();
    kept.push_str(&parsed.map_or_else(|_| REDACTED.into(), |parsed| uri(&parsed)));
    rest.split_at(word.len()).1
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

/// Whether a run of a text is a token, a key, or encoded, which may be anything.
fn is_drawn_or_long(run: &str) -> bool {
    let is_encoded = || run.contains('%') && run.len() > LONGEST_PERCENTAGE;
    run.len() > LONGEST_RUN || run.starts_with("eyJ") || is_drawn(run) || is_encoded()
}

/// The characters of base64url, of JWTs, and of what is encoded.
fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~' | '+' | '%')
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

/// As in 99.99%.
const LONGEST_PERCENTAGE: usize = 6;

/// Names of resources are words; what is longer may be a key.
const LONGEST_SEGMENT: usize = 24;

/// A UUID, or twice 32 digits.
const LONGEST_ID: usize = 64;

/// Drawn ones that are shorter are no secrets that a service should give out: 16 have 95 bits.
const SHORTEST_DRAWN: usize = 16;

/// The registry of RFC 9110, section 16.4.1, as of 2026. Written in any case.
const SCHEMES: &str = "basic bearer concealed digest dpop gnap hoba mutual negotiate ntlm oauth \
    privatetoken scram-sha-1 scram-sha-256 vapid aws4-hmac-sha256";

/// Ends of names after which the next word is a secret, whatever stands in between.
const SECRETS: &str = "authorization client_secret access_token refresh_token id_token client_assertion \
    password api_key api-key apikey cookie";

/// Ends of names whose value is a secret, where one is given to them by `=` or `:`.
const KEYS: &str = "secret token passwd pwd key code session sid signature sig credential assertion secrets tokens credentials \
    passphrase otp jwt auth";

#[cfg(test)]
mod tests;
