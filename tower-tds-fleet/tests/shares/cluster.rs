//! A cluster that fails over and moves the fleet's slot, and a master that Sentinels name.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use redis::{
    Client, Cmd, FromRedisValue, RedisConnectionInfo,
    cluster::ClusterClient,
    cmd,
    sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType},
};
use tds_sim::Rule;
use tokio::time::sleep;

use tower_tds::Limits;
use tower_tds_fleet::{Fleet, StoreFault};
use tower_tds_limits::Limiter;

use crate::shares::{
    ANYWHERE, RedisServer,
    faults::through,
    free_port, on_a_port,
    operators::{fits, kind, make_member},
    remember, run,
};

struct Node {
    server: RedisServer,
    port: u16,
    bus: u16,
}

// === impl Node ===

impl Node {
    fn start() -> Option<Self> {
        let (mut port, mut bus) = (0, 0);
        let server = RedisServer::start_with(|folder| {
            (port, bus) = (free_port(), free_port());
            let file = folder.join("nodes.conf").display().to_string();
            [
                ("--port", port.to_string()),
                ("--bind", "127.0.0.1".to_owned()),
                ("--cluster-enabled", "yes".to_owned()),
                ("--cluster-port", bus.to_string()),
                ("--cluster-config-file", file),
                ("--cluster-node-timeout", "2000".to_owned()),
            ]
        });
        Some(Self {
            server: server?,
            port,
            bus,
        })
    }

    fn run<T: FromRedisValue>(&self, args: &[&str]) -> T {
        let mut command = Cmd::new();
        command.arg(args);
        command.query(&mut self.server.connection()).unwrap()
    }

    fn id(&self) -> String {
        self.run(&["CLUSTER", "MYID"])
    }

