//! Finds unknown secrets by their shape. Each rule passes over the decoded text once, so that a long text costs no more
//! per byte than a short one.

use std::ops::Range;

use crate::text::{Decoded, part, tail};

/// Returns the parts of a text that look like secrets.
pub(crate) fn find(decoded: &Decoded) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    passwords_of_urls(&decoded.text, &mut found);
    named_values(decoded, &mut found);
    random_words(&decoded.text, &mut found);
    found
}

/// Finds the password in `https://user:password@host`.
fn passwords_of_urls(text: &str, found: &mut Vec<Range<usize>>) {
    for (at, scheme) in text.match_indices("://") {
        let start = at + scheme.len();
        let url = tail(text, start).split(scheme).next().unwrap_or_default();
        let url = part(url, 0..find_at(url, 0, is_end));
        let host = find_at(url, 0, |c| "/?#".contains(c));
        let colon = find_at(url, 0, |c| ":@[".contains(c));
        let is_port = find_at(url, colon + 1, |c| !c.is_ascii_digit()) == host;
        // A password that was not percent-encoded may contain `/`, `?` or `#`, which would end the host.
        let end = part(url, 0..host).rfind('@');
        let end = end.or_else(|| url.rfind('@').filter(|_| !is_port));
        if colon < host && tail(url, colon).starts_with(':') {
            found.extend(end.map(|end| start + colon + 1..start + end));
        }
    }
}

/// Finds the values of names such as `client_secret`, in `name=value`, `"name": "value"` and `name: Some("value")`.
fn named_values(decoded: &Decoded, found: &mut Vec<Range<usize>>) {
    let text = &*decoded.text;
    let spelled = |at| decoded.source(at..at + 1).len();
    let mut seen = 0;
    for (at, _) in text.match_indices([':', '=']) {
        let named = part(text, 0..at).trim_end_matches(char::is_whitespace);
        let is_apart = named.len() < at;
        let named = named.trim_end_matches(|c| is_quote(c) || c == ']');
        let name = tail(named, named.trim_end_matches(is_name_char).len());
        if at < seen || !is_name(name) {
            continue;
        }
        // `==` and `=>` count as one sign. No value follows in `token::Error`, a path, and
        // in `token://`, an address.
        let sign = find_at(text, at + 1, |c| !"=>".contains(c));
        let start = find_at(text, sign, |c| !c.is_whitespace());
        if tail(text, sign).starts_with(':') || tail(text, sign).starts_with("//") {
            continue;
        }
        let quoted = quoted(decoded, start);
        let is_prose = quoted.is_none() && (is_apart || start > sign);
        let range = quoted.unwrap_or_else(|| {
            // An `&` that was encoded as `%26` belongs to the value.
            let ends = |c| is_end(c) || matches!(c, '&' | ';');
            let mut ends = tail(text, start).match_indices(ends);
            let end = ends.find(|(n, end)| *end != "&" || spelled(start + n) == spelled(at));
            let end = end.map_or(text.len(), |(n, _)| start + n);
            let value = part(text, start..end).trim_end_matches([',', '.', ':', ')', ']', '}']);
            start..start + value.len()
        });
        seen = range.end;
        let is_key = name.to_ascii_lowercase().ends_with("key");
        if is_value(part(text, range.clone()), is_prose, is_key) {
            found.push(range);
        }
    }
}

/// Returns the inside of `"…"`, `b"…"`, `Some("…")` and `["…"]`.
fn quoted(decoded: &Decoded, start: usize) -> Option<Range<usize>> {
    let text = &*decoded.text;
    let is_wrapper = |c: char| c.is_ascii_alphanumeric() || "_([".contains(c);
    let open = find_at(text, start, |c| !is_wrapper(c));
    let before = part(text, start..open);
    let quote = tail(text, open).chars().next().filter(|c| is_quote(*c))?;
    if !matches!(before, "" | "b") && !before.ends_with(['(', '[']) {
        return None;
    }
    // A quote inside of the value has more backslashes than the one that opened it. A text that was cut has no closing
    // quote.
    let spelled = |at: usize| decoded.source(at..at + 1).len();
    let inside = open + 1;
    let mut quotes = tail(text, inside).match_indices(quote);
    let end = quotes.find(|(n, _)| spelled(inside + n) == spelled(open));
    Some(inside..end.map_or(text.len(), |(n, _)| inside + n))
}

/// Whether a value may be a secret, and not made of words.
fn is_value(value: &str, is_prose: bool, is_key: bool) -> bool {
    let is_sentence = value.contains(char::is_whitespace);
    // In prose, names may follow, as in `token: InvalidSignature`, `secret: not_found` or `key: /etc/ssl/server.key`. A
    // key may also be that of a map, such as `order-12345`.
    let is_of_map = is_prose && is_key;
    let is_separator =
        |c: char| c.is_whitespace() || is_prose && "_/.:".contains(c) || is_of_map && c == '-';
    let is_word = |word: &str| {
        let word = word.trim_matches(|c: char| c.is_ascii_punctuation());
        let is_number = word.chars().all(|c| c.is_ascii_digit()) && !word.is_empty();
        let has_one_case = has_one_case(word) || has_one_case(tail(word, 1));
        let is_name = has_one_case || (is_prose || is_sentence) && !is_random(word);
        is_name && word.chars().all(char::is_alphabetic)
            || is_number && (is_sentence || is_of_map && word != value)
    };
    value.chars().count() >= LEAST_VALUE && !value.split(is_separator).all(is_word)
}

