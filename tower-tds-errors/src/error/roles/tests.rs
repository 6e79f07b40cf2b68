use super::Roles;
use crate::error::text::LONGEST;

#[test]
fn roles_are_listed_and_none_is_said_to_be_none() {
    for (roles, text) in [
        (&[][..], "the token carries no realm role"),
        (&["live"], "the token carries the realm roles live"),
        (
            &["live", "a b"],
            "the token carries the realm roles live, a b",
        ),
        (
            &["a\nb\u{202e}"],
            "the token carries the realm roles a\\nb\\u{202e}",
        ),
    ] {
        assert_eq!(Roles::new(roles).to_string(), text);
    }
}

#[test]
fn a_long_list_is_cut_between_roles_and_says_so() {
    let long = "r".repeat(LONGEST);
    let start = "the token carries the realm roles ";
    let cut = format!("{start}{long} and 2 more");
    assert_eq!(Roles::new(&[&*long, "", "x"]).to_string(), cut);
    for role in ["r", "", "\n", "額", &long, &long.repeat(9)] {
        let text = Roles::new(&vec![role; 1_000]).to_string();
        let longest = start.len() + LONGEST + " and 1000 more".len();
        assert!(text.chars().count() <= longest, "{text}");
        assert!(text.ends_with(" more"), "{text}");
    }
}
