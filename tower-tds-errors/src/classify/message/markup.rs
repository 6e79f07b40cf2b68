//! Finds the sentence in HTML and XML.

/// The first telling element: Kong writes `<message>` and `<p>`, nginx only a `<title>`.
pub(super) fn sentence(text: &str) -> Option<String> {
    let found = ["message", "p", "title"];
    let found = found.iter().find_map(|name| element(text, name));
    found
        .or_else(|| Some(stripped(text)))
        .filter(|text| !text.is_empty())
}

fn element(text: &str, name: &str) -> Option<String> {
    // Lower case of ASCII keeps every byte where it was.
    let lower = text.to_ascii_lowercase();
    let open = lower.match_indices('<').find(|(at, _)| {
        let tag = lower.get(at.saturating_add(1)..).unwrap_or_default();
        let after = tag.strip_prefix(name).and_then(|rest| rest.chars().next());
        after.is_some_and(|c| c == '>' || c.is_ascii_whitespace())
    });
    let (_, inside) = text.get(open?.0..)?.split_once('>')?;
    let close = format!("</{name}");
    let end = inside
        .to_ascii_lowercase()
        .find(&close)
        .unwrap_or(inside.len());
    let sentence = stripped(inside.get(..end)?);
    (!sentence.is_empty()).then_some(sentence)
}

/// The text between the tags, its white space made single.
fn stripped(text: &str) -> String {
    let mut kept = String::new();
    for (n, piece) in text.split('<').enumerate() {
        let piece = if n == 0 {
            piece
        } else {
            piece.split_once('>').map_or("", |(_, text)| text)
        };
        kept.push_str(piece);
        kept.push(' ');
    }
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}
