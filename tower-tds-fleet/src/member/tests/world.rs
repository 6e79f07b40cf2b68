use std::{
    collections::VecDeque,
    io,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::{Request, Response, header::CONNECTION};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex},
    sync::{Notify, oneshot},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_tds_limits::{
    ConnectionLimit, ConnectionLimitLayer, LimitedIo, Limiter, Limits, RequestLimitLayer, Rules,
    Share,
};

use crate::{
    Fleet, FleetError,
    member::{GIVE_UP, Question},
    store::{
        Ask, Constants, FleetStatus, Reply, numbers, reply,
        tests::twin::{Asked, Division},
    },
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

/// A service, a store and their members.
#[derive(Clone)]
pub(crate) struct World {
    shared: Arc<Shared>,
}

struct Shared {
    limits: Limits,
    network: Network,
    began: Instant,
    rng: Mutex<fastrand::Rng>,
    division: Mutex<Division>,
    members: Mutex<Vec<Process>>,
    /// When requests were counted.
    counted: Mutex<Vec<Duration>>,
    broken: Mutex<Option<String>>,
    /// Most sockets that were open at once.
    most_open: AtomicU32,
    /// Time that a response takes beyond its way, in milliseconds.
    takes: AtomicU32,
    /// A counter without a fleet: the second, and what was counted in it.
    counter: Mutex<(u64, u32)>,
}

/// One member's process.
#[derive(Clone)]
pub(crate) struct Process {
    world: World,
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

/// Way to the model of the store.
struct Wire {
    world: World,
    id: u64,
    constants: Constants,
    state: Arc<State>,
}

/// Service, as one process reaches it.
#[derive(Clone)]
struct Api {
    world: World,
    state: Arc<State>,
    connector: ConnectionLimit<Connector>,
    /// Time from the arrival of a request to its response, beyond the way.
    takes: Duration,
}

/// Opens sockets to the service.
#[derive(Clone)]
struct Connector {
    world: World,
    state: Arc<State>,
}

// === impl World ===

impl World {
    pub(crate) fn new(seed: u64, limits: Limits, network: Network) -> Self {
        let shared = Shared {
            limits,
            network,
            began: Instant::now(),
            rng: Mutex::new(fastrand::Rng::with_seed(seed)),
            division: Mutex::default(),
            members: Mutex::default(),
            counted: Mutex::default(),
            broken: Mutex::default(),
            most_open: AtomicU32::default(),
            takes: AtomicU32::default(),
            counter: Mutex::default(),
        };
        let world = Self {
            shared: Arc::new(shared),
        };
        let weak = Arc::downgrade(&world.shared);
        tokio::spawn(async move {
            while let Some(shared) = weak.upgrade() {
                Self { shared }.check();
                sleep(Duration::from_millis(7)).await;
            }
        });
        world
    }

    pub(crate) fn join(&self) {
        let limiter = Limiter::new(self.shared.limits.clone());
        let constants = Constants::new("https://data.example.org", &limiter).unwrap();
        let state = Arc::new(State::default());
        let wire = Wire {
            world: self.clone(),
            id: self.shared.rng.lock().unwrap().u64(..),
            constants: constants.clone(),
            state: Arc::clone(&state),
        };
        let fleet = Fleet::join_by(wire, constants.unit, &limiter).unwrap();
        self.add(limiter, Some(fleet), false, state);
    }

    /// Adds a process without a fleet.
    pub(crate) fn join_alone(&self, is_naive: bool) {
        let limiter = Limiter::new(self.shared.limits.clone());
        self.add(limiter, None, is_naive, Arc::default());
    }

    fn add(&self, limiter: Limiter, fleet: Option<Fleet>, is_naive: bool, state: Arc<State>) {
        let world = self.clone();
        self.shared.members.lock().unwrap().push(Process {
            world,
            limiter,
            fleet,
            is_naive,
            state,
        });
    }

    pub(crate) fn members(&self) -> Vec<Process> {
        self.shared.members.lock().unwrap().clone()
    }

    /// Makes responses of calls that begin from now on slower.
    pub(crate) fn slow(&self, by: Duration) {
        let millis = u32::try_from(by.as_millis()).unwrap();
        self.shared.takes.store(millis, SeqCst);
    }

    /// The most sockets that were open at once.
    pub(crate) fn most_open(&self) -> u32 {
        self.shared.most_open.load(SeqCst)
    }

    pub(crate) fn counted(&self) -> usize {
        self.shared.counted.lock().unwrap().len()
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
            open += member.state.open.load(SeqCst);
        }
        self.shared.most_open.fetch_max(open, SeqCst);
        let places = if self.is_by_window() { u32::MAX } else { 11 };
        if sum.requests > 50 || sum.places > places || sum.connections > 60 {
            let of = |it: &Process| (it.status().share, it.limiter.load().held, it.sockets());
            let all: Vec<_> = members.iter().map(of).collect();
            let (at, store) = (self.store_now(), self.shared.division.lock().unwrap());
            let text = format!("{sum:?} at {at}: {all:?}, {store:#?}");
            self.shared.broken.lock().unwrap().get_or_insert(text);
        }
    }

    /// Returns the number of requests, if no sum and no rule was ever exceeded.
    pub(crate) fn audit(&self) -> usize {
        let broken = self.shared.broken.lock().unwrap().clone();
        assert_eq!(broken, None);
        let open = self.shared.most_open.load(SeqCst);
        assert!(open <= 60, "{open} sockets");
        let mut counted = self.shared.counted.lock().unwrap().clone();
        counted.sort_unstable();
        assert_eq!(self.over_the_log(), 0, "by a log");
        if !self.is_by_window() {
            assert_eq!(self.over_the_bucket(), 0, "by a bucket");
            let weighted = largest_weighted_second(&counted);
            assert!(weighted <= 50.0 + 1e-6, "{weighted} by a sliding counter");
        }
        counted.len()
    }

    /// The requests that a bucket of 50 a second and a burst of ten would have refused.
    pub(crate) fn over_the_bucket(&self) -> usize {
        let mut counted = self.shared.counted.lock().unwrap().clone();
        counted.sort_unstable();
        let (mut level, mut last, mut refused) = (0.0_f64, Duration::ZERO, 0);
        for at in counted {
            level = (level - (at - last).as_secs_f64() * 50.0).max(0.0);
            last = at;
            if level > 10.0 + 1e-6 {
                refused += 1;
            } else {
                level += 1.0;
            }
        }
        refused
    }

    /// The requests that a log of 50 a second would have refused.
    pub(crate) fn over_the_log(&self) -> usize {
        let mut counted = self.shared.counted.lock().unwrap().clone();
        counted.sort_unstable();
        let (mut log, mut refused) = (VecDeque::new(), 0);
        for at in counted {
            while log
                .front()
                .is_some_and(|first| *first + Duration::from_secs(1) <= at)
            {
                log.pop_front();
            }
            if log.len() < 50 {
                log.push_back(at)
            } else {
                refused += 1
            }
        }
        refused
    }

    /// A permit of the counter in the store.
    async fn count(&self) {
        loop {
            for _way in 0..2 {
                sleep(self.store_delay().unwrap_or_default()).await;
            }
            let now = self.shared.began.elapsed();
            let count = {
                let mut counter = self.shared.counter.lock().unwrap();
                if counter.0 != now.as_secs() {
                    *counter = (now.as_secs(), 0);
                }
                counter.1 += 1;
                counter.1
            };
            if count <= 50 {
                return;
            }
            sleep(Duration::from_secs(now.as_secs() + 1) - now).await;
        }
    }

    /// Whether the window is the only rule.
    fn is_by_window(&self) -> bool {
        self.shared.limits == Limits::default().rules(Rules::window())
    }

    /// Delays to the service and back.
    fn delays(&self) -> (Duration, Duration) {
        let rng = &mut *self.shared.rng.lock().unwrap();
        let (there, back) = match self.shared.network {
            Network::Quick | Network::Far => (rng.u64(45..55), rng.u64(45..55)),
            Network::Rough => {
                let mut one = || match rng.u8(..40) {
                    0 => rng.u64(300..3_000),
                    1..5 => rng.u64(50..300),
                    _ => rng.u64(5..50),
                };
                (one(), one())
            }
        };
        (Duration::from_millis(there), Duration::from_millis(back))
    }

    /// A delay of the way to the store, or none if the message is lost.
    fn store_delay(&self) -> Option<Duration> {
        let rng = &mut *self.shared.rng.lock().unwrap();
        let delay = match self.shared.network {
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
        let now = self.shared.began.elapsed().as_millis();
        1_700_000_000_000 + u64::try_from(now).unwrap()
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
        let api = Api {
            world: self.world.clone(),
            state: Arc::clone(&self.state),
            connector: self.connector(),
            takes: Duration::from_millis(self.world.shared.takes.load(SeqCst).into()),
        };
        let naive = self.is_naive.then(|| api.clone());
        let service = ServiceBuilder::new()
            .layer(RequestLimitLayer::new(self.limiter.clone()))
            .service(api);
        for _ in 0..callers {
            let (service, state) = (service.clone(), Arc::clone(&self.state));
            let naive = naive.clone();
            running.spawn(async move {
                loop {
                    let began = Instant::now();
                    if let Some(api) = &naive {
                        api.world.count().await;
                        drop(api.exchange(false).await);
                    } else {
                        let call = service.clone().oneshot(Request::new(()));
                        drop(call.await);
                    }
                    let took = u32::try_from(began.elapsed().as_millis()).unwrap();
                    state.longest.fetch_max(took, SeqCst);
                }
            });
        }
    }

    fn connector(&self) -> ConnectionLimit<Connector> {
        let connector = Connector {
            world: self.world.clone(),
            state: Arc::clone(&self.state),
        };
        ConnectionLimitLayer::new(self.limiter.clone()).layer(connector)
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
        let (world, id, constants) = (self.world.clone(), self.id, self.constants.clone());
        let state = Arc::clone(&self.state);
        // The question reaches the store even if the member gives it up.
        tokio::spawn(async move {
            let (there, back) = (world.store_delay(), world.store_delay());
            if state.stopped.load(SeqCst) {
                return;
            }
            let Some(there) = there else { return };
            sleep(there).await;
            let numbers = numbers(&question, &constants);
            let asked = Asked::of((id, question.number), &numbers, &constants.quotas, None);
            let answer = world
                .shared
                .division
                .lock()
                .unwrap()
                .ask(&asked, 0, world.store_now());
            let Some(back) = back else { return };
            sleep(back).await;
            if !state.stopped.load(SeqCst) {
                drop(sender.send(answer));
            }
        });
        match timeout(GIVE_UP, receiver).await {
            Ok(Ok(Ok(values))) => Ok(reply(&values).unwrap()),
            Ok(Ok(Err(_))) => Err(FleetError::settings("refused")),
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
                    let socket = connector.oneshot(()).await.map_err(io::Error::other)?;
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
        let mut socket = self.socket().await?;
        socket.write_all(&[0; 64]).await?;
        let (there, back) = self.world.delays();
        let (world, state, takes) = (self.world.clone(), Arc::clone(&self.state), self.takes);
        let (sender, receiver) = oneshot::channel();
        // A request in flight is counted, even if its caller drops it.
        tokio::spawn(async move {
            sleep(there).await;
            let at = world.shared.began.elapsed();
            world.shared.counted.lock().unwrap().push(at);
            state.counted.fetch_add(1, SeqCst);
            sleep(back + takes).await;
            let _dropped = sender.send(());
        });
        let mut end = [0; 8];
        let ended = tokio::select! {
            biased;
            _response = receiver => None,
            read = socket.read(&mut end) => Some(read),
        };
        std::future::poll_fn(|_| self.state.runs()).await;
        if let Some(read) = ended {
            return Err(read
                .err()
                .unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
        }
        if !closes {
            self.state.idle.lock().unwrap().push(socket);
            self.state.freed.notify_one();
        }
        Ok(())
    }
}

impl Service<Request<()>> for Api {
    type Response = Response<http_body_util::Empty<bytes::Bytes>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.state.runs().map(Ok)
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move {
            api.exchange(request.headers().contains_key(CONNECTION))
                .await?;
            Ok(Response::new(http_body_util::Empty::new()))
        })
    }
}

// === impl Connector ===

impl Service<()> for Connector {
    type Response = TokioIo<DuplexStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.state.runs().map(Ok)
    }

    fn call(&mut self, (): ()) -> Self::Future {
        let (world, state) = (self.world.clone(), Arc::clone(&self.state));
        Box::pin(async move {
            // The connect ends within the second for which a dropped permit is kept.
            let there = Duration::from_millis(world.shared.rng.lock().unwrap().u64(5..50));
            sleep(there).await;
            let (ours, theirs) = duplex(1 << 16);
            tokio::spawn(state.serve(theirs, there));
            sleep(there).await;
            Ok(TokioIo::new(ours))
        })
    }
}

// === impl State ===

impl State {
    fn runs(&self) -> Poll<()> {
        if self.stopped.load(SeqCst) {
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// The service's side of a socket: open until the process closes it, or its keep-alive ends.
    async fn serve(self: Arc<Self>, mut socket: DuplexStream, there: Duration) {
        self.open.fetch_add(1, SeqCst);
        let mut buffer = [0; 256];
        loop {
            match timeout(KEEP_ALIVE, socket.read(&mut buffer)).await {
                // The next request restarts the keep-alive.
                Ok(Ok(1..)) => {}
                Ok(_end) => break,
                Err(_elapsed) => {
                    self.open.fetch_sub(1, SeqCst);
                    return;
                }
            }
        }
        sleep(there).await;
        // A process that is stopped closes nothing, and a host that is lost closes nothing at all.
        let closes = pin!(std::future::poll_fn(|_| self.runs()));
        let _ended = timeout(KEEP_ALIVE, closes).await;
        self.open.fetch_sub(1, SeqCst);
    }
}

/// Keep-alive of the service. A little shorter than the 75 s that the store counts, because a member's
/// last request is under way when its share ends.
const KEEP_ALIVE: Duration = Duration::from_secs(74);

/// When the store forgets a member: the end of its share, and the memory of the default limits.
const SILENT: Duration = Duration::from_millis(5_000 + 12_004);

/// The largest sum of a sliding counter, at forty phases of its windows.
fn largest_weighted_second(counted: &[Duration]) -> f64 {
    let mut largest = 0.0_f64;
    for phase in 0..40_u64 {
        let (mut window, mut before, mut now) = (0, 0.0, 0.0);
        for at in counted {
            let at = at.as_nanos() + u128::from(phase) * 25_000_000;
            let (number, into) = (at / 1_000_000_000, at % 1_000_000_000);
            if number != window {
                before = if number == window + 1 { now } else { 0.0 };
                (window, now) = (number, 0.0);
            }
            now += 1.0;
            let left = 1.0 - into as f64 / 1e9;
            largest = largest.max(before * left + now);
        }
    }
    largest
}