/// Finds long words that mix letters with digits and are not names, and the credentials after `Bearer` and `Basic`.
fn random_words(text: &str, found: &mut Vec<Range<usize>>) {
    let mut before = "";
    let mut end = 0;
    while end < text.len() {
        let start = find_at(text, end, is_word_char);
        let is_joint = |c: char| c.is_whitespace() || is_quote(c) || ":=<[(>".contains(c);
        let is_joined = part(text, end..start).chars().all(is_joint);
        let name = if is_joined { before } else { "" };
        end = find_at(text, start, |c| !is_word_char(c));
        before = part(text, start..end);
        let word = before.trim_end_matches(['.', '-']);
        let is_scheme = ["bearer", "basic"].contains(&&*name.to_ascii_lowercase());
        let (odd, least) = match is_scheme {
            true => (0..word.len(), LEAST_CREDENTIAL),
            false => (odd_part(word), LEAST_WORD),
        };
        if odd.len() >= least && mixes(part(word, odd.clone())) && !is_client_id(name) {
            let padded = find_at(text, start + odd.end, |c| c != '=');
            found.push(start + odd.start..padded);
        }
    }
}

/// Returns the range from the first to the last part that is not a name, in a word of several parts such as a path or a
/// host.
fn odd_part(word: &str) -> Range<usize> {
    let (mut first, mut last, mut start) = (word.len(), 0, 0);
    for segment in word.split('/') {
        let is_host = segment.contains('.');
        for part in segment.split(['.', '~']) {
            let end = start + part.len();
            let is_label = has_one_case(part) && (is_host || is_grouped(part));
            if is_random(part) && !is_label {
                (first, last) = (first.min(start), end);
            }
            start = end + 1;
        }
    }
    first..last
}

/// Whether a name consists of short groups of letters and digits, like a UUID or the name of a pod.
fn is_grouped(name: &str) -> bool {
    let groups: Vec<_> = name.split(['-', '_']).map(str::len).collect();
    groups.len() > 1 && groups.iter().all(|length| *length <= LONGEST_GROUP)
}

/// Whether letters and digits, and small letters and capitals, alternate more often than in names.
fn is_random(word: &str) -> bool {
    let kind = |byte: &u8| match byte {
        b'a'..=b'z' => 'a',
        b'A'..=b'Z' => 'A',
        b'0'..=b'9' => '0',
        _ => '-',
    };
    let kinds: String = word.as_bytes().iter().map(kind).collect();
    let changes = ["aA", "a0", "A0", "0a", "0A"].map(|change| kinds.matches(change).count());
    // A word in one case has half as many changes.
    let longest = LONGEST_KIND << u32::from(has_one_case(word));
    !word.is_empty() && changes.iter().sum::<usize>() * longest >= word.len()
}

/// Whether a name ends with one of [`NAMES`], as `access_token`, `X-Api-Key` and `clientSecret2` do.
fn is_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    NAMES.split(' ').any(|known| name.ends_with(known))
}

fn is_client_id(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['_', '-'], "");
    name.ends_with("clientid")
}

fn mixes(word: &str) -> bool {
    let has = |of: fn(&u8) -> bool| word.as_bytes().iter().any(of);
    has(u8::is_ascii_alphabetic) && has(u8::is_ascii_digit)
}

fn has_one_case(word: &str) -> bool {
    word.to_lowercase() == word || word.to_uppercase() == word
}

/// Whether an unquoted value ends at this character.
fn is_end(c: char) -> bool {
    c.is_whitespace() || is_quote(c) || matches!(c, '<' | '>')
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

/// Returns the first place at or after `start` whose character matches `of`, or the end of the text.
fn find_at(text: &str, start: usize, of: impl Fn(char) -> bool) -> usize {
    tail(text, start).find(of).map_or(text.len(), |n| start + n)
}

/// Endings of the names of secrets, in lower case.
const NAMES: &str = "secret token password passwd pwd passphrase sig key authorization";

/// Random letters and digits of this length have 142 bits.
const LEAST_WORD: usize = 24;
const LEAST_CREDENTIAL: usize = 16;
const LEAST_VALUE: usize = 8;
/// The last group of a UUID. The groups of a pod's name are shorter.
const LONGEST_GROUP: usize = 12;
/// Average number of letters between two changes in names: eight in `Saml2AuthenticationTokenConverter`, and six in
/// `OAuth2AccessTokenResponseClient`. In random letters and digits every second one is a change.
const LONGEST_KIND: usize = 6;
