//! The public interface of the client: targets, bodies, certificates, proxies, connectors.

use std::sync::Arc;

use http::{Request, StatusCode};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use tower::Service as _;
use tower_tds::{Builder, Client, Kind, RequestBody};

use crate::client::{
    raw::{Act, Raw},
    world::{
        Built as _, DATA, PATH, builder, builder_at, https, read, secret, secure, served, until,
    },
};

#[derive(Debug, serde::Deserialize)]
struct Named {
    name: String,
}

#[tokio::test]
async fn targets_by_path_url_or_request_reach_the_service() {
    let (server, client) = served().await;
    let text = client.get(PATH).await.expect("data").text().await;
    assert!(text.expect("a whole body").starts_with("{\"name\":\"bus\""));
    let whole = client
        .get(format!("{}{PATH}?a=%2F", server.base_url()))
        .await;
    let named: Named = whole.expect("data").json().await.expect("JSON");
    assert_eq!(named.name, "bus");
    // The simulated service accepts only GET.
    let head = Request::head(PATH).body(()).expect("a request");
    let refused = client.request(head).await.expect_err("no GET");
    assert_eq!(refused.status(), Some(StatusCode::METHOD_NOT_ALLOWED));
    let request = Request::get("/v1/live/bus?b").version(http::Version::HTTP_2);
    let response = client.request(request.body(()).expect("a request")).await;
    assert_eq!(response.expect("data").status(), StatusCode::OK);
    let below = builder_at(&server, &format!("{}/v1/", server.base_url())).built();
    let query = "?$filter=line%20eq%20'307'";
    let called = below.get(format!("/live/bus{query}")).await;
    called.expect("data");
    // `http` lets characters beyond ASCII through.
    let odd = client.get(format!("{PATH}?ü")).query("$top", "ß & '5'");
    odd.await.expect("data");
    let arrivals = server.ledger().arrivals();
    let targets: Vec<_> = arrivals.iter().map(|arrival| &*arrival.target).collect();
    let last = format!("{PATH}{query}");
    assert_eq!(
        targets,
        [
            PATH,
            "/v1/live/bus?a=%2F",
            PATH,
            "/v1/live/bus?b",
            &last,
            "/v1/live/bus?%C3%BC&$top=%C3%9F%20%26%20'5'"
        ]
    );
}

#[tokio::test]
async fn foreign_or_malformed_target_is_refused_unsent() {
    let (server, client) = served().await;
    let (other, _) = served().await;
    let foreign = format!("{}{PATH}", other.base_url());
    let no_paths = [&*foreign, "v1/live/bus", "", "d.example", "?a=b", "*"];
    let unusable = ["/a#b", "/a?b=#c", "/a b", "https://[d/", "/\u{7f}"];
    let targets = no_paths.into_iter().chain(unusable);
    let calls = targets.map(|target| client.get(target));
    let header = client.get(PATH).header("a b", "c");
    // The token is for one host.
    let host = client.get(PATH).header("host", "other.example");
    for call in calls.chain([header, host]) {
        let error = call.await.expect_err("it cannot be sent");
        assert_eq!(error.kind(), Kind::InvalidRequest, "{error}");
    }
    for ledger in [server.ledger(), other.ledger()] {
        assert_eq!(ledger.summary().data_calls, 0);
    }
}

#[test]
fn call_made_without_a_runtime_runs_where_it_is_polled() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let (server, mut client) = runtime.block_on(served());
    let request = Request::get(format!("{}{PATH}", server.base_url()));
    let call = client.call(request.body(RequestBody::default()).expect("a request"));
    let response = runtime.block_on(call).expect("data");
    assert_eq!(response.status(), 200);
    let called = runtime.block_on(read(client.get(PATH)));
    called.expect("data");
}

/// A tunnel is accepted by any version, and by any status that is a success.
const ACCEPTS: [&str; 3] = [
    "1.0 200 OK\r\nvia: 1.1 proxy",
    "1.1 200 Established",
    "1.1 204 OK",
];

