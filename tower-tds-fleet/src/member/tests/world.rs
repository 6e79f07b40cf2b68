//! A service, its members, and the store with the real script, under paused time.

use std::{
    collections::HashMap,
    io, mem,
    ops::Deref,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    task::{Context, Waker},
    time::Duration,
};

use http::{Request, Response, header::CONNECTION};
use hyper_util::rt::TokioIo;
use tds_sim::Rule;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex},
    sync::{Notify, oneshot},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_tds_limits::{
    ConnectionLimitLayer, LimitedIo, Limiter, Limits, RequestLimitLayer, Rules, Share,
};

use crate::{
    Fleet, FleetError,
    member::{GIVE_UP, Question},
    store::{Ask, Constants, FleetStatus, Reply, numbers, reply, tests::Store},
};

/// Delays of the way to the service and to the store, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Network {
    /// Answers come after 100 ms, and the store is close.
    Quick,
    /// The network stalls, the store is sometimes slow, and one answer or question of twenty is
    /// lost.
    Rough,
    /// The store is half a second away.
    Far,
}

/// A world that ends with its owner.
pub(crate) struct Running(Arc<World>);

/// A service, a store and their members.
pub(crate) struct World {
    limits: Limits,
    network: Network,
    /// Time that a response takes beyond its way.
    takes: Duration,
    began: Instant,
    /// Steps of the store's clock, in milliseconds.
    pub(crate) ahead: AtomicU32,
    rng: Mutex<fastrand::Rng>,
    store: Mutex<Store>,
    members: Mutex<Vec<Process>>,
    /// When requests were counted.
    counted: Mutex<Vec<Duration>>,
    broken: Mutex<Option<String>>,
    /// Most sockets that were open at once.
    most_open: AtomicU32,
    /// Counters without a fleet, one for each second.
    counts: Mutex<HashMap<u64, u32>>,
}

/// One member's process.
#[derive(Clone)]
pub(crate) struct Process {
    world: Arc<World>,
    limiter: Limiter,
    fleet: Option<Fleet>,
    /// Whether each call increments a counter in the store, and waits for the next second beyond 50.
    is_naive: bool,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// A stopped process polls nothing.
    stopped: AtomicBool,
    callers: Mutex<JoinSet<()>>,
    /// Sockets that the service has open from this process.
    open: AtomicU32,
    /// Requests of this process that were counted.
    counted: AtomicU32,
    /// Longest call that has ended, in milliseconds.
    longest: AtomicU32,
    /// Sockets that wait for their next request.
    idle: Mutex<Vec<Socket>>,
    freed: Notify,
}

/// A socket of a process, as its pool has it.
type Socket = TokioIo<LimitedIo<TokioIo<DuplexStream>>>;

/// Way to the store.
struct Wire {
    world: Arc<World>,
    id: u64,
    constants: Constants,
    state: Arc<State>,
}

/// Service, as one process reaches it.
#[derive(Clone)]
struct Api {
    world: Arc<World>,
    state: Arc<State>,
    connector: BoxCloneSyncService<(), LimitedIo<TokioIo<DuplexStream>>, io::Error>,
}

// === impl Running ===

impl Deref for Running {
    type Target = Arc<World>;

    fn deref(&self) -> &Arc<World> {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Each process has its world, and would keep it.
        let members = mem::take(&mut *self.members.lock().unwrap());
        members.iter().for_each(|member| member.call(0));
    }
}

// === impl World ===

impl World {
    /// A quick network, where so many members have joined.
    pub(crate) async fn quick(members: usize, seed: u64) -> Option<Running> {
        let quick = (Network::Quick, Duration::ZERO);
        Self::start(members, seed, quick, Rules::default()).await
    }

    /// A world in which so many members have joined, and may have shares. There is none without a redis-server.
    pub(crate) async fn start(
        members: usize,
        seed: u64,
        (network, takes): (Network, Duration),
        rules: Rules,
    ) -> Option<Running> {
        let world = Arc::new(Self {
            limits: Limits::default().rules(rules),
            network,
            takes,
            began: Instant::now(),
            ahead: AtomicU32::default(),
            rng: Mutex::new(fastrand::Rng::with_seed(seed)),
            store: Mutex::new(Store::start()?),
            members: Mutex::default(),
            counted: Mutex::default(),
            broken: Mutex::default(),
            most_open: AtomicU32::default(),
            counts: Mutex::default(),
        });
        let weak = Arc::downgrade(&world);
        tokio::spawn(async move {
            while let Some(world) = weak.upgrade() {
                world.check();
                drop(world);
                sleep(Duration::from_millis(7)).await;
            }
        });
        (0..members).for_each(|_| drop(world.join()));
        sleep(Duration::from_secs(20)).await;
        Some(Running(world))
    }

