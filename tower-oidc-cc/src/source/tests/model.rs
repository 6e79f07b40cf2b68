//! The flight under every interleaving of two waiters and a driver, with loom's lock.
//!
//! `futures_util::future::Shared` is the real one. It has a gap: a clone that comes while another one
//! polls, after the wake of that one, sleeps on if the other is dropped instead of polled again. A
//! dropped waiter therefore wakes the driver. If the driver is dropped with its runtime, the timers of
//! the waiters wake them; the models that drop the driver leave this step out.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response};
use loom::{model::Builder, thread};
use shared::Shared;
use sync::Handle;
use tokio::runtime;
use wait::Wait;

use crate::{
    Credentials, RefreshPolicy, TokenEndpoint,
    clock::Clock,
    request::{Grant, Settings},
    state::State,
};

mod sync {
    use std::{
        cell::{Cell, RefCell},
        marker::PhantomData,
        panic::UnwindSafe,
        pin::Pin,
        sync::Arc,
        task::{Context, Poll},
    };

    use futures_util::future::{self, BoxFuture, CatchUnwind};
    pub(super) use loom::sync::{Mutex, MutexGuard, atomic::AtomicU64};
    use loom::{
        sync::atomic::{AtomicBool, AtomicUsize, Ordering},
        thread,
    };

    /// A slot behind loom's lock.
    pub(super) struct ArcSwapOption<T>(Mutex<Option<Arc<T>>>);

    impl<T> ArcSwapOption<T> {
        pub(super) fn const_empty() -> Self {
            Self(Mutex::new(None))
        }

        pub(super) fn load(&self) -> Option<Arc<T>> {
            self.0.lock().unwrap().clone()
        }

        pub(super) fn load_full(&self) -> Option<Arc<T>> {
            self.load()
        }

        pub(super) fn store(&self, value: Option<Arc<T>>) {
            *self.0.lock().unwrap() = value;
        }
    }

    /// The real one, with an access that loom sees at each step of it.
    pub(super) struct Shared<F: Future>(future::Shared<BoxFuture<'static, F::Output>>, Touch);

    type Touch = Arc<AtomicUsize>;

    fn touch(it: &Touch) {
        it.fetch_add(1, Ordering::AcqRel);
    }

    impl<F: Future> Shared<F> {
        pub(super) fn ptr_eq(&self, other: &Self) -> bool {
            self.0.ptr_eq(&other.0)
        }

        pub(super) fn peek(&self) -> Option<&F::Output> {
            touch(&self.1);
            self.0.peek()
        }
    }

    impl<F: Future> Clone for Shared<F> {
        fn clone(&self) -> Self {
            Self(self.0.clone(), Arc::clone(&self.1))
        }
    }

    impl<F: Future> std::fmt::Debug for Shared<F> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Shared")
        }
    }

    impl<F: Future> Future for Shared<F>
    where
        F::Output: Clone,
    {
        type Output = F::Output;

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
            touch(&self.1);
            Pin::new(&mut self.0).poll(cx)
        }
    }

    pub(super) trait FutureExt: futures_util::FutureExt + Sized {
        fn catch_unwind(self) -> CatchUnwind<Self>
        where
            Self: UnwindSafe,
        {
            futures_util::FutureExt::catch_unwind(self)
        }

        fn boxed<'a>(self) -> BoxFuture<'a, Self::Output>
        where
            Self: Send + 'a,
        {
            Box::pin(self)
        }

        fn shared(mut self) -> Shared<Self>
        where
            Self: Send + Unpin + 'static,
            Self::Output: Clone,
        {
            let touched = Touch::default();
            let inner = Arc::clone(&touched);
            let future = future::poll_fn(move |cx| {
                let polled = Pin::new(&mut self).poll(cx);
                if polled.is_ready() || RUNS_ON.get() {
                    touch(&inner);
                }
                polled
            });
            let future: BoxFuture<'static, _> = Box::pin(future);
            Shared(futures_util::FutureExt::shared(future), touched)
        }
    }

    impl<F: Future> FutureExt for F {}

    /// A runtime with one thread for each task.
    pub(super) struct Handle;

    /// Whether a task has ended.
    #[derive(Clone)]
    pub(super) struct JoinHandle<T>(Arc<AtomicBool>, PhantomData<T>);

    thread_local! {
        // All threads of a model are on one thread of the system.
        static POLLS: Cell<usize> = const { Cell::new(0) };
        static RUNS_ON: Cell<bool> = const { Cell::new(false) };
        static DRIVER: RefCell<Option<JoinHandle<()>>> = const { RefCell::new(None) };
    }

    impl Handle {
        /// The runtime of the next task ends after so many polls of that.
        pub(super) fn ends_after(polls: usize) {
            POLLS.set(polls);
            RUNS_ON.set(polls == usize::MAX);
        }

        /// The newest task.
        pub(super) fn newest() -> JoinHandle<()> {
            DRIVER.with_borrow(|it| it.clone().unwrap())
        }

        pub(super) fn try_current() -> Result<Self, ()> {
            Ok(Self)
        }

        pub(super) fn spawn(&self, task: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
            let driver = JoinHandle(Arc::new(AtomicBool::new(false)), PhantomData);
            let (handle, polls) = (driver.clone(), POLLS.replace(usize::MAX));
            DRIVER.set(Some(driver.clone()));
            thread::spawn(move || {
                super::finish(task, polls);
                driver.0.fetch_or(true, Ordering::AcqRel);
            });
            handle
        }
    }

    impl<T> JoinHandle<T> {
        pub(super) fn is_finished(&self) -> bool {
            // A load might see an old value for ever, as after a store.
            self.0.fetch_or(false, Ordering::AcqRel)
        }
    }
}

