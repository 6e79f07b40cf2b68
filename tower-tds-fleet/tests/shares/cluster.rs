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
use tower_tds_fleet::{Fleet, FleetError};
use tower_tds_limits::Limiter;

use crate::shares::{
    ANYWHERE, RedisServer,
    faults::through,
    free_port, on_a_port,
    operators::{fails, fits, make_member},
    or_skip, remember, run,
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

/// The members' user has the rights that OPERATORS.md names for a cluster, and no others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_failover_and_slot_move_cause_no_refusal_under_the_documented_rights() {
    let [a, b, c] = [(); 3].map(|()| Node::start());
    let (a, b, c) = (or_skip!(a), or_skip!(b), or_skip!(c));
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
        make_member(&mut node.server.connection(), &["+cluster|slots"]);
    }
    let () = c.run(&["CLUSTER", "REPLICATE", &a.id()]);
    c.until(&["INFO", "replication"], "master_link_status:up")
        .await;
    remember(&a.server);
    // A client of a single node, at one without the slot.
    fails(b.server.client(), FleetError::WrongNode).await;
    let url = format!("redis://member:password@127.0.0.1:{}", a.port);
    let client = ClusterClient::new(vec![url]).unwrap();
    fits(client.clone()).await;
    through(client, Rule::SlidingCounter, 20, async || {
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
    })
    .await;
}

/// A process that ends with the test.
struct Sentinel(Child);

impl Sentinel {
    /// Watches a master under the name `fleet`, which a `reader` may look up. Returns its port.
    fn start(master: &RedisServer, address: &str) -> (Self, u16) {
        let at = free_port();
        let folder = master.socket().parent().unwrap().to_owned();
        let settings = folder.join("sentinel.conf");
        let watched = address.replace(':', " ");
        assert!(include_str!("../../OPERATORS.md").contains("`+role +sentinel|masters`"));
        let text = format!(
            "port {at}\nbind 127.0.0.1\nsentinel monitor fleet {watched} 1\n\
             sentinel down-after-milliseconds fleet 1000\nsentinel failover-timeout fleet 5000\n\
             user reader on >password -@all +role +sentinel|masters\n"
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

/// The users have the rights that OPERATORS.md names for Sentinels and their master, and no others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_failover_moves_members_to_the_new_master_under_the_documented_rights() {
    let (master, address) = or_skip!(on_a_port());
    let (replica, other) = or_skip!(on_a_port());
    remember(&master);
    make_member(&mut master.connection(), &[]);
    make_member(&mut replica.connection(), &[]);
    let (host, port) = address.split_once(':').unwrap();
    run(&replica, "REPLICAOF", &[host, port]);
    let (_sentinel, at) = Sentinel::start(&master, &address);
    let admin = Client::open(format!("redis://127.0.0.1:{at}")).unwrap();
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
    let user = RedisConnectionInfo::default()
        .set_username("member")
        .set_password("password");
    let node = SentinelNodeConnectionInfo::default().set_redis_connection_info(user);
    let urls = vec![format!("redis://reader:password@127.0.0.1:{at}")];
    let kind = SentinelServerType::Master;
    let client = SentinelClient::build(urls, "fleet", Some(node), kind).unwrap();
    let limiter = Limiter::new(Limits::default());
    let fleet = Fleet::join(client, "test", ANYWHERE, &limiter).unwrap();
    fleet.ready().await.unwrap();
    let mut admin = admin.get_connection().unwrap();
    let failover = cmd("SENTINEL").arg(&["FAILOVER", "fleet"]).clone();
    // It refuses until the replica has reported that it is in step.
    while failover.exec(&mut admin).is_err() {
        sleep(Duration::from_millis(200)).await;
    }
    // The new master has no memory of its own, and its answer shows that.
    while fleet.status().grows_in.is_zero() {
        sleep(Duration::from_millis(100)).await;
    }
    let role: redis::Value = cmd("ROLE").query(&mut replica.connection()).unwrap();
    assert!(format!("{role:?}").contains("master"), "{other}: {role:?}");
    fleet.leave().await;
    assert_eq!(fleet.status().fault, None);
}
