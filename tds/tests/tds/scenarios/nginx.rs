//! A backend beside nginx's `proxy_cache`, with the same resources, all of them in the cache.

use std::{
    fs,
    net::SocketAddr,
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{Duration, Instant, sleep},
};

use crate::Bench;

/// nginx, which caches what it gets with a token of this world.
struct Nginx {
    master: Child,
    address: SocketAddr,
}

// === impl Nginx ===

impl Nginx {
    async fn start(world: &Bench) -> Self {
        // nginx gets the listening socket, so that no other program can take the port before it starts.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("its address");
        let (sim, folder) = (world.server.sim(), world.folder.path().display());
        let token = sim.token(sim.client_id()).expect("the key is known");
        let conf = format!(
            "daemon off; worker_processes auto; pid {folder}/nginx.pid; error_log stderr; events {{}}\n\
             http {{ access_log off; proxy_cache_path {folder}/cache keys_zone=c:1m; keepalive_requests 1000000000;\n\
             client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;\n\
             uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;\n\
             server {{ listen {address}; location / {{ proxy_pass {}; proxy_cache c; proxy_cache_lock on; proxy_cache_valid 200 1h;\n\
             proxy_ignore_headers Cache-Control Expires; proxy_set_header Authorization \"Bearer {token}\"; }} }} }}",
            world.server.base_url()
        );
        let file = world.path("nginx.conf");
        fs::write(&file, conf).expect("a file");
        let mut nginx = Command::new("nginx");
        nginx.arg("-e").arg("stderr").arg("-c").arg(file);
        nginx.env("NGINX", "0;").stdin(OwnedFd::from(listener));
        let master = nginx.stderr(Stdio::null()).spawn().expect("it starts");
        let nginx = Self { master, address };
        while nginx.workers().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        nginx
    }

    fn workers(&self) -> Vec<u32> {
        let master = self.master.id();
        let workers = fs::read_to_string(format!("/proc/{master}/task/{master}/children"));
        let workers = workers.expect("Linux has it");
        let workers = workers.split_whitespace();
        workers.map(|pid| pid.parse().expect("a number")).collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let pid = self.master.id().to_string();
        drop(Command::new("kill").args(["-TERM", &pid]).status());
        drop(self.master.wait());
    }
}

/// The processor time that these processes have used.
fn used(pids: &[u32]) -> Duration {
    let ticks = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        let (_, fields) = stat.rsplit_once(')').expect("its name");
        let fields = fields.split_whitespace().skip(11).take(2);
        fields
            .map(|ticks| ticks.parse::<u64>().expect("a number"))
            .sum::<u64>()
    };
    // A hundred ticks a second, on every Linux.
    Duration::from_millis(10 * pids.iter().map(ticks).sum::<u64>())
}

/// Sends this many requests for a resource on 32 connections, and expects that each gets a 200 of this
/// size.
async fn load(address: SocketAddr, requests: usize, size: usize) -> Duration {
    let begun = Instant::now();
    let mut users = JoinSet::new();
    for _ in 0..32 {
        users.spawn(async move {
            let mut stream = TcpStream::connect(address).await.expect("it listens");
            stream.set_nodelay(true).expect("it can");
            let mut answer = vec![0; 4_096 + size];
            for _ in 0..requests / 32 {
                let request = b"GET /v1/live/bus HTTP/1.1\r\nhost: localhost\r\n\r\n";
                stream.write_all(request).await.expect("it reads");
                let (mut filled, mut whole) = (0, None);
                while whole != Some(filled) {
                    let read = stream.read(&mut answer[filled..]).await.expect("an answer");
                    assert!(read > 0, "it is kept alive");
                    filled += read;
                    let end = || {
                        answer[..filled]
                            .windows(4)
                            .position(|end| end == b"\r\n\r\n")
                    };
                    whole = whole.or_else(|| end().map(|head| head + 4 + size));
                }
                assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
            }
        });
    }
    users.join_all().await;
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a benchmark, for `--release`: see BENCHMARKS.md"]
async fn cached_responses_beside_nginx() {
    if let Err(error) = Command::new("nginx").arg("-v").output() {
        println!("SKIPPED: nginx: {error}");
        return;
    }
    for size in [1_024_u32, 65_536] {
        let world = Bench::with(|config| config.live_bytes = size.into()).await;
        world.list("/v1/live/bus\n");
        let backend = world.serve("--list list --fresh 1h");
        let nginx = Nginx::start(&world).await;
        let ours = (backend.address, vec![backend.child.id()]);
        let theirs = (nginx.address, nginx.workers());
        let bytes = size.try_into().expect("64 bits");
        let mut sums = [(Duration::ZERO, Duration::ZERO); 2];
        for round in 0..6 {
            for (sum, (address, pids)) in sums.iter_mut().zip([&ours, &theirs]) {
                let before = used(pids);
                let took = load(*address, REQUESTS, bytes).await;
                // The first round fills the caches.
                if round > 0 {
                    *sum = (sum.0 + took, sum.1 + used(pids) - before);
                }
            }
        }
        let calls = world.asked().1;
        let all = 5.0 * f64::from(u32::try_from(REQUESTS).expect("few"));
        let [ours, theirs] =
            sums.map(|(took, used)| (all / took.as_secs_f64(), used.as_secs_f64() * 1e6 / all));
        println!(
            "{size} bytes: tds {:.0} requests/s, {:.1} µs of processor each; nginx {:.0}, {:.1} µs; ratios {:.2}, {:.2}; \
             {calls} calls to the service",
            ours.0,
            ours.1,
            theirs.0,
            theirs.1,
            ours.0 / theirs.0,
            ours.1 / theirs.1
        );
        assert_eq!(calls, 2, "one by each");
    }
}

const REQUESTS: usize = 64_000;
