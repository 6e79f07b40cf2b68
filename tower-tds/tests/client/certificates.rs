//! Root certificates as people have them, a CA's certificate as a server's, and bodies over TLS
//! that end with their connection.

use rcgen::{CertifiedKey, KeyPair};
use tower_tds::{BuildError, Client, Kind};
use tracing_subscriber::filter::LevelFilter;

use crate::client::{
    log::Log,
    raw::{Act, Raw, say},
    world::{Built as _, https, secret},
};

fn build(pem: &[u8]) -> Result<Client, BuildError> {
    https(secret()).root_certificate(pem).build()
}

fn certificate() -> CertifiedKey<KeyPair> {
    rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate")
}

/// Builds with a bundle, and returns the log.
fn log_of(bundle: &[u8]) -> String {
    let (log, _listening) = Log::listen(LevelFilter::INFO);
    build(bundle).expect("a usable block");
    log.text()
}

#[test]
fn unusable_block_of_a_bundle_is_skipped_with_a_warning() {
    let made = certificate();
    let good = made.cert.pem();
    let key = made.signing_key.serialize_pem();
    let no_end = good.lines().take(4).collect::<Vec<_>>().join("\n");
    let no_base64 = good.replace("MII", "M!I");
    for (broken, why) in [
        (&no_base64, "a block is not base64"),
        (&no_end, "a block has no END line"),
        (
            &key.replace("PRIVATE KEY", "CERTIFICATE"),
            "it is no certificate",
        ),
        (&key, "another kind of block"),
    ] {
        for (n, bundle) in (1..).zip([
            format!("{broken}\n{good}"),
            format!("# comment\n{good}\n{broken}\n{good}"),
            format!("{good}{good}{broken}"),
        ]) {
            let log = log_of(bundle.as_bytes());
            let said = format!("WARN tower_tds::http::tls: block {n} of a root certificate");
            assert!(log.contains(&said) && log.contains(why), "{why}: {log}");
            assert_eq!(log.lines().count(), 1, "{log}");
        }
    }
    for whole in [format!("\u{feff}{good}"), good] {
        assert_eq!(log_of(whole.as_bytes()), "");
    }
}

#[test]
fn root_certificate_error_names_what_was_found() {
    let made = certificate();
    let pem = made.cert.pem();
    let wide = pem.encode_utf16().flat_map(u16::to_le_bytes);
    let wide: Vec<u8> = [0xff, 0xfe].into_iter().chain(wide).collect();
    for (file, found) in [
        (&b""[..], "the file is empty"),
        (made.cert.der(), "it is DER; convert it with `openssl x509"),
        (&wide, "it is UTF-16; save it as UTF-8"),
        (b"\n\n", "it is no PEM"),
        (b"<html>login</html>", "it is no PEM"),
        (
            made.signing_key.serialize_pem().as_bytes(),
            "block 1: it is another kind of block than CERTIFICATE",
        ),
        (
            made.cert.pem().replace("MII", "M!I").as_bytes(),
            "block 1: a block is not base64",
        ),
    ] {
        let error = build(file).expect_err(found).to_string();
        assert!(
            error.starts_with("a root certificate is not usable: give it in PEM"),
            "{error}"
        );
        assert!(error.contains(found), "{error}");
    }
}

/// Serves these bytes over TLS. Returns a client that trusts its certificate.
async fn serve(is_ca: bool, answer: &'static str, is_notified: bool) -> Client {
    let end = move || if is_notified { Act::Close } else { Act::Cut };
    let raw = Raw::of(move |_| vec![say(answer), end()]).listen_tls(is_ca);
    let (raw, pem) = raw.await;
    raw.builder().root_certificate(pem.as_bytes()).built()
}

#[tokio::test]
async fn certificate_of_a_ca_as_a_servers_is_named() {
    let error = serve(true, "", true).await.get("/").await;
    let error = error.expect_err("it is a CA's");
    assert_eq!(error.kind(), Kind::Tls, "{error}");
    let named = "uses a CA's certificate as its own";
    assert!(error.to_string().contains(named), "{error}");
}

#[tokio::test]
async fn body_over_tls_ends_with_a_close_notify_or_is_an_error() {
    let answer = "HTTP/1.1 200 OK\r\n\r\nall of it";
    let notified = serve(false, answer, true).await.get("/").await;
    let body = notified.expect("a success").bytes().await;
    assert_eq!(body.expect("RFC 9112, section 9.8"), "all of it");
    let cut = serve(false, answer, false).await.get("/").await;
    let error = cut.expect("a success").bytes().await;
    let error = error.expect_err("no close_notify");
    assert_eq!(error.kind(), Kind::Truncated, "{error}");
}
