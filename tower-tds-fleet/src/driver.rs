//! The member's thread: one connection, one question at a time.

use std::{io, sync::Arc, thread, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind,
    RedisError, RedisResult, aio::MultiplexedConnection,
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::Instant,
};
use tower_tds_limits::{LimitError, WaitCause};

use crate::{
    clock,
    fleet::{Shared, State, Store, Waiter},
    member::{Ask, Next, Reply},
    script::{Account, Standing},
};

/// Talks to the store for one process.
pub(crate) struct Driver {
    client: Client,
    account: Account,
    shared: Arc<Shared>,
}

/// A connection to one server process.
struct Server {
    connection: MultiplexedConnection,
    pushes: UnboundedReceiver<PushInfo>,
}

/// What is told of the store and the account.
enum News {
    Back(Duration),
    Away(Arc<str>),
    Rung(u8, u8),
    NoMemory(Duration),
}

/// The end of the thread.
struct End(Arc<Shared>);

// === impl Driver ===

impl Driver {
    /// Starts the thread, which ends when all handles are gone.
    pub(crate) fn start(client: Client, account: Account, shared: Arc<Shared>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let driver = Self {
            client,
            account,
            shared,
        };
        let named = thread::Builder::new().name("tds-fleet".to_owned());
        named.spawn(move || runtime.block_on(driver.run()))?;
        Ok(())
    }

    async fn run(self) {
        // However this ends, nobody is left waiting, and nothing goes on by a lease that nobody keeps.
        let _end = End(Arc::clone(&self.shared));
        let mut again = SHORTEST;
        while !self.is_over() {
            let error = match self.alone(self.connect()).await {
                Ok(server) => {
                    self.shared.lock().member.is_there(true);
                    match self.serve(server, &mut again).await {
                        Ok(()) => return,
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            self.lost(&error);
            // Fifty members that lost one store do not come back together.
            let jitter = again.mul_f64(fastrand::f64() / 2.0);
            self.alone(tokio::time::sleep(again.saturating_add(jitter)))
                .await;
            again = again.saturating_mul(2).min(LONGEST);
        }
    }

    /// Whether nobody can ask any more, and nothing is under way.
    fn is_over(&self) -> bool {
        let state = self.shared.lock();
        state.closed && state.member.held() == 0
    }

    /// Meanwhile, leases that cannot be kept are over.
    async fn alive<T>(&self, what: impl Future<Output = T>) -> T {
        let mut what = std::pin::pin!(what);
        loop {
            let over = self.shared.lock().member.over_at();
            tokio::select! {
                done = &mut what => return done,
                () = until(over) => {
                    self.shared.lock().member.expire(clock::now());
                    self.shared.told.notify_waiters();
                }
            }
        }
    }

    /// Meanwhile there is no store: who has a share goes on by it.
    async fn alone<T>(&self, what: impl Future<Output = T>) -> T {
        let mut what = std::pin::pin!(self.alive(what));
        loop {
            let at = self.alone_at();
            tokio::select! {
                done = &mut what => return done,
                () = self.shared.news.notified() => {}
                () = until(at) => self.shared.hand_out_alone(),
            }
        }
    }

    /// When the share has its next place. Who would not wait for that is told why there is none.
    fn alone_at(&self) -> Option<Instant> {
        let now = clock::now();
        let mut state = self.shared.lock();
        let at = state.member.alone_at(now);
        if at.is_none_or(|at| at > now)
            && let Store::Away(..) = state.store
            && let Some(why) = state.store.why_away()
        {
            let refused = state.member.take_waiting(|waiter| waiter.once);
            drop(state);
            refuse(refused, &why);
        }
        at
    }

    async fn connect(&self) -> RedisResult<Server> {
        let (sender, pushes) = unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(TIMEOUT))
            .set_response_timeout(Some(TIMEOUT))
            .set_push_sender(sender);
        let info = self.client.get_connection_info().clone();
        let settings = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(settings).into_connection_info()?)?;
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        connection.subscribe(self.account.channel()).await?;
        Ok(Server { connection, pushes })
    }

    /// Asks and tells until there is nobody to do it for, or the connection is lost.
    async fn serve(&self, mut server: Server, again: &mut Duration) -> RedisResult<()> {
        loop {
            let (next, leaves) = {
                let mut state = self.shared.lock();
                state.member.take_waiting(|waiter| waiter.lease.is_closed());
                let next = state.member.next(clock::now());
                state.telling = matches!(next, Next::Ask(_));
                let leaves = state.closed && !state.telling && state.member.is_over(clock::now());
                (next, leaves.then(|| state.member.goodbye()))
            };
            if let Some(goodbye) = leaves {
                if let Some(goodbye) = goodbye {
                    self.account.ask(&mut server.connection, &goodbye).await?;
                }
                return Ok(());
            }
            match next {
                Next::Ask(ask) => {
                    let sent = clock::now();
                    let asked = self.account.ask(&mut server.connection, &ask);
                    match self.alive(asked).await {
                        Ok((reply, standing)) => {
                            *again = SHORTEST;
                            self.answered(&ask, reply, standing, sent);
                        }
                        Err(error) => {
                            self.shared.lock().member.unanswered(ask);
                            return Err(error);
                        }
                    }
                }
                Next::Wait(at) => {
                    self.shared.told.notify_waiters();
                    self.alive(self.wait(&mut server.pushes, at)).await?;
                }
            }
        }
    }

    /// Until something is to be done.
    async fn wait(
        &self,
        pushes: &mut UnboundedReceiver<PushInfo>,
        at: Option<Instant>,
    ) -> RedisResult<()> {
        tokio::select! {
            () = self.shared.news.notified() => Ok(()),
            () = until(at) => Ok(()),
            push = pushes.recv() => match push {
                Some(push) if push.kind == PushKind::Message => {
                    let wait = push.data.last().and_then(|wait| redis::from_redis_value_ref::<u64>(wait).ok());
                    let wait = Duration::from_micros(wait.unwrap_or_default());
                    let now = clock::now();
                    self.shared.lock().member.told(now.checked_add(wait).unwrap_or(now));
                    Ok(())
                }
                Some(push) if push.kind == PushKind::Disconnection => Err(gone()),
                Some(_) => Ok(()),
                None => Err(gone()),
            },
        }
    }

    fn answered(&self, ask: &Ask, reply: Reply, standing: Standing, sent: Instant) {
        let now = clock::now();
        let wait = reply.wait;
        let (granted, news) = {
            let mut state = self.shared.lock();
            let mut news = Vec::from_iter(state.found());
            news.extend(state.tell(standing));
            (state.member.answered(ask, reply, sent, now), news)
        };
        news.into_iter().for_each(News::tell);
        let grants = granted.len();
        self.shared.hand_out(granted);
        if grants >= ask.want {
            return;
        }
        // Who waits for one answer has it; and who would wait for long is told.
        let used_up = (standing.paused > PATIENCE)
            .then(|| LimitError::rejected(WaitCause::Pause, Some(standing.paused)));
        let refused = self
            .shared
            .lock()
            .member
            .take_waiting(|waiter| waiter.once || used_up.is_some() && !waiter.first_in_line);
        for waiter in refused {
            let error = used_up.clone();
            let error = error.unwrap_or_else(|| LimitError::rejected(WaitCause::Lease, wait));
            // Whoever is gone needs no answer.
            let _gone = waiter.lease.send(Err(error));
        }
    }

    fn lost(&self, error: &RedisError) {
        let why: Arc<str> = match error.code() {
            Some(OTHER_TERMS) => {
                "another member of this fleet keeps other limits: give all of them the same".into()
            }
            Some(_) | None => error.to_string().into(),
        };
        let (refused, news) = {
            let mut state = self.shared.lock();
            state.member.is_there(false);
            let gone_or_once = |waiter: &Waiter| waiter.once || waiter.lease.is_closed();
            let refused = state.member.take_waiting(gone_or_once);
            (refused, state.lost(Arc::clone(&why)))
        };
        news.into_iter().for_each(News::tell);
        refuse(refused, &why);
    }
}

// === impl State ===

impl State {
    /// The store has answered.
    fn found(&mut self) -> Option<News> {
        match std::mem::replace(&mut self.store, Store::Here) {
            Store::Away(since, _) => Some(News::Back(since.elapsed())),
            Store::Sought(_) | Store::Here => None,
        }
    }

