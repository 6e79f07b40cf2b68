//! Root certificates as people have them, a CA's certificate as a server's, and bodies over TLS
//! that end with their connection.

use rcgen::{CertifiedKey, KeyPair};
use tower_tds::{BuildError, Client, Kind};
use tracing_subscriber::filter::LevelFilter;

use crate::client::{
    log::Log,
    raw::{Act, Raw, say},
    transport::built_with,
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
    let good = certificate().cert.pem();
    for (found, broken) in broken_pems() {
        let Some(why) = found.strip_prefix("block 1: ") else {
            continue;
        };
        let broken = String::from_utf8(broken).expect("it is PEM");
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

/// Files that hold no usable certificate, and what is found instead.
fn broken_pems() -> Vec<(&'static str, Vec<u8>)> {
    let made = certificate();
    let (key, pem) = (made.signing_key.serialize_pem(), made.cert.pem());
    let both = format!("{key}{pem}").repeat(20);
    let cut = key.lines().take(4).collect::<Vec<_>>().join("\n");
    let wide = format!("\u{feff}{pem}");
    let wide = wide.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let no_end = "block 1: a block has no END line of its own";
    let line = "block 1: a BEGIN line does not end after its name";
    let other = "block 1: it is another kind of block than CERTIFICATE";
    let none = key.replace("PRIVATE KEY", "CERTIFICATE");
    vec![
        ("the file is empty", Vec::new()),
        (
            "it is DER; convert it with `openssl x509",
            made.cert.der().to_vec(),
        ),
        ("it is UTF-16; save it as UTF-8", wide),
        ("it is no PEM", b"\n\n".to_vec()),
        ("it is no PEM", b"<html>login</html>".to_vec()),
        (no_end, both.replace('\n', "").into()),
        (no_end, both.replace('\n', " ").into()),
        (line, both.replace('\n', "\\n").into()),
        (no_end, cut.into()),
        (
            "block 1: a block is not base64",
            pem.replace("MII", "M!I").into(),
        ),
        (other, key.into()),
        ("block 1: it is no certificate", none.into()),
    ]
}

/// Asserts one short line, with no part of the file as text or as byte codes.
fn assert_shows_nothing(said: &str, file: &[u8]) {
    assert!(said.len() <= 300 && said.lines().count() == 1, "{said}");
    let mut bare = String::from_utf8_lossy(file).into_owned();
    for label in ["-----", "BEGIN ", "END ", "PRIVATE KEY", "CERTIFICATE"] {
        bare = bare.replace(label, "");
    }
    for part in bare.trim().as_bytes().windows(8).take(200) {
        let codes: Vec<_> = part.iter().map(u8::to_string).collect();
        let part = String::from_utf8_lossy(part);
        let is_shown = said.contains(&*part) || said.contains(&codes.join(", "));
        assert!(!is_shown, "{said}");
    }
}

#[test]
fn root_certificate_error_names_what_was_found_and_shows_no_byte_of_it() {
    for (found, file) in broken_pems() {
        let error = build(&file).expect_err(found);
        let text = error.to_string();
        let begins = "a root certificate is not usable: give it in PEM";
        assert!(
            text.starts_with(begins) && text.contains(found),
            "{found}: {text}"
        );
        for said in [text, format!("{error:?}"), format!("{error:#?}")] {
            assert_shows_nothing(&said, &file);
        }
    }
}

#[test]
#[cfg_attr(
    any(windows, target_vendor = "apple"),
    ignore = "the platform has its own store there, whatever the variables name"
)]
fn unusable_root_certificates_of_the_platform_are_an_error_without_a_byte_of_their_file() {
    let nowhere = [("SSL_CERT_FILE", "/nowhere/roots.pem")];
    assert!(built_with("roots", &nowhere).contains("SAID no root certificates"));
    // Without TLS, a client needs none.
    assert!(built_with("loopback", &nowhere).contains("SAID it is built"));
    for (n, (found, file)) in broken_pems().into_iter().enumerate() {
        let path = format!("{}/broken-{n}.pem", env!("CARGO_TARGET_TMPDIR"));
        std::fs::write(&path, &file).expect("a place");
        let said = built_with("roots", &[("SSL_CERT_FILE", &path)]);
        let line = said.lines().find_map(|line| line.split_once("SAID "));
        let (_, said) = line.expect("the child says");
        assert!(said.contains("no root certificates"), "{found}: {said}");
        assert_shows_nothing(said, &file);
        std::fs::remove_file(&path).expect("it is there");
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
