//! The compose stack of `examples/stack`, its health check, and the dashboard.

use std::{
    collections::BTreeSet,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

use crate::{
    Bench, ended, err, fleet::Store, out, output, says, serving::Serving, skipped, tds, until,
};

fn stack() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/stack")
}

fn yaml(name: &str) -> Yaml {
    let file = fs::read_to_string(stack().join(name)).expect(name);
    YamlLoader::load_from_str(&file).expect(name).remove(0)
}

fn words(list: &Yaml) -> Vec<&str> {
    let list = list.as_vec().expect("a list").iter();
    list.map(|word| word.as_str().expect("text")).collect()
}

/// The dashboard's expressions.
fn expressions() -> Vec<String> {
    let dashboard = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/grafana.json"));
    let dashboard: Value = serde_json::from_str(&dashboard.expect("a file")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("a list").iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array());
    let targets = targets.flatten().map(|target| target["expr"].as_str());
    targets.map(|expr| expr.expect("text").to_owned()).collect()
}

#[tokio::test]
async fn dashboard_shows_each_exported_metric_and_no_other() {
    let bench = Bench::new().await;
    let store = Store::start(&bench, "");
    let mut run = bench.tds("backend --listen 127.0.0.1:0");
    run.envs(store.iter().map(|(_, store)| ("TDS_FLEET_STORE", store)));
    let backend = Serving::start(run);
    bench.fail("503@every:2");
    for target in ["/v1/live/metro", "/v1/live/metro", "/nothing"] {
        backend.get(target).await;
    }
    let metrics = backend.get("/metrics").await.text();
    let types = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let exported: BTreeSet<_> = types.filter_map(|line| line.split(' ').next()).collect();
    let expressions = expressions();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut shown = BTreeSet::new();
    for expression in &expressions {
        let words = expression.split(|c| !is_name(c));
        shown.extend(words.filter(|word| word.starts_with("tds_")).map(|name| {
            let parts = ["_sum", "_count", "_bucket"].iter();
            let mut families = parts.filter_map(|part| name.strip_suffix(part));
            families.find(|it| exported.contains(it)).unwrap_or(name)
        }));
        // Each name that an expression sums or selects by has to be a label of the metric.
        let (name, _) = expression
            .match_indices("tds_")
            .filter_map(|(at, _)| expression[at..].split_once(|c| !is_name(c)))
            .next()
            .unwrap_or((expression, ""));
        for label in ["status", "cache", "kind", "cause", "of", "answered", "le"] {
            let is_used = [format!("by ({label})"), format!("{{{label}")];
            if is_used.iter().any(|it| expression.contains(it)) && exported.contains(name) {
                let mut series = metrics
                    .lines()
                    .filter(|line| line.starts_with(&format!("{name}{{")));
                let has = |line: &str| line.contains(&format!("{label}=\""));
                assert!(series.any(has), "{expression}");
            }
        }
    }
    if store.is_none() {
        shown.retain(|name| !name.starts_with("tds_fleet_"));
    }
    assert_eq!(shown, exported);
    assert!(exported.len() > 20, "{exported:?}");
}

