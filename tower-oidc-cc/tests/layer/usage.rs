//! Other ways to use the crate: without the layer, with a path only, and with discovery.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::layer::support;

use std::sync::{Arc, Mutex, atomic::Ordering};

use http::{Request, Response};
use support::{
    Body, DATA, Endpoint, builder, current, endpoint::Reply, get, origin, probe::Probe, secs,
    settle, tokens,
};
use tokio::time::sleep;
use tower::{Layer, ServiceExt, service_fn};
use tower_oidc_cc::{
    BearerAuthLayer, Credentials, CredentialsProvider, Outcome, TokenEndpoint, TokenSource,
};

#[tokio::test(start_paused = true)]
async fn token_without_the_layer_is_renewed_before_expiry() {
    let endpoint = Endpoint::always(Reply::token(100));
    let source = tokens(&endpoint);
    for turn in 0..500 {
        let token = source.token().await.unwrap();
        assert_eq!(token.header(), &format!("Bearer {}", token.secret()));
        assert!(token.header().is_sensitive());
        assert!(!format!("{token:?}").contains("canary"));
        assert!(endpoint.age(token.secret()) < secs(100), "{turn}");
        assert_eq!(current(&source).unwrap().secret(), token.secret());
        sleep(secs(1)).await;
    }
    assert!(endpoint.count() <= 8, "{}", endpoint.count());
}

#[tokio::test(start_paused = true)]
async fn invalidated_token_stays_in_use_until_its_successor_arrives() {
    let endpoint = Endpoint::scripted([Reply::default()]);
    endpoint.set(Reply::down());
    let source = tokens(&endpoint);
    let first = source.token().await.unwrap();
    sleep(secs(90)).await;
    source.invalidate(&first);
    settle().await;
    assert_eq!(endpoint.count(), 2, "it is asked for in the background");
    assert_eq!(source.token().await.unwrap().secret(), first.secret());
    endpoint.heal();
    // The failed request is still due: the next report after its backoff repeats it.
    sleep(secs(31)).await;
    source.invalidate(&first);
    settle().await;
    let second = source.token().await.unwrap();
    assert_ne!(second.secret(), first.secret());
    // A late report about the first token has no effect on the second, and neither has one about another source's.
    let before = endpoint.count();
    source.invalidate(&first);
    let staging = r#"{"access_token":"of-staging","token_type":"Bearer"}"#;
    let staging = tokens(&Endpoint::always(Reply::body(200, staging)));
    source.invalidate(&staging.token().await.unwrap());
    settle().await;
    assert_eq!(endpoint.count(), before);
    assert_eq!(source.token().await.unwrap().secret(), second.secret());
    // No response shows that a token was good, so its age does: it is dead, and replaced at once.
    sleep(secs(130)).await;
    source.invalidate(&second);
    settle().await;
    assert_eq!(endpoint.count(), before + 1);
}

/// The address of a request, its `Host` headers, and whether a layer for listed origins and one for a single origin send it.
#[tokio::test(start_paused = true)]
async fn only_requests_to_the_origin_and_its_host_get_the_token() {
    let source = tokens(&Endpoint::default());
    let probe = Probe::default();
    let mut sent = 0;
    for (uri, hosts, by_list, by_default) in [
        (DATA, "", true, true),
        (DATA, "api.example.com", true, true),
        (DATA, "API.example.com:443", true, true),
        (
            "https://api.example.com:443/data",
            "api.example.com",
            true,
            true,
        ),
        ("/data", "", false, true),
        ("/data", "api.example.com", false, true),
        ("/data", "API.example.com:443", false, true),
        ("/data", "evil.example.com", false, false),
        (DATA, "evil.example.com", false, false),
        (DATA, "api.example.com evil.example.com", false, false),
        (DATA, "api.example.com:80", false, false),
        ("https://evil.example.com/data", "", false, false),
        ("https://api.example.com@evil/data", "", false, false),
        ("http://api.example.com/data", "", false, false),
    ] {
        let by_default = (
            BearerAuthLayer::for_origin(source.clone(), origin()),
            by_default,
        );
        for (layer, is_sent) in [
            (BearerAuthLayer::new(source.clone(), [origin()]), by_list),
            (BearerAuthLayer::new(source.clone(), []), false),
            by_default,
        ] {
            let mut request = get(uri);
            for host in hosts.split_whitespace() {
                request.headers_mut().append("host", host.parse().unwrap());
            }
            let called = layer.layer(probe.clone()).oneshot(request).await;
            sent += usize::from(is_sent);
            assert_eq!(called.is_ok(), is_sent, "{uri} {hosts}");
            if let Err(error) = called {
                let says = if uri == "/data" && hosts.is_empty() {
                    "for_origin"
                } else {
                    ""
                };
                assert!(error.to_string().contains(says), "{error}");
                let outcome = support::outcome(&support::token_error(error));
                assert_eq!(outcome, Outcome::AddressNotAllowed, "{uri} {hosts}");
            }
        }
    }
    assert_eq!(probe.calls.load(Ordering::SeqCst), sent);
}

