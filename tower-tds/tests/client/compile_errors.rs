//! Programs that do not compile. The compiler's messages are those of the third table of
//! `TROUBLES.md`, and the fix in the same row of it makes each program compile.

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::client::troubles::{fits, rows};

/// For each row of the table a program that does not compile, and one that does.
const PROGRAMS: [[&str; 2]; 6] = [
    [
        "retry().service(BoxService::new(hyper)).oneshot(text())",
        "retry().service(BoxCloneService::new(hyper)).oneshot(text())",
    ],
    [
        "check(client.layer().layer(reqwest))",
        "check(client.layer().layer(service_fn(move |request: http::Request<String>| {
            let sent = request.try_into().map(|request| reqwest.execute(request));
            async move { Ok::<_, reqwest::Error>(http::Response::<reqwest::Body>::from(sent?.await?)) }
        })))",
    ],
    [
        "check_uploads(client.layer().layer(uploads))",
        "check_uploads(client.layer().retry(RetryLayer::new().replay(copy)).layer(uploads))",
    ],
    [
        "check(client.layer().layer(BoxService::new(hyper)))",
        "check(client.layer().layer(BoxCloneService::new(hyper)))",
    ],
    [
        "client.oneshot(passed_on)",
        "client.oneshot(passed_on.map(RequestBody::stream))",
    ],
    [
        "sent(async move { client.layer().layer(boxed).oneshot(text()).await.is_ok() })",
        "sent(client.layer().layer(boxed).oneshot(text()))",
    ],
];

/// The crates that a stack is made with, as this test was.
struct Crates {
    built: PathBuf,
    found: Vec<(&'static str, PathBuf)>,
}

// === impl Crates ===

impl Crates {
    /// The files of the latest build of `tower_tds`. There may be several builds.
    fn find() -> Self {
        let this = env::current_exe().expect("this test");
        let mut crates = Self {
            built: this.parent().expect("what was built").to_owned(),
            found: Vec::new(),
        };
        for (name, probe) in [
            ("tower_tds", "pub fn f(_: tower_tds::Client) {}"),
            (
                "http",
                "pub fn f(c: tower_tds::Client, r: http::Request<()>) { drop(c.request(r)); }",
            ),
            (
                "tower",
                "pub fn f(l: tower_tds::TdsLayer) { fn is<L: tower::Layer<()>>(_: L) {} is(l) }",
            ),
            (
                "hyper_util",
                "use hyper_util::client::legacy::{Client, connect::HttpConnector};
                pub fn f(c: Client<HttpConnector, String>, r: http::Request<String>) { drop(c.request(r)); }",
            ),
            (
                "reqwest",
                "pub fn f(r: http::Request<String>) -> Result<reqwest::Request, reqwest::Error> { r.try_into() }",
            ),
        ] {
            let fits = candidates(&crates.built, name).into_iter().find(|file| {
                crates.found.push((name, file.clone()));
                let compiled = crates.compile(probe);
                crates.found.pop();
                compiled.is_ok()
            });
            crates.found.push((name, fits.expect(name)));
        }
        crates
    }

    /// The compiler's output, if the program does not compile.
    fn compile(&self, program: &str) -> Result<(), String> {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stack.rmeta");
        let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        let asks = "- --edition=2024 --crate-type=lib --crate-name=stack --emit=metadata";
        rustc.args(asks.split(' '));
        rustc.arg("--cap-lints=allow").arg("-o").arg(out);
        for (name, file) in &self.found {
            let file = file.display();
            rustc.args(["--extern", &format!("{name}={file}")]);
        }
        rustc.arg(format!("-Ldependency={}", self.built.display()));
        rustc.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut rustc = rustc.spawn().expect("a compiler");
        let mut stdin = rustc.stdin.take().expect("it is piped");
        stdin.write_all(program.as_bytes()).expect("it reads");
        drop(stdin);
        let ended = rustc.wait_with_output().expect("it ends");
        if ended.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&ended.stderr).into_owned())
    }
}

/// The newest first.
fn candidates(built: &Path, name: &str) -> Vec<PathBuf> {
    let begin = format!("lib{name}-");
    let mut found: Vec<_> = fs::read_dir(built)
        .expect("it is there")
        .map(|file| file.expect("it can be read").path())
        .filter(|file| {
            let file = file.file_name().and_then(|name| name.to_str());
            file.is_some_and(|file| file.starts_with(&begin) && file.ends_with(".rlib"))
        })
        .collect();
    found.sort_by_key(|file| fs::metadata(file).and_then(|file| file.modified()).ok());
    found.reverse();
    found
}

/// A function for each of these stacks, which is its last expression.
fn program<'a>(stacks: impl IntoIterator<Item = &'a str>) -> String {
    let functions = (1..).zip(stacks).map(|(n, stack)| {
        format!(
            "pub fn program{n}(
                client: Client,
                hyper: legacy::Client<HttpConnector, String>,
                reqwest: reqwest::Client,
                boxed: BoxCloneSyncService<http::Request<String>, http::Response<String>, BoxError>,
                uploads: legacy::Client<HttpConnector, RequestBody>,
                passed_on: http::Request<ResponseBody>,
            ) {{
                drop({{ {stack} }});
            }}"
        )
    });
    USES.to_owned() + &functions.collect::<String>()
}

const USES: &str = "
    use hyper_util::client::legacy::{self, connect::HttpConnector};
    use tower::{
        BoxError, Layer, Service, ServiceBuilder, ServiceExt, layer::util::{Identity, Stack},
        service_fn, util::{BoxCloneService, BoxCloneSyncService, BoxService},
    };
    use tower_tds::{Client, RequestBody, ResponseBody, layers::errors::RetryLayer};
    fn check<S: Service<http::Request<String>>>(stack: S) -> S { stack }
    fn check_uploads<S: Service<http::Request<RequestBody>>>(stack: S) -> S { stack }
    fn copy(_: &RequestBody) -> Option<RequestBody> { None }
    fn retry() -> ServiceBuilder<Stack<RetryLayer, Identity>> {
        ServiceBuilder::new().layer(RetryLayer::new())
    }
    fn sent<F: Future + Send>(future: F) -> F { future }
    fn text() -> http::Request<String> { http::Request::new(String::new()) }
";

#[test]
fn each_message_of_the_compiler_matches_its_row_in_the_troubles_table() {
    let messages: Vec<_> = rows(3).map(|row| row[0]).collect();
    assert_eq!(messages.len(), PROGRAMS.len());
    let crates = Crates::find();
    for (message, [wrong, _]) in messages.into_iter().zip(PROGRAMS) {
        let said = crates.compile(&program([wrong])).expect_err(wrong);
        let is_said = fits(&said, &format!("…{message}…"));
        assert!(is_said, "{wrong}: {message}\n{said}");
    }
    let right = program(PROGRAMS.map(|[_, right]| right));
    assert_eq!(crates.compile(&right), Ok(()));
}
