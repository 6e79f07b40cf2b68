//! Who asks for tokens.

use std::fmt;

use bytes::Bytes;
use zeroize::Zeroizing;

use crate::ConfigError;

#[cfg(test)]
mod tests;

/// Holds a client id and a client secret, checked on the way in.
///
/// White space around either is cut off, since secrets come from files that end with a newline.
/// `Debug` shows neither the secret nor its length, and the memory is wiped on drop.
///
/// # Examples
///
/// ```
/// use tower_oidc_cc::Credentials;
///
/// let credentials = Credentials::new("my-client", "s3cr3t\n")?;
/// assert!(!format!("{credentials:?}").contains("s3cr3t"));
/// assert!(Credentials::new("my-client", "").is_err());
/// # Ok::<(), tower_oidc_cc::ConfigError>(())
/// ```
pub struct Credentials {
    client_id: Zeroizing<String>,
    client_secret: Zeroizing<String>,
}

// === impl Credentials ===

impl Credentials {
    /// Checks and takes a client id and a client secret.
    ///
    /// # Errors
    ///
    /// If either is empty, or has white space or control characters inside: set what the server
    /// issued, whole and alone.
    pub fn new(
        client_id: impl Into<String>,
        client_secret: impl Into<String>,
    ) -> Result<Self, ConfigError> {
        // Both are owned before either is checked, so that a refusal wipes both.
        let client_id = Zeroizing::new(client_id.into());
        let client_secret = Zeroizing::new(client_secret.into());
        Ok(Self {
            client_id: checked(&client_id, &ID)?,
            client_secret: checked(&client_secret, &SECRET)?,
        })
    }

    /// Whether a server would see the same in both.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        self.client_id == other.client_id && self.client_secret == other.client_secret
    }

    /// The form of RFC 6749, sections 4.4.2 and 2.3.1, in memory that is wiped after the send.
    ///
    /// The credentials travel in the body and not in a Basic header: RFC 6749 prefers the header,
    /// but Keycloak up to 18 does not decode its form-encoding, and some later releases neither.
    pub(crate) fn form(&self) -> Bytes {
        // One byte becomes three at most; with this much room the buffer never grows, and so
        // leaves no copy of the secret behind.
        let room = self
            .client_id
            .len()
            .saturating_add(self.client_secret.len())
            .saturating_mul(3)
            .saturating_add(FIELDS.len());
        let mut form = form_urlencoded::Serializer::new(String::with_capacity(room));
        form.append_pair("grant_type", "client_credentials")
            .append_pair("client_id", &self.client_id)
            .append_pair("client_secret", &self.client_secret);
        Bytes::from_owner(Zeroizing::new(form.finish().into_bytes()))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("client_id", &self.client_id.as_str())
            .field("client_secret", &"[redacted]")
            .finish()
    }
}

fn checked(value: &str, reasons: &Reasons) -> Result<Zeroizing<String>, ConfigError> {
    let value = value.trim_matches(blank);
    if value.is_empty() {
        return Err(ConfigError::new(reasons.empty));
    }
    if value.contains(|c: char| blank(c) || c.is_control()) {
        return Err(ConfigError::new(reasons.spaced));
    }
    Ok(Zeroizing::new(value.into()))
}

/// White space, and what is pasted along and seen by nobody: a byte-order mark, zero-width spaces.
fn blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{feff}' | '\u{200b}'..='\u{200d}' | '\u{2060}')
}

struct Reasons {
    empty: &'static str,
    spaced: &'static str,
}

const ID: Reasons = Reasons {
    empty: "the client id is empty: set the one that the server issued",
    spaced: "the client id has white space inside: set what the server issued and nothing else",
};
const SECRET: Reasons = Reasons {
    empty: "the client secret is empty: set the one that the server issued",
    spaced: "the client secret has white space inside: set what the server issued and nothing else",
};
/// All of the form that is not a value.
const FIELDS: &str = "grant_type=client_credentials&client_id=&client_secret=";
