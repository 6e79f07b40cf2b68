use std::time::Duration;

use http::HeaderValue;

use super::*;

fn judged(status: StatusCode, challenges: &[&str]) -> Outcome {
    let mut response = Response::builder().status(status);
    for challenge in challenges {
        response = response.header(header::WWW_AUTHENTICATE, *challenge);
    }
    Outcome::of_response(&response.body(()).unwrap())
}

#[test]
fn a_401_refuses_the_token_unless_it_names_a_role_or_a_header() {
    let refused = [
        r#"Bearer realm="kong",error="invalid token""#,
        r#"Bearer realm="kong",error="Invalid Token""#,
        r#"Bearer realm="kong",error="JWT expired""#,
        r#"Bearer realm="kong",error="invalid cached token""#,
        r#"Bearer realm="r", error="invalid_token", error_description="Token verification failed""#,
        r#"Bearer error="accessing introspection endpoint failed: invalid token""#,
        r#"Bearer error="response indicates failure, status=503""#,
        r#"Bearer error="JSON decoding failed""#,
        r#"Bearer error_description="invalid token""#,
        r#"Bearer realm="a, error=invalid_token""#,
        r#"Bearer realm="a\", error=\"invalid_token""#,
        r#"Bearer realm="error="invalid"#,
        // A realm is a name, and the error of a challenge explains its description.
        r#"Bearer realm="Missing required claims""#,
        r#"Bearer realm="no Authorization header found""#,
        r#"Bearer error_description="Missing required realm role", error="invalid_token""#,
        r#"Bearer error="invalid_token", error_description="Missing required claim: exp""#,
        r#"Bearer error_description="Missing required claim: exp""#,
        "Bearer",
        "",
        "=",
        "error=\"",
    ];
    let no_header = [
        r#"Bearer realm="kong",error="no Authorization header found""#,
        r#"Bearer error="no Bearer authorization header value found""#,
        r#"Bearer error="No Bearer access token value found""#,
    ];
    let no_role = [
        r#"Bearer error="Access token does not have the required scope/role: Missing required realm role""#,
        r#"Bearer error="insufficient_scope""#,
        r#"Bearer error_description="Missing required azp claim""#,
    ];
    for (expected, challenges) in [
        (Outcome::TokenRefused, &refused[..]),
        (Outcome::NoHeader, &no_header),
        (Outcome::RoleMissing, &no_role),
    ] {
        for challenge in challenges {
            let read = judged(StatusCode::UNAUTHORIZED, &[challenge]);
            assert_eq!(read, expected, "{challenge}");
        }
    }
}

#[test]
fn grpc_status_in_the_head_refuses_the_token_or_names_a_role() {
    use Outcome::{Accepted, Other, RoleMissing, TokenRefused};
    let judged = |kind, status| read(200, &[("content-type", kind), ("grpc-status", status)]);
    for kind in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc-web+proto",
        "Application/GRPC; charset=utf-8",
    ] {
        for (statuses, expected) in [
            (&["16", " 16 "][..], TokenRefused),
            (&["7"], RoleMissing),
            (&["", "0", "5", "3", "116"], Accepted),
            // A gateway can send these before it checks a token, like a 503, 504, 429 or 500.
            (&["14", "4", "8", "13", "2"], Other),
        ] {
            for status in statuses {
                assert_eq!(judged(kind, *status), expected, "{kind} {status:?}");
            }
        }
        assert_eq!(read(200, &[("content-type", kind)]), Accepted);
    }
    for kind in ["", "application/json", "text/html", "grpc"] {
        assert_eq!(judged(kind, "16"), Accepted, "{kind:?}");
    }
}

fn read(status: u16, headers: &[(&'static str, &'static str)]) -> Outcome {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        let value = HeaderValue::from_static(value);
        response.headers_mut().append(*name, value);
    }
    Outcome::of_response(&response)
}

#[test]
fn each_status_has_its_outcome_whatever_a_challenge_says() {
    use Outcome::{
        Accepted, ConnectionsExceeded, GatewayTimedOut, Other, QuotaExceeded, RateExceeded,
        RoleMissing, TokenRefused,
    };
    let dead = ("www-authenticate", r#"Bearer error="invalid_token""#);
    let minute = Some(Duration::from_secs(60));
    for (statuses, headers, outcome) in [
        // A gateway may answer before it looks at the token.
        (&[200, 204, 304][..], &[dead][..], Accepted),
        (&[302, 400, 403, 404, 407, 408, 500, 503], &[dead], Other),
        (&[401], &[("www-authenticate", "Basic"), dead], TokenRefused),
        (&[401], &[], TokenRefused),
        (&[423], &[dead], RateExceeded),
        (&[416], &[dead], ConnectionsExceeded),
        (&[416], &[("content-range", "bytes */1234")], Other),
        (&[504], &[dead], GatewayTimedOut),
        (&[429], &[dead], QuotaExceeded(None)),
        (&[429], &[("retry-after", "60")], QuotaExceeded(minute)),
    ] {
        for status in statuses {
            assert_eq!(read(*status, headers), outcome, "{status} {headers:?}");
        }
    }
    for (challenge, outcome) in [
        (r#"Bearer error="insufficient_scope""#, RoleMissing),
        (r#"Bearer error="Missing required role""#, RoleMissing),
        (r#"Bearer error="no Authorization header found""#, Other),
    ] {
        let read = judged(StatusCode::FORBIDDEN, &[challenge]);
        assert_eq!(read, outcome, "{challenge}");
    }
}
