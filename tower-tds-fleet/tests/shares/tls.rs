//! TLS to the store, with a certificate on both sides.

use redis::{Client, ClientTlsConfig, TlsCertificates};
use tower_tds_fleet::FleetError;

use crate::shares::{
    RedisServer, free_port,
    operators::{fails, fits},
    or_skip, remember,
    token::world::{World, everything, token},
};

/// A store with a certificate for `localhost`.
struct Store {
    server: RedisServer,
    port: u16,
    certificate: String,
    key: String,
}

// === impl Store ===

impl Store {
    /// Starts a store that requires a certificate of its clients, or not.
    fn start(of_clients: &str) -> Option<Self> {
        let name = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = name.self_signed(&key).unwrap().pem();
        let key = key.serialize_pem();
        let mut port = 0;
        let server = RedisServer::start_with(|folder| {
            let file = |name: &str, text: &str| {
                let path = folder.join(name);
                std::fs::write(&path, text).unwrap();
                path.display().to_string()
            };
            port = free_port();
            [
                ("--tls-port", port.to_string()),
                ("--bind", "127.0.0.1".to_owned()),
                ("--tls-cert-file", file("certificate", &certificate)),
                ("--tls-key-file", file("key", &key)),
                ("--tls-ca-cert-file", file("authority", &certificate)),
                ("--tls-auth-clients", of_clients.to_owned()),
            ]
        })?;
        Some(Self {
            server,
            port,
            certificate,
            key,
        })
    }

    fn client(&self, host: &str, trusts: bool, has_key: bool) -> Client {
        let client_tls = has_key.then(|| ClientTlsConfig {
            client_cert: self.certificate.clone().into_bytes(),
            client_key: self.key.clone().into_bytes(),
        });
        let certificates = TlsCertificates {
            client_tls,
            root_cert: trusts.then(|| self.certificate.clone().into_bytes()),
        };
        let url = format!("rediss://{host}:{}/", self.port);
        Client::build_with_tls(url, certificates).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_can_require_a_client_certificate() {
    let store = or_skip!(Store::start("yes"));
    remember(&store.server);
    fits(store.client("localhost", true, true)).await;
    // A server that is not trusted, and one that does not trust this side.
    for (trusts, has_key) in [(false, true), (true, false)] {
        let client = store.client("localhost", trusts, has_key);
        fails(client, FleetError::Tls).await;
    }
}

#[tokio::test]
async fn member_shares_its_token_over_tls_only_with_a_trusted_certificate() {
    let store = or_skip!(Store::start("no"));
    let world = World::new();
    let member = |host: &str, trusts: bool| world.member(store.client(host, trusts, false));
    // On a busy machine TLS may take longer than a member waits for its store, so members start until one takes the token of another.
    let mut posts = u64::MAX;
    while posts != world.posts() {
        posts = world.posts();
        assert!(posts < 20, "none took the token of another");
        token(&member("localhost", true)).await;
    }
    // A member that does not trust the server stores nothing there, and requests its own token.
    for (host, trusts) in [("127.0.0.1", true), ("localhost", false)] {
        token(&member(host, trusts)).await;
        posts += 1;
        let stored = everything(&store.server).len();
        assert_eq!((world.posts(), stored), (posts, 1), "{host} {trusts}");
    }
}
