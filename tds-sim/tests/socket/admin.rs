//! The admin listener.

use serde_json::Value;
use tds_sim::{Config, Server};

use crate::client::{Client, bearer};

async fn control(server: &Server, path: &str, form: &str) -> (u16, String) {
    let url = format!("{}{path}", server.admin_url());
    let got = Client::new().post(&url, form.to_owned()).await.unwrap();
    (got.status, String::from_utf8(got.body.to_vec()).unwrap())
}

async fn status(server: &Server, token: &str) -> u16 {
    let url = format!("{}/v1/live/a", server.base_url());
    Client::new()
        .get(&url, &[bearer(token)])
        .await
        .unwrap()
        .status
}

#[tokio::test]
async fn ledger_and_summary_can_be_read() {
    let server = Server::start(Config::default()).await.unwrap();
    let token = Client::new().token(&server).await;
    assert_eq!(status(&server, &token).await, 200);
    let read = async |path: &str| {
        let url = format!("{}{path}", server.admin_url());
        let got = Client::new().get(&url, &[]).await.unwrap();
        assert_eq!(got.headers["content-type"], "application/json");
        serde_json::from_slice::<Value>(&got.body).unwrap()
    };
    let summary = read("/summary").await;
    assert_eq!(
        (&summary["data_calls"], &summary["token_posts"]),
        (&1.into(), &1.into())
    );
    let ledger = read("/ledger").await;
    assert_eq!(ledger["arrivals"][0]["target"], "/v1/live/a");
    assert_eq!(ledger["arrivals"][0]["outcome"], "complete");
    assert_eq!(ledger["summary"]["by_status"]["200"], 1);
}

#[tokio::test]
async fn each_control_works_as_listed() {
    let server = Server::start(Config::default()).await.unwrap();
    let sim = server.sim();
    let fresh = || sim.token(server.client_id()).unwrap();
    let done = (200, "done\n".to_owned());

    let token = fresh();
    assert_eq!(control(&server, "/revoke-all", "").await, done);
    assert_eq!(status(&server, &token).await, 401);
    let token = fresh();
    assert_eq!(control(&server, "/faults", "fault=503").await, done);
    assert_eq!(status(&server, &token).await, 503);
    assert_eq!(control(&server, "/faults", "").await, done);
    assert_eq!(status(&server, &token).await, 200);
    assert_eq!(
        control(&server, "/set", "quota=0/60s&expires-in=0").await,
        done
    );
    assert_eq!(status(&server, &token).await, 429);
    assert_eq!(
        control(&server, "/set", "quota=none&expires-in=60").await,
        done
    );
    assert_eq!(control(&server, "/roles", "role=history").await, done);
    assert_eq!(status(&server, &fresh()).await, 401);
    assert_eq!(control(&server, "/roles", "role=live").await, done);
    assert_eq!(status(&server, &fresh()).await, 200);

    assert_eq!(control(&server, "/disable-key", "").await, done);
    let (_, key) = control(&server, "/rotate-secret", "").await;
    assert!(!key.contains(server.client_secret()) && key.contains(server.client_id()));
    for expected in [200, 200, 200, 400] {
        assert_eq!(control(&server, "/add-key", "member=b").await.0, expected);
    }
}

#[tokio::test]
async fn invalid_admin_control_is_an_error_with_its_cause() {
    let server = Server::start(Config::default()).await.unwrap();
    for (path, form, says) in [
        (
            "/rotate-secret",
            "client_id=x",
            "no key has this client id; add one, or correct it\n",
        ),
        (
            "/set",
            "quota=20",
            "bad quota `20`; use CALLS/WINDOW, such as 20/60s\n",
        ),
    ] {
        assert_eq!(control(&server, path, form).await, (400, says.to_owned()));
    }
    let url = format!("{}/", server.admin_url());
    let help = Client::new().get(&url, &[]).await.unwrap();
    assert!(String::from_utf8_lossy(&help.body).contains("POST /revoke-all"));
}
