//! Keys that sign tokens, made once for the whole process.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rsa::{
    RsaPrivateKey,
    pkcs1::EncodeRsaPrivateKey as _,
    pkcs8::{EncodePublicKey as _, LineEnding},
    rand_core::OsRng,
};
use serde::Serialize;

use crate::{error::Error, lock::lock};

/// An RSA key and its name.
pub(super) struct Signer {
    key: EncodingKey,
    header: Header,
    public: String,
}

// === impl Signer ===

impl Signer {
    /// The `nth` key of this process.
    ///
    /// Making one takes a good part of a second, and a test process starts many simulators, so
    /// they share: each begins with the first key and rotates to the next one.
    pub(super) fn nth(nth: usize) -> Result<Arc<Self>, Error> {
        let mut made = lock(&MADE);
        while made.len() <= nth {
            let signer = Self::make(made.len())?;
            made.push(Arc::new(signer));
        }
        made.get(nth).cloned().ok_or_else(Error::unknown_client)
    }

    fn make(nth: usize) -> Result<Self, Error> {
        let private = RsaPrivateKey::new(&mut OsRng, BITS).map_err(Error::signing)?;
        let der = private.to_pkcs1_der().map_err(Error::signing)?;
        let public = private.to_public_key().to_public_key_pem(LineEnding::LF);
        let mut header = Header::new(Algorithm::RS256);
        header.kid = Some(format!("tds-sim-{nth}"));
        Ok(Self {
            key: EncodingKey::from_rsa_der(der.as_bytes()),
            header,
            public: public.map_err(Error::signing)?,
        })
    }

    pub(super) fn sign(&self, claims: &impl Serialize) -> Result<String, Error> {
        jsonwebtoken::encode(&self.header, claims, &self.key).map_err(Error::signing)
    }

    /// The public half as PEM.
    pub(super) fn public(&self) -> &str {
        &self.public
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("kid", &self.header.kid)
            .finish_non_exhaustive()
    }
}

/// Guards the list only; a key is made under it so that no key is made twice.
static MADE: Mutex<Vec<Arc<Signer>>> = Mutex::new(Vec::new());

/// What Keycloak uses.
const BITS: usize = 2048;
