//! Format of error bodies, which the contract does not show.

use std::str::FromStr;

use crate::text::{ParseError, word};

/// Format of the error bodies of the data endpoints.
///
/// Your client can rely only on the status, which is the same in each format: the contract gives
/// the text and leaves the format open, and gateways choose it by configuration or by `Accept`.
///
/// # Examples
/// ```
/// use tds_sim::ErrorBody;
///
/// assert_eq!("html".parse(), Ok(ErrorBody::Html));
/// assert!("yaml".parse::<ErrorBody>().is_err());
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorBody {
    /// `{"message":"..."}`, with `/` written as `\/`, as by Kong's JSON encoder.
    #[default]
    Json,
    /// Bare text and a line feed.
    Text,
    /// Small page with the text and a full stop in a paragraph.
    Html,
    /// `<error><message>...</message></error>`.
    Xml,
    /// No body at all.
    Empty,
}

// === impl ErrorBody ===

impl ErrorBody {
    /// Returns the media type, if there is a body, and the body with `message`.
    pub(crate) fn render(self, message: &str) -> (Option<&'static str>, String) {
        let (kind, text) = match self {
            Self::Json => ("application/json; charset=utf-8", json(message)),
            Self::Text => ("text/plain; charset=utf-8", format!("{message}\n")),
            Self::Html => ("text/html; charset=utf-8", HTML.replace("{}", message)),
            Self::Xml => ("application/xml; charset=utf-8", XML.replace("{}", message)),
            Self::Empty => ("", String::new()),
        };
        (Some(kind).filter(|kind| !kind.is_empty()), text)
    }
}

impl FromStr for ErrorBody {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let words = [
            ("json", Self::Json),
            ("text", Self::Text),
            ("html", Self::Html),
            ("xml", Self::Xml),
            ("empty", Self::Empty),
        ];
        word("error body", text, &words)
    }
}

fn json(message: &str) -> String {
    let body = serde_json::json!({ "message": message });
    body.to_string().replace('/', "\\/")
}

const HTML: &str = "<!doctype html>\n<html>\n  <head><title>Error</title></head>\n  <body>\n    \
     <h1>Error</h1>\n    <p>{}.</p>\n  </body>\n</html>\n";

const XML: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<error>\n  \
     <message>{}</message>\n</error>\n";
