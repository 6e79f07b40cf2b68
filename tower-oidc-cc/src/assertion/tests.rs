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

use super::Assertion;

static RSA: LazyLock<RsaPrivateKey> =
    LazyLock::new(|| RsaPrivateKey::new(&mut OsRng, 2048).unwrap());

#[derive(Debug, Deserialize)]
struct Seen {
    iss: String,
    sub: String,
    aud: String,
    iat: u64,
    nbf: u64,
    exp: u64,
}

const NOW: Duration = Duration::from_secs(1_800_000_000);
const ENDPOINT: &str = "https://sso.example.com/token";

fn rsa_pem() -> String {
    RSA.to_pkcs8_pem(LineEnding::LF).unwrap().to_string()
}

/// The claims, as a server reads them after a check of the signature.
fn seen(assertion: &Assertion, algorithm: Algorithm, public: &DecodingKey) -> Seen {
    let signed = assertion
        .sign_at(UNIX_EPOCH.checked_add(NOW).unwrap(), "client", ENDPOINT)
        .unwrap();
    let mut validation = Validation::new(algorithm);
    validation.validate_exp = false;
    validation.validate_aud = false;
    decode(signed.as_bytes(), public, &validation)
        .unwrap()
        .claims
}

fn rsa_public() -> DecodingKey {
    let pem = RSA.to_public_key().to_public_key_pem(LineEnding::LF);
    DecodingKey::from_rsa_pem(pem.unwrap().as_bytes()).unwrap()
}

#[test]
fn assertion_names_client_and_endpoint_and_expires_in_half_a_minute() {
    let assertion = Assertion::from_pem(rsa_pem().as_bytes()).unwrap();
    let claims = seen(&assertion, Algorithm::RS256, &rsa_public());
    assert_eq!((&*claims.iss, &*claims.sub), ("client", "client"));
    assert_eq!(claims.aud, ENDPOINT);
    // Keycloak's default refuses more than 60 s.
    let age = NOW.as_secs() - claims.iat;
    assert!((20..60).contains(&age), "{claims:?}");
    assert_eq!(claims.nbf, claims.iat);
    assert_eq!(claims.exp, NOW.as_secs().saturating_add(30));

    let assertion = assertion
        .key_id("2026-11")
        .audience("https://sso.example.com");
    let signed = assertion
        .sign_at(UNIX_EPOCH.checked_add(NOW).unwrap(), "client", ENDPOINT)
        .unwrap();
    let header = decode_header(signed.as_bytes()).unwrap();
    assert_eq!(header.kid.as_deref(), Some("2026-11"));
    let claims = seen(&assertion, Algorithm::RS256, &rsa_public());
    assert_eq!(claims.aud, "https://sso.example.com");
    // And the key is not shown.
    let text = format!("{assertion:?}");
    let shown = r#"key_id: Some("2026-11"), audience: Some("https://sso.example.com"), .. }"#;
    assert_eq!(text, format!("Assertion {{ algorithm: RS256, {shown}"));
}

#[test]
fn each_algorithm_is_verified_by_its_public_key() {
    let pkcs1 = RSA.to_pkcs1_pem(LineEnding::LF).unwrap();
    let rsa = Assertion::from_pem(pkcs1.as_bytes()).unwrap();
    seen(&rsa, Algorithm::RS256, &rsa_public());
    seen(&rsa.pss().unwrap(), Algorithm::PS256, &rsa_public());
    for (kind, algorithm) in [
        (&rcgen::PKCS_ECDSA_P256_SHA256, Algorithm::ES256),
        (&rcgen::PKCS_ECDSA_P384_SHA384, Algorithm::ES384),
        (&rcgen::PKCS_ED25519, Algorithm::EdDSA),
    ] {
        let pair = rcgen::KeyPair::generate_for(kind).unwrap();
        let public = pair.public_key_pem();
        let public = match algorithm {
            Algorithm::EdDSA => DecodingKey::from_ed_pem(public.as_bytes()),
            _ => DecodingKey::from_ec_pem(public.as_bytes()),
        };
        // A certificate may stand before the key.
        let certificate = rcgen::CertificateParams::new(vec!["client".to_owned()]).unwrap();
        let certificate = certificate.self_signed(&pair).unwrap();
        let pem = format!("{}{}", certificate.pem(), pair.serialize_pem());
        let assertion = Assertion::from_pem(pem.as_bytes()).unwrap();
        seen(&assertion, algorithm, &public.unwrap());
        assert!(assertion.pss().unwrap_err().to_string().contains("RSA"));
    }
}

#[test]
fn no_byte_of_a_broken_key_is_in_the_error() {
    let pem = rsa_pem();
    let lines: Vec<&str> = pem.lines().collect();
    let mut errors = 0;
    for broken in [
        pem.replace('\n', ""),
        pem.replace('\n', " "),
        pem.replace('\n', "\\n"),
        lines[1..].join("\n"),
        lines[..lines.len() - 1].join("\n"),
        pem.replace("PRIVATE", "ENCRYPTED PRIVATE"),
        pem.replace("MII", "MI!"),
        lines[1..lines.len() - 1].join(""),
    ] {
        // A key on one line is still read.
        let Err(error) = Assertion::from_pem(broken.as_bytes()) else {
            continue;
        };
        errors += 1;
        for said in [
            error.to_string(),
            format!("{error:?}"),
            format!("{error:#?}"),
        ] {
            assert!(said.len() <= 300, "{said}");
            for line in &lines {
                let codes: Vec<_> = line.bytes().take(6).map(|b| b.to_string()).collect();
                assert!(
                    !said.contains(&line[..8]) && !said.contains(&codes.join(", ")),
                    "{said}"
                );
            }
        }
    }
    assert!(errors >= 5, "{errors}");
}

#[test]
fn unusable_key_is_refused_with_a_reason_and_not_shown() {
    let short = RsaPrivateKey::new(&mut OsRng, 1024).unwrap();
    let short = short.to_pkcs8_pem(LineEnding::LF).unwrap().to_string();
    let public = RSA.to_public_key().to_public_key_pem(LineEnding::LF);
    let block = |label: &str| format!("-----BEGIN {label}-----\nY2FuYXJ5\n-----END {label}-----\n");
    for (pem, reason) in [
        (String::new(), "no private key"),
        ("canary".to_owned(), "no private key"),
        (public.unwrap(), "no private key"),
        (block("PRIVATE KEY"), "damaged"),
        (block("ENCRYPTED PRIVATE KEY"), "encrypted"),
        (block("EC PRIVATE KEY"), "SEC 1"),
        (short, "less than 2048 bits"),
    ] {
        let error = Assertion::from_pem(pem.as_bytes()).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains(reason) && !text.contains("canary"), "{text}");
    }
}
