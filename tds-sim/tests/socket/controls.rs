//! Controls: wrong input is an error that shows the right form, everything can be reset, and a path
//! can have an answer of its own.

use std::time::Duration;

use tds_sim::{Config, Part, Server};

use crate::client::{Client, bearer, token_url};

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

async fn server() -> (Server, String) {
    let server = Server::start(Config::default()).await.unwrap();
    let token = server.sim().token(server.client_id()).unwrap();
    (server, token)
}

async fn ask(server: &Server, method: &str, path: &str, kind: &str, body: &str) -> (u16, String) {
    let url = format!("{}{path}", server.admin_url());
    Client::new().ask(method, &url, kind, body).await
}

async fn post(server: &Server, path: &str, body: &str) -> u16 {
    ask(server, "POST", path, FORM, body).await.0
}

async fn status(server: &Server, path: &str, token: &str) -> u16 {
    let url = format!("{}{path}", server.base_url());
    Client::new()
        .get(&url, &[bearer(token)])
        .await
        .unwrap()
        .status
}

#[tokio::test]
async fn wrong_input_is_refused_with_the_known_names_and_changes_nothing() {
    let (server, token) = server().await;
    for (method, path, kind, body, says) in [
        (
            "POST",
            "/faults",
            FORM,
            "faults=503",
            "unknown field `faults`; use fault..., token-fault...",
        ),
        (
            "POST",
            "/faults",
            FORM,
            "fault=503&delay=1s",
            "delay-counting, delay-head",
        ),
        ("POST", "/faults", FORM, "fault=418", "reset-head"),
        ("POST", "/faults", FORM, "token-fault=404", "slow:PAUSE"),
        ("POST", "/faults", FORM, "delay-head=soon", "uniform"),
        ("POST", "/faults", FORM, "fault=503@v1/live", "every:N"),
        (
            "POST",
            "/faults",
            JSON,
            "{\"fault\":503,\"falt\":503}",
            "unknown field `falt`",
        ),
        ("POST", "/faults", JSON, "[503]", "JSON object"),
        ("POST", "/faults", JSON, "{\"fault\":", "JSON object"),
        (
            "POST",
            "/faults",
            "text/plain",
            "fault=503",
            "application/json",
        ),
        ("POST", "/faults", "", "fault=503", "application/json"),
        (
            "POST",
            "/set",
            FORM,
            "quote=1/60s",
            "unknown field `quote`; use expires-in, quota",
        ),
        ("POST", "/set", FORM, "", "nothing to set"),
        (
            "POST",
            "/set",
            FORM,
            "rate=1&rate=2",
            "repeated field `rate`",
        ),
        (
            "POST",
            "/set",
            FORM,
            "rate=1&expires-in=soon",
            "`soon` of field `expires-in`",
        ),
        ("POST", "/set", FORM, "rate=1&per=0s", "above zero"),
        ("POST", "/set", FORM, "rule=guess", "leaky:BURST"),
        (
            "POST",
            "/set",
            FORM,
            "count-connections=some",
            "accepted, busy",
        ),
        ("POST", "/set", FORM, "retry-after=yes", "retry-after"),
        ("POST", "/set", FORM, "error-body=yaml", "html"),
        (
            "POST",
            "/set",
            JSON,
            "{\"rate\":{\"of\":1}}",
            "field `rate`",
        ),
        ("POST", "/set?quote=1", "", "", "unknown field `quote`"),
        (
            "POST",
            "/reset",
            FORM,
            "part=everything",
            "ledger, faults, settings, tokens, limits, stubs",
        ),
        (
            "POST",
            "/revoke-all",
            FORM,
            "token=a",
            "unknown field `token`; use none",
        ),
        (
            "POST",
            "/roles",
            FORM,
            "role=hystory",
            "live, history or none",
        ),
        ("POST", "/roles", FORM, "client=a", "client_id, role"),
        ("POST", "/add-key", FORM, "name=a", "member"),
        (
            "POST",
            "/disable-key",
            FORM,
            "client_id=a",
            "no key has this client id",
        ),
        (
            "PUT",
            "/stub/v1/a",
            FORM,
            "code=200",
            "method, query, status, headers, body, delay",
        ),
        ("PUT", "/stub/v1/a", FORM, "status=99", "status"),
        ("PUT", "/stub/v1/a", FORM, "status=101", "1xx"),
        ("PUT", "/stub/v1/a", FORM, "headers=a", "JSON object"),
        ("PUT", "/stub/v1/a", FORM, "delay=1", "duration"),
        ("DELETE", "/stub/v1/a", "", "", "no stub"),
        (
            "GET",
            "/ledger?pth=/",
            "",
            "",
            "unknown field `pth`; use path, status",
        ),
        ("GET", "/ledger?path=v1", "", "", "/v1/live/*"),
        ("GET", "/ledger?status=ok", "", "", "status"),
        ("GET", "/ledger?from=-1", "", "", "negative"),
        ("GET", "/ledger?wait=few", "", "", "wait"),
        ("GET", "/ledger?wait=1&timeout=2", "", "", "duration"),
        ("GET", "/ledger?timeout=2s", "", "", "wait=3"),
        ("GET", "/summary?status=1", "", "", "unknown field"),
    ] {
        let (status, said) = ask(&server, method, path, kind, body).await;
        assert_eq!(status, 400, "{method} {path} {body}: {said}");
        assert!(said.contains(says), "{method} {path} {body}: {said}");
    }
    for (method, path, expected) in [
        ("GET", "/nothing", 404),
        ("POST", "/nothing", 404),
        ("GET", "/reset", 405),
        ("POST", "/ledger", 405),
        ("POST", "/stub/v1/a", 405),
    ] {
        assert_eq!(
            ask(&server, method, path, "", "").await.0,
            expected,
            "{method} {path}"
        );
    }
    // Two calls in a second are still within the rate, and nothing strikes them.
    assert_eq!(status(&server, "/v1/live/a", &token).await, 200);
    assert_eq!(status(&server, "/v1/live/a", &token).await, 200);
}

