use http::{HeaderMap, Response, StatusCode};
use tower_tds_errors::{Asked, classify};
use tower_tds_limits::{Feedback, Outcome};

use super::ReadError;

#[test]
fn what_the_service_answered_is_counted_whatever_it_means() {
    let headers = HeaderMap::new();
    for status in 100..1000 {
        let status = StatusCode::from_u16(status).expect("three digits");
        for text in ["", "invalid token", r#"{"error":"invalid_client"}"#] {
            let Err(error) = classify(Asked::default(), status, &headers, text) else {
                continue;
            };
            let read = ReadError.read(Err::<&Response<()>, _>(&error));
            assert_ne!(read, Outcome::Unsent, "{status} {text}");
            assert_ne!(read, Outcome::Lost, "{status} {text}");
        }
    }
}
