use super::*;

#[test]
fn each_wait_is_named_in_plain_words() {
    let minute = Duration::from_secs(90);
    for (wait, text) in [
        (Waits::Token, "a token"),
        (
            Waits::Pause(minute),
            "the end of the pause after a 429, 90 s",
        ),
        (
            Waits::Silence(Duration::from_millis(700)),
            "the end of the silence after a refusal, 700 ms",
        ),
        (Waits::Limit(WaitCause::Window), "the rate limit"),
        (Waits::Limit(WaitCause::Counter), "the rate limit"),
        (Waits::Limit(WaitCause::Bucket), "the rate limit"),
        (
            Waits::Limit(WaitCause::InFlight),
            "a place in flight: responses are slow, or bodies are not read",
        ),
        (Waits::Client, "the HTTP client"),
    ] {
        assert_eq!(wait.to_string(), text);
    }
}