#[tokio::test]
async fn stubs_match_by_method_and_by_the_pairs_of_the_query() {
    let (server, token) = server().await;
    for body in [
        "status=201",
        "status=202&query=%24skip%3D20%26a%3Db%2520c",
        "status=203&query=",
        "status=204&method=POST",
    ] {
        assert_eq!(
            ask(&server, "PUT", "/stub/v1/%e5%7Ea", FORM, body).await.0,
            200,
            "{body}"
        );
    }
    for (target, expected) in [
        ("/v1/%E5~a?$skip=20&a=b%20c", 202),
        ("/v1/%e5%7ea?a=b+c&%24skip=20", 202),
        ("/v1/%E5~a?a=b%20c&%24skip=2%30", 202),
        ("/v1/%E5~a?$skip=20", 201),
        ("/v1/%E5~a?$skip=20&a=b%20c&a=b", 201),
        ("/v1/%E5~a", 203),
        ("/v1/%E5~A", 404),
        ("/v1/%E5%2fa", 404),
    ] {
        assert_eq!(status(&server, target, &token).await, expected, "{target}");
    }
    let gone = |body| ask(&server, "DELETE", "/stub/v1/%E5~a", FORM, body);
    assert_eq!(gone("query=a%3Db+c%26%24skip%3D20").await.0, 200);
    assert_eq!(gone("query=a%3Db+c%26%24skip%3D20").await.0, 400);
    assert_eq!(
        status(&server, "/v1/%E5~a?$skip=20&a=b%20c", &token).await,
        201
    );
    let wrong = ask(&server, "PUT", "/stub/v1/a", FORM, "method=G%20T").await;
    assert_eq!(wrong.0, 400, "{}", wrong.1);
}

