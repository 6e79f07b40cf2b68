//! The controls of the identity provider: tokens, keys, and who may have them.

use crate::{
    error::Error,
    lock::lock,
    realm::{ApiKey, PublicKey},
    sim::Sim,
};

// === impl Sim ===

impl Sim {
    /// Issues a token to a key without a POST.
    ///
    /// # Errors
    /// [`Error::is_unknown`] if no key has this client id: add one first.
    pub fn token(&self, client_id: &str) -> Result<String, Error> {
        let granted = lock(&self.shared.realm).grant(client_id, "profile email")?;
        self.shared.ledger.token_issued();
        Ok((*granted.token).to_owned())
    }

    /// Changes the lifetime of the tokens issued from here on.
    pub fn set_expires_in(&self, seconds: u64) {
        lock(&self.shared.realm).expires_in = seconds;
    }

    /// Revokes one token.
    pub fn revoke(&self, token: &str) {
        lock(&self.shared.realm).tokens.revoke(token);
    }

    /// Revokes every token issued so far.
    pub fn revoke_all(&self) {
        lock(&self.shared.realm).revoke_all();
    }

    /// Signs with a new key from here on; what the old one signed is no longer valid.
    pub fn rotate_signing_key(&self) {
        lock(&self.shared.realm).tokens.rotate_signing_key();
    }

    /// The public half of the signing key, as PEM.
    ///
    /// # Errors
    /// If no key could be made, which is a fault of the host.
    pub fn public_key(&self) -> Result<String, Error> {
        lock(&self.shared.realm).tokens.public_key()
    }

    /// Adds a member without keys; one that exists stays as it is.
    pub fn add_member(&self, name: &str) {
        lock(&self.shared.realm).add_member(name);
    }

    /// Gives a member another key.
    ///
    /// # Errors
    /// [`Error::is_key_limit`] if the member holds three: delete one first. [`Error::is_unknown`]
    /// if there is no such member: add it first.
    pub fn add_key(&self, member: &str) -> Result<ApiKey, Error> {
        lock(&self.shared.realm).add_key(member)
    }

    /// Takes a key away from its member.
    ///
    /// # Errors
    /// [`Error::is_unknown`] if no key has this client id.
    pub fn delete_key(&self, client_id: &str) -> Result<(), Error> {
        lock(&self.shared.realm).delete_key(client_id)
    }

    /// Gives a key a new secret; the old one stops working at once.
    ///
    /// # Errors
    /// [`Error::is_unknown`] if no key has this client id.
    pub fn rotate_secret(&self, client_id: &str) -> Result<ApiKey, Error> {
        lock(&self.shared.realm).rotate_secret(client_id)
    }

    /// Lets a key prove itself by statements that the private half of `pem` has signed with RS256
    /// (`private_key_jwt`), and by its secret no longer.
    ///
    /// # Errors
    /// [`Error::is_unknown`] if no key has this client id. Another error if `pem` is no RSA public
    /// key.
    pub fn set_public_key(&self, client_id: &str, pem: &str) -> Result<(), Error> {
        let public = PublicKey::from_pem(pem)?;
        lock(&self.shared.realm)
            .key_mut(client_id)
            .map(|key| key.public = Some(public))
    }

    /// Lets a key get tokens again.
    ///
    /// # Errors
    /// [`Error::is_unknown`] if no key has this client id.
    pub fn enable_key(&self, client_id: &str) -> Result<(), Error> {
        lock(&self.shared.realm)
            .key_mut(client_id)
            .map(|key| key.enabled = true)
    }

    /// Refuses a key every token; those it has stay valid.
    ///
    /// # Errors
    /// [`Error::is_unknown`] if no key has this client id.
    pub fn disable_key(&self, client_id: &str) -> Result<(), Error> {
        lock(&self.shared.realm)
            .key_mut(client_id)
            .map(|key| key.enabled = false)
    }

    /// Changes the realm roles that a key's tokens carry from here on.
    ///
    /// # Errors
    /// [`Error::is_unknown`] if no key has this client id.
    pub fn set_roles<R: Into<String>>(
        &self,
        client_id: &str,
        roles: impl IntoIterator<Item = R>,
    ) -> Result<(), Error> {
        let roles = roles.into_iter().map(Into::into).collect();
        lock(&self.shared.realm)
            .key_mut(client_id)
            .map(|key| key.roles = roles)
    }

    /// Takes from a key the service account without which there are no client credentials.
    ///
    /// # Errors
    /// [`Error::is_unknown`] if no key has this client id.
    pub fn remove_service_account(&self, client_id: &str) -> Result<(), Error> {
        lock(&self.shared.realm)
            .key_mut(client_id)
            .map(|key| key.service_account = false)
    }

    /// Opens the realm again.
    pub fn enable_realm(&self) {
        lock(&self.shared.realm).enabled = true;
    }

    /// Closes the realm to everybody; tokens stay valid.
    pub fn disable_realm(&self) {
        lock(&self.shared.realm).enabled = false;
    }
}
