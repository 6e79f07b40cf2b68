use proptest::prelude::*;

use super::*;

/// How many of the [`forms`] are escapes of single characters.
const ESCAPED: usize = 15;

fn with(value: &str) -> Secrets {
    let secrets = Secrets::default();
    secrets.add("client secret", value);
    secrets
}

/// Forms of a value in JSON, HTML, `Debug`, forms, percent-encoding, and base64 alone and after an id.
fn forms(value: &str) -> Vec<String> {
    let percent = |upper: bool, all: bool| -> String {
        let each = value.bytes().map(|b| match b {
            b if !all && b.is_ascii_alphanumeric() => char::from(b).to_string(),
            b if upper => format!("%{b:02X}"),
            b => format!("%{b:02x}"),
        });
        each.collect()
    };
    let debug = format!("{value:?}");
    let nested = format!("{debug:?}");
    let json: String = value
        .chars()
        .map(|c| match c {
            '"' | '\\' | '/' => format!("\\{c}"),
            c if c.is_ascii_graphic() || c == ' ' => c.to_string(),
            c => c
                .encode_utf16(&mut [0; 2])
                .iter()
                .map(|unit| format!("\\u{unit:04x}"))
                .collect(),
        })
        .collect();
    let form = percent(true, false).replace("%20", "+");
    let html = |hex: bool| -> String {
        let each = value.chars().map(|c| match c {
            c if c.is_ascii_alphanumeric() => c.to_string(),
            '&' if hex => "&amp;".to_owned(),
            '<' if hex => "&lt;".to_owned(),
            '\'' if hex => "&apos;".to_owned(),
            c if hex => format!("&#x{:X};", u32::from(c)),
            c => format!("&#{};", u32::from(c)),
        });
        each.collect()
    };
    let mut all = vec![
        html(true),
        html(false),
        value.to_owned(),
        percent(true, true),
        percent(false, true),
        percent(true, false),
        percent(false, false),
        percent(true, false).replace('%', "%25"),
        form,
        debug[1..debug.len() - 1].to_owned(),
        nested
            .get(3..nested.len() - 3)
            .unwrap_or_default()
            .to_owned(),
        json.clone(),
        value.as_bytes().escape_ascii().to_string(),
        value.escape_default().to_string(),
        json.bytes().map(|b| format!("%{b:02x}")).collect(),
    ];
    if value.chars().count() >= 8 {
        for id in ["", "a", "ab", "abc", "my-client:"] {
            let encoded = BASE64_STANDARD.encode(format!("{id}{value}"));
            let url = encoded.replace('+', "-").replace('/', "_");
            all.extend([
                encoded.trim_end_matches('=').to_owned(),
                url.trim_end_matches('=').to_owned(),
                encoded,
                url,
            ]);
        }
    }
    all
}

#[test]
fn a_known_value_is_replaced_in_every_form() {
    for value in [
        // No scheme: a value that is no header.
        "basic cat",
        "correct\"horse",
        "back\\slash",
        "größe+ähre",
        "per%cent&and",
        "täl\tab\nend",
        "zwei😀smile",
        "<tag>'quote'",
    ] {
        let secrets = with(value);
        for form in forms(value) {
            for (before, after) in [
                ("", ""),
                ("the ", " was sent"),
                ("\"", "\""),
                ("x=", "&y=z"),
                ("\\\"", "\\\""),
            ] {
                let text = format!("{before}{form}{after}");
                let clean = secrets.redact(&text);
                assert!(
                    clean.contains(REDACTED) && !clean.contains(&*form),
                    "{value:?}: {text} -> {clean}"
                );
                assert!(
                    clean.len() <= before.len() + after.len() + REDACTED.len() + 3,
                    "{value:?}: {text} -> {clean}"
                );
            }
        }
    }
}

/// Each text is cut inside of a character's escape, or behind it.
#[test]
fn a_known_value_that_a_cut_text_ends_with_is_replaced() {
    let value = "gr\u{f6}\u{df}e \"zwei\" &drei \\vier/f\u{fc}nf \u{1f600}!";
    let (secrets, eight) = (with(value), "gr\u{f6}\u{df}e \"z");
    for (form, eight) in iter::zip(forms(value), forms(eight)).take(ESCAPED) {
        for end in (eight.len()..=form.len()).filter(|end| form.is_char_boundary(*end)) {
            let text = format!("it is {}", &form[..end]);
            assert_eq!(secrets.redact(&text), "it is [redacted]", "{text}");
        }
    }
    // Seven characters may be a word.
    for text in ["it is gr\u{f6}\u{df}e \"", "it is gr%C3%B6%C3%9Fe%20%22%7"] {
        assert_eq!(secrets.redact(text), text);
    }
}