    fn lost(&mut self, why: Arc<str>) -> Option<News> {
        let since = match &self.store {
            Store::Away(since, known) if *known == why => {
                self.store = Store::Away(*since, why);
                return None;
            }
            Store::Away(since, _) | Store::Sought(since) => *since,
            Store::Here => clock::now(),
        };
        self.store = Store::Away(since, Arc::clone(&why));
        Some(News::Away(why))
    }

    fn tell(&mut self, standing: Standing) -> Vec<News> {
        let before = std::mem::replace(&mut self.standing, standing);
        let mut news = Vec::new();
        if standing.rung != before.rung {
            news.push(News::Rung(standing.rung, before.rung));
        }
        if !standing.opens.is_zero() && before.opens.is_zero() {
            news.push(News::NoMemory(standing.opens));
        }
        news
    }
}

// === impl News ===

impl News {
    /// Called without any lock: a subscriber may well ask for the status.
    fn tell(self) {
        match self {
            Self::Back(away) => tracing::info!(?away, "the fleet's store is back"),
            Self::Away(why) => {
                tracing::warn!(%why, "the fleet's store is away: no leases until it is there")
            }
            Self::Rung(rung, before) => {
                tracing::warn!(rung, before, "the fleet keeps within other rules")
            }
            Self::NoMemory(wait) => tracing::warn!(
                ?wait,
                "the fleet's store has no memory of this quota: nothing is granted until whatever it may have \
                 granted before is over"
            ),
        }
    }
}

// === impl End ===

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.closed, state.ended) = (true, true);
        let waiting = state.member.end();
        drop(state);
        drop(waiting);
        self.0.told.notify_waiters();
    }
}

/// At that time, or never.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn refuse(waiters: impl IntoIterator<Item = Waiter>, why: &Arc<str>) {
    for waiter in waiters {
        // Whoever is gone needs no answer.
        let _gone = waiter
            .lease
            .send(Err(LimitError::unavailable(Arc::clone(why))));
    }
}

fn gone() -> RedisError {
    io::Error::new(
        io::ErrorKind::ConnectionReset,
        "the store has closed the connection",
    )
    .into()
}

/// What the script answers to a member with other limits.
const OTHER_TERMS: &str = "FLEETTERMS";

/// Of connecting, and of one answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Between tries to connect.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// Who would wait for longer because of a 429 is told so, as in one process.
const PATIENCE: Duration = Duration::from_secs(60);