    fn meet(&self, other: &Self) {
        let (port, bus) = (other.port.to_string(), other.bus.to_string());
        let () = self.run(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    }

    async fn until(&self, command: &[&str], text: &str) {
        for _ in 0..300 {
            let info: String = self.run(command);
            if info.contains(text) {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("{command:?} never has {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_failover_and_slot_move_cause_no_refusal() {
    let (Some(a), Some(b), Some(c)) = (Node::start(), Node::start(), Node::start()) else {
        return;
    };
    let slot: u16 = a.run(&["CLUSTER", "KEYSLOT", "{test}:shares"]);
    let slot = slot.to_string();
    let () = a.run(&["CLUSTER", "ADDSLOTSRANGE", "1", "16383"]);
    let () = b.run(&["CLUSTER", "ADDSLOTSRANGE", "0", "0"]);
    a.meet(&b);
    a.meet(&c);
    for node in [&a, &b, &c] {
        node.until(&["CLUSTER", "INFO"], "cluster_known_nodes:3")
            .await;
        node.until(&["CLUSTER", "INFO"], "cluster_state:ok").await;
    }
    let () = c.run(&["CLUSTER", "REPLICATE", &a.id()]);
    c.until(&["INFO", "replication"], "master_link_status:up")
        .await;
    remember(&a.server);
    let url = format!("redis://127.0.0.1:{}", a.port);
    let client = ClusterClient::new(vec![url]).unwrap();
    through(
        "cluster failover, and slot moved",
        client,
        Rule::SlidingCounter,
        20,
        async || {
            let () = c.run(&["CLUSTER", "FAILOVER"]);
            sleep(Duration::from_secs(20)).await;
            c.until(&["INFO", "replication"], "role:master").await;
            let () = b.run(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &c.id()]);
            let () = c.run(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &b.id()]);
            let port = b.port.to_string();
            let migrate = format!("MIGRATE 127.0.0.1 {port} {{test}}:shares 0 5000");
            let _moved: String = c.run(&migrate.split(' ').collect::<Vec<_>>());
            for node in [&b, &c] {
                let () = node.run(&["CLUSTER", "SETSLOT", &slot, "NODE", &b.id()]);
            }
        },
    )
    .await;
}

/// A single-node client at a node without the slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_without_the_slot_is_reported_as_wrong_node() {
    let (Some(a), Some(b)) = (Node::start(), Node::start()) else {
        return;
    };
    let () = a.run(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    a.meet(&b);
    b.until(&["CLUSTER", "INFO"], "cluster_state:ok").await;
    b.until(&["CLUSTER", "INFO"], "cluster_slots_assigned:16384")
        .await;
    let client = Client::open(format!("redis://127.0.0.1:{}", b.port)).unwrap();
    assert_eq!(kind(client).await, StoreFault::WrongNode);
}

/// The rights that OPERATORS.md names for a cluster, and no others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_rights_are_sufficient_in_a_cluster() {
    let Some(node) = Node::start() else {
        return;
    };
    let () = node.run(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    node.until(&["CLUSTER", "INFO"], "cluster_state:ok").await;
    remember(&node.server);
    make_member(&mut node.server.connection(), &["+cluster|slots"]);
    let url = format!("redis://member:password@127.0.0.1:{}", node.port);
    fits(ClusterClient::new(vec![url]).unwrap()).await;
}

/// A process that ends with the test.
struct Sentinel(Child);

impl Sentinel {
    /// Watches a master under the name `fleet`, with more lines of settings. Returns its port.
    fn start(master: &RedisServer, address: &str, more: &str) -> (Self, u16) {
        let at = free_port();
        let folder = master.socket().parent().unwrap().to_owned();
        let settings = folder.join("sentinel.conf");
        let watched = address.replace(':', " ");
        let text = format!(
            "port {at}\nbind 127.0.0.1\nsentinel monitor fleet {watched} 1\n\
             sentinel down-after-milliseconds fleet 1000\nsentinel failover-timeout fleet 5000\n{more}"
        );
        std::fs::write(&settings, text).unwrap();
        let mut sentinel = Command::new("redis-server");
        let sentinel = sentinel.arg(&settings).arg("--sentinel");
        (Self(sentinel.stdout(Stdio::null()).spawn().unwrap()), at)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_failover_moves_members_to_the_new_master() {
    let (Some((master, address)), Some((replica, other))) = (on_a_port(), on_a_port()) else {
        return;
    };
    remember(&master);
    let (host, port) = address.split_once(':').unwrap();
    run(&replica, "REPLICAOF", &[host, port]);
    let (_sentinel, at) = Sentinel::start(&master, &address, "");
    let url = format!("redis://127.0.0.1:{at}");
    let admin = Client::open(url.as_str()).unwrap();
    // The Sentinel needs some seconds to find the replica.
    let knows = |text: &str| {
        let Ok(mut connection) = admin.get_connection() else {
            return false;
        };
        let found: String = cmd("INFO").arg("sentinel").query(&mut connection).unwrap();
        found.contains(text)
    };
    while !knows("slaves=1") {
        sleep(Duration::from_millis(200)).await;
    }
    let master = SentinelServerType::Master;
    let client = SentinelClient::build(vec![url.as_str()], "fleet", None, master).unwrap();
    let limiter = Limiter::new(Limits::default());
    let fleet = Fleet::join(client, "test", ANYWHERE, &limiter).unwrap();
    fleet.ready().await.unwrap();
    let mut admin = admin.get_connection().unwrap();
    let failover = cmd("SENTINEL").arg(&["FAILOVER", "fleet"]).clone();
    // It refuses while it has not heard from the replica that it is in step.
    while failover.exec(&mut admin).is_err() {
        sleep(Duration::from_millis(200)).await;
    }
    // The new master has no memory of its own, and its answer shows that.
    while fleet.status().grows_in.is_zero() {
        sleep(Duration::from_millis(100)).await;
    }
    let role: redis::Value = cmd("ROLE").query(&mut replica.connection()).unwrap();
    assert!(format!("{role:?}").contains("master"), "{other}: {role:?}");
    assert_eq!(fleet.status().fault, None);
}

/// The rights that OPERATORS.md names for Sentinels and their master, and no others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_rights_are_sufficient_under_sentinel() {
    let Some((master, address)) = on_a_port() else {
        return;
    };
    remember(&master);
    make_member(&mut master.connection(), &[]);
    assert!(include_str!("../../OPERATORS.md").contains("`+role +sentinel|masters`"));
    let reader = "user reader on >password -@all +role +sentinel|masters\n";
    let (_sentinel, at) = Sentinel::start(&master, &address, reader);
    let user = RedisConnectionInfo::default()
        .set_username("member")
        .set_password("password");
    let node = SentinelNodeConnectionInfo::default().set_redis_connection_info(user);
    let urls = vec![format!("redis://reader:password@127.0.0.1:{at}")];
    let master = SentinelServerType::Master;
    fits(SentinelClient::build(urls, "fleet", Some(node), master).unwrap()).await;
}