    pub(crate) fn join(self: &Arc<Self>) -> Process {
        let mut process = self.process(false);
        let constants = Constants::new("https://data.example.org", &process.limiter).unwrap();
        let unit = constants.unit;
        let wire = Wire {
            world: Arc::clone(self),
            id: self.rng.lock().unwrap().u64(..),
            constants,
            state: Arc::clone(&process.state),
        };
        process.fleet = Some(Fleet::join_by(wire, unit, &process.limiter).unwrap());
        self.members.lock().unwrap().push(process.clone());
        process
    }

    /// Adds a process without a fleet.
    pub(crate) fn join_alone(self: &Arc<Self>, is_naive: bool) {
        let process = self.process(is_naive);
        self.members.lock().unwrap().push(process);
    }

    fn process(self: &Arc<Self>, is_naive: bool) -> Process {
        Process {
            world: Arc::clone(self),
            limiter: Limiter::new(self.limits.clone()),
            fleet: None,
            is_naive,
            state: Arc::default(),
        }
    }

    pub(crate) fn members(&self) -> Vec<Process> {
        self.members.lock().unwrap().clone()
    }

    pub(crate) fn counted(&self) -> usize {
        self.counted.lock().unwrap().len()
    }

    /// Checks the invariant: the sum over all members of the larger of share and held.
    fn check(&self) {
        let mut sum = Share::default();
        let members = self.members();
        if members.iter().any(|member| member.fleet.is_none()) {
            return;
        }
        let mut open = 0;
        for member in &members {
            member.close_ended();
            let taken = member.taken();
            sum.requests += taken.requests;
            sum.places += taken.places;
            sum.connections += taken.connections;
            open += member.sockets();
        }
        self.most_open.fetch_max(open, SeqCst);
        let places = if self.is_by_window() { u32::MAX } else { 11 };
        if sum.requests > 50 || sum.places > places || sum.connections > 60 {
            let of = |it: &Process| (it.status().share, it.limiter.load().held, it.sockets());
            let all: Vec<_> = members.iter().map(of).collect();
            let store = self.store.lock().unwrap().fields();
            let text = format!("{sum:?} at {}: {all:?}, {store:#?}", self.store_now());
            self.broken.lock().unwrap().get_or_insert(text);
        }
    }

    /// Asserts that no sum and no rule was ever exceeded.
    pub(crate) fn audit(&self) {
        assert_eq!(*self.broken.lock().unwrap(), None);
        let open = self.most_open.load(SeqCst);
        assert!(open <= 60, "{open} sockets");
        assert_eq!(self.refused(Rule::SlidingLog, 0), 0, "by a log");
        if !self.is_by_window() {
            assert_eq!(self.refused(BUCKET, 0), 0, "by a bucket");
            // The windows of a counter begin with its first request.
            for first in 0..40 {
                let refused = self.refused(Rule::SlidingCounter, first);
                assert_eq!(refused, 0, "by a sliding counter from request {first} on");
            }
        }
    }

    /// The requests, from this one on, that a service with this rule would have refused.
    pub(crate) fn refused(&self, rule: Rule, first: usize) -> usize {
        let mut counted = self.counted.lock().unwrap().clone();
        counted.sort_unstable();
        let mut meter = rule.meter(50, Duration::from_secs(1));
        let counted = counted.into_iter().skip(first);
        counted.filter(|at| !meter.arrive(*at)).count()
    }

    /// A permit of the counter in the store.
    async fn count(&self) {
        loop {
            sleep(2 * self.store_delay().unwrap_or_default()).await;
            let now = self.began.elapsed();
            let second = now.as_secs();
            let count = {
                let mut counts = self.counts.lock().unwrap();
                *counts.entry(second).and_modify(|it| *it += 1).or_insert(1)
            };
            if count <= 50 {
                return;
            }
            sleep(Duration::from_secs(second + 1) - now).await;
        }
    }

    /// Whether the window is the only rule.
    fn is_by_window(&self) -> bool {
        self.limits == Limits::default().rules(Rules::window())
    }

    /// A delay of the way to the service.
    fn delay(&self) -> Duration {
        let rng = &mut *self.rng.lock().unwrap();
        Duration::from_millis(match self.network {
            Network::Quick | Network::Far => rng.u64(45..55),
            Network::Rough => match rng.u8(..40) {
                0 => rng.u64(300..3_000),
                1..5 => rng.u64(50..300),
                _ => rng.u64(5..50),
            },
        })
    }

