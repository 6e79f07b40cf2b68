use std::{
    sync::LazyLock,
    time::{Duration, UNIX_EPOCH},
};

use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use rsa::{
    RsaPrivateKey,
    pkcs1::EncodeRsaPrivateKey as _,
    pkcs8::{EncodePrivateKey as _, EncodePublicKey as _, LineEnding},
    rand_core::OsRng,
};
use serde::Deserialize;

use super::{Assertion, first};

static RSA: LazyLock<RsaPrivateKey> =
    LazyLock::new(|| RsaPrivateKey::new(&mut OsRng, 2048).unwrap());

#[derive(Debug, Deserialize)]
struct Seen {
    iss: String,
    sub: String,
    aud: String,
    jti: String,
    iat: u64,
    exp: u64,
}

const NOW: Duration = Duration::from_secs(1_800_000_000);
const ENDPOINT: &str = "https://sso.example.com/token";

fn rsa_pem() -> String {
    RSA.to_pkcs8_pem(LineEnding::LF).unwrap().to_string()
}

/// What a server sees that checks the signature.
fn seen(assertion: &Assertion, algorithm: Algorithm, public: &DecodingKey) -> Seen {
    let statement = assertion
        .sign_at(UNIX_EPOCH.checked_add(NOW).unwrap(), "client", ENDPOINT)
        .unwrap();
    let mut validation = Validation::new(algorithm);
    validation.validate_exp = false;
    validation.validate_aud = false;
    decode(statement.as_bytes(), public, &validation)
        .unwrap()
        .claims
}

fn rsa_public() -> DecodingKey {
    let pem = RSA.to_public_key().to_public_key_pem(LineEnding::LF);
    DecodingKey::from_rsa_pem(pem.unwrap().as_bytes()).unwrap()
}

#[test]
fn a_statement_names_the_client_and_the_endpoint_and_lives_a_minute() {
    let assertion = Assertion::rs256(rsa_pem().as_bytes()).unwrap();
    let seen = seen(&assertion, Algorithm::RS256, &rsa_public());
    assert_eq!((&*seen.iss, &*seen.sub), ("client", "client"));
    assert_eq!(seen.aud, ENDPOINT);
    assert_eq!(seen.iat, NOW.as_secs());
    assert_eq!(seen.exp, NOW.as_secs().saturating_add(60));
}

#[test]
fn no_two_statements_have_one_number() {
    let assertion = Assertion::rs256(rsa_pem().as_bytes()).unwrap();
    let number = || seen(&assertion, Algorithm::RS256, &rsa_public()).jti;
    let numbers: std::collections::HashSet<_> = (0..100).map(|_| number()).collect();
    assert_eq!(numbers.len(), 100);
}

#[test]
fn each_algorithm_is_verified_by_its_public_key() {
    let pss = Assertion::ps256(rsa_pem().as_bytes()).unwrap();
    seen(&pss, Algorithm::PS256, &rsa_public());

    let pkcs1 = RSA.to_pkcs1_pem(LineEnding::LF).unwrap();
    let rsa = Assertion::rs256(pkcs1.as_bytes()).unwrap();
    seen(&rsa, Algorithm::RS256, &rsa_public());

    let pair = rcgen::KeyPair::generate().unwrap();
    let public = DecodingKey::from_ec_pem(pair.public_key_pem().as_bytes()).unwrap();
    let curve = Assertion::es256(pair.serialize_pem().as_bytes()).unwrap();
    seen(&curve, Algorithm::ES256, &public);
}

#[test]
fn the_key_is_named_and_the_audience_replaced_on_request() {
    let assertion = Assertion::rs256(rsa_pem().as_bytes()).unwrap();
    let assertion = assertion
        .key_id("2026-11")
        .audience("https://sso.example.com");
    let statement = assertion
        .sign_at(UNIX_EPOCH.checked_add(NOW).unwrap(), "client", ENDPOINT)
        .unwrap();
    let header = decode_header(statement.as_bytes()).unwrap();
    assert_eq!(header.kid.as_deref(), Some("2026-11"));
    assert_eq!(
        seen(&assertion, Algorithm::RS256, &rsa_public()).aud,
        "https://sso.example.com"
    );
}

#[test]
fn what_is_no_private_key_of_the_kind_is_refused_without_being_quoted() {
    let curve = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let broken = "-----BEGIN PRIVATE KEY-----\nY2FuYXJ5\n-----END PRIVATE KEY-----\n";
    let public = RSA.to_public_key().to_public_key_pem(LineEnding::LF);
    for pem in ["", "canary", broken, &curve, &public.unwrap()] {
        for error in [
            Assertion::rs256(pem.as_bytes()).unwrap_err(),
            Assertion::ps256(pem.as_bytes()).unwrap_err(),
        ] {
            let text = format!("{error} {error:?}");
            assert!(text.contains("RSA") && !text.contains("canary"), "{text}");
        }
    }
    for pem in ["", "canary", broken, &rsa_pem()] {
        let text = Assertion::es256(pem.as_bytes()).unwrap_err().to_string();
        assert!(text.contains("P-256"), "{text}");
    }
}

#[test]
fn debug_does_not_show_the_key() {
    let assertion = Assertion::rs256(rsa_pem().as_bytes()).unwrap();
    let text = format!("{assertion:?}");
    assert_eq!(
        text,
        "Assertion { algorithm: RS256, key_id: None, audience: None, .. }"
    );
}

#[test]
fn the_first_block_is_read_whatever_surrounds_it() {
    for pem in [
        "-----BEGIN KEY-----\nY2FuYXJ5\n-----END KEY-----\n",
        "-----BEGIN KEY-----\r\nY2Fu\r\nYXJ5\r\n-----END KEY-----\r\n",
        "Bag Attributes\n  friendlyName: x\n-----BEGIN KEY-----\nY2FuYXJ5\n-----END KEY-----",
        "-----BEGIN KEY-----Y2FuYXJ5-----END KEY----- -----BEGIN CERT-----\nYQ==\n-----END CERT-----",
        "\u{feff}-----BEGIN KEY-----\n  Y2Fu YXJ5\n\n-----END KEY-----\n",
    ] {
        let (label, content) = first(pem.as_bytes()).unwrap();
        assert_eq!(
            (label, &content[..]),
            (&b"KEY"[..], &b"canary"[..]),
            "{pem}"
        );
    }
}

#[test]
fn what_is_no_whole_block_is_none() {
    for pem in [
        "",
        "canary",
        "-----BEGIN KEY-----\nY2FuYXJ5\n",
        "-----BEGIN KEY-----\nY2FuYXJ5\n-----END CERT-----\n",
        "-----BEGIN KEY-----\nY2FuYXJ5=\n-----END KEY-----\n",
        "-----BEGIN KEY-----\nProc-Type: 4,ENCRYPTED\n\nY2FuYXJ5\n-----END KEY-----\n",
        "-----BEGIN KEY-----\nY2FuYXJ5\n-----END KEY",
    ] {
        assert!(first(pem.as_bytes()).is_none(), "{pem}");
    }
}
