//! Secrets in the memory of a process after all that held them is dropped.
//!
//! Each case is a process of its own, which does one thing with a secret, and its parent, which
//! reads its memory at each stop. What the process is given is masked, so that only this crate has
//! the secret as it is; and the parent looks for pieces, since a freed block loses its beginning to
//! the allocator.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod process;

use std::{
    collections::VecDeque,
    convert::Infallible,
    env,
    fmt::Write as _,
    io::{BufRead as _, Write as _},
    path::PathBuf,
    pin::Pin,
    task::{Context, Poll},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full};
use process::{Process, unmasked};
use rsa::{
    RsaPrivateKey,
    pkcs1::EncodeRsaPrivateKey as _,
    pkcs8::{EncodePrivateKey as _, LineEnding},
    rand_core::OsRng,
    traits::PrivateKeyParts as _,
};
use tower_oidc_cc::{
    Assertion, Credentials, Provider, TokenEndpoint, TokenSource, TokenSourceBuilder,
};
use zeroize::Zeroizing;

/// A secret that is encoded here and there, and long enough that a piece of it survives whatever
/// befalls a freed block.
fn text(name: &str) -> String {
    let mut text = String::new();
    for _ in 0..12 {
        write!(text, "{name}{:016x}+/", fastrand::u64(..)).unwrap();
    }
    text
}

/// As it travels in a form.
fn form(text: &str) -> String {
    text.replace('+', "%2B").replace('/', "%2F")
}

/// The base64 of a text in which it begins anywhere.
fn base64(text: &str) -> Vec<Vec<u8>> {
    let from = |skip| BASE64_STANDARD.encode(&text[skip..]).into_bytes();
    (0..3).map(from).collect()
}

#[test]
fn a_secret_in_a_form_is_wiped_with_its_credentials() {
    let secret = text("s");
    let mut process = Process::start("by_form", &[("SECRET", &secret)]);
    process.stops_at("asked");
    process.finds([form(&secret)]);
    process.stops_at("held");
    process.finds([&secret]);
    process.stops_at("dropped");
    process.finds_nothing([secret.clone(), form(&secret)]);
}

#[test]
fn a_secret_in_a_header_is_wiped_with_its_credentials() {
    let secret = text("s");
    let mut process = Process::start("by_header", &[("SECRET", &secret)]);
    process.stops_at("asked");
    process.stops_at("held");
    process.finds_one_of(base64(&form(&secret)));
    process.stops_at("dropped");
    process.finds_nothing([secret.clone(), form(&secret)]);
    process.finds_nothing(base64(&form(&secret)));
}

#[test]
fn a_secret_that_is_refused_is_wiped_at_once() {
    let secret = text("s");
    let mut process = Process::start("refused", &[("SECRET", &secret)]);
    process.stops_at("refused");
    process.finds_nothing([secret]);
}

#[test]
fn a_secret_from_a_file_is_wiped_with_its_provider() {
    let secret = text("s");
    let path = env::temp_dir().join(format!(
        "memory-{}-{:x}",
        std::process::id(),
        fastrand::u64(..)
    ));
    std::fs::write(&path, &secret).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, mode).unwrap();
    let given = path.to_str().unwrap().to_owned();
    let mut process = Process::start("by_file", &[("SECRET", &given)]);
    process.stops_at("asked");
    process.stops_at("held");
    process.finds([&secret]);
    process.stops_at("dropped");
    process.finds_nothing([secret.clone(), form(&secret)]);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_token_is_wiped_with_its_handle_however_long_it_is() {
    // As many bytes as a token with the roles of a large realm.
    let token: String = (0..90).map(|_| text("t")).collect();
    assert!(token.len() > 20_000);
    let mut process = Process::start("by_form", &[("SECRET", "secret"), ("TOKEN", &token)]);
    process.stops_at("asked");
    process.stops_at("held");
    process.finds([&token]);
    process.stops_at("dropped");
    process.finds_nothing([token]);
}

#[test]
fn a_token_in_a_store_is_wiped_with_its_entry() {
    let token = text("t");
    let mut process = Process::start("shared", &[("SECRET", "secret"), ("TOKEN", &token)]);
    process.stops_at("asked");
    process.stops_at("held");
    process.finds([&token]);
    process.stops_at("dropped");
    process.finds_nothing([token]);
}

