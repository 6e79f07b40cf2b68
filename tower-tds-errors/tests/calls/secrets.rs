//! A canary in each of forty places appears in no text, and each text keeps its maximum length.

use std::error::Error as _;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt};
use tower_tds_errors::{ClassifyLayer, Error, Kind, RetryLayer};
use tower_tds_outcome::Secrets;

/// Examples of a JSON web token and of keys.
const CANARIES: [&str; 3] = [
    "eyJhbGciOiJSUzI1NiJ9.eyJDQU5BUlkiOjF9.c2lnbmF0dXJl",
    "s3cr3tCANARYs3cr3tCANARYs3cr3t42",
    "CANARY-0a1b2c3d4e5f-CANARY-0a1b2c",
];

/// The places of the canary, marked by `@`: a URI, a status, a response header with its value, and a body.
type Place = (&'static str, u16, &'static str, &'static str, &'static str);

const fn uri(uri: &'static str) -> Place {
    (uri, 503, "x", "", "")
}

const fn header(status: u16, header: &'static str, value: &'static str) -> Place {
    ("/", status, header, value, "")
}

const fn body(body: &'static str) -> Place {
    ("/", 503, "x", "", body)
}

const PLACES: [Place; 44] = [
    uri("https://api.example/@"),
    uri("https://api.example/v2/@/rail"),
    uri("https://api.example/v2/rail;jsessionid=@"),
    uri("https://api.example/v2;token=@/rail"),
    uri("https://api.example/v2?key=@"),
    uri("https://api.example/?@"),
    uri("https://me:@@api.example/v2"),
    uri("https://@@api.example/v2"),
    uri("/v2/rail/@"),
    uri("/v2/rail?token=@"),
    uri("https://api.example/v2/token=@/x"),
    uri("https://api.example//@//"),
    header(302, "location", "https://id.example/@"),
    header(302, "location", "https://id.example/auth;jsessionid=@"),
    header(302, "location", "https://id.example/auth?state=@"),
    header(302, "location", "https://me:@@id.example/auth"),
    header(302, "location", "/login/@"),
    header(302, "location", "//b.example/@"),
    header(302, "location", "not a uri @"),
    header(503, "x-request-id", "@"),
    header(503, "x-kong-request-id", "@"),
    header(503, "x-correlation-id", "id @"),
    header(429, "x-ratelimit-remaining-day", "@"),
    header(429, "ratelimit", "@;r=0;t=5"),
    header(429, "ratelimit-policy", "\"@\";w=60"),
    header(429, "retry-after", "@"),
    header(503, "set-cookie", "session=@"),
    header(503, "content-encoding", "token @"),
    header(401, "www-authenticate", "Bearer error=\"bad token: @\""),
    header(
        401,
        "www-authenticate",
        "Bearer error_description=\"Bearer @ is dead\"",
    ),
    header(
        401,
        "www-authenticate",
        "Basic realm=\"x\", error=\"secret=@\"",
    ),
    header(416, "content-range", "bytes */@"),
    body("Authorization: Bearer @"),
    body("bad header authorization: basic @ here"),
    body("Digest @ is unknown"),
    body("DPoP @"),
    body("secret=@&x=1"),
    body("got token=@ instead"),
    body("{\"message\":\"client_secret: @\"}"),
    body("{\"error\":{\"message\":\"Cookie: sid=@\"}}"),
    body("<p>api_key=@</p>"),
    body("no route for https://api.example/v2/@/rail?x=1"),
    body("no route for /v2;jsessionid=@"),
    body("opaque @ here"),
];

async fn fails(place: Place, canary: &str) -> Option<Error> {
    let (uri, status, name, value, body) = place;
    let uri: http::Uri = uri.replacen('@', canary, 1).parse().ok()?;
    let name = HeaderName::from_static(name);
    let value = HeaderValue::from_str(&value.replacen('@', canary, 1)).unwrap();
    let text = body.replacen('@', canary, 1);
    let service = tower::service_fn(move |_: Request<()>| {
        let mut response = Response::new(text.clone());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response.headers_mut().insert(name.clone(), value.clone());
        std::future::ready(Ok::<_, BoxError>(response))
    });
    let secrets = Secrets::default();
    secrets.add("canary", canary);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new().replay(|_: &()| None))
        .layer(ClassifyLayer::new().secrets(secrets))
        .service(service);
    let request = Request::get(uri).body(()).unwrap();
    stack.oneshot(request).await.err()
}

/// Each text that an error has.
fn texts(error: &Error) -> Vec<String> {
    let mut texts = vec![
        format!("{error}"),
        format!("{error:#}"),
        format!("{error:?}"),
        format!("{error:#?}"),
        error.uri().unwrap_or_default().to_owned(),
        error.message().unwrap_or_default().to_owned(),
    ];
    texts.extend(error.source().map(ToString::to_string));
    texts
}