#[tokio::test]
async fn stack_has_valid_files_and_its_backend_serves_its_list() {
    let compose = yaml("compose.yaml");
    let services = &compose["services"];
    let root = fs::read_to_string(stack().join("../../Containerfile")).expect("the images' file");
    for (name, service) in services.as_hash().expect("services") {
        let name = name.as_str().expect("text");
        if let Some(target) = service["build"]["target"].as_str() {
            assert!(
                root.contains(&format!(" AS {target}\n")),
                "{name}: {target}"
            );
        } else {
            let image = service["image"].as_str().expect("an image");
            assert!(
                image.contains(":v") || image.contains(":1"),
                "a version: {image}"
            );
        }
        for volume in service["volumes"].as_vec().into_iter().flatten() {
            let source = volume.as_str().expect("text").split(':').next();
            let source = stack().join(source.expect("a path"));
            assert!(source.exists(), "{}", source.display());
        }
    }
    let bench = Bench::new().await;
    let backend = &services["backend"];
    let key = &backend["environment"];
    let [id, secret] = ["TDS_CLIENT_ID", "TDS_CLIENT_SECRET"].map(|name| key[name].as_str());
    assert_eq!(id, Some(bench.server.client_id()));
    assert_eq!(secret, Some(bench.server.client_secret()));
    let simulator = include_str!("../../../tds-sim/src/cli.rs");
    for word in words(&services["simulator"]["command"]) {
        if let Some(switch) = word.strip_prefix("--") {
            let field = format!("    {}: ", switch.replace('-', "_"));
            assert!(simulator.contains(&field), "{switch}");
        }
    }
    let prometheus = yaml("prometheus.yml");
    let target = &prometheus["scrape_configs"][0]["static_configs"][0]["targets"][0];
    assert_eq!(target.as_str(), Some("simulator:8080"));
    assert_eq!(backend["network_mode"].as_str(), Some("service:simulator"));
    let source = yaml("grafana/datasources/prometheus.yaml");
    assert_eq!(
        source["datasources"][0]["url"].as_str(),
        Some("http://prometheus:9090")
    );
    let provider = yaml("grafana/dashboards/tds.yaml");
    let folder = provider["providers"][0]["options"]["path"]
        .as_str()
        .expect("a path");
    let mut mounts = words(&services["grafana"]["volumes"]).into_iter();
    assert!(mounts.any(|mount| mount.contains(&format!("grafana.json:{folder}/"))));

    // The backend as the file starts it, on a free port and with the list of this folder.
    let list = stack().join("resources.txt");
    let own = words(&backend["command"]).join(" ");
    let own = own.replace("0.0.0.0:8080", "127.0.0.1:0");
    let own = own.replace("/resources.txt", list.to_str().expect("text"));
    let serving = Serving::start(bench.tds(&own));
    assert_eq!(serving.get("/v1/live/tram-20").await.status, 200);
    let check = words(&backend["healthcheck"]["test"]);
    assert_eq!(check[..2], ["CMD", "/tds"]);
    let address = format!("http://{}", serving.address);
    let check = check[2..]
        .join(" ")
        .replace("http://127.0.0.1:8080", &address);
    ended(&output(tds(&check)).await, 0);

    // Starts Prometheus by its file, with that backend.
    let file = fs::read_to_string(stack().join("prometheus.yml")).expect("a file");
    let file = file.replace("simulator:8080", &serving.address.to_string());
    let file = file.replace("scrape_interval: 5s", "scrape_interval: 1s");
    fs::write(bench.path("prometheus.yml"), file).expect("a file");
    if skipped("prometheus") {
        return;
    }
    let mut prometheus = Command::new("prometheus");
    prometheus
        .current_dir(&bench.folder)
        .arg("--config.file=prometheus.yml")
        .arg("--storage.tsdb.path=data")
        .arg("--web.listen-address=127.0.0.1:0")
        .stderr(fs::File::create(bench.path("log")).expect("a file"));
    let mut prometheus = prometheus.spawn().expect("it starts");
    let listens = || {
        let log = fs::read_to_string(bench.path("log")).expect("its log");
        let (_, after) = log.split_once("\"Listening on\" address=")?;
        let (address, _) = after.split_once('\n')?;
        Some(address.parse().expect("an address"))
    };
    let mut scraped = None;
    let is_scraped = async || {
        let query = "/api/v1/query?query=tds_users_requests_total";
        if let Some(address) = listens()
            && let Ok(answer) = Serving::try_get(address, query).await
            && answer.text().contains("\"cache\":\"miss\"")
        {
            scraped = Some(address);
        }
        scraped.is_some()
    };
    until(is_scraped).await;
    let mut answers = Vec::new();
    // Each expression of the dashboard is one that it can compute.
    for expression in expressions() {
        let Some(address) = scraped else { break };
        let query: String = expression
            .bytes()
            .map(|byte| format!("%{byte:02x}"))
            .collect();
        let answer = Serving::try_get(address, &format!("/api/v1/query?query={query}")).await;
        answers.push((expression, answer));
    }
    prometheus.kill().expect("it runs");
    prometheus.wait().expect("it ends");
    assert!(!answers.is_empty(), "it reads the metrics");
    for (expression, answer) in answers {
        let answer = answer.expect("it listens");
        assert_eq!(answer.status, 200, "{expression}: {}", answer.text());
    }
}

#[tokio::test]
async fn health_asks_livez_and_says_what_it_got() {
    let bench = Bench::new().await;
    let mut run = bench.tds("backend --listen 127.0.0.1:0");
    run.env("TDS_CLIENT_SECRET", "wr0ng");
    let backend = Serving::start(run);
    assert_eq!(backend.get("/v1/live/metro").await.status, 502);
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = nobody.local_addr().expect("its address");
    let address = backend.address;
    for (url, code, told) in [
        (format!("http://{address}"), 0, ""),
        (format!("http://{address}/livez"), 0, ""),
        (format!("http://localhost:{}/livez", address.port()), 0, ""),
        (format!("http://{address}/readyz"), 1, "503 Service"),
        (format!("http://{address}/nothing"), 1, "502 Bad Gateway"),
        ("http://127.0.0.1:1".to_owned(), 5, "refused"),
        (format!("http://{silent}"), 5, "timed out"),
        (format!("https://{address}"), 2, "write an address"),
        ("nonsense".to_owned(), 2, "write an address"),
    ] {
        let run = output(tds(&format!("health {url}"))).await;
        assert_eq!(run.status.code(), Some(code), "{url}: {}", err(&run));
        says(&run, told);
        assert_eq!(out(&run), "");
        assert!(code != 0 || err(&run).is_empty(), "{}", err(&run));
    }
    assert_eq!(bench.asked().1, 0);
}
