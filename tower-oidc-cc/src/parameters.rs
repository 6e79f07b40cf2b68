//! The parameters of a token request besides the client's own: scope, resource, and those of one provider.

use std::{borrow::Cow, fmt};

use crate::ConfigError;

#[cfg(test)]
mod tests;

/// The parameters of a token request: a scope, and the fields of one server. None by default.
///
/// One source has one kind of token. Give other parameters another
/// [`TokenSource`](crate::TokenSource).
///
/// # Examples
///
/// ```
/// use tower_oidc_cc::Parameters;
///
/// let parameters = Parameters::default()
///     .scope("live history")?
///     .extra("resource", "https://data.example.com/")?;
/// assert!(Parameters::default().extra("client_secret", "s3cr3t").is_err());
/// # Ok::<(), tower_oidc_cc::ConfigError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Parameters {
    fields: Vec<(Cow<'static, str>, String)>,
}

// === impl Parameters ===

impl Parameters {
    /// Requests these scopes, and replaces those of an earlier call (RFC 6749, section 3.3).
    ///
    /// # Errors
    ///
    /// If they are not names of visible ASCII without `"` and `\`, one space between two.
    pub fn scope(mut self, scope: &str) -> Result<Self, ConfigError> {
        let fits = |b: u8| b.is_ascii_graphic() && b != b'"' && b != b'\\';
        let good = |name: &str| !name.is_empty() && name.bytes().all(fits);
        if !scope.split(' ').all(good) {
            return Err(ConfigError::new(
                "the scope is no list of scope names: separate them by one space each",
            ));
        }
        self.fields.retain(|(field, _)| field != "scope");
        self.fields.push(("scope".into(), scope.into()));
        Ok(self)
    }

    /// Adds another field, such as a `resource` (RFC 8707) or the `audience` that some servers read.
    ///
    /// # Errors
    ///
    /// If the name or the value is empty, if the field is there already (RFC 6749, section 3.2, has
    /// each once), or if it is one that this crate fills in itself.
    pub fn extra(
        mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> Result<Self, ConfigError> {
        let (name, value) = (name.into(), value.into());
        if name.is_empty() || value.is_empty() {
            return Err(ConfigError::new(
                "an extra field has no name or no value: leave it out",
            ));
        }
        if OWN.contains(&name.as_str()) {
            return Err(ConfigError::new(
                "an extra field has a name that the standards use: there is a method or a type \
                 for it",
            ));
        }
        if self.fields.iter().any(|(field, _)| *field == name) {
            return Err(ConfigError::new(
                "an extra field is there twice: servers refuse repeated fields",
            ));
        }
        self.fields.push((name.into(), value));
        Ok(self)
    }

    /// The names and values, in the order in which they are sent.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.fields.iter();
        fields.map(|(name, value)| (&**name, value.as_str()))
    }
}

/// The names alone: what a server wants beyond the standards may be a secret.
impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.fields.iter().map(|(name, _)| name))
            .finish()
    }
}

/// The fields that are not extra: the grant, the proof of the client, and what has a method above.
const OWN: [&str; 6] = [
    "grant_type",
    "client_id",
    "client_secret",
    "client_assertion",
    "client_assertion_type",
    "scope",
];
