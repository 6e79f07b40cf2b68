//! Jobs as members of a fleet, with a redis-server of the test's own.

use std::{
    fs, io,
    io::{BufRead as _, BufReader},
    iter,
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use tokio::net::TcpSocket;

use crate::{Bench, end, ended, err, out, output, piped, says, signal, skipped, tds, until};

/// A redis-server, killed with its test.
pub(crate) struct Store(Child);

impl Drop for Store {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Store {
    /// Starts one on a socket in the folder of a bench. Returns its address, or `None` if the program is not installed.
    pub(crate) fn start(bench: &Bench, password: &str) -> Option<(Self, String)> {
        if skipped("redis-server") {
            return None;
        }
        let mut server = Command::new("redis-server");
        server.args(["--port", "0", "--save", "", "--unixsocket", "redis.sock"]);
        server
            .args(["--requirepass", password])
            .current_dir(&bench.folder);
        let mut server = server.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(server.stdout.take().expect("it is piped")).lines();
        let is_ready = |line: io::Result<String>| {
            let line = line.expect("text");
            line.contains("eady to accept connections")
        };
        assert!(lines.any(is_ready));
        std::thread::spawn(move || lines.for_each(drop));
        let socket = bench.path("redis.sock");
        Some((Self(server), format!("redis+unix://{}", socket.display())))
    }
}

/// The members in `tds fleet status`, by its lines.
async fn members(store: &str) -> Vec<String> {
    let status = format!("fleet status --fleet {store} --fleet-name buses");
    let run = output(tds(&status)).await;
    ended(&run, 0);
    let mut lines = out(&run).lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(lines.remove(0).starts_with("member "), "{}", out(&run));
    lines
}

#[tokio::test]
async fn two_jobs_of_a_fleet_keep_the_limits_and_share_a_token_and_a_signal_leaves_the_fleet() {
    let bench = Bench::new().await;
    let Some((_store, store)) = Store::start(&bench, "") else {
        return;
    };
    let fleet = format!("--fleet {store} --fleet-name buses");
    let mut jobs = Vec::new();
    for name in ["a", "b"] {
        bench.write(
            &format!("{name}.list"),
            format!("/v1/live/{name}-{{1..150}}\n"),
        );
        // Machines of a fleet have no folder in common.
        let bulk =
            format!("bulk --list {name}.list --out files-{name} --state state-{name} {fleet}");
        jobs.push(tokio::spawn(output(bench.tds(&bulk))));
    }
    bench.seen(|seen| seen.complete > 20).await;
    let processes = members(&store).await;
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux has it");
    let is_named = |line: &String| line.contains(&format!(" {}:", host.trim()));
    assert_eq!(processes.len(), 2);
    assert!(processes.iter().all(is_named), "{processes:?}");
    for job in jobs {
        ended(&job.await.expect("no panic"), 0);
    }
    let seen = bench.summary();
    assert_eq!(seen.by_status, [(200, 300)].into());
    assert_eq!(seen.token_posts, 1, "{seen:?}");
    assert!(
        seen.largest_second <= 50 && seen.peak_sockets <= 60,
        "{seen:?}"
    );
    assert_eq!(members(&store).await, Vec::<String>::new());

    // The store knows the fleet now, so these begin at once.
    let check = bench.ends(0, &format!("check /v1/live/bus {fleet}")).await;
    for line in [
        format!("TDS_FLEET_STORE        {store} (flag)"),
        "TDS_FLEET_NAME         buses (flag)".to_owned(),
        "fleet: 1 member, this one with 0 of 50 requests".to_owned(),
    ] {
        let is_there = out(&check).lines().any(|it| it == line);
        assert!(is_there, "{line}: {}", out(&check));
    }
    bench.list("/v1/live/bus\n");
    let slow = "get /v1/history/1?bytes=1000&rate=10";
    for (job, code) in [(slow, 128 + 15), ("poll --list list", 0)] {
        let (_, before) = bench.asked();
        let child = piped(bench.tds(&format!("{job} {fleet}")));
        let is_begun = |seen: &tds_sim::Summary| seen.data_calls > before;
        // The store keeps a permit of a call in flight until it cannot be used.
        bench
            .seen(|seen| is_begun(seen) && (job == slow || seen.in_progress == 0))
            .await;
        assert_eq!(members(&store).await.len(), 1);
        signal(&child, "-TERM");
        ended(&end(child).await, code);
        assert_eq!(members(&store).await, Vec::<String>::new(), "{job}");
    }
}

const UNREACHABLE: &str = "127.0.0.1:1: the store is unreachable: ";
const STEP: &str = "; start it or correct --fleet, or go on alone without it";

#[tokio::test]
async fn unreachable_fleet_store_ends_a_job_before_any_request() {
    let bench = Bench::new().await;
    bench.list("/v1/live/bus\n");
    let with_store = async |line: &str, store: &str, name: &str| {
        let mut run = bench.tds(line);
        run.env("TDS_FLEET_STORE", store)
            .env("TDS_FLEET_NAME", name);
        let run = output(run).await;
        assert!(
            !err(&run).contains("p4ssw0rd") && !err(&run).contains("wr0ng"),
            "{}",
            err(&run)
        );
        run
    };
    let bulk = "bulk --list list --out files";
    let away = "redis://x:p4ssw0rd@127.0.0.1:1";
    let store = Store::start(&bench, "p4ssw0rd");
    let at = |password: &str| {
        let store = store
            .as_ref()
            .map(|(_, store)| format!("{store}?pass={password}"));
        store.unwrap_or_else(|| "nonsense".to_owned())
    };
    let refused = match &store {
        Some(_) => "refuses the user or the password",
        None => "write redis://HOST:PORT",
    };
    for (store, name, code, told) in [
        (away, "", 5, UNREACHABLE),
        (away, "", 5, STEP),
        ("nonsense", "", 2, "write redis://HOST:PORT"),
        (
            "redis://x:p4ssw0rd@nonsense:1:2/",
            "",
            2,
            "write redis://HOST:PORT",
        ),
        ("redis://127.0.0.1:1", "a b", 2, "a fleet's name is"),
        (&at("wr0ng"), "", 2, refused),
    ] {
        let run = with_store(bulk, store, name).await;
        assert_eq!(run.status.code(), Some(code), "{store}: {}", err(&run));
        let last = err(&run).lines().last().unwrap_or_default().to_owned();
        assert!(last.contains(told), "{store}: {last}");
    }
    // The same before the fault is final.
    let run = with_store("get /v1/live/bus --deadline 1s", away, "tds").await;
    ended(&run, 5);
    for told in ["the deadline passed", UNREACHABLE, STEP] {
        says(&run, told);
    }
    // An interval of an hour cannot be divided.
    let hour = with_store(&format!("{bulk} --rate 1000/1h"), &at("p4ssw0rd"), "tds").await;
    ended(&hour, 2);
    let flag = bench
        .ends(2, &format!("get /v1/live/bus --fleet {away}"))
        .await;
    says(&flag, "TDS_FLEET_STORE");
    assert_eq!(bench.asked(), (0, 0));
}

#[tokio::test]
async fn silent_store_holds_no_job_after_its_deadline() {
    let bench = Bench::new().await;
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let store = silent.local_addr().expect("its address");
    let get = format!("get /v1/live/bus --deadline 1s --fleet redis://{store}");
    says(&bench.ends(5, &get).await, "the deadline passed");
    // A departure that waits for an answer would connect again, after five seconds.
    silent.set_nonblocking(true).expect("it is open");
    assert!(silent.accept().is_ok() && silent.accept().is_err());
}

/// Two nodes of a cluster on these ports and with these buses, with one half of the slots each.
async fn cluster(bench: &Bench, ports: [u16; 2], buses: [u16; 2]) -> Vec<Store> {
    let mut nodes = Vec::new();
    let both = ports.into_iter().zip(buses);
    for ((port, bus), slots) in both.zip(["0 8191", "8192 16383"]) {
        let folder = bench.path(&port.to_string());
        fs::create_dir_all(&folder).expect("a folder");
        let mut node = Command::new("redis-server");
        node.args([
            "--port",
            &port.to_string(),
            "--save",
            "",
            "--cluster-enabled",
            "yes",
            "--cluster-port",
            &bus.to_string(),
        ]);
        node.current_dir(folder).stdout(Stdio::null());
        nodes.push(Store(node.spawn().expect("it starts")));
        asked(port, &format!("cluster addslotsrange {slots}"), "OK").await;
    }
    let meet = format!("cluster meet 127.0.0.1 {} {}", ports[1], buses[1]);
    asked(ports[0], &meet, "OK").await;
    for port in ports {
        asked(port, "cluster info", "cluster_state:ok").await;
    }
    nodes
}

/// Repeats a command until its answer has this text.
async fn asked(port: u16, words: &str, text: &str) {
    let answers = async || {
        let mut client = Command::new("redis-cli");
        client
            .args(["-p", &port.to_string()])
            .args(words.split(' '));
        out(&output(client).await).contains(text)
    };
    until(answers).await;
}

#[tokio::test]
async fn a_node_of_a_cluster_works_if_it_has_the_fleets_keys_and_another_one_names_it() {
    let bench = Bench::new().await;
    if skipped("redis-server") {
        return;
    }
    // A socket that does not listen keeps a port from the other tests, and leaves it to a server that reuses addresses.
    let held = iter::repeat_with(|| {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("a socket");
        let any = ([127, 0, 0, 1], 0).into();
        socket.bind(any).expect("a free port");
        (socket.local_addr().expect("its own").port(), socket)
    });
    let (ports, _held): (Vec<_>, Vec<_>) = held.take(4).unzip();
    let _nodes = cluster(&bench, [ports[0], ports[1]], [ports[2], ports[3]]).await;
    // The key of this name is in the lower half.
    let line = "give the address of the node that has it: Moved: 3538 ";
    for job in ["get /v1/live/bus", "check /v1/live/bus", "fleet status"] {
        for (port, code) in [(ports[0], 0), (ports[1], 2)] {
            let job = format!("{job} --fleet redis://127.0.0.1:{port}");
            let run = bench.ends(code, &job).await;
            let is_named = err(&run).contains(&format!("{line}127.0.0.1:{}", ports[0]));
            assert_eq!(is_named, code == 2, "{job}: {}", err(&run));
        }
    }
    assert_eq!(bench.asked().0, 2);
}

#[tokio::test]
async fn interrupt_ends_a_job_that_waits_for_its_share() {
    let bench = Bench::new().await;
    let Some((_store, store)) = Store::start(&bench, "") else {
        return;
    };
    bench.list("/v1/live/bus\n");
    let bulk = format!("bulk --list list --out files --fleet {store} --fleet-name buses");
    let child = piped(bench.tds(&bulk));
    until(async || !members(&store).await.is_empty()).await;
    signal(&child, "-INT");
    let run = end(child).await;
    ended(&run, 1);
    assert!(out(&run).contains("1 unfinished"), "{}", out(&run));
    assert_eq!(members(&store).await, Vec::<String>::new());
    assert_eq!(bench.asked().1, 0);
}
