//! No job shows the secret or a token, in success, in failure, and with the whole log.

use std::{fs, path::Path};

use crate::{Bench, err, out, output, serving::Serving};

/// A secret that the service refuses.
const WRONG: &str = "c4nary-0f-a-s3cret";

/// The first characters of each token of the simulated service, a JWT.
const TOKEN: &str = "eyJ";

fn clean(job: &str, secret: &str, shown: &str) {
    for canary in [secret, TOKEN] {
        assert!(!shown.contains(canary), "{job} shows {canary}: {shown}");
    }
}

/// All files under a folder.
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
        let bench = Bench::new().await;
        let right = bench.server.client_secret().to_owned();
        let secret = if is_right { &*right } else { WRONG };
        bench.list("/v1/live/bus\n/v1/none\n");
        let logged = |job: &str| {
            let mut run = bench.tds(job);
            // Each requests its own token, because otherwise the refusal of the first would be that of all.
            drop(fs::remove_dir_all(bench.path("state")));
            run.env("TDS_CLIENT_SECRET", secret)
                .env("TDS_LOG", "text:trace");
            run
        };
        for job in [
            "get /v1/live/bus",
            "get /v1/none",
            "bulk --list list --out data",
            "poll --list list --out data --every 100ms --rounds 2",
            "check",
        ] {
            let run = output(logged(job)).await;
            let shown = out(&run) + &err(&run);
            assert!(shown.contains("TRACE"), "{job} has no log: {shown}");
            clean(job, secret, &shown);
        }
        let backend = Serving::start(logged("backend --list list --listen 127.0.0.1:0"));
        for path in "/v1/live/bus /v1/none /healthz /readyz /status /metrics /".split(' ') {
            let answer = backend.get(path).await;
            clean(path, secret, &(answer.head.clone() + &answer.text()));
        }
        let log = backend.log();
        // The log has the backend's call to the service.
        assert!(log.contains("TRACE") && log.contains("/v1/none"), "{log}");
        clean("the log of the backend", secret, &log);
        clean(
            "the folder of the data",
            secret,
            &files(&bench.path("data")),
        );
        // The purpose of the token store is the token.
        let all = files(bench.folder.path());
        assert!(!all.contains(secret), "no file has the secret");
        assert_eq!(bench.summary().tokens_issued > 0, is_right);
    }
}
