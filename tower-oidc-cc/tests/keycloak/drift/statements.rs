//! Token requests with a signed statement, right and wrong.

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rsa::{
    RsaPrivateKey,
    pkcs8::{EncodePrivateKey as _, LineEnding},
    rand_core::OsRng,
};
use serde_json::{Value, json};

use super::{
    rows::granted,
    side::{Row, Statement},
};
use crate::realm;

/// Every row with its name.
pub(super) fn rows() -> Vec<(&'static str, Row)> {
    let mut rows = claims();
    rows.extend(signatures());
    rows.extend(fields());
    rows
}

/// Statements with other claims.
fn claims() -> Vec<(&'static str, Row)> {
    let says = |change| asserted("").statement(Statement { change, ..RIGHT });
    vec![
        ("a statement", says(|_| ())),
        ("a statement twice", says(|_| ()).twice()),
        (
            "for the issuer",
            says(|claims| claims["aud"] = json!("ISSUER")),
        ),
        (
            "for one in a list",
            says(|claims| claims["aud"] = json!(["ISSUER"])),
        ),
        (
            "for two",
            says(|claims| {
                claims["aud"] = json!(["ISSUER", "ISSUER/protocol/openid-connect/token"])
            }),
        ),
        (
            "for somebody else",
            says(|claims| claims["aud"] = json!("https://other.example")),
        ),
        ("for nobody", says(|claims| without(claims, "aud"))),
        ("without a number", says(|claims| without(claims, "jti"))),
        ("without an end", says(|claims| without(claims, "exp"))),
        ("over", says(|claims| shift(claims, "exp", -120))),
        ("of ten minutes", says(|claims| shift(claims, "exp", 600))),
        ("of a day", says(|claims| shift(claims, "exp", DAY))),
        (
            "without a beginning",
            says(|claims| {
                shift(claims, "exp", -30);
                without(claims, "iat");
            }),
        ),
        (
            "of a day, without a beginning",
            says(|claims| {
                shift(claims, "exp", DAY);
                without(claims, "iat");
            }),
        ),
        (
            "of tomorrow",
            says(|claims| {
                shift(claims, "exp", DAY);
                shift(claims, "iat", DAY);
            }),
        ),
        ("of yesterday", says(|claims| shift(claims, "iat", -DAY))),
        (
            "of two minutes ago",
            says(|claims| shift(claims, "iat", -120)),
        ),
        ("in ten seconds", says(|claims| shift(claims, "iat", 10))),
        (
            "not before tomorrow",
            says(|claims| {
                let begins = claims["iat"].as_i64().unwrap() + DAY;
                claims["nbf"] = json!(begins);
            }),
        ),
        (
            "by another issuer",
            says(|claims| claims["iss"] = json!("no")),
        ),
        ("by no issuer", says(|claims| without(claims, "iss"))),
        ("of nobody", says(|claims| without(claims, "sub"))),
        (
            "of an unknown client",
            says(|claims| {
                claims["iss"] = json!("no");
                claims["sub"] = json!("no");
            }),
        ),
    ]
}

/// Statements with other signatures and other headers.
fn signatures() -> Vec<(&'static str, Row)> {
    let signed = |header, key| {
        asserted("").statement(Statement {
            header,
            key,
            ..RIGHT
        })
    };
    vec![
        ("by another key", signed(|_| (), another_key)),
        (
            "by another algorithm",
            signed(|header| header.alg = Algorithm::PS256, key),
        ),
        (
            "with a secret",
            signed(
                |header| header.alg = Algorithm::HS256,
                || EncodingKey::from_secret(b"secret"),
            ),
        ),
        (
            "with an unknown name of the key",
            signed(|header| header.kid = Some("no".to_owned()), key),
        ),
    ]
}

/// Statements beside other fields of the form.
fn fields() -> Vec<(&'static str, Row)> {
    let right = |row: Row| row.statement(RIGHT);
    let named =
        |change| asserted("client_id=<id:statement>&").statement(Statement { change, ..RIGHT });
    vec![
        ("with its client's id", named(|_| ())),
        (
            "with its client's id, by another issuer",
            named(|claims| claims["iss"] = json!("no")),
        ),
        (
            "with its client's id, of nobody",
            named(|claims| without(claims, "sub")),
        ),
        (
            "with another's id",
            named(|claims| {
                claims["iss"] = json!("no");
                claims["sub"] = json!("no");
            }),
        ),
        (
            "with a secret client's id",
            right(asserted("client_id=<id:post>&")),
        ),
        ("with an unknown scope", right(asserted("scope=nope&"))),
        (
            "in the secret's place",
            right(granted(
                "client_id=<id:statement>&client_secret=<statement>",
            )),
        ),
        (
            "without a type",
            right(granted("client_assertion=<statement>")),
        ),
        (
            "of another type",
            right(granted(
                "client_assertion_type=no&client_assertion=<statement>",
            )),
        ),
        (
            "of another type, with the id",
            right(granted(
                "client_id=<id:statement>&client_assertion_type=no&client_assertion=<statement>",
            )),
        ),
        ("a type alone", granted(TYPE)),
        (
            "a type and the id",
            granted(&format!("client_id=<id:statement>&{TYPE}")),
        ),
        (
            "no statement",
            granted(&format!("{TYPE}&client_assertion=no")),
        ),
        (
            "no statement, in three parts",
            granted(&format!("{TYPE}&client_assertion=a.b.c")),
        ),
        (
            "no statement, with the id",
            granted(&format!(
                "client_id=<id:statement>&{TYPE}&client_assertion=no"
            )),
        ),
        (
            "an empty one, with the id",
            granted(&format!(
                "client_id=<id:statement>&{TYPE}&client_assertion="
            )),
        ),
    ]
}

fn asserted(more: &str) -> Row {
    granted(&format!("{more}{TYPE}&client_assertion=<statement>"))
}

fn without(claims: &mut Value, name: &str) {
    claims.as_object_mut().unwrap().remove(name);
}

fn shift(claims: &mut Value, name: &str, seconds: i64) {
    claims[name] = json!(claims[name].as_i64().unwrap() + seconds);
}

fn key() -> EncodingKey {
    EncodingKey::from_rsa_pem(realm::private_key().as_bytes()).unwrap()
}

fn another_key() -> EncodingKey {
    let key = RsaPrivateKey::new(&mut OsRng, 2048).unwrap();
    let pem = key.to_pkcs8_pem(LineEnding::LF).unwrap();
    EncodingKey::from_rsa_pem(pem.as_bytes()).unwrap()
}

const RIGHT: Statement = Statement {
    change: |_: &mut Value| (),
    header: |_: &mut Header| (),
    key,
};
const DAY: i64 = 86_400;
const TYPE: &str = "client_assertion_type=urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