#[tokio::test]
async fn client_works_through_a_proxy_with_a_root_certificate() {
    let (server, authority) = secure().await;
    let proxy = Raw::start(|asked| vec![Act::Tunnel(ACCEPTS[asked.call % 3])]).await;
    let client = builder(&server)
        .root_certificate(&authority)
        .proxy(&proxy.url.replace("http://", "http://ann:s3cr3t@"))
        .built();
    client.get(PATH).await.expect("data");
    // A tunnel for the token, and one for the data.
    let heads = proxy.calls();
    for (head, url) in heads.iter().zip([server.auth_url(), server.base_url()]) {
        let authority = url.trim_start_matches("https://");
        let asked = format!(
            "CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n\
             proxy-authorization: Basic YW5uOnMzY3IzdA==\r\n\r\n"
        );
        assert!(head.eq_ignore_ascii_case(&asked), "{head}");
    }
    assert_eq!(heads.len(), 2);
    // The token's tunnel is closed, and its permit is back a second later. The other one counts.
    until(|| client.limiter().snapshot().connections <= 1).await;
    assert_eq!(client.limiter().snapshot().connections, 1);
}

/// The configuration of one's own, with these roots.
fn tls(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring knows them")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

#[tokio::test]
async fn certificates_are_checked_by_the_roots_that_were_given() {
    let (server, authority) = secure().await;
    let own = |roots| builder(&server).tls(tls(roots)).built().get(PATH);
    let error = own(RootCertStore::empty()).await.map(drop);
    let error = error.expect_err("it believes nobody");
    assert_eq!((error.kind(), error.attempts()), (Kind::Tls, 1));
    assert_eq!(server.ledger().summary().token_posts, 0);
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(&authority) {
        let root = root.expect("it is PEM");
        roots.add(root).expect("a certificate");
    }
    own(roots).await.expect("data");
}

#[test]
fn build_refuses_invalid_ignored_or_insecure_settings() {
    let own = || https(secret()).tls(tls(RootCertStore::empty()));
    let given = || https(secret()).connector(HttpConnector::new());
    let at = |data: &str| Client::builder("https://auth.example.org", data, secret());
    let roots = |pem: &[u8]| https(secret()).root_certificate(pem);
    let plain = || at("http://data.example.org");
    let mut alpn = tls(RootCertStore::empty());
    alpn.alpn_protocols = vec![b"h2".to_vec()];
    let cases: [(Builder, &str); 16] = [
        (roots(b"no PEM"), "root certificate"),
        (own().root_certificate(b"any"), "root_certificate"),
        (own().proxy("not an address"), "proxy"),
        (own().proxy("https://127.0.0.1:1080"), "proxy"),
        (own().proxy("http://ann:s3cr3t@[::1]:x"), "proxy"),
        (own().proxy("http://ann:p^ss@proxy:3128"), "proxy"),
        (https(secret()).tls(alpn), "ALPN"),
        (given().root_certificate(b"any"), "connector"),
        (given().tls(tls(RootCertStore::empty())), "connector"),
        (given().proxy("http://127.0.0.1:3128"), "connector"),
        (given().env_proxies(), "connector"),
        // None of these may send the token in clear.
        (plain().connector(HttpConnector::new()), "plain http"),
        (
            Client::builder("http://auth.example.org", DATA, secret()),
            "plain http",
        ),
        (plain(), "plain http is only for this machine"),
        (at("https://data.example.org/v1?key=1"), "query"),
        (Client::builder("no URL", DATA, secret()), ""),
    ];
    for (builder, named) in cases {
        let error = builder.build().expect_err(named);
        let text = error.to_string();
        assert!(text.contains(named), "{named}: {text}");
        // A program that prints the chain prints the line alone.
        assert!(std::error::Error::source(&error).is_none(), "{text}");
    }
    let loopback = at("http://127.0.0.1:1");
    let proxies = [
        "proxy:3128",
        "http://proxy",
        "http://[::1]",
        "http://ann:s3cr3t@[::1]:3128",
    ];
    let proxied = proxies.map(|proxy| own().proxy(proxy));
    for builder in proxied
        .into_iter()
        .chain([own(), given(), loopback, at(DATA)])
    {
        builder.build().expect("all of it can be used");
    }
}
