//! A member that is a process of its own: this program, started again for one of its tests.

use std::{
    env,
    io::Read as _,
    process::{Child, Command, Stdio},
};

use http::Request;
use http_body_util::BodyExt;
use tds_sim::Server;
use tower::ServiceExt;
use tower_tds::{Client, Credentials, RequestBody, SharedLimits};
use tower_tds_fleet::Fleet;

use crate::{limits, redis_server::RedisServer};

/// A member that calls as fast as it may, 20 at a time, until it is ended.
pub(crate) struct Process(Child);

// === impl Process ===

impl Process {
    /// One that gets its tokens of the service and its data of another address.
    pub(crate) fn start(store: &RedisServer, service: &Server, data: &str) -> Self {
        let this = env::current_exe().expect("this test");
        let process = Command::new(this)
            .args(["--exact", "process::a_process", "--nocapture"])
            .env("FLEET_STORE", store.url())
            .env("FLEET_AUTH", service.auth_url())
            .env("FLEET_DATA", data)
            .env("FLEET_ID", service.client_id())
            .env("FLEET_SECRET", service.client_secret())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Self(process.expect("it starts"))
    }

    pub(crate) fn signal(&self, signal: &str) {
        let mut kill = Command::new("kill");
        let status = kill.arg(signal).arg(self.0.id().to_string()).status();
        assert!(status.expect("kill").success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Not a test by itself: what a process does.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_process() {
    let Ok(store) = env::var("FLEET_STORE") else {
        return;
    };
    let var = |name: &str| env::var(name).expect("it is set");
    let fleet = Fleet::join(&store, "test", &limits()).expect("a store");
    let id = Credentials::new(var("FLEET_ID"), var("FLEET_SECRET")).expect("plain");
    let client = Client::builder(&var("FLEET_AUTH"), &var("FLEET_DATA"), id)
        .loopback_http()
        .limits(SharedLimits::leased(limits(), fleet))
        .build()
        .expect("loopback is let through");
    let url = format!("{}/v1/live/bus", var("FLEET_DATA"));
    for _ in 0..20 {
        let (client, url) = (client.clone(), url.clone());
        tokio::spawn(async move {
            loop {
                let request = Request::get(&url).body(RequestBody::default());
                let response = client.clone().oneshot(request.expect("a request"));
                // What a stopped process loses is not what is looked at.
                if let Ok(response) = response.await {
                    drop(response.into_body().collect().await);
                }
            }
        });
    }
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]));
    let _ended = ended.await;
}
