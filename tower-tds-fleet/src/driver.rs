//! The member's thread: one connection, one question at a time.

use std::{io, sync::Arc, thread, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ErrorKind, IntoConnectionInfo, ProtocolVersion, PushInfo,
    PushKind, RedisError, RedisResult, aio::MultiplexedConnection,
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::Instant,
};
use tower_tds_limits::{LimitError, WaitCause};

use crate::{
    clock,
    fleet::{Shared, State, Store},
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
    /// What that process calls itself: another one has another memory.
    run: String,
    pushes: UnboundedReceiver<PushInfo>,
}

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
        let mut again = SHORTEST;
        while !self.is_over() {
            let error = match self.alive(self.connect()).await {
                Ok(server) => {
                    again = SHORTEST;
                    match self.serve(server).await {
                        Ok(()) => return,
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            self.lost(&error);
            self.alive(tokio::time::sleep(again)).await;
            again = again.saturating_mul(2).min(LONGEST);
        }
    }

    /// Whether nobody can ask any more, and all is told.
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
                () = until(over) => self.shared.lock().member.expire(clock::now()),
            }
        }
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
        let info: String = redis::cmd("INFO")
            .arg("server")
            .query_async(&mut connection)
            .await?;
        let run = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        let run = run.ok_or_else(|| {
            RedisError::from((
                ErrorKind::UnexpectedReturnType,
                "the store's INFO names no run_id",
            ))
        })?;
        connection.subscribe(&self.account.channel).await?;
        Ok(Server {
            connection,
            run: run.trim().to_owned(),
            pushes,
        })
    }

    /// Asks and tells until there is nobody to do it for, or the connection is lost.
    async fn serve(&self, mut server: Server) -> RedisResult<()> {
        loop {
            let next = {
                let mut state = self.shared.lock();
                state.member.take_waiting(|waiter| waiter.lease.is_closed());
                let next = state.member.next(clock::now());
                state.telling = matches!(next, Next::Ask(_));
                if state.closed && state.member.held() == 0 && matches!(next, Next::Wait(_)) {
                    return Ok(());
                }
                next
            };
            match next {
                Next::Ask(ask) => {
                    let sent = clock::now();
                    let asked = self.account.ask(&mut server.connection, &server.run, &ask);
                    match self.alive(asked).await {
                        Ok((reply, standing)) => self.answered(&ask, reply, standing, sent),
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
        let (granted, told) = {
            let mut state = self.shared.lock();
            state.found();
            state.tell(standing);
            let granted = state.member.answered(ask, reply, sent, now);
            let told = state.standing;
            (granted, told)
        };
        let grants = granted.len();
        self.shared.hand_out(granted);
        if grants >= ask.want {
            return;
        }
        // Who waits for one answer has it; and who would wait for long is told.
        let used_up = (told.paused > PATIENCE)
            .then(|| LimitError::rejected(WaitCause::Pause, Some(told.paused)));
        let refused = self
            .shared
            .lock()
            .member
            .take_waiting(|waiter| waiter.once || used_up.is_some());
        for waiter in refused {
            let error = used_up.clone();
            let error = error.unwrap_or_else(|| LimitError::rejected(WaitCause::Lease, wait));
            // Whoever is gone needs no answer.
            let _gone = waiter.lease.send(Err(error));
        }
    }

    fn lost(&self, error: &RedisError) {
        let why: Arc<str> = if error.code() == Some(OTHER_TERMS) {
            "another member of this fleet keeps other limits: give all of them the same".into()
        } else {
            error.to_string().into()
        };
        let refused = {
            let mut state = self.shared.lock();
            state.lost(Arc::clone(&why));
            state.member.take_waiting(|waiter| waiter.once)
        };
        for waiter in refused {
            let _gone = waiter
                .lease
                .send(Err(LimitError::unavailable(Arc::clone(&why))));
        }
    }
}

// === impl State ===

impl State {
    /// The store has answered.
    fn found(&mut self) {
        if let Store::Away(since, _) = &self.store {
            tracing::info!(away = ?since.elapsed(), "the fleet's store is back");
        }
        self.store = Store::Here;
    }

    fn lost(&mut self, why: Arc<str>) {
        match &self.store {
            Store::Away(..) => {}
            Store::Sought(since) => {
                tracing::warn!(%why, "the fleet's store is not there: nothing is sent until it is");
                self.store = Store::Away(*since, why);
            }
            Store::Here => {
                tracing::warn!(%why, "the fleet's store is away: nothing is sent until it is back");
                self.store = Store::Away(clock::now(), why);
            }
        }
    }

    fn tell(&mut self, standing: Standing) {
        let before = std::mem::replace(&mut self.standing, standing);
        if standing.rung != before.rung {
            tracing::warn!(
                rung = standing.rung,
                before = before.rung,
                "the fleet keeps within other rules"
            );
        }
        if !standing.opens.is_zero() && before.opens.is_zero() {
            tracing::warn!(
                wait = ?standing.opens,
                "the fleet's store has no memory of this quota: nothing is granted until whatever it may have \
                 granted before is over"
            );
        }
    }
}

/// At that time, or never.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
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
