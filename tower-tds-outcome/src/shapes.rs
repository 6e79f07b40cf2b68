//! What only a secret looks like. Each rule passes once over a decoded text, so its work grows with the length alone.

use std::ops::Range;

use crate::text::{Decoded, part};

/// The parts of a text that look like secrets.
pub(crate) fn find(decoded: &Decoded) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    passwords_of_urls(&decoded.text, &mut found);
    named_values(decoded, &mut found);
    random_words(&decoded.text, &mut found);
    found
}

/// The password in `https://user:password@host`.
fn passwords_of_urls(text: &str, found: &mut Vec<Range<usize>>) {
    let mut start = 0;
    for (n, url) in text.split("://").enumerate() {
        let url_start = start;
        start += url.len() + "://".len();
        let url = part(
            url,
            0..end_of(url, 0, |c| is_blank(c) || is_quote(c) || "<>".contains(c)),
        );
        let host = end_of(url, 0, |c| "/?#".contains(c));
        let Some((user, rest)) = url
            .split_once(':')
            .filter(|(user, _)| n > 0 && user.len() < host)
        else {
            continue;
        };
        let port = end_of(rest, 0, |c| !c.is_ascii_digit());
        let is_port = user.len() + 1 + port == host || user.contains(['@', '[']);
        // Where nobody encoded the password, it contains the characters that end a host.
        let whole = if is_port { host } else { url.len() };
        let end = part(url, 0..host)
            .rfind('@')
            .or_else(|| part(url, 0..whole).rfind('@'));
        if let Some(end) = end.filter(|end| user.len() < *end) {
            found.push(url_start + user.len() + 1..url_start + end);
        }
    }
}

/// Values with the name of a secret, as in `name=value`, `"name": "value"` and `name: Some("value")`.
fn named_values(decoded: &Decoded, found: &mut Vec<Range<usize>>) {
    let text = &*decoded.text;
    let mut seen = 0;
    for (at, _) in text.match_indices([':', '=']) {
        let before = part(text, 0..at);
        let bare = before.trim_end_matches(is_blank);
        let named = bare.trim_end_matches(|c| is_quote(c) || c == ']');
        let name = part(named, start_of_last(named, is_name_char)..named.len());
        if at < seen || !is_name(name) {
            continue;
        }
        // `token::Error` is a path, and `token://` an address; `==` and `=>` are one sign.
        let start = end_of(text, at + 1, |c| !"=>".contains(c));
        let rest = part(text, start..text.len());
        if rest.starts_with([':']) || rest.starts_with("//") {
            continue;
        }
        let start = end_of(text, start, |c| !is_blank(c));
        let open = end_of(text, start, |c| {
            !(c.is_ascii_alphanumeric() || "_([".contains(c))
        });
        let wrapper = part(text, start..open);
        let is_wrapped = matches!(wrapper, "" | "b") || wrapper.ends_with(['(', '[']);
        let quote = part(text, open..text.len()).chars().next();
        let quote = quote.filter(|c| is_wrapped && is_quote(*c));
        let value = if let Some(quote) = quote {
            // Inside of the value, a quote has more backslashes. A text that was cut has no closing one.
            let spelled = |at| decoded.source(at..at + 1).len();
            let mut quotes = part(text, open + 1..text.len()).match_indices(quote);
            let close = quotes.find(|(n, _)| spelled(open + 1 + n) == spelled(open));
            open + 1..close.map_or(text.len(), |(n, _)| open + 1 + n)
        } else {
            let end = end_of(text, start, |c| {
                is_blank(c) || is_quote(c) || "&;<".contains(c)
            });
            start..end
        };
        seen = value.end;
        let is_apart = start > at + 1 || bare.len() < at;
        let is_prose = quote.is_none() && is_apart;
        if is_value(
            part(text, value.clone()),
            is_prose,
            name.eq_ignore_ascii_case("key"),
        ) {
            let end = part(text, value.clone()).trim_end_matches([',', '.', ':', ')', ']', '}']);
            found.push(value.start..value.start + end.len());
        }
    }
}

/// Whether a value may be a secret, and not a word or a sentence.
fn is_value(value: &str, is_prose: bool, is_key: bool) -> bool {
    let is_sentence = value.contains(is_blank);
    // In prose, names of errors and paths follow: `token: InvalidSignature`, `secret: not_found`. A key may be the one
    // of a map, such as `order-12345`.
    let separators = match (is_prose, is_key) {
        (false, _) => " \n",
        (true, false) => "_/.:",
        (true, true) => "_/.:-",
    };
    let is_word = |word: &str| {
        let word = word.trim_matches(|c: char| c.is_ascii_punctuation());
        let is_number = word.chars().all(|c| c.is_ascii_digit());
        if word.is_empty() || is_number {
            word.is_empty() || is_sentence || is_key && is_prose
        } else if is_prose || is_sentence {
            word.chars().all(is_letter) && !is_random(word)
        } else {
            word.chars().all(is_letter)
                && (has_one_case(word) || has_one_case(part(word, 1..word.len())))
        }
    };
    value.chars().count() >= LEAST_VALUE && !value.split(|c| separators.contains(c)).all(is_word)
}