    /// A delay of the way to the store, or none if the message is lost.
    fn store_delay(&self) -> Option<Duration> {
        let rng = &mut *self.rng.lock().unwrap();
        let delay = match self.network {
            Network::Quick => rng.u64(..2),
            Network::Far => rng.u64(240..260),
            Network::Rough => match rng.u8(..20) {
                0 => return None,
                1 => rng.u64(500..4_000),
                2..6 => rng.u64(50..500),
                _ => rng.u64(..20),
            },
        };
        Some(Duration::from_millis(delay))
    }

    /// The store's clock, which is not the members'.
    fn store_now(&self) -> u64 {
        let now = self.began.elapsed().as_millis();
        1_700_000_000_000 + u64::try_from(now).unwrap() + u64::from(self.ahead.load(SeqCst))
    }
}

// === impl Process ===

impl Process {
    /// The larger of share and held. A process that is stopped for long holds its requests for longer than the
    /// service can count them.
    fn taken(&self) -> Share {
        let status = self.status();
        let is_old = status.answered.is_some_and(|at| at.elapsed() > SILENT);
        let held = match self.is_stopped() && is_old {
            true => Share::default(),
            false => self.limiter.load().held,
        };
        Share {
            requests: status.share.requests.max(held.requests),
            places: status.share.places.max(held.places),
            // Exactly those that the service has: it may have closed what a stopped process still holds.
            connections: status.share.connections.max(self.sockets()),
        }
    }

    /// Drops the idle sockets that have ended, as the tasks of a pool do.
    fn close_ended(&self) {
        let mut context = Context::from_waker(Waker::noop());
        let mut buffer = [0; 8];
        let mut idle = self.state.idle.lock().unwrap();
        idle.retain_mut(|socket| {
            let mut read = ReadBuf::new(&mut buffer);
            Pin::new(socket)
                .poll_read(&mut context, &mut read)
                .is_pending()
        });
    }

    /// Sets the number of callers from now on.
    pub(crate) fn call(&self, callers: usize) {
        let mut running = self.state.callers.lock().unwrap();
        running.abort_all();
        let api = Api::of(self);
        let (is_naive, limit) = (self.is_naive, RequestLimitLayer::new(self.limiter.clone()));
        for _ in 0..callers {
            let (api, sent) = (api.clone(), api.clone());
            let service = limit.layer(service_fn(move |request: Request<()>| {
                let api = sent.clone();
                let closes = request.headers().contains_key(CONNECTION);
                async move {
                    api.exchange(closes)
                        .await
                        .map(|()| Response::new(String::new()))
                }
            }));
            running.spawn(async move {
                loop {
                    let began = Instant::now();
                    api.state.runs().await;
                    if is_naive {
                        api.world.count().await;
                        drop(api.exchange(false).await);
                    } else {
                        drop(service.clone().oneshot(Request::new(())).await);
                    }
                    let took = u32::try_from(began.elapsed().as_millis()).unwrap();
                    api.state.longest.fetch_max(took, SeqCst);
                }
            });
        }
    }

    /// The longest call that has ended since this was last called.
    pub(crate) fn longest(&self) -> Duration {
        Duration::from_millis(self.state.longest.swap(0, SeqCst).into())
    }

    pub(crate) fn status(&self) -> FleetStatus {
        self.fleet.as_ref().unwrap().status()
    }

    /// The sockets that the service has open from this process.
    pub(crate) fn sockets(&self) -> u32 {
        self.state.open.load(SeqCst)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state.stopped.load(SeqCst)
    }

    /// The requests of this process that were counted.
    pub(crate) fn counted(&self) -> u32 {
        self.state.counted.load(SeqCst)
    }

    /// Kills the process.
    pub(crate) fn kill(&self) {
        self.stop();
        self.call(0);
    }

    /// Stops the process for good.
    pub(crate) fn stop(&self) {
        self.state.stopped.store(true, SeqCst);
    }
}

// === impl Wire ===

impl Ask for Wire {
    async fn ask(&mut self, question: Question) -> Result<Reply, FleetError> {
        let (sender, receiver) = oneshot::channel();
        let (world, id) = (Arc::clone(&self.world), (self.id, question.number));
        let numbers = numbers(&question, &self.constants);
        let Constants {
            quotas, service, ..
        } = self.constants.clone();
        let state = Arc::clone(&self.state);
        // The question reaches the store even if the member gives it up.
        tokio::spawn(async move {
            let (there, back) = (world.store_delay(), world.store_delay());
            if state.stopped.load(SeqCst) {
                return;
            }
            let Some(there) = there else { return };
            sleep(there).await;
            let rest = [&numbers, &quotas, "", "", &service];
            let now = world.store_now();
            let answer = world.store.lock().unwrap().ask(id, &rest, now);
            let Some(back) = back else { return };
            sleep(back).await;
            if !state.stopped.load(SeqCst) {
                drop(sender.send(answer));
            }
        });
        match timeout(GIVE_UP, receiver).await {
            Ok(Ok(answer)) => Ok(reply(&answer?.0).unwrap()),
            // A lost message is never answered, as on a real wire.
            Ok(Err(_lost)) => {
                sleep(GIVE_UP).await;
                Err(FleetError::unanswered())
            }
            Err(_elapsed) => Err(FleetError::unanswered()),
        }
    }
}

