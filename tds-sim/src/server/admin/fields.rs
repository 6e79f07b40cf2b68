//! Fields of a request to the admin listener: of its query, and of its form or JSON body.

use std::{fmt, str::FromStr};

use http::{HeaderMap, header::CONTENT_TYPE};
use serde_json::Value;

/// Names and values in their order.
#[derive(Debug)]
pub(super) struct Fields(Vec<(String, String)>);

/// Why a request is refused, with what would be right.
pub(super) type Refused = Box<dyn std::error::Error + Send + Sync>;

// === impl Fields ===

impl Fields {
    /// Reads the query and the body. Names must be `known`; those that end in `...` may be repeated.
    /// If the body is empty, it needs no type.
    pub(super) fn read(
        known: &[&str],
        query: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Self, Refused> {
        let form = |text| form_urlencoded::parse(text).into_owned();
        let mut fields: Vec<_> = form(query.as_bytes()).collect();
        let kind = headers.get(CONTENT_TYPE);
        let kind = kind.map_or(Ok(""), |kind| kind.to_str())?;
        let media = kind.split(';').next().unwrap_or_default().trim();
        match media.to_ascii_lowercase().as_str() {
            _ if body.is_empty() => {}
            FORM => fields.extend(form(body)),
            JSON => fields.extend(members(known, body)?),
            _ => return Err(format!("bad content type `{kind}`; use {FORM} or {JSON}").into()),
        }
        for (nth, (name, _)) in fields.iter().enumerate() {
            let is_repeated = fields.iter().take(nth).any(|(other, _)| other == name);
            let problem = match known
                .iter()
                .find(|known| known.trim_end_matches('.') == name)
            {
                Some(known) if !is_repeated || known.ends_with("...") => continue,
                Some(_) => "repeated",
                None => "unknown",
            };
            let known = match known {
                [] => "none".to_owned(),
                known => known.join(", "),
            };
            return Err(format!("{problem} field `{name}`; use {known}").into());
        }
        Ok(Self(fields))
    }

    pub(super) fn each(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let fields = self.each().filter(move |(field, _)| *field == name);
        fields.map(|(_, value)| value)
    }

    pub(super) fn one(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Parses a field, if it is there.
    pub(super) fn parsed<T: FromStr<Err: fmt::Display>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, Refused> {
        self.one(name).map(|value| parse(name, value)).transpose()
    }
}

/// Parses the value of a field, whose name is in the error.
pub(super) fn parse<T: FromStr<Err: fmt::Display>>(name: &str, value: &str) -> Result<T, Refused> {
    let parsed = value.parse();
    parsed.map_err(|error| format!("bad value `{value}` of field `{name}`: {error}").into())
}

/// Returns the members of a JSON object as fields: null as `none`, a list as the repeated field
/// that it is for, and any other value in braces or brackets as its JSON.
fn members(known: &[&str], body: &[u8]) -> Result<Vec<(String, String)>, Refused> {
    let body = serde_json::from_slice::<serde_json::Map<String, Value>>(body);
    let body = body.map_err(|error| format!("the body is not a JSON object: {error}"))?;
    let mut fields = Vec::new();
    for (name, value) in body {
        let values = match value {
            Value::Array(values) if known.contains(&format!("{name}...").as_str()) => values,
            value => vec![value],
        };
        for value in values {
            let text = match value {
                Value::Null => "none".to_owned(),
                Value::String(text) => text,
                value => value.to_string(),
            };
            fields.push((name.clone(), text));
        }
    }
    Ok(fields)
}

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";
