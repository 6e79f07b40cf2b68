//! The realm of the tests.

use std::sync::LazyLock;

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use rsa::{
    RsaPrivateKey,
    pkcs8::{EncodePrivateKey as _, EncodePublicKey as _, LineEnding},
    rand_core::OsRng,
    traits::PublicKeyParts as _,
};

/// Key of the client that has no secret. It is made anew for each run, so that none is kept.
static KEY: LazyLock<RsaPrivateKey> =
    LazyLock::new(|| RsaPrivateKey::new(&mut OsRng, 2048).unwrap());

/// The private half, as PEM.
pub(crate) fn private_key() -> String {
    KEY.to_pkcs8_pem(LineEnding::LF).unwrap().to_string()
}

/// The realm, as the server imports it.
pub(crate) fn json() -> String {
    let public = KEY.to_public_key().to_public_key_der().unwrap();
    let public = BASE64_STANDARD.encode(public.as_bytes());
    let modulus = BASE64_URL_SAFE_NO_PAD.encode(KEY.n().to_bytes_be());
    let realm = include_str!("realm.json").replace("PUBLIC-KEY", &public);
    realm.replace("MODULUS", &modulus)
}
