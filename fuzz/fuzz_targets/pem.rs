//! Any file of keys is read without a panic.
//!
//! Input: the file, or the DER of a key, which is put into PEM with the label that its first byte selects.

#![no_main]

use base64::{Engine, engine::general_purpose::STANDARD};
use libfuzzer_sys::fuzz_target;
use tower_oidc_cc::Assertion;

fuzz_target!(|input: &[u8]| {
    drop(Assertion::from_pem(input));
    if let Some((label, der)) = input.split_first() {
        let labels = ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"];
        let label = labels[usize::from(*label) % labels.len()];
        let text = STANDARD.encode(der);
        let pem = format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n");
        drop(Assertion::from_pem(pem.as_bytes()));
    }
});
