use proptest::prelude::*;

use super::key as key_of;
use crate::TokenEndpoint;

fn key(fields: &[(String, String)], client_id: &str) -> String {
    let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "r").unwrap();
    key_of(&endpoint, fields, client_id)
}

fn fields(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    fields.iter().map(owned).collect()
}

/// Possible separators of two parts, with and without lengths.
const BETWEEN: [&str; 7] = ["", " ", ":", " :", ": ", " 1:", " 11:"];

/// Parts of the characters that separate the parts of a key.
fn part() -> impl Strategy<Value = String> {
    let sign = prop::sample::select(vec![" ", ":", "1", "2", "a"]);
    prop::collection::vec(sign, 1..5).prop_map(|signs| signs.concat())
}

proptest! {
    #[test]
    fn different_token_requests_have_different_store_keys(
        parts in prop::array::uniform5(part()),
        between in prop::sample::select(BETWEEN.to_vec()),
    ) {
        let [a, b, c, d, e] = parts;
        prop_assume!(a != c);
        let merged = [&*b, &*c, &*d].join(between);
        prop_assert_ne!(
            key(&fields(&[(&a, &b), (&c, &d)]), &e),
            key(&fields(&[(&a, &merged)]), &e)
        );
        let (value, client) = ([&*b, &*c].join(between), [&*c, &*d].join(between));
        prop_assert_ne!(key(&fields(&[(&a, &b)]), &client), key(&fields(&[(&a, &value)]), &d));
    }
}