/// A server with this discovery document, and the addresses that were requested.
async fn discovered(
    endpoint: TokenEndpoint,
    document: &'static str,
) -> (Result<String, String>, Vec<String>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&asked);
    let token = Endpoint::always(Reply::token(100));
    let client = service_fn(move |request: Request<Body>| {
        let line = format!("{} {}", request.method(), request.uri());
        list.lock().unwrap().push(line);
        let token = token.clone();
        async move {
            if request.method() == http::Method::GET {
                return Ok(Response::new(Body::from(document)));
            }
            token.oneshot(request).await
        }
    });
    let source = TokenSource::builder(endpoint, Credentials::new("id", "secret").unwrap());
    let source = source.build(client);
    let token = source.token().await;
    sleep(secs(90)).await;
    let asked = asked.lock().unwrap().clone();
    let token = token.map(|token| token.secret().to_owned());
    (token.map_err(|error| error.to_string()), asked)
}

#[tokio::test(start_paused = true)]
async fn discovery_document_of_any_standard_is_read_before_each_token_request() {
    let document = r#"{"issuer":"https://sso.example.com/realms/r","token_endpoint":"https://sso.example.com/t?x=1"}"#;
    for (address, path) in [
        (
            "https://sso.example.com/realms/r",
            "/realms/r/.well-known/openid-configuration",
        ),
        (
            " https://sso.example.com/realms/r//",
            "/realms/r/.well-known/openid-configuration",
        ),
        (
            "https://sso.example.com/realms/r/.well-known/openid-configuration/",
            "/realms/r/.well-known/openid-configuration",
        ),
        // RFC 8414, section 3.1, puts the path of the issuer behind the name of the document.
        (
            "https://sso.example.com/.well-known/oauth-authorization-server/realms/r",
            "/.well-known/oauth-authorization-server/realms/r",
        ),
        (
            "https://sso.example.com/realms/r/.well-known/oauth-authorization-server",
            "/realms/r/.well-known/oauth-authorization-server",
        ),
    ] {
        let (token, asked) = discovered(TokenEndpoint::discover(address).unwrap(), document).await;
        assert_eq!(token.unwrap(), "canary-token-1");
        let get = format!("GET https://sso.example.com{path}");
        let post = "POST https://sso.example.com/t?x=1";
        assert_eq!(asked, [&*get, post, &*get, post], "{address}");
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_discovery_document_causes_no_token_request() {
    for (document, reason) in [
        (
            r#"{"issuer":"https://evil.example.com","token_endpoint":"https://sso.example.com/t"}"#,
            "it names another issuer",
        ),
        (
            r#"{"issuer":"https://sso.example.com","token_endpoint":"http://sso.example.com/t"}"#,
            "not an https address",
        ),
        (
            r#"{"issuer":"https://sso.example.com"}"#,
            "it does not have both an issuer and a token_endpoint",
        ),
        ("<html>", "it is a page"),
        ("", "it is empty"),
        (r#"{"issuer":"https://sso.example.com","#, "it ends early"),
        (
            r#"{"issuer":"https://sso.example.com","issuer":"https://sso.example.com","token_endpoint":"https://sso.example.com/t"}"#,
            "twice",
        ),
        (
            r#"{"issuer":["https://sso.example.com"],"token_endpoint":"https://sso.example.com/t"}"#,
            "it does not have both an issuer and a token_endpoint",
        ),
        (
            r#"{"issuer":"https://sso.example.com","token_endpoint":"http://localhost/t"}"#,
            "not an https address",
        ),
    ] {
        let endpoint = TokenEndpoint::discover("https://sso.example.com").unwrap();
        let (token, asked) = discovered(endpoint, document).await;
        let error = token.unwrap_err();
        assert!(
            error.contains(reason) && error.contains("well-known"),
            "{error}"
        );
        assert!(error.contains("the discovery document"), "{error}");
        assert!(
            asked.iter().all(|line| line.starts_with("GET")),
            "{asked:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_provider_or_client_is_named_in_the_error() {
    let uri = TokenEndpoint::keycloak("https://sso.example.com", "r").unwrap();
    let panics = true;
    let provider = CredentialsProvider::from_fn(move || async move {
        assert!(!panics, "the vault has a bug");
        Credentials::new("id", "secret")
    });
    for source in [
        TokenSource::builder(uri, provider).build(Endpoint::default()),
        builder().build(Endpoint::always(Reply::panic())),
    ] {
        let error = source.ready().await.unwrap_err();
        let text = "the HTTP client, the token store or the provider panicked";
        assert!(error.to_string().contains(text), "{error}");
        assert!(error.is_transient());
    }
}
