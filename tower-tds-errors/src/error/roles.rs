//! The realm roles of a token that lacks one.

use std::fmt;

use super::text;

/// What a token says that it carries. Nobody has verified it, and it may be long.
#[derive(Clone, Debug)]
pub(crate) struct Roles(Box<[Box<str>]>);

// === impl Roles ===

impl Roles {
    pub(crate) fn new(roles: &[impl AsRef<str>]) -> Self {
        Self(roles.iter().map(|role| role.as_ref().into()).collect())
    }

    pub(crate) fn as_slice(&self) -> &[Box<str>] {
        &self.0
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the token carries no realm role");
        }
        let mut before = "the token carries the realm roles ";
        let mut room = text::LONGEST.saturating_add(SEPARATOR.len());
        let mut more = self.0.len();
        for role in &self.0 {
            let role = text::escaped(role);
            let length = role.chars().count().saturating_add(SEPARATOR.len());
            // A list that is cut must not read as if it were whole.
            let Some(rest) = room.checked_sub(length) else {
                return write!(f, " and {more} more");
            };
            write!(f, "{before}{role}")?;
            before = SEPARATOR;
            room = rest;
            more = more.saturating_sub(1);
        }
        Ok(())
    }
}

const SEPARATOR: &str = ", ";

#[cfg(test)]
mod tests;