#[tokio::test]
async fn json_and_forms_say_the_same() {
    let (server, token) = server().await;
    let json = |path, body| {
        ask(
            &server,
            "POST",
            path,
            "application/json; charset=utf-8",
            body,
        )
    };
    let done = (200, "done\n".to_owned());
    assert_eq!(
        json("/faults", r#"{"fault":["503@/v1/live/a","stall:1ms"]}"#).await,
        done
    );
    assert_eq!(status(&server, "/v1/live/a", &token).await, 503);
    assert_eq!(json("/faults", "{}").await, done);
    assert_eq!(
        json(
            "/set",
            r#"{"quota":"0/60s","retry-after":true,"expires-in":5}"#
        )
        .await,
        done
    );
    assert_eq!(status(&server, "/v1/live/a", &token).await, 429);
    assert_eq!(json("/set", r#"{"quota":null}"#).await, done);
    assert_eq!(json("/roles", r#"{"role":["history"]}"#).await, done);
    assert_eq!(
        json("/reset", r#"{"part":["faults","settings"]}"#).await,
        done
    );
    assert_eq!(status(&server, "/v1/live/a", &token).await, 200);
    let (_, key) = json("/add-key", r#"{"member":"b"}"#).await;
    assert!(key.contains("b-"), "{key}");
}

#[tokio::test]
async fn each_limit_can_be_set_while_it_runs() {
    let (server, token) = server().await;
    for (set, expected) in [
        ("rate=0", 423),
        ("rate=50&connections=0", 416),
        ("connections=60&quota=0/60s", 429),
        (
            "quota=none&rule=fixed&per=2s&count-connections=busy&live-bytes=200&error-body=text",
            200,
        ),
    ] {
        assert_eq!(post(&server, "/set", set).await, 200);
        assert_eq!(
            status(&server, "/v1/live/a", &token).await,
            expected,
            "{set}"
        );
    }
    let url = format!("{}/v1/live/a", server.base_url());
    let got = Client::new().get(&url, &[bearer(&token)]).await.unwrap();
    assert_eq!(got.body.len(), 200);
}

#[tokio::test]
async fn each_part_is_reset_alone_or_with_all() {
    let (server, token) = server().await;
    let upset = async || {
        assert_eq!(post(&server, "/faults", "fault=503").await, 200);
        assert_eq!(
            post(&server, "/set", "rate=1&per=60s&quota=1/60s&expires-in=5").await,
            200
        );
        assert_eq!(post(&server, "/roles", "role=none").await, 200);
        assert_eq!(post(&server, "/rotate-secret", "").await, 200);
        assert_eq!(post(&server, "/disable-key", "").await, 200);
        assert_eq!(
            ask(&server, "PUT", "/stub/v1/mine", FORM, "status=201")
                .await
                .0,
            200
        );
    };
    upset().await;
    assert_eq!(status(&server, "/v1/live/a", &token).await, 503);
    assert_eq!(status(&server, "/v1/live/a", &token).await, 423);
    assert_eq!(post(&server, "/reset", "part=limits").await, 200);
    assert_eq!(status(&server, "/v1/live/a", &token).await, 503);
    assert_eq!(
        post(&server, "/reset", "part=faults&part=limits").await,
        200
    );
    assert_eq!(status(&server, "/v1/live/a", &token).await, 200);
    // The quota counts from zero with the limits, and the rate too.
    assert_eq!(post(&server, "/set", "rate=50").await, 200);
    assert_eq!(status(&server, "/v1/live/a", &token).await, 429);
    assert_eq!(post(&server, "/reset", "part=settings").await, 200);
    assert_eq!(status(&server, "/v1/mine", &token).await, 201);
    assert_eq!(post(&server, "/reset", "part=stubs").await, 200);
    assert_eq!(status(&server, "/v1/mine", &token).await, 404);
    // The printed secret is right again, and its key has its roles.
    let fresh = Client::new().token(&server).await;
    assert_eq!(status(&server, "/v1/live/a", &fresh).await, 200);
    assert_eq!(post(&server, "/reset", "part=tokens").await, 200);
    assert_eq!(status(&server, "/v1/live/a", &fresh).await, 401);
    assert!(server.ledger().summary().data_calls > 5);
    assert_eq!(post(&server, "/reset", "part=ledger").await, 200);
    assert_eq!(server.ledger().summary().data_calls, 0);

    upset().await;
    assert_eq!(post(&server, "/reset", "").await, 200);
    assert!(server.ledger().arrivals().is_empty());
    let fresh = Client::new().token(&server).await;
    assert_eq!(status(&server, "/v1/live/a", &fresh).await, 200);
    assert_eq!(status(&server, "/v1/mine", &fresh).await, 404);
    let summary = server.ledger().summary();
    assert_eq!((summary.token_posts, summary.tokens_issued), (1, 1));
    assert_eq!(server.ledger().arrivals()[0].token, Some(1));
    server.reset(Part::ALL);
    assert_eq!(server.ledger().summary().token_posts, 0);
}

#[tokio::test]
async fn sockets_and_calls_in_progress_still_count_after_a_reset() {
    let (server, token) = server().await;
    let busy = post(&server, "/set", "count-connections=busy&connections=1").await;
    assert_eq!(busy, 200);
    let url = format!("{}/v1/history/a?bytes=10000&rate=2000", server.base_url());
    let slow = {
        let token = token.clone();
        tokio::spawn(async move { Client::new().get(&url, &[bearer(&token)]).await })
    };
    while server.ledger().summary().by_status.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(
        post(&server, "/reset", "part=limits&part=ledger").await,
        200
    );
    assert_eq!(server.ledger().summary().sockets_open, 1);
    assert_eq!(status(&server, "/v1/live/a", &token).await, 416);
    slow.abort();
}

#[tokio::test]
async fn the_server_says_when_it_is_ready() {
    let (server, _) = server().await;
    assert_eq!(
        ask(&server, "GET", "/ready", "", "").await,
        (200, "ready\n".to_owned())
    );
    let (_, help) = ask(&server, "GET", "/", "", "").await;
    for path in ["GET /ledger", "POST /reset", "PUT /stub/", "wait"] {
        assert!(help.contains(path), "{path}: {help}");
    }
}

#[tokio::test]
async fn a_stub_sets_status_headers_body_and_delay_of_a_path() {
    let (server, token) = server().await;
    let put = |path, kind, body| ask(&server, "PUT", path, kind, body);
    let get = async |path: &str| {
        let url = format!("{}{path}", server.base_url());
        Client::new().get(&url, &[bearer(&token)]).await.unwrap()
    };
    let stub = r#"{"status":409,"headers":{"X-Reason":"taken","Retry-After":"7"},
        "body":{"stops":[1,2]},"delay":"120ms"}"#;
    assert_eq!(put("/stub/v1/live/bus", JSON, stub).await.0, 200);
    let got = get("/v1/live/bus?line=1").await;
    assert_eq!(
        (
            got.status,
            got.header("x-reason"),
            got.header("retry-after")
        ),
        (409, "taken", "7")
    );
    assert_eq!(got.header("content-type"), "application/json");
    assert_eq!(&*got.body, br#"{"stops":[1,2]}"#);
    let call = server.ledger().arrivals().pop().unwrap();
    assert!(call.answered.unwrap() - call.at >= Duration::from_millis(120));

    let form = r#"status=200&headers={"Content-Type":"text/csv","X-A":"1"}&body=a,b"#;
    assert_eq!(put("/stub/v1/own/*", FORM, form).await.0, 200);
    let got = get("/v1/own/table").await;
    assert_eq!((got.status, got.header("content-type")), (200, "text/csv"));
    assert_eq!((got.header("x-a"), &*got.body), ("1", &b"a,b"[..]));
    // The newest stub for a path answers, and the older one again without it.
    assert_eq!(put("/stub/v1/own/table", FORM, "status=410").await.0, 200);
    assert_eq!(get("/v1/own/table").await.status, 410);
    assert_eq!(
        ask(&server, "DELETE", "/stub/v1/own/table", "", "").await.0,
        200
    );
    assert_eq!(get("/v1/own/table").await.status, 200);
    // Other paths are as before, and a stub is behind the limits and the token check.
    assert_eq!(get("/v1/live/tram").await.status, 200);
    assert_eq!(status(&server, "/v1/own/table", "wrong").await, 401);
    assert_eq!(post(&server, "/set", "rate=0").await, 200);
    assert_eq!(get("/v1/own/table").await.status, 423);
}

#[tokio::test]
async fn faults_strike_only_calls_of_their_path() {
    let (server, token) = server().await;
    let faults = "fault=503@every:2@/v1/live/*&fault=502:2@/v1/*/b&token-fault=503@/elsewhere";
    assert_eq!(post(&server, "/faults", faults).await, 200);
    let mut seen = Vec::new();
    for path in [
        "live/a",
        "history/a",
        "live/a",
        "history/a",
        "history/b",
        "history/a",
        "live/a",
    ] {
        seen.push(status(&server, &format!("/v1/{path}?bytes=10"), &token).await);
    }
    // One call of the burst of 502 is left, for the next call of its path.
    assert_eq!(seen, [200, 200, 503, 200, 502, 200, 200]);
    let credentials = format!(
        "grant_type=client_credentials&client_id={}&client_secret={}",
        server.client_id(),
        server.client_secret()
    );
    let post_token = async || {
        let got = Client::new()
            .post(&token_url(&server), credentials.clone())
            .await;
        got.unwrap().status
    };
    assert_eq!(post_token().await, 200);
    let faults = "token-fault=503@every:2@/auth/*/token";
    assert_eq!(post(&server, "/faults", faults).await, 200);
    assert_eq!((post_token().await, post_token().await), (200, 503));
}
