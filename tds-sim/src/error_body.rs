//! The format of error bodies, which the contract does not show.

use std::str::FromStr;

use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};

use crate::{body::Content, text::ParseError};

/// The format of the error bodies of the data endpoints.
///
/// The contract gives the text and leaves the format open. Gateways choose it by configuration or
/// by `Accept`. The status is the same in each format, so a client can rely only on the status.
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
    /// The bare text and a line feed.
    Text,
    /// A small page with the text and a full stop in a paragraph.
    Html,
    /// `<error><message>...</message></error>`.
    Xml,
    /// No body at all.
    Empty,
}

// === impl ErrorBody ===

impl ErrorBody {
    /// Returns an answer with `status` and `message`.
    pub(crate) fn answer(self, status: StatusCode, message: &str) -> Response<Content> {
        let (kind, text) = match self {
            Self::Json => ("application/json; charset=utf-8", json(message)),
            Self::Text => ("text/plain; charset=utf-8", format!("{message}\n")),
            Self::Html => (
                "text/html; charset=utf-8",
                format!(
                    "<!doctype html>\n<html>\n  <head><title>Error</title></head>\n  <body>\n    \
                     <h1>Error</h1>\n    <p>{message}.</p>\n  </body>\n</html>\n"
                ),
            ),
            Self::Xml => (
                "application/xml; charset=utf-8",
                format!(
                    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<error>\n  \
                     <message>{message}</message>\n</error>\n"
                ),
            ),
            Self::Empty => ("", String::new()),
        };
        let mut response = Response::new(Content::bytes(text));
        *response.status_mut() = status;
        if self != Self::Empty {
            let kind = HeaderValue::from_static(kind);
            response.headers_mut().insert(CONTENT_TYPE, kind);
        }
        response
    }
}

impl FromStr for ErrorBody {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "json" => Ok(Self::Json),
            "text" => Ok(Self::Text),
            "html" => Ok(Self::Html),
            "xml" => Ok(Self::Xml),
            "empty" => Ok(Self::Empty),
            _ => Err(ParseError::new(
                "error body",
                text,
                "json, text, html, xml or empty",
            )),
        }
    }
}

fn json(message: &str) -> String {
    let message = message
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('/', "\\/");
    format!("{{\"message\":\"{message}\"}}")
}