// === impl Api ===

impl Api {
    fn of(process: &Process) -> Self {
        let (world, state) = (Arc::clone(&process.world), Arc::clone(&process.state));
        let connector = service_fn(move |()| {
            let (world, state) = (Arc::clone(&world), Arc::clone(&state));
            async move {
                state.runs().await;
                // The connect ends within the second for which a dropped permit is kept.
                let there = Duration::from_millis(world.rng.lock().unwrap().u64(5..50));
                sleep(there).await;
                let (ours, theirs) = duplex(1 << 16);
                tokio::spawn(state.serve(theirs, there));
                sleep(there).await;
                io::Result::Ok(TokioIo::new(ours))
            }
        });
        let connector = ConnectionLimitLayer::new(process.limiter.clone()).layer(connector);
        Self {
            world: Arc::clone(&process.world),
            state: Arc::clone(&process.state),
            connector: BoxCloneSyncService::new(connector.map_err(io::Error::other)),
        }
    }

    /// Waits for an idle socket or a new one. A new one goes to the pool if another was free first, as
    /// in hyper's pool.
    async fn socket(&self) -> io::Result<Socket> {
        let mut connecting = None;
        loop {
            let idle = self.state.idle.lock().unwrap().pop();
            if let Some(socket) = idle {
                return Ok(socket);
            }
            let connecting = connecting.get_or_insert_with(|| {
                let (state, connector) = (Arc::clone(&self.state), self.connector.clone());
                tokio::spawn(async move {
                    let socket = connector.oneshot(()).await?;
                    state.idle.lock().unwrap().push(TokioIo::new(socket));
                    state.freed.notify_one();
                    io::Result::Ok(())
                })
            });
            tokio::select! {
                biased;
                () = self.state.freed.notified() => {}
                connected = &mut *connecting, if !connecting.is_finished() => connected??,
            }
        }
    }

    /// Sends one request, and returns when its response is there.
    async fn exchange(&self, closes: bool) -> io::Result<()> {
        self.state.runs().await;
        let mut socket = self.socket().await?;
        socket.write_all(&[0; 64]).await?;
        let (there, back) = (self.world.delay(), self.world.delay());
        let (world, state) = (Arc::clone(&self.world), Arc::clone(&self.state));
        let (sender, receiver) = oneshot::channel();
        // A request in flight is counted, even if its caller drops it.
        tokio::spawn(async move {
            sleep(there).await;
            let at = world.began.elapsed();
            world.counted.lock().unwrap().push(at);
            state.counted.fetch_add(1, SeqCst);
            sleep(back + world.takes).await;
            let _dropped = sender.send(());
        });
        let mut end = [0; 8];
        let is_over = tokio::select! {
            biased;
            _response = receiver => false,
            _end = socket.read(&mut end) => true,
        };
        self.state.runs().await;
        if is_over {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if !closes {
            self.state.idle.lock().unwrap().push(socket);
            self.state.freed.notify_one();
        }
        Ok(())
    }
}

// === impl State ===

impl State {
    /// Returns only if the process is not stopped.
    async fn runs(&self) {
        if self.stopped.load(SeqCst) {
            std::future::pending::<()>().await;
        }
    }

    /// The service's side of a socket: open until the process closes it, or its keep-alive ends.
    async fn serve(self: Arc<Self>, mut socket: DuplexStream, there: Duration) {
        self.open.fetch_add(1, SeqCst);
        let mut buffer = [0; 256];
        let is_closed = loop {
            match timeout(KEEP_ALIVE, socket.read(&mut buffer)).await {
                // The next request restarts the keep-alive.
                Ok(Ok(1..)) => {}
                end => break end.is_ok(),
            }
        };
        if is_closed {
            sleep(there).await;
            // A process that is stopped closes nothing, and a host that is lost closes nothing at all.
            let _ended = timeout(KEEP_ALIVE, self.runs()).await;
        }
        self.open.fetch_sub(1, SeqCst);
    }
}

/// nginx's `limit_req` with a burst of ten.
pub(crate) const BUCKET: Rule = Rule::LeakyBucket { burst: 10 };

/// Keep-alive of the service. A little shorter than the 75 s that the store counts, because a member's
/// last request is under way when its share ends.
const KEEP_ALIVE: Duration = Duration::from_secs(74);

/// When the store forgets a member: the end of its share, and the memory of the default limits.
const SILENT: Duration = Duration::from_millis(5_000 + 12_004);