/// Long words that mix letters with digits and are no names, and what follows `Bearer` and `Basic`.
fn random_words(text: &str, found: &mut Vec<Range<usize>>) {
    let mut previous = 0..0;
    let mut start = 0;
    while start < text.len() {
        let end = end_of(text, start, |c| !is_word_char(c));
        if end == start {
            start = end_of(text, start, is_word_char);
            continue;
        }
        let before = part(text, previous.clone());
        let is_joined = part(text, previous.end..start)
            .chars()
            .all(|c| is_blank(c) || is_quote(c) || ":=<[(>".contains(c));
        let is_scheme = SCHEMES
            .iter()
            .any(|scheme| before.eq_ignore_ascii_case(scheme));
        let word = part(text, start..end).trim_end_matches(['.', '-']);
        let odd = if is_joined && is_client_id(before) {
            None
        } else if is_joined && is_scheme && word.len() >= LEAST_CREDENTIAL {
            Some(0..word.len())
        } else {
            odd_part(word).filter(|odd| odd.len() >= LEAST_WORD)
        };
        if let Some(odd) = odd.filter(|odd| mixes(part(word, odd.clone()))) {
            let padded = end_of(text, start + odd.end, |c| c != '=');
            found.push(start + odd.start..padded);
        }
        previous = start..end;
        start = end;
    }
}

/// From the first to the last part that is no name, of a word of parts such as a path or a host.
fn odd_part(word: &str) -> Option<Range<usize>> {
    let mut odd: Option<Range<usize>> = None;
    let mut start = 0;
    for segment in word.split('/') {
        for part in segment.split(['.', '~']) {
            let end = start + part.len();
            if is_random(part)
                && !(has_one_case(part) && (segment.contains('.') || is_grouped(part)))
            {
                odd = Some(odd.map_or(start, |odd| odd.start)..end);
            }
            start = end + 1;
        }
    }
    odd
}

/// Whether a name has short groups of letters and digits, as those of pods and UUIDs have.
fn is_grouped(name: &str) -> bool {
    let mut groups = name.split(['-', '_']);
    name.contains(['-', '_']) && groups.all(|group| group.len() <= LONGEST_GROUP)
}

/// Whether letters and digits are mixed as in no name: the kind of character changes at every sixth place or more.
fn is_random(word: &str) -> bool {
    let kind = |b: &u8| match b {
        b'a'..=b'z' => 1,
        b'A'..=b'Z' => 2,
        b'0'..=b'9' => 3,
        _ => 0,
    };
    // A capital before a small letter is the start of a word.
    let changes = word.as_bytes().windows(2).filter(|two| {
        let mut kinds = two.iter().map(kind);
        matches!(
            (kinds.next(), kinds.next()),
            (Some(1 | 2), Some(3)) | (Some(3), Some(1 | 2)) | (Some(1), Some(2))
        )
    });
    changes.count() * LONGEST_KIND >= word.len().max(1)
}

/// Whether a name is one of [`NAMES`], or ends with one as in `access_token`, `X-Api-Key` and `clientSecret`.
fn is_name(name: &str) -> bool {
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let lower = name.to_ascii_lowercase();
    NAMES
        .iter()
        .filter_map(|known| lower.strip_suffix(known))
        .any(|before| {
            let last = part(name, before.len()..name.len());
            let is_hump = last.starts_with(|c: char| c.is_ascii_uppercase()) && !has_one_case(name);
            before.is_empty() || before.ends_with(['_', '-']) || is_hump
        })
}

fn is_client_id(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['_', '-'], "");
    name.ends_with("clientid")
}

fn mixes(word: &str) -> bool {
    word.contains(|c: char| c.is_ascii_alphabetic()) && word.contains(|c: char| c.is_ascii_digit())
}

fn has_one_case(word: &str) -> bool {
    let lower = word.contains(|c: char| c.is_ascii_lowercase());
    !(lower && word.contains(|c: char| c.is_ascii_uppercase()))
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphabetic() || !c.is_ascii()
}

fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace()
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`')
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

fn is_word_char(c: char) -> bool {
    is_name_char(c) || matches!(c, '+' | '/' | '.' | '~')
}

/// The first place from `start` on at which a character is `of`, or the end.
fn end_of(text: &str, start: usize, of: impl Fn(char) -> bool) -> usize {
    part(text, start..text.len())
        .find(of)
        .map_or(text.len(), |n| start + n)
}

/// The start of the last characters of a text, which are all `of`.
fn start_of_last(text: &str, of: impl Fn(char) -> bool) -> usize {
    text.trim_end_matches(of).len()
}

/// Names of secrets, in lower case.
const NAMES: [&str; 10] = [
    "secret",
    "token",
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "sig",
    "key",
    "apikey",
    "authorization",
];

const SCHEMES: [&str; 2] = ["bearer", "basic"];

/// A word of 24 letters and digits has 142 bits if it is random.
const LEAST_WORD: usize = 24;
const LEAST_CREDENTIAL: usize = 16;
const LEAST_VALUE: usize = 8;
/// The last group of a UUID, and more than those of a pod's name.
const LONGEST_GROUP: usize = 12;
/// Names have longer stretches of one kind: `RSA256withSHA` is the worst. Of random letters and digits, every second
/// place is a change.
const LONGEST_KIND: usize = 6;