#[tokio::test(start_paused = true)]
async fn canary_in_any_place_is_never_shown() {
    let mut tried = 0_u32;
    for place in PLACES {
        for canary in CANARIES {
            let Some(error) = fails(place, canary).await else {
                continue;
            };
            tried = tried.saturating_add(1);
            for text in texts(&error) {
                let parts = ["CANARY", "DQU5BUlk", canary];
                let shown = parts.iter().any(|part| text.contains(part));
                assert!(!shown, "{place:?}: {text}");
                assert!(text.chars().count() <= 2_000);
            }
            assert!(error.to_string().chars().count() <= 400, "{error}");
        }
    }
    assert!(tried >= 120, "{tried}");
}

/// Texts that a service or an HTTP client may put the header of a request into, at the `@`, or its credential, at the `$`.
const ECHOES: [&str; 7] = [
    "no such token: $",
    "bad header @ here",
    "{\"message\":\"not valid: @\"}",
    "it is @",
    "Request { headers: {\"authorization\": \"@\"} }",
    "GET https://data.example/v1?sent=@&x=1",
    "[@]",
];

/// The credential consists of words, so that only a redactor that has it finds it.
#[tokio::test(start_paused = true)]
async fn the_authorization_of_a_request_is_in_no_text_of_its_error() {
    for echo in ECHOES {
        for header in [
            "Bearer staple-of-words",
            "Token staple-of-words",
            "staple-of-words",
            "Basic bWU6c3RhcGxlLW9mLXdvcmRz",
        ] {
            for status in [None, Some(503), Some(401), Some(302)] {
                let echo = echo.replace('$', header.rsplit(' ').next().unwrap_or_default());
                let text = if echo.contains("://") {
                    echo.replace('@', &header.replace(' ', "%20"))
                } else {
                    echo.replace('@', header)
                };
                let service = tower::service_fn(move |_: Request<()>| {
                    let text = text.clone();
                    std::future::ready(match status {
                        Some(status) => Response::builder()
                            .status(status)
                            .body(text)
                            .map_err(BoxError::from),
                        None => Err(BoxError::from(std::io::Error::other(text))),
                    })
                });
                let service = ClassifyLayer::new().layer(service);
                let request =
                    Request::get("https://data.example/v1").header("authorization", header);
                let error = service
                    .oneshot(request.body(()).unwrap())
                    .await
                    .unwrap_err();
                let mut texts = texts(&error);
                // The cause itself is unchanged.
                texts.pop();
                for text in texts {
                    assert!(!text.contains("staple") && !text.contains("bWU6"), "{text}");
                }
            }
        }
    }
}

/// Nothing is known to be secret here.
#[test]
fn the_texts_of_foreign_causes_keep_their_words_without_queries_and_passwords_of_urls() {
    for (cause, shown) in [
        (
            "cannot reach https://me:pa55@h.example/v1?key=4bT9x0Qz now",
            "cannot reach https://me:[redacted]@h.example/v1?[redacted] now",
        ),
        ("Cannot GET /v1?key=4bT9x0Qz", "Cannot GET /v1?[redacted]"),
        ("key: TPE10132 not found", "key: TPE10132 not found"),
    ] {
        let error = Error::new(Kind::Unavailable, std::io::Error::other(cause));
        for text in texts(&error).iter().take(4) {
            assert!(text.contains(shown), "{text}");
        }
    }
}

#[test]
fn error_line_and_debug_have_cause_and_next_step() {
    let no_host = std::io::Error::other("failed to lookup address information");
    let error = Error::new(Kind::Connect, std::io::Error::other(no_host));
    let error = error.with_request(
        Method::GET,
        &"https://api.example/v2?key=1".parse().unwrap(),
    );
    assert_eq!(
        error.to_string(),
        "GET https://api.example/v2: connection failed: failed to lookup address \
         information; check host and network, then retry"
    );
    let printed = format!("{error:?}");
    assert!(printed.starts_with(&error.to_string()), "{printed}");
    assert!(printed.ends_with(" [connect, attempts 1]"), "{printed}");
    assert!(!printed.contains('\n'));
    let chain = format!("{error:#}");
    assert_eq!(chain.matches("failed to lookup").count(), 1, "{chain}");
}

#[test]
fn advice_matches_the_failure() {
    let headers = HeaderMap::new();
    let of = |status: u16, text: &str| {
        let status = StatusCode::from_u16(status).unwrap();
        let error = tower_tds_errors::classify(&HeaderMap::new(), status, &headers, text);
        error.unwrap_err().to_string()
    };
    let stripped = of(401, "no Authorization header found");
    assert!(
        stripped.contains("proxy") && !stripped.contains("layer"),
        "{stripped}"
    );
    assert!(of(403, "").contains("what the key may do"));
    assert!(of(407, "").contains("password of the proxy"));
    let unknown = std::io::Error::other("invalid peer certificate: UnknownIssuer");
    let unknown = Error::new(Kind::Tls, unknown).to_string();
    assert!(
        unknown.contains("root certificates of the client"),
        "{unknown}"
    );
    // These texts are for users of a program, who know nothing of layers.
    for kind in Kind::ALL {
        let line = Error::new(*kind, "why").to_string();
        assert!(!line.contains("layer"), "{line}");
    }
}
