//! No job shows the secret or a token, in success, in failure, and with the whole log.

use std::{fs, path::Path};

use tds_sim::Config;

use crate::{Bench, err, out, output, serving::Serving, text};

/// A secret that the service refuses.
const WRONG: &str = "c4nary-0f-a-s3cret";

/// The first characters of each token of the simulated service, a JWT.
const TOKEN: &str = "eyJ";

fn clean(job: &str, secret: &str, shown: &str) {
    for canary in [secret, TOKEN] {
        assert!(!shown.contains(canary), "{job} shows {canary}: {shown}");
    }
}

/// All files under a folder, without those of the token store, whose purpose is the token.
fn files(folder: &Path) -> String {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let texts = entries.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files(&entry.path()),
        _ => String::from_utf8_lossy(&fs::read(entry.path()).unwrap_or_default()).into_owned(),
    });
    texts.collect()
}

#[tokio::test]
async fn no_job_shows_a_canary() {
    for is_right in [true, false] {
        let bench = Bench::new(&format!("canary-{is_right}"), Config::default()).await;
        let right = bench.server.client_secret().to_owned();
        let secret = if is_right { &*right } else { WRONG };
        let (data, list) = (bench.path("data"), bench.path("list"));
        fs::create_dir_all(&data).expect("a folder");
        fs::write(&list, "/v1/live/bus\n/v1/none\n").expect("a file");
        let (data, list) = (text(&data), text(&list));
        let jobs: [&[&str]; 5] = [
            &["get", "/v1/live/bus"],
            &["get", "/v1/none"],
            &["bulk", "--list", list, "--out", data],
            &[
                "poll", "--list", list, "--out", data, "--every", "100ms", "--rounds", "2",
            ],
            &["check"],
        ];
        for (n, job) in jobs.into_iter().enumerate() {
            let mut run = bench.tds(job);
            // Each asks for its own token, or else what refused the first would speak for all.
            run.env("TDS_STATE_DIR", bench.path(&format!("state-{n}")))
                .env("TDS_CLIENT_SECRET", secret)
                .env("TDS_LOG", "text:trace");
            let run = output(run).await;
            let shown = out(&run) + &err(&run);
            assert!(shown.contains("TRACE"), "{job:?} has no log: {shown}");
            clean(job[0], secret, &shown);
        }
        let mut backend = bench.tds(&["backend", "--list", list, "--listen", "127.0.0.1:0"]);
        backend
            .env("TDS_CLIENT_SECRET", secret)
            .env("TDS_LOG", "text:trace");
        let backend = Serving::start(backend);
        for path in [
            "/v1/live/bus",
            "/v1/none",
            "/healthz",
            "/readyz",
            "/status",
            "/metrics",
            "/",
        ] {
            let answer = backend.get(path).await;
            clean(path, secret, &(answer.head.clone() + &answer.text()));
        }
        let log = backend.log();
        // The log has the backend's call to the service.
        assert!(log.contains("TRACE") && log.contains("/v1/none"), "{log}");
        clean("the log of the backend", secret, &log);
        clean("the folder of the data", secret, &files(Path::new(data)));
        assert!(
            !files(&bench.folder).contains(secret),
            "no file has the secret"
        );
        let seen = bench.server.ledger().summary();
        assert_eq!(seen.tokens_issued > 0, is_right);
    }
}
