use super::*;

#[test]
fn the_outermost_cause_is_read() {
    let refused = || Cause::new(Outcome::TokenRefused);
    let wrapped = io::Error::other(io::Error::other(refused()));
    assert_eq!(Outcome::of_error(&wrapped), Some(Outcome::TokenRefused));
    let outer = Cause::new(Outcome::Unsent).over(refused());
    assert_eq!(
        Cause::of(&outer).map(|it| it.outcome),
        Some(Outcome::Unsent)
    );
    assert!(Cause::of(&io::Error::other("no")).is_none());
}

#[test]
fn debug_shows_no_text_of_the_source() {
    let cause = Cause::new(Outcome::Lost).over("GET /?key=CANARY");
    assert!(!format!("{cause:?}").contains("CANARY"));
}
