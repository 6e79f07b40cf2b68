//! TLS to the store, with a certificate on both sides.

use std::net::TcpListener;

use redis::{Client, ClientTlsConfig, TlsCertificates};
use tower_tds::Limits;
use tower_tds_fleet::{Fleet, StoreFault};
use tower_tds_limits::Limiter;

use crate::shares::{ANYWHERE, RedisServer, operators::kind, remember};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_can_require_a_client_certificate() {
    let name = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = name.self_signed(&key).unwrap().pem();
    let key = key.serialize_pem();
    let mut port = 0;
    let store = RedisServer::start_with(|folder| {
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        port = free.local_addr().unwrap().port();
        [
            ("--tls-port", port.to_string()),
            ("--bind", "127.0.0.1".to_owned()),
            ("--tls-cert-file", file("certificate", &certificate)),
            ("--tls-key-file", file("key", &key)),
            ("--tls-ca-cert-file", file("authority", &certificate)),
            ("--tls-auth-clients", "yes".to_owned()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
    });
    let Some(store) = store else {
        return;
    };
    remember(&store);
    let client = |root: Option<&str>, with_key: bool| {
        let client_tls = with_key.then(|| ClientTlsConfig {
            client_cert: certificate.clone().into_bytes(),
            client_key: key.clone().into_bytes(),
        });
        let root_cert = root.map(|root| root.as_bytes().to_vec());
        let certificates = TlsCertificates {
            client_tls,
            root_cert,
        };
        Client::build_with_tls(format!("rediss://localhost:{port}/"), certificates).unwrap()
    };
    let limiter = Limiter::new(Limits::default());
    let fleet = Fleet::join(client(Some(&certificate), true), "test", ANYWHERE, &limiter).unwrap();
    fleet.ready().await.unwrap();
    // A server that is not trusted, and one that does not trust this side.
    assert_eq!(kind(client(None, true)).await, StoreFault::Tls);
    assert_eq!(
        kind(client(Some(&certificate), false)).await,
        StoreFault::Tls
    );
}
