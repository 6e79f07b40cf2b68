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
fn a_layer_above_decides_about_the_resend_and_the_nearest_gives_the_advice() {
    let mut below = Cause::new(Outcome::RateExceeded);
    below.next = Some("drive slowly".into());
    let mut above = Cause::new(Outcome::RateExceeded);
    (above.resend, above.next) = (Some(Resend::Free), Some("drive".into()));
    above.wait = Some(Duration::from_secs(1));
    below.add(&above);
    assert_eq!((below.resend, below.wait), (Some(Resend::Free), above.wait));
    assert_eq!(
        below.next.as_deref(),
        Some("drive slowly"),
        "the nearest advice"
    );
}

#[test]
fn debug_shows_no_text_of_the_source() {
    let cause = Cause::new(Outcome::Lost).over("GET /?key=CANARY");
    assert!(!format!("{cause:?}").contains("CANARY"));
}
