//! The format of a sealed entry. What does not open is shown by `tests/shares/token/entry.rs`.

use super::Seal;

const SECRET: &str = "canary-secret";

fn seal() -> Seal {
    Seal::new(SECRET).unwrap()
}

/// A value that every release must open: it changes with the version alone. It was computed
/// independently of this crate, from RFC 5869 and draft-irtf-cfrg-xchacha-03.
#[test]
fn sealed_value_of_version_one_opens() {
    assert_eq!(seal().name("key"), "3c7b9531351cc252b0419562a6ea7edb");
    let value = "01000102030405060708090a0b0c0d0e0f1011121314151617\
                 49089a951c0e8a5aae1d573e007e27843ce85fe10c";
    let digits = value.as_bytes().chunks(2);
    let byte = |two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
    let value: Vec<u8> = digits.map(byte).collect();
    assert_eq!(seal().open("key", &value).unwrap().as_slice(), b"token");
    let [one, two] = [(); 2].map(|()| seal().close("key", b"token").unwrap());
    assert_ne!(one, two, "its nonce is new");
}