/// JSON in a form, the `Debug` of a form, and a page with JSON.
#[test]
fn a_known_value_is_replaced_where_different_escapes_surround_each_other() {
    let value = "gr\u{f6}\u{df}e \"zwei\" \\drei&vier";
    let secrets = with(value);
    let json = r#"gr\u00f6\u00dfe \"zwei\" \\drei&vier"#;
    let percent = |text: &str| -> String { text.bytes().map(|b| format!("%{b:02x}")).collect() };
    let html = |text: &str| text.replace('&', "&amp;").replace('"', "&quot;");
    for text in [
        percent(json),
        percent(&percent(json)),
        html(json),
        format!("{json:?}").trim_matches('"').to_owned(),
        html(&percent(json)),
        format!("{:?}", format!("{:?}", json))
            .trim_matches(['"', '\\'])
            .to_owned(),
    ] {
        assert_eq!(
            secrets.redact(&format!("it is {text} here")),
            "it is [redacted] here",
            "{text}"
        );
    }
}

#[test]
fn a_short_value_is_replaced_only_as_a_whole_word() {
    let secrets = with("test");
    assert_eq!(
        secrets.redact("test: a testament, contest, test_1, 'test'"),
        "[redacted]: a testament, contest, test_1, '[redacted]'"
    );
    assert_eq!(
        secrets.redact("pw%3Dtest%26 and \\ntest"),
        "pw%3D[redacted]%26 and \\n[redacted]"
    );
    // The base64 of "ab" begins with two letters.
    assert_eq!(with("ab").redact("PAYWALL"), "PAYWALL");
}

#[test]
fn the_last_four_values_of_each_name_are_known() {
    let secrets = with("the secret stays");
    for token in [
        "token number one",
        "token number two",
        "token number three",
        "token number four",
        "token number five",
        "token number five",
    ] {
        secrets.add("token", token);
    }
    for known in ["the secret stays", "token number two", "token number five"] {
        assert_eq!(secrets.redact(known), REDACTED);
    }
    assert_eq!(secrets.redact("token number one"), "token number one");
    assert_eq!(secrets.0.lock().expect("no panic under it").len(), 5);
}

#[test]
fn the_password_of_a_basic_header_is_known() {
    let secrets = Secrets::default();
    let header = format!(
        "Basic {}",
        BASE64_STANDARD.encode("my-client:correct+horse%21")
    );
    // A scheme without a credential is no secret.
    for header in [&*header, "Bearer  an-opaque-one", "Bearer "] {
        secrets.add("authorization", header);
    }
    for text in [
        &*header,
        "correct+horse!",
        "correct+horse%21",
        "an-opaque-one",
    ] {
        assert!(secrets.redact(text).ends_with(REDACTED), "{text}");
    }
    assert_eq!(secrets.redact("a Bearer my-client"), "a Bearer my-client");
}

#[test]
fn a_line_is_short_and_has_no_hidden_characters() {
    let secrets = Secrets::default();
    assert_eq!(
        secrets.line(" a\u{1b}[31mb\r\nc\0 "),
        "a\\u{1b}[31mb\\r\\nc\\u{0}"
    );
    assert_eq!(secrets.line("x\u{202e}y"), "x\\u{202e}y");
    for c in ["x ", "é ", "額 "] {
        assert_eq!(secrets.line(&c.repeat(100_000)).chars().count(), 200);
    }
}

proptest! {
    #[test]
    fn any_text_is_redacted_and_any_value_is_gone(text in any::<String>(), value in "\\PC{8,20}") {
        let secrets = with(&value);
        let known = value.trim();
        prop_assume!(known.chars().count() >= 8);
        let clean = secrets.redact(&format!("{text}{value}{text}"));
        prop_assert!(!clean.contains(known));
        let line = secrets.line(&text);
        prop_assert!(line.chars().count() <= 200 && !line.chars().any(char::is_control));
    }

    #[test]
    fn any_value_is_gone_in_any_form(value in "[ -$&-~]{8,20}", place in 0..6_usize) {
        let secrets = with(&value);
        let known = value.trim();
        prop_assume!(known.chars().count() >= 8);
        let (before, after) = [
            ("", ""),
            ("the ", " was sent"),
            ("\"", "\""),
            ("x=", "&y=z"),
            ("\\\"", "\\\""),
            ("(", ")"),
        ][place];
        for form in forms(known) {
            let clean = secrets.redact(&format!("{before}{form}{after}"));
            // Backslashes at the end of a value may stay, because they may belong to the quote
            // behind it.
            let most = before.len() + REDACTED.len() + after.len() + 3;
            prop_assert!(clean.contains(REDACTED) && clean.replace("\\", "").len() <= most, "{form} -> {clean}");
        }
    }
}

#[test]
fn a_value_that_is_held_stays_known() {
    let secrets = Secrets::default();
    let tokens: Vec<_> = (0..9).map(|n| format!("token-of-source-{n}")).collect();
    let held: Vec<_> = tokens.iter().map(|it| secrets.add("token", it)).collect();
    let known = || {
        tokens
            .iter()
            .filter(|it| secrets.redact(it) == REDACTED)
            .count()
    };
    assert_eq!(known(), 9);
    drop(held);
    drop(secrets.add("token", "token-of-another-source"));
    assert_eq!(known(), KEPT - 1);
    drop(secrets.add("token", " "));
    assert_eq!(secrets.redact("a b"), "a b");
}
