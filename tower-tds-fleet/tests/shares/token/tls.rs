//! The store over TLS.

use redis::{Client, TlsCertificates};

use super::world::{World, everything, token};
use crate::shares::redis_server::RedisServer;

#[tokio::test]
async fn member_uses_a_tls_store_only_with_a_trusted_certificate() {
    let name = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = name.self_signed(&key).unwrap().pem();
    let mut port = 0;
    let server = RedisServer::start_with(|folder| {
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        port = free.local_addr().unwrap().port();
        [
            ("--tls-port", port.to_string()),
            ("--bind", "127.0.0.1".to_owned()),
            ("--tls-cert-file", file("certificate", &certificate)),
            ("--tls-key-file", file("key", &key.serialize_pem())),
            ("--tls-auth-clients", "no".to_owned()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
    });
    let Some(server) = server else {
        return;
    };
    let client = |host: &str, root: Option<&str>| {
        let certificates = TlsCertificates {
            client_tls: None,
            root_cert: root.map(|root| root.as_bytes().to_vec()),
        };
        Client::build_with_tls(format!("rediss://{host}:{port}/"), certificates).unwrap()
    };
    let world = World::new();
    token(&world.member(client("localhost", Some(&certificate)))).await;
    token(&world.member(client("localhost", Some(&certificate)))).await;
    assert_eq!(world.posts(), 1);
    assert_eq!(everything(&server).len(), 1);
    // A member that does not trust the server stores nothing there, and requests its own token.
    token(&world.member(client("127.0.0.1", Some(&certificate)))).await;
    token(&world.member(client("localhost", None))).await;
    assert_eq!(world.posts(), 3);
}