#[expect(
    clippy::duplicate_mod,
    dead_code,
    reason = "the same source, on another lock"
)]
#[path = "../shared.rs"]
mod shared;

#[expect(clippy::duplicate_mod, reason = "the same source, on another lock")]
#[path = "../wait.rs"]
mod wait;

/// Wakes a thread of the model. The waking thread may hold a lock of the operating system, so there
/// is no step of loom here.
struct Signal {
    thread: thread::Thread,
    is_woken: AtomicBool,
    is_parked: AtomicBool,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        if self.is_parked.swap(false, Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

/// Polls a future so many times at most, each time after a wake, and drops it.
fn finish<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let signal = Arc::new(Signal {
        thread: thread::current(),
        is_woken: AtomicBool::new(true),
        is_parked: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&signal));
    for _ in 0..polls {
        while !signal.is_woken.swap(false, Ordering::SeqCst) {
            signal.is_parked.store(true, Ordering::SeqCst);
            thread::park();
        }
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
    }
    None
}

/// A source whose endpoint gets so many requests at most, and answers if the driver still runs.
fn source(most: usize) -> Arc<Shared> {
    let requests = AtomicUsize::new(0);
    let exchange = move |_: Request<Bytes>| {
        assert!(
            requests.fetch_add(1, Ordering::SeqCst) < most,
            "a request too many"
        );
        let (driver, mut is_sent) = (Handle::newest(), false);
        let answer = poll_fn(move |cx| {
            let is_answered = is_sent && !driver.is_finished();
            is_sent = true;
            if !is_answered {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let reply = r#"{"access_token":"t","token_type":"Bearer","expires_in":86400}"#;
            let (head, ()) = Response::new(()).into_parts();
            Poll::Ready(Ok((head, Ok(Bytes::from(reply)))))
        });
        answer.boxed()
    };
    let credentials = Credentials::new("client", "secret").unwrap();
    let settings = Settings {
        endpoint: TokenEndpoint::keycloak("https://sso.example.com", "r").unwrap(),
        provider: credentials.into(),
        parameters: Vec::new(),
        timeout: Duration::from_secs(10),
        clock: Clock::default(),
    };
    let grant = Grant::new(Box::new(exchange), settings, None);
    let state = State::new(RefreshPolicy::default(), || 0.0);
    Shared::new(state, grant, Clock::default())
}

/// Waits for a token, for so many polls at most.
fn wait(shared: &Shared, polls: usize) {
    let mut wait = Wait::default();
    if let Some(waited) = finish(poll_fn(|cx| wait.poll(shared, cx)), polls) {
        waited.unwrap();
        assert!(shared.bearer().is_some());
    }
}

/// Two waiters and a driver. The driver and one waiter are dropped after so many polls.
fn model(driver: usize, waiter: usize, most: usize) {
    // Its timers are there, and never fire.
    let runtime = runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.unwrap();
    let _context = runtime.enter();
    let mut model = Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        Handle::ends_after(driver);
        let shared = source(most);
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || wait(&other, waiter));
        wait(&shared, usize::MAX);
        thread.join().unwrap();
    });
}

#[test]
fn two_waiters_and_a_driver_make_one_request() {
    model(usize::MAX, usize::MAX, 1);
}

#[test]
fn a_driver_that_is_dropped_at_any_point_leaves_two_waiters_a_token() {
    for polls in 0..=3 {
        model(polls, usize::MAX, 2);
    }
}

#[test]
fn a_waiter_that_is_dropped_at_any_point_leaves_the_other_a_token() {
    for polls in 0..=3 {
        model(usize::MAX, polls, 1);
    }
}
