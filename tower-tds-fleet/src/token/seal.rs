//! Seal of a stored token: XChaCha20-Poly1305 under a key that HKDF (RFC 5869) derives from the
//! client secret.

use std::error::Error;

use chacha20poly1305::{
    Key, XChaCha20Poly1305, XNonce,
    aead::{Aead, Generate, KeyInit, Payload},
};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::{Zeroize, Zeroizing};

#[cfg(test)]
mod tests;

/// Names, seals and opens values with keys derived from one secret.
///
/// ```text
/// secret --extract--> PRK --expand("name", key)--> the name of the entry: 16 bytes, in hex
///                      `----expand("seal", key)--> the key of its seal: 32 bytes
/// value = version (1) | nonce (24) | sealed bytes | tag (16); version and key are authenticated, too
/// ```
///
/// Each key of a token has its own sealing key, so few random nonces are used under one sealing
/// key. The state is wiped on drop.
pub(super) struct Seal {
    kdf: Hkdf<Sha256>,
}

// === impl Seal ===

impl Seal {
    /// Returns `None` for an empty secret, which would not protect anything.
    pub(super) fn new(secret: &str) -> Option<Self> {
        if secret.is_empty() {
            return None;
        }
        let (mut prk, kdf) = Hkdf::extract(Some(LABEL), secret.as_bytes());
        prk.as_mut_slice().zeroize();
        Some(Self { kdf })
    }

    /// Returns the name of the value for this key. Another secret gives another name, so members
    /// with different secrets neither read nor overwrite each other's values.
    pub(super) fn name(&self, key: &str) -> String {
        let mut name = [0; 16];
        self.derive(b"name", key, &mut name);
        format!("{:032x}", u128::from_be_bytes(name))
    }

    /// Seals a value.
    ///
    /// # Errors
    ///
    /// If the system has no random bytes for a nonce.
    pub(super) fn close(
        &self,
        key: &str,
        bytes: &[u8],
    ) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        let nonce = XNonce::try_generate()?;
        let payload = Payload {
            msg: bytes,
            aad: &context(key),
        };
        let sealed = self.cipher(key).encrypt(&nonce, payload)?;
        Ok([&[VERSION], nonce.as_slice(), &sealed].concat())
    }

    /// Opens a value. Returns `None` if it was sealed with another secret, for another key or by
    /// another version, or if it was changed.
    pub(super) fn open(&self, key: &str, value: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (&VERSION, rest) = value.split_first()? else {
            return None;
        };
        let (nonce, sealed) = rest.split_first_chunk::<NONCE>()?;
        let payload = Payload {
            msg: sealed,
            aad: &context(key),
        };
        let opened = self.cipher(key).decrypt(&XNonce::from(*nonce), payload);
        opened.ok().map(Zeroizing::new)
    }

    fn cipher(&self, key: &str) -> XChaCha20Poly1305 {
        let mut derived = Zeroizing::new([0; 32]);
        self.derive(b"seal", key, &mut *derived);
        let mut whole = Key::from(*derived);
        let cipher = XChaCha20Poly1305::new(&whole);
        whole.as_mut_slice().zeroize();
        cipher
    }

    #[expect(
        clippy::expect_used,
        reason = "RFC 5869 allows 255 blocks of output, and this is one"
    )]
    fn derive(&self, what: &[u8], key: &str, out: &mut [u8]) {
        let info = [LABEL, b" ", what, b" ", key.as_bytes()];
        let derived = self.kdf.expand_multi_info(&info, out);
        derived.expect("one block is not too long");
    }
}

/// Returns the associated data, which is authenticated and not stored.
fn context(key: &str) -> Vec<u8> {
    [&[VERSION], key.as_bytes()].concat()
}

/// Separates this use of the secret from all others. Change the version in it whenever you change
/// the format.
const LABEL: &[u8] = b"tower-tds-fleet token 1";
const VERSION: u8 = 1;
/// Length of `XNonce`, which is long enough for random nonces.
const NONCE: usize = 24;