#[test]
fn a_private_key_and_its_statements_are_wiped_with_their_credentials() {
    let key = RsaPrivateKey::new(&mut OsRng, 2048).unwrap();
    let prime = key.primes()[0].to_bytes_be();
    let exponent = key.d().to_bytes_be();
    for pem in [
        key.to_pkcs8_pem(LineEnding::LF).unwrap(),
        key.to_pkcs1_pem(LineEnding::LF).unwrap(),
    ] {
        let mut process = Process::start("by_statement", &[("SECRET", &pem)]);
        process.stops_at("asked");
        process.finds(["client_assertion=eyJ"]);
        process.stops_at("held");
        process.finds([&prime, &exponent]);
        process.stops_at("dropped");
        process.finds_nothing(["client_assertion=eyJ"]);
        process.finds_nothing(pem.lines().filter(|line| !line.contains("--")));
        // As files have them. What is left of the arithmetic of the library that signs lies the
        // other way round, and is not this crate's to wipe.
        process.finds_nothing([&prime, &exponent]);
    }
}

/// The other half of each test here: it does nothing unless a test starts it as a process.
#[test]
fn the_process_that_is_looked_at() {
    let Ok(case) = env::var("MEMORY_CASE") else {
        return;
    };
    match case.as_str() {
        "by_form" => live(|| tokens(by_form()).build(service())),
        "by_header" => live(|| {
            let secret = unmasked("SECRET");
            tokens(Credentials::basic("client", secret.as_str()).unwrap()).build(service())
        }),
        "by_file" => live(|| {
            let path = PathBuf::from(unmasked("SECRET").as_str());
            tokens(Provider::file("client", path)).build(service())
        }),
        "by_statement" => live(|| {
            let assertion = Assertion::rs256(unmasked("SECRET").as_bytes()).unwrap();
            tokens(Credentials::private_key_jwt("client", assertion).unwrap()).build(service())
        }),
        "shared" => live(|| {
            let store = crate::support::store::Store::default();
            tokens(by_form()).store(store).build(service())
        }),
        "refused" => {
            let mut secret = unmasked("SECRET");
            secret.push_str("\tx");
            Credentials::new("client", secret.as_str()).unwrap_err();
            drop(secret);
            stop("refused");
        }
        _ => unreachable!("there is no case {case}"),
    }
}

fn by_form() -> Credentials {
    Credentials::new("client", unmasked("SECRET").as_str()).unwrap()
}

fn tokens(provider: impl Into<Provider>) -> TokenSourceBuilder {
    let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "r").unwrap();
    TokenSource::builder(endpoint, provider)
}

/// The life of a handle and of the runtime that it uses, with a stop when there is a token, and
/// another when everything is gone.
fn live(build: impl FnOnce() -> TokenSource) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let tokens = build();
    runtime.block_on(tokens.ready()).unwrap();
    // The store is notified after the response.
    runtime.block_on(async {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    });
    stop("held");
    drop(tokens);
    drop(runtime);
    stop("dropped");
}

/// A client that is its own server, and keeps nothing.
fn service() -> impl tower::Service<
    Request<Full<Bytes>>,
    Response = Response<Frames>,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send
+ 'static {
    tower::service_fn(|request: Request<Full<Bytes>>| async move {
        stop("asked");
        drop(request.into_body().collect().await);
        let token =
            env::var("TOKEN").map_or_else(|_| String::from("t").into(), |_| unmasked("TOKEN"));
        let mut reply = Zeroizing::new(Vec::with_capacity(token.len() + 100));
        reply.extend_from_slice(br#"{"expires_in":86400,"token_type":"Bearer","access_token":""#);
        reply.extend_from_slice(token.as_bytes());
        reply.extend_from_slice(br#""}"#);
        Ok(Response::new(Frames::of(&reply)))
    })
}

/// A body in pieces. A collector cannot grow its buffer in place, and leaves the outgrown one as it
/// is.
struct Frames {
    pieces: VecDeque<Bytes>,
    fences: Vec<Vec<u8>>,
}

// === impl Frames ===

impl Frames {
    fn of(reply: &[u8]) -> Self {
        let piece = |piece: &[u8]| Bytes::from_owner(Zeroizing::new(piece.to_vec()));
        Self {
            pieces: reply.chunks(3_000).map(piece).collect(),
            fences: Vec::with_capacity(100),
        }
    }
}

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.fences.push(vec![0xfe; 64]);
        Poll::Ready(self.pieces.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

/// Prints the name of this stop, and goes on when the parent has looked.
fn stop(at: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{at}").unwrap();
    out.flush().unwrap();
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    assert_eq!(line, "on\n", "the parent is gone");
}
