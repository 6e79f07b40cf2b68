//! Redaction of URLs, ids and server texts.
//!
//! Of URLs and ids only plain parts are shown. In texts, words that may be secrets are replaced.

use http::Uri;

/// Scheme, host, port and path. A segment of the path is shown only if it is plain.
pub(crate) fn uri(uri: &Uri) -> Box<str> {
    let mut shown = String::new();
    if let Some(scheme) = uri.scheme_str() {
        shown.push_str(scheme);
        shown.push_str("://");
    }
    if let Some(authority) = uri.authority() {
        // The part after the last `@`, which ends the user and password.
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

/// Redacts a URI reference (RFC 3986, section 4.1). An invalid reference is not shown, because it
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

/// The text of a service or of a cause, without secrets, escaped and cut.
pub(crate) fn shown(text: &str) -> Option<Box<str>> {
    let text = text.trim();
    (!text.is_empty()).then(|| escaped(&scrubbed(text)))
}

/// `text` cut to `most` characters, after a word if there is one, with a mark where it was cut.
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

/// `text` cut to [`LONGEST`] characters, with hidden and reordering characters escaped.
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

/// The role of the previous word for the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// A name whose value is a secret, if `=` or `:` follows.
    Name,
    /// A name that a secret follows.
    Secret,
}

/// Removes possible secrets that a server may have echoed: the word after the name of a scheme or
/// of a secret, unusual path segments and queries of URLs, and long or random words.
fn scrubbed(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut before = Before::Nothing;
    // Whether the word so far contains a slash: a `?` or a `;` then begins a query.
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
        // A word or punctuation between a name and its secret, as in `client_secret is …`.
        let joins = ["", "is", "was", "set", "to"].contains(&&*name);
        if before == Before::Secret && !opens && !joins {
            rest = hide(rest, char::is_whitespace, &mut kept);
            before = Before::Nothing;
        } else if rest.starts_with("://") {
            rest = address(run, rest, &mut kept);
            before = Before::Nothing;
        } else if !opens && may_be_secret(run) {
            kept.push_str(REDACTED);
        } else {
            kept.push_str(run);
            if name.ends_with("cookie") && rest.starts_with([':', '=']) {
                // A header such as `cookie` has any number of values.
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

/// Writes the mark of a removed part. Returns the rest of the text.
fn hide<'a>(text: &'a str, ends: fn(char) -> bool, kept: &mut String) -> &'a str {
    kept.push_str(REDACTED);
    let end = text.find(ends).unwrap_or(text.len());
    text.split_at(end).1
}

/// Writes a redacted address. Returns the rest of the text.
fn address<'a>(scheme: &str, rest: &'a str, kept: &mut String) -> &'a str {
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '<' | '>');
    let (word, _) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
    // Closing quotes and punctuation do not belong to the address.
    let word = word.trim_end_matches(|c: char| c.is_ascii_punctuation() && c != '/');
    let parsed = format!("{scheme}{word}").parse();
    kept.push_str(&parsed.map_or_else(|_| REDACTED.into(), |parsed| uri(&parsed)));
    rest.split_at(word.len()).1
}

/// Whether a path segment may be shown: it is short, has letters and digits of any script, and does
/// not look random.
fn is_plain(segment: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '~' | '$');
    let is_shown = segment.chars().all(|c| plain(c) && !is_hidden(c));
    is_shown && segment.chars().count() <= LONGEST_SEGMENT && !is_random(segment)
}

/// Whether a word looks random, like a client secret of Keycloak (32 letters and digits).
fn is_random(run: &str) -> bool {
    let has = |class: fn(&u8) -> bool| run.as_bytes().iter().any(class);
    run.len() >= SHORTEST_RANDOM
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_digit)
}

/// Whether a word may be a token, a key, or encoded text.
fn may_be_secret(run: &str) -> bool {
    let is_encoded = || run.contains('%') && run.len() > LONGEST_PERCENTAGE;
    run.len() > LONGEST_RUN || run.starts_with("eyJ") || is_random(run) || is_encoded()
}

/// The characters of base64url, of JWTs, and of percent-encoded text.
fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~' | '+' | '%')
}

/// Whether a character is a control, or reorders or hides text in a terminal: Unicode's
/// bidirectional controls, default-ignorable characters, tags and selectors.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

const REDACTED: &str = "[redacted]";

/// The mark in a path, and at the end of a text that was cut.
const HIDDEN: &str = "…";

/// A length for log lines and terminals. The longest known text of the service has 83 characters.
pub(crate) const LONGEST: usize = 200;

/// Longer runs without a break are tokens or keys: a UUID has 36 characters.
const LONGEST_RUN: usize = 40;

/// The length of `99.99%`, which is no encoded text.
const LONGEST_PERCENTAGE: usize = 6;

/// Names of resources are words. A longer segment may be a key.
const LONGEST_SEGMENT: usize = 24;

/// A UUID, or twice 32 digits.
const LONGEST_ID: usize = 64;

/// Secrets are not shorter: 16 random letters and digits have 95 bits.
const SHORTEST_RANDOM: usize = 16;

/// The registry of RFC 9110, section 16.4.1, as of 2026, and the schemes of NTLM and AWS. Compared
/// in lower case.
const SCHEMES: &str = "basic bearer concealed digest dpop gnap hoba mutual negotiate ntlm oauth \
    privatetoken scram-sha-1 scram-sha-256 vapid aws4-hmac-sha256";

/// Name endings after which the next word is a secret.
const SECRETS: &str = "authorization client_secret access_token refresh_token id_token client_assertion \
    password api_key api-key apikey cookie";

/// Ends of names whose value after `=` or `:` is a secret.
const KEYS: &str = "secret token passwd pwd key code session sid signature sig credential assertion secrets tokens credentials \
    passphrase otp jwt auth";

#[cfg(test)]
mod tests;
