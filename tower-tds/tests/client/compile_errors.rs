//! Wrong stacks that do not compile: the compiler's message names the missing part.

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The mistake, its layers from the outside in, and the compiler's output.
const WRONG: [(&str, &str, &[&str]); 3] = [
    (
        "errors of token and limits that retry cannot read",
        ".layer(RetryLayer::new())[limit][token].service(typed)",
        &["Error: From<tower_tds::layers::tower_tds_limits::Error>` is not satisfied"],
    ),
    (
        "nothing classifies below retry",
        ".layer(RetryLayer::new()).service(http)",
        &["Error: From<std::fmt::Error>` is not satisfied"],
    ),
    (
        "a body that cannot be cloned, and no word on how it is sent twice",
        ".layer(tds).service(uploads)",
        &[
            "`CloneBody` cannot send a body of this type twice",
            ".replay(",
        ],
    ),
];

/// The corrected stacks.
const RIGHT: [&str; 4] = [
    ".layer(RetryLayer::new()).map_err(into_error)[limit][token].service(http)",
    ".layer(RetryLayer::new()).map_err(into_error)[limit][token].layer(ClassifyLayer::new()).service(http)",
    ".layer(tds.retry(RetryLayer::new().replay(|_: &RequestBody| None))).service(uploads)",
    ".layer(tds).service(pinned)",
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
        rustc.args([
            "-",
            "--edition=2024",
            "--crate-type=lib",
            "--crate-name=stack",
        ]);
        rustc
            .args(["--emit=metadata", "--cap-lints=allow", "-o"])
            .arg(out);
        for (name, file) in &self.found {
            rustc
                .arg("--extern")
                .arg(format!("{name}={}", file.display()));
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

/// A function that puts the layers together.
fn program(layers: &str) -> String {
    let layers = layers
        .replace("[token]", ".layer(BearerAuthLayer::new(tokens, []))")
        .replace(
            "[limit]",
            ".layer(RequestLimitLayer::new(limiter).detached())",
        );
    let body = if layers.contains("uploads") {
        "RequestBody"
    } else {
        "String"
    };
    format!(
        "use tower::{{Service, ServiceBuilder}};
        use tower_tds::{{Error, Limiter, RequestBody, TdsLayer, layers::{{
            into_error,
            errors::{{ClassifyLayer, RetryLayer}},
            limits::RequestLimitLayer,
            token::{{BearerAuthLayer, TokenSource}},
        }}}};
        type Request = http::Request<String>;
        type Response = http::Response<String>;
        pub fn stack(
            tokens: TokenSource,
            limiter: Limiter,
            tds: TdsLayer,
            typed: impl Service<Request, Response = Response, Error = Error,
                Future: Send + 'static> + Clone + Send + 'static,
            http: impl Service<Request, Response = Response, Error = std::fmt::Error,
                Future: Send + 'static> + Clone + Send + 'static,
            pinned: impl Service<Request, Response = Response, Error = std::io::Error,
                Future: Send + 'static> + Clone + Send + 'static,
            uploads: impl Service<http::Request<RequestBody>, Response = Response,
                Error = std::io::Error, Future: Send + 'static> + Clone + Send + 'static,
        ) -> impl Service<http::Request<{body}>> {{
            ServiceBuilder::new(){layers}
        }}"
    )
}

#[test]
fn wrong_stack_does_not_compile_and_names_the_missing_line() {
    let crates = Crates::find();
    for right in RIGHT {
        let compiled = crates.compile(&program(right));
        assert_eq!(compiled, Ok(()), "{right}");
    }
    for (wrong, layers, messages) in WRONG {
        let said = crates.compile(&program(layers)).expect_err(wrong);
        for message in messages {
            assert!(said.contains(message), "{wrong}: {message}\n{said}");
        }
    }
}
