//! Makes text from the wire safe to show: short, one line, and without secrets.

/// The service's words with secrets taken out, escaped and cut.
pub(crate) fn shown(text: &str) -> Option<Box<str>> {
    let text = text.trim();
    (!text.is_empty()).then(|| escaped(&scrubbed(text)))
}

/// `text` with control and direction characters escaped, cut to [`LONGEST`] characters.
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

/// Takes out what a server may have echoed: bearer tokens, form secrets, queries of URLs.
fn scrubbed(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut secret_next = false;
    for word in text.split_inclusive(char::is_whitespace) {
        let body = word.trim_end();
        let (_, space) = word.split_at_checked(body.len()).unwrap_or((word, ""));
        let name = body
            .trim_matches(|c: char| c.is_ascii_punctuation())
            .to_ascii_lowercase();
        let names = SCHEMES.contains(&&*name) || SECRETS.contains(&&*name);
        if secret_next && !names && !is_prose(body) {
            kept.push_str(REDACTED);
        } else {
            scrub_word(body, &mut kept);
        }
        kept.push_str(space);
        // `client_secret is …`, and the sign that stands alone.
        let joins = matches!(body, "is" | "was" | "=" | ":");
        secret_next = names || (secret_next && joins);
    }
    kept
}

fn scrub_word(word: &str, kept: &mut String) {
    // A query starts at `?` behind a path, or is a form: `name=value&…` with a telling name.
    let lower = word.to_ascii_lowercase();
    let path = |at: &usize| word.get(..*at).is_some_and(|path| path.contains('/'));
    let query = word.find('?').filter(path);
    let form = SECRETS
        .iter()
        .filter_map(|name| {
            let at = lower.find(name)?;
            let end = at.saturating_add(name.len());
            let rest = lower.get(end..)?;
            let value = rest.trim_start_matches(['"', '\'', '\\']);
            let told = !value.trim_start_matches(['=', ':', '"', '\'']).is_empty();
            (value.starts_with(['=', ':']) && told).then_some(end)
        })
        .min();
    let cut = [query, form].into_iter().flatten().min();
    let (clear, secret) = cut
        .and_then(|at| word.split_at_checked(at))
        .unwrap_or((word, ""));
    for run in clear.split_inclusive(|c| !is_token(c)) {
        if run.len() > LONGEST_RUN || run.starts_with("eyJ") || is_drawn(run) {
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

/// Whether somebody drew it from all letters and digits, as a Keycloak does its secrets of 32.
fn is_drawn(run: &str) -> bool {
    let has = |class: fn(&u8) -> bool| run.as_bytes().iter().any(class);
    run.len() >= SHORTEST_DRAWN
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_digit)
}

/// What follows `Bearer` in a sentence or in a challenge, and not in a header: a plain word, or
/// `realm="…"`.
fn is_prose(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_lowercase()) || word.contains("=\"")
}

/// The characters of base64url and of JWTs.
fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~' | '+' | '=')
}

/// Control characters, and those that reorder or hide text in a terminal.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// What a log line and a terminal bear; the longest text known of the service has 83 characters.
pub(crate) const LONGEST: usize = 200;

/// Longer runs without a break are tokens or keys: a UUID has 36 characters.
const LONGEST_RUN: usize = 40;

/// Drawn ones that are shorter are no secrets that a service should give out: 24 have 142 bits.
const SHORTEST_DRAWN: usize = 24;

const REDACTED: &str = "[redacted]";

/// Written in any case (RFC 9110, section 11.1). In a sentence both are words, and so is the next.
const SCHEMES: [&str; 2] = ["bearer", "basic"];

/// Names in front of a secret, in headers, in forms and in JSON.
const SECRETS: [&str; 10] = [
    "authorization",
    "client_secret",
    "access_token",
    "refresh_token",
    "client_assertion",
    "password",
    "api_key",
    "api-key",
    "x-api-key",
    "apikey",
];

#[cfg(test)]
mod tests;
