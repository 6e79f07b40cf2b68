//! Long texts that repeat the beginning of a pattern again and again.

use tower_tds_outcome::Secrets;

/// Beginnings after which a rule reads ahead: for the end of a URL, of a credential, of a value or of an escape.
const BEGINNINGS: &[&str] = &[
    "://", "a://b:c", "a://b:c/", "@://", "bearer ", "Basic+", "\\", "\\\\n", "\\u", "\\u{",
    "\\u{0", "\\ud83d", "\\xff", "%", "%2", "%25", "%ff", "&", "&amp", "&quot;", "a1/", "a.b/c1~",
    "eyJ", "secret-w", "c2VjcmV0", "额", " ", "\n", "\"", "+",
];

/// Each rule continues behind what it has read. If one read the rest of the text at each place, this test would take an
/// hour.
#[test]
fn a_text_that_repeats_any_beginning_is_read_once() {
    let secrets = Secrets::default();
    secrets.add("client secret", "secret-words");
    for beginning in BEGINNINGS {
        for end in ["", "\"@."] {
            let text = beginning.repeat(LENGTH / beginning.len()) + end;
            let shown = secrets.redact(&text);
            assert!(!shown.is_empty(), "{beginning}");
        }
    }
}

const LENGTH: usize = 64 * 1024;
