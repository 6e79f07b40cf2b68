//! Controls: wrong input is an error that shows the right form, everything can be reset, and a path
//! can have an answer of its own.

use std::time::Duration;

use tds_sim::Part;

use crate::client::{Client, FORM, JSON, World, bearer, token_url};

/// Wrong requests to the admin listener, each with a part of the answer. A body that is no JSON is a form.
const WRONG: &str = r#"
POST /faults faults=503 -> unknown field `faults`; use fault..., token-fault...
POST /faults fault=503&delay=1s -> delay-counting, delay-head
POST /faults fault=418 -> reset-head
POST /faults token-fault=404 -> slow:PAUSE
POST /faults delay-head=soon -> uniform
POST /faults fault=503@v1/live -> every:N
POST /faults {"fault":503,"falt":503} -> unknown field `falt`
POST /faults [503] -> JSON object
POST /faults {"fault": -> JSON object
POST /set quote=1/60s -> unknown field `quote`; use expires-in, quota
POST /set  -> nothing to set
POST /set quota=20 -> bad quota `20`; use CALLS/WINDOW, such as 20/60s
POST /set rate=1&rate=2 -> repeated field `rate`
POST /set rate=1&expires-in=soon -> `soon` of field `expires-in`
POST /set rate=1&per=0s -> above zero
POST /set rule=guess -> leaky:BURST
POST /set count-connections=some -> accepted, busy
POST /set retry-after=yes -> retry-after
POST /set error-body=yaml -> html
POST /set {"rate":{"of":1}} -> field `rate`
POST /set?quote=1  -> unknown field `quote`
POST /reset part=everything -> ledger, faults, settings, tokens, limits, stubs
POST /revoke-all token=a -> unknown field `token`; use none
POST /roles role=hystory -> live, history, none
POST /roles client=a -> client_id, role
POST /add-key name=a -> member
POST /disable-key client_id=a -> no key has this client id
POST /rotate-secret client_id=x -> no key has this client id; add one, or correct it
PUT /stub/v1/a code=200 -> method, query, status, headers, body, delay
PUT /stub/v1/a status=99 -> status
PUT /stub/v1/a status=101 -> 1xx
PUT /stub/v1/a headers=a -> JSON object
PUT /stub/v1/a delay=1 -> duration
PUT /stub/v1/a method=G%20T -> method
DELETE /stub/v1/a  -> no stub
GET /ledger?pth=/  -> unknown field `pth`; use path, status
GET /ledger?path=v1  -> /v1/live/*
GET /ledger?status=ok  -> status
GET /ledger?from=-1  -> negative
GET /ledger?wait=few  -> wait
GET /ledger?wait=1&timeout=2  -> duration
GET /ledger?timeout=2s  -> wait=3
GET /summary?status=1  -> unknown field
"#;

#[tokio::test]
async fn wrong_input_is_refused_with_the_known_names_and_changes_nothing() {
    let world = World::new().await;
    for row in WRONG.trim().lines() {
        let (request, says) = row.split_once(" -> ").unwrap();
        let [method, path, body] = request.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let kind = if body.starts_with(['{', '[']) {
            JSON
        } else {
            FORM
        };
        let (status, said) = world.admin(method, path, kind, body).await;
        assert_eq!(status, 400, "{row}: {said}");
        assert!(said.contains(says), "{row}: {said}");
    }
    for kind in ["text/plain", ""] {
        let (status, said) = world.admin("POST", "/faults", kind, "fault=503").await;
        assert!(status == 400 && said.contains(JSON), "{kind}: {said}");
    }
    for (method, path, expected) in [
        ("GET", "/nothing", 404),
        ("POST", "/nothing", 404),
        ("GET", "/reset", 405),
        ("POST", "/ledger", 405),
        ("POST", "/stub/v1/a", 405),
    ] {
        let (status, _) = world.admin(method, path, "", "").await;
        assert_eq!(status, expected, "{method} {path}");
    }
    // Two calls in a second are still within the rate, and nothing strikes them.
    assert_eq!(world.status("/v1/live/a").await, 200);
    assert_eq!(world.status("/v1/live/a").await, 200);
}

#[tokio::test]
async fn each_control_works_as_listed() {
    let world = World::new().await;
    let server = &world.server;
    assert_eq!(
        world.admin("GET", "/ready", "", "").await,
        (200, "ready\n".to_owned())
    );
    let (_, help) = world.admin("GET", "/", "", "").await;
    for path in [
        "GET /ledger",
        "POST /reset",
        "POST /revoke-all",
        "PUT /stub/",
        "wait",
    ] {
        assert!(help.contains(path), "{path}: {help}");
    }
    for (path, form, expected) in [
        ("/faults", "fault=503", 503),
        ("/faults", "", 200),
        ("/set", "quota=0/60s&expires-in=0", 429),
        ("/set", "quota=none&expires-in=60", 200),
        ("/set", "rate=0", 423),
        ("/set", "rate=50&connections=0", 416),
        (
            "/set",
            "connections=60&rule=fixed&per=2s&count-connections=busy",
            200,
        ),
        ("/revoke-all", "", 401),
    ] {
        assert_eq!(world.control(path, form).await, "done\n");
        assert_eq!(world.status("/v1/live/a").await, expected, "{path} {form}");
    }
    for (role, expected) in [("history", 401), ("live", 200)] {
        world.control("/roles", &format!("role={role}")).await;
        let fresh = server.token(server.client_id()).unwrap();
        assert_eq!(world.status_of("/v1/live/a", &fresh).await, expected);
    }
    world
        .control("/set", "live-bytes=200&error-body=text")
        .await;
    let fresh = server.token(server.client_id()).unwrap();
    let url = world.url("/v1/live/a");
    let got = Client::new().get(&url, &[bearer(&fresh)]).await.unwrap();
    assert_eq!(got.body.len(), 200);

    world.control("/disable-key", "").await;
    let key = world.control("/rotate-secret", "").await;
    assert!(!key.contains(server.client_secret()) && key.contains(server.client_id()));
    for expected in [200, 200, 200, 400] {
        let (status, _) = world.admin("POST", "/add-key", FORM, "member=b").await;
        assert_eq!(status, expected);
    }
}

#[tokio::test]
async fn stubs_match_by_method_and_by_the_pairs_of_the_query() {
    let world = World::new().await;
    for body in [
        "status=201",
        "status=202&query=%24skip%3D20%26a%3Db%2520c",
        "status=203&query=",
        "status=204&method=POST",
    ] {
        let (status, _) = world.admin("PUT", "/stub/v1/%e5%7Ea", FORM, body).await;
        assert_eq!(status, 200, "{body}");
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
        assert_eq!(world.status(target).await, expected, "{target}");
    }
    let post = http::Request::post(world.url("/v1/%E5~a"));
    let post = post.header("authorization", format!("Bearer {}", world.token));
    let posted = Client::new().send(post.body(<_>::default()).unwrap()).await;
    assert_eq!(posted.unwrap().status, 204);
    let gone = |body| world.admin("DELETE", "/stub/v1/%E5~a", FORM, body);
    assert_eq!(gone("query=a%3Db+c%26%24skip%3D20").await.0, 200);
    assert_eq!(gone("query=a%3Db+c%26%24skip%3D20").await.0, 400);
    assert_eq!(world.status("/v1/%E5~a?$skip=20&a=b%20c").await, 201);
}

#[tokio::test]
async fn json_and_forms_say_the_same() {
    let world = World::new().await;
    let json = async |path, body| {
        let kind = "application/json; charset=utf-8";
        world.admin("POST", path, kind, body).await
    };
    for (path, body, expected) in [
        (
            "/faults",
            r#"{"fault":["503@/v1/live/a","stall:1ms"]}"#,
            503,
        ),
        ("/faults", "{}", 200),
        (
            "/set",
            r#"{"quota":"0/60s","retry-after":true,"expires-in":5}"#,
            429,
        ),
        ("/set", r#"{"quota":null}"#, 200),
        ("/roles", r#"{"role":["history"]}"#, 200),
        ("/reset", r#"{"part":["faults","settings"]}"#, 200),
    ] {
        assert_eq!(json(path, body).await, (200, "done\n".to_owned()), "{body}");
        assert_eq!(world.status("/v1/live/a").await, expected, "{body}");
    }
    let (_, key) = json("/add-key", r#"{"member":"b"}"#).await;
    assert!(key.contains("b-"), "{key}");
}

#[tokio::test]
async fn each_part_is_reset_alone_or_with_all() {
    let world = World::new().await;
    let server = &world.server;
    let upset = async || {
        for (path, form) in [
            ("/faults", "fault=503"),
            ("/set", "rate=1&per=60s&quota=1/60s&expires-in=5"),
            ("/roles", "role=none"),
            ("/rotate-secret", ""),
            ("/disable-key", ""),
        ] {
            world.control(path, form).await;
        }
        let put = world
            .admin("PUT", "/stub/v1/mine", FORM, "status=201")
            .await;
        assert_eq!(put.0, 200);
    };
    upset().await;
    assert_eq!(world.status("/v1/live/a").await, 503);
    assert_eq!(world.status("/v1/live/a").await, 423);
    // The quota counts from zero with the limits, and the rate too.
    for (path, form, target, expected) in [
        ("/reset", "part=limits", "/v1/live/a", 503),
        ("/reset", "part=faults&part=limits", "/v1/live/a", 200),
        ("/set", "rate=50", "/v1/live/a", 429),
        ("/reset", "part=settings", "/v1/mine", 201),
        ("/reset", "part=stubs", "/v1/mine", 404),
    ] {
        world.control(path, form).await;
        assert_eq!(world.status(target).await, expected, "{form}");
    }
    // The printed secret is right again, and its key has its roles.
    let fresh = Client::new().token(server).await;
    assert_eq!(world.status_of("/v1/live/a", &fresh).await, 200);
    world.control("/reset", "part=tokens").await;
    assert_eq!(world.status_of("/v1/live/a", &fresh).await, 401);
    assert!(server.ledger().summary().data_calls > 5);
    world.control("/reset", "part=ledger").await;
    assert_eq!(server.ledger().summary().data_calls, 0);

    upset().await;
    world.control("/reset", "").await;
    assert!(server.ledger().arrivals().is_empty());
    let fresh = Client::new().token(server).await;
    assert_eq!(world.status_of("/v1/live/a", &fresh).await, 200);
    assert_eq!(world.status_of("/v1/mine", &fresh).await, 404);
    let summary = server.ledger().summary();
    assert_eq!((summary.token_posts, summary.tokens_issued), (1, 1));
    assert_eq!(server.ledger().arrivals()[0].token, Some(1));
    server.reset(Part::ALL);
    assert_eq!(server.ledger().summary().token_posts, 0);
}

#[tokio::test]
async fn sockets_and_calls_in_progress_still_count_after_a_reset() {
    let world = World::new().await;
    world
        .control("/set", "count-connections=busy&connections=1")
        .await;
    let url = world.url("/v1/history/a?bytes=10000&rate=2000");
    let token = world.token.clone();
    let slow = tokio::spawn(async move { Client::new().get(&url, &[bearer(&token)]).await });
    while world.server.ledger().summary().by_status.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.control("/reset", "part=limits&part=ledger").await;
    assert_eq!(world.server.ledger().summary().sockets_open, 1);
    assert_eq!(world.status("/v1/live/a").await, 416);
    slow.abort();
}

#[tokio::test]
async fn a_stub_sets_status_headers_body_and_delay_of_a_path() {
    let world = World::new().await;
    let put = async |path: &str, kind, body| {
        let (status, text) = world.admin("PUT", path, kind, body).await;
        assert_eq!(status, 200, "{text}");
    };
    let stub = r#"{"status":409,"headers":{"X-Reason":"taken","Retry-After":"7"},
        "body":{"stops":[1,2]},"delay":"120ms"}"#;
    put("/stub/v1/live/bus", JSON, stub).await;
    let got = world.get("/v1/live/bus?line=1", &[]).await;
    let headers = ["x-reason", "retry-after", "content-type"].map(|name| got.header(name));
    assert_eq!(
        (got.status, headers),
        (409, ["taken", "7", "application/json"])
    );
    assert_eq!(&*got.body, br#"{"stops":[1,2]}"#);
    let call = world.server.ledger().arrivals().pop().unwrap();
    assert!(call.answered.unwrap() - call.at >= Duration::from_millis(120));

    let form = r#"status=200&headers={"Content-Type":"text/csv","X-A":"1"}&body=a,b"#;
    put("/stub/v1/own/*", FORM, form).await;
    let got = world.get("/v1/own/table", &[]).await;
    assert_eq!((got.status, got.header("content-type")), (200, "text/csv"));
    assert_eq!((got.header("x-a"), &*got.body), ("1", &b"a,b"[..]));
    // The newest stub for a path answers, and the older one again without it.
    put("/stub/v1/own/table", FORM, "status=410").await;
    assert_eq!(world.status("/v1/own/table").await, 410);
    let gone = world.admin("DELETE", "/stub/v1/own/table", "", "").await;
    assert_eq!(gone.0, 200);
    assert_eq!(world.status("/v1/own/table").await, 200);
    // Other paths are as before, and a stub is behind the limits and the token check.
    assert_eq!(world.status("/v1/live/tram").await, 200);
    assert_eq!(world.status_of("/v1/own/table", "wrong").await, 401);
    world.control("/set", "rate=0").await;
    assert_eq!(world.status("/v1/own/table").await, 423);
}

#[tokio::test]
async fn faults_strike_only_calls_of_their_path() {
    let world = World::new().await;
    let server = &world.server;
    let faults = "fault=503@every:2@/v1/live/*&fault=502:2@/v1/*/b&token-fault=503@/elsewhere";
    world.control("/faults", faults).await;
    let mut seen = Vec::new();
    for path in "live/a history/a live/a history/a history/b history/a live/a".split(' ') {
        seen.push(world.status(&format!("/v1/{path}?bytes=10")).await);
    }
    // One call of the burst of 502 is left, for the next call of its path.
    assert_eq!(seen, [200, 200, 503, 200, 502, 200, 200]);
    let (id, secret) = (server.client_id(), server.client_secret());
    let form = format!("grant_type=client_credentials&client_id={id}&client_secret={secret}");
    let post_token = async || {
        let got = Client::new().post(&token_url(server), form.clone()).await;
        got.unwrap().status
    };
    assert_eq!(post_token().await, 200);
    world
        .control("/faults", "token-fault=503@every:2@/auth/*/token")
        .await;
    assert_eq!((post_token().await, post_token().await), (200, 503));
}
