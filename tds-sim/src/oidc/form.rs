//! The form of a request.

use http::{HeaderMap, header::CONTENT_TYPE};

/// The fields of a form in their order, or none if the body is not an urlencoded one.
#[derive(Debug)]
pub(super) struct Form {
    fields: Vec<(String, String)>,
    media: Media,
}

/// What the body calls itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Media {
    UrlEncoded,
    Multipart,
    Other,
}

// === impl Form ===

impl Form {
    pub(super) fn read(headers: &HeaderMap, body: &[u8]) -> Self {
        let kind = headers
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or("");
        let kind = kind
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase();
        let media = match &*kind {
            "application/x-www-form-urlencoded" => Media::UrlEncoded,
            "multipart/form-data" => Media::Multipart,
            _ => Media::Other,
        };
        let fields = if media == Media::UrlEncoded {
            form_urlencoded::parse(body).into_owned().collect()
        } else {
            Vec::new()
        };
        Self { fields, media }
    }

    /// The first field of this name.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, value)| &**value)
    }

    /// Whether a field comes twice.
    pub(super) fn repeats_a_field(&self) -> bool {
        let mut names: Vec<_> = self.fields.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names
            .windows(2)
            .any(|pair| matches!(pair, [one, other] if one == other))
    }

    /// Whether it came as `multipart/form-data`, whose fields are not read.
    pub(super) fn is_multipart(&self) -> bool {
        self.media == Media::Multipart
    }
}
