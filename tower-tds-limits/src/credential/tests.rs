use super::*;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn credential() -> Credential {
    Credential::new(Limits::default())
}

/// When calls are sent again.
fn until(credential: &Credential, now: Instant) -> Option<Instant> {
    credential.pause_at(now).map(|pause| pause.until)
}

#[test]
fn pause_follows_retry_after_and_ends_with_an_accepted_response() {
    let now = Instant::now();
    let credential = credential();
    assert_eq!(credential.refused(now, Some(secs(7))), Some(secs(7)));
    credential.accepted(now + secs(6));
    assert_eq!(until(&credential, now + secs(6)), Some(now + secs(7)));
    assert_eq!(until(&credential, now + secs(7)), None);
    assert!(credential.is_paused(), "no response was accepted yet");
    credential.accepted(now + secs(7));
    assert!(!credential.is_paused());
}

#[test]
fn long_retry_after_is_reported_and_calls_resume_each_minute() {
    let now = Instant::now();
    let credential = credential();
    let wait = credential.refused(now, Some(secs(86_400)));
    assert_eq!(wait, Some(secs(86_400)));
    assert!(
        credential
            .pause_at(now)
            .is_some_and(|pause| pause.is_long(now))
    );
    let minute = now + secs(60);
    assert_eq!(until(&credential, minute), None);
    // Without a hint the announced end stays.
    credential.refused(minute, None);
    assert_eq!(credential.paused_until(), Some(now + secs(86_400)));
    // A later hint takes its place.
    let minute = minute + secs(60);
    credential.refused(minute, Some(secs(30)));
    assert_eq!(credential.paused_until(), Some(minute + secs(30)));
    assert!(
        credential
            .pause_at(minute)
            .is_some_and(|pause| !pause.is_long(minute))
    );
}

#[test]
fn refusals_within_a_pause_can_only_lengthen_it() {
    let now = Instant::now();
    let credential = credential();
    credential.refused(now, Some(secs(5)));
    let later = now + secs(1);
    assert_eq!(credential.refused(later, None), None);
    assert_eq!(credential.refused(later, Some(secs(2))), None);
    assert_eq!(until(&credential, later), Some(now + secs(5)));
    assert_eq!(credential.refused(later, Some(secs(9))), None);
    assert_eq!(until(&credential, later), Some(now + secs(10)));
}

#[test]
fn pauses_without_retry_after_double_up_to_a_minute() {
    let mut now = Instant::now();
    let credential = credential();
    for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(credential.refused(now, None), Some(secs(wait)));
        // A second refusal does not double the next pause once more.
        assert_eq!(credential.refused(now, None), None);
        now += secs(wait);
    }
    credential.accepted(now);
    assert_eq!(credential.refused(now, None), Some(secs(1)));
}

#[test]
fn retry_after_is_capped_at_a_year() {
    let now = Instant::now();
    let credential = credential();
    credential.refused(now, Some(Duration::from_secs(u64::MAX)));
    let year = now + secs(366 * 86_400);
    assert_eq!(credential.paused_until(), Some(year));
    assert_eq!(until(&credential, now), Some(now + secs(60)));
}
