//! The errors of a first run: each prints the text in the first table of `TROUBLES.md`.

use std::{collections::BTreeMap, time::Duration};

use tds_sim::Config;
use tower_tds::{Builder, Client, Credentials, CredentialsProvider};

use crate::client::{
    raw::{Raw, answer},
    troubles::{fits, rows},
    world::{Built as _, PATH, credentials, secure, start},
};

/// The output of a first call.
async fn prints(builder: Builder, target: &str) -> String {
    let call = builder.built().get(target);
    let called = call.deadline(Duration::from_secs(5)).await;
    let error = called.map(drop).expect_err("something is wrong");
    error.to_string()
}

/// The output by cause, with `{auth}` and `{base}` for the addresses of the two servers.
async fn printed() -> BTreeMap<&'static str, String> {
    let (plain, (secure, _)) = (start(Config::default()).await, secure().await);
    let (auth, base) = (plain.auth_url(), plain.base_url());
    let at = |auth: &str, base: &str| Client::builder(auth, base, credentials(plain.sim()));
    let (plainly, securely) = (
        |url: &str| url.replace("https://", "http://"),
        |url: &str| url.replace("http://", "https://"),
    );
    let mut all = BTreeMap::new();
    let mut told = |what, (auth, base): (&str, &str), line: String| {
        let line = line.replace(auth, "{auth}").replace(base, "{base}");
        assert!(all.insert(what, line).is_none(), "{what} twice");
    };

    let error = Builder::from_env().map(drop).expect_err("nothing is set");
    told("variables are not set", (auth, base), error.to_string());
    let error = at("https://a.example.org", "http://b.example.org").build();
    let error = error
        .map(drop)
        .expect_err("not on this machine")
        .to_string();
    told("`http` to another machine", (auth, base), error);

    let wrong = Credentials::new(plain.client_id(), "wrong").expect("it can be sent");
    let line = prints(Client::builder(auth, base, wrong), PATH);
    told("the secret", (auth, base), line.await);
    let file = CredentialsProvider::file("id", "/nowhere/secret");
    let line = prints(Client::builder(auth, base, file), PATH);
    told("the file of the secret", (auth, base), line.await);
    let line = prints(at(base, auth), PATH);
    told("the two addresses are swapped", (auth, base), line.await);
    let line = prints(at("https://auth.invalid", "https://data.invalid"), PATH);
    told("a host that is not there", (auth, base), line.await);

    let tls = (secure.auth_url(), secure.base_url());
    let line = prints(at(tls.0, tls.1), PATH);
    told("a company's CA", tls, line.await);
    let locked = Raw::saying(answer("407 Proxy Authentication Required", "")).await;
    let line = prints(at(tls.0, tls.1).proxy(&locked.url), PATH);
    told("the user or the password of a proxy", tls, line.await);
    let (a, b) = (securely(auth), securely(base));
    let line = prints(at(&a, &b), PATH);
    told("`https` where http is spoken", (&a, &b), line.await);
    let (a, b) = (plainly(tls.0), plainly(tls.1));
    let line = prints(at(&a, &b), PATH);
    told("`http` where https is spoken", (&a, &b), line.await);

    let own = || at(auth, base);
    let foreign = format!("{}{PATH}", tls.1);
    let line = prints(own(), &foreign);
    told("another origin than the service's", tls, line.await);
    let line = prints(own(), "v1/live/bus");
    told("a target without its slash", (auth, base), line.await);
    let line = prints(own(), "/v1/live/bus 307");
    told("a blank in a target", (auth, base), line.await);
    let line = prints(own(), "/v1/nothing");
    told("a path that is not there", (auth, base), line.await);
    let client = own().built();
    assert!(client.shutdown(Duration::from_secs(5)).await);
    let error = client.get(PATH).await.map(drop).expect_err("it is closed");
    told("a call after `shutdown`", (auth, base), error.to_string());
    all
}

#[tokio::test]
async fn each_first_run_error_prints_its_documented_text() {
    let mut printed = printed().await;
    for row in rows(1) {
        let [what, text] = row[..] else {
            unreachable!("two columns: {row:?}");
        };
        let line = printed.remove(what).unwrap_or_else(|| panic!("{what}"));
        // The mark that stands for any text may be empty, with the blank behind it.
        let is_told = fits(&line, &text.replace("… ", "…"));
        assert!(is_told, "{what}: {line}\nis not: {text}");
        assert!(line.chars().count() <= 400, "{line}");
    }
    assert!(printed.is_empty(), "not in the table: {printed:?}");
}
