use super::*;

const SENT: SystemTime = SystemTime::UNIX_EPOCH;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn bearer(token: &'static str) -> HeaderValue {
    HeaderValue::from_str(&format!("Bearer {token}")).unwrap()
}

#[test]
fn a_life_that_is_not_said_is_the_configured_one() {
    let terms = Terms {
        unsaid: secs(70),
        exp: false,
    };
    assert_eq!(terms.life(None, &bearer("opaque"), SENT), secs(70));
    assert_eq!(terms.life(Some(secs(9)), &bearer("opaque"), SENT), secs(9));
    let usual = Terms::default();
    assert_eq!(usual.life(None, &bearer("opaque"), SENT), secs(300));
}

#[cfg(feature = "claims")]
#[test]
fn exp_shortens_a_life_and_never_lengthens_it() {
    let terms = Terms {
        unsaid: secs(300),
        exp: true,
    };
    let life = |token, said| terms.life(said, &bearer(token), SENT);
    // {"alg":"none"} . {"exp":100} . x
    let token = "eyJhbGciOiJub25lIn0.eyJleHAiOjEwMH0.x";
    assert_eq!(life(token, Some(secs(86_400))), secs(100));
    assert_eq!(life(token, Some(secs(60))), secs(60));
    assert_eq!(life(token, None), secs(100));
    let later = SENT + secs(101);
    let over = terms.life(Some(secs(86_400)), &bearer(token), later);
    assert_eq!(over, Duration::ZERO, "it was over before it was asked for");

    // {"exp":1e30}, {"exp":-5}, {"exp":"x"}, {}, and what is no JWT.
    for token in [
        "e30.eyJleHAiOjFlMzB9.x",
        "e30.eyJleHAiOi01fQ.x",
        "e30.eyJleHAiOiJ4In0.x",
        "e30.e30.x",
        "opaque",
    ] {
        assert_eq!(life(token, Some(secs(60))), secs(60), "{token}");
    }

    let deaf = Terms {
        exp: false,
        ..terms
    };
    assert_eq!(deaf.life(Some(secs(200)), &bearer(token), SENT), secs(200));
}
