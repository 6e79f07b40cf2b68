//! `tests/layer` has the rules for refusals and roles under services, call rates and faults.

use super::backoff;
use crate::{TokenError, error::ErrorKind, state::tests::secs};

const ALMOST: f64 = 1.0 - f64::EPSILON;

#[test]
fn backoffs_double_to_thirty_seconds_are_a_minute_or_two_after_a_refusal_and_obey_hints() {
    let busy = || TokenError::new(ErrorKind::Transport);
    let refusal = || TokenError::new(ErrorKind::Rejected(http::StatusCode::UNAUTHORIZED));
    let hinted = |error: TokenError, hint| error.with_retry_after(secs(hint));
    for (failures, error, least, most) in [
        (0, busy(), 0, 1),
        (1, busy(), 0, 2),
        (4, busy(), 0, 16),
        (5, busy(), 0, 30),
        (u32::MAX, busy(), 0, 30),
        (9, refusal(), 60, 120),
        (0, hinted(busy(), 7), 7, 7),
        (9, hinted(busy(), 7), 7, 30),
        (0, hinted(busy(), u64::MAX), 300, 300),
        (0, hinted(refusal(), 70), 70, 120),
    ] {
        let waits = [0.0, ALMOST].map(|draw| backoff(failures, &error, draw));
        let waits = waits.map(|it| it.as_secs_f64().round());
        let [least, most] = [least, most].map(f64::from);
        assert_eq!(
            (waits[0].min(waits[1]), waits[0].max(waits[1])),
            (least, most),
            "{error}"
        );
    }
}
