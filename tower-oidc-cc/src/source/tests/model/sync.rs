//! What the shared parts are built of in the model: loom's locks and threads, and tokio's channels
//! with a step of the model before each of their operations.

use std::{
    cell::RefCell,
    collections::VecDeque,
    convert::Infallible,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use loom::{
    sync::{
        Notify,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use tokio::time::Instant;

pub(super) use loom::sync::{Mutex, MutexGuard};

/// The token of a slot. What is stored is seen by every later load, as with the real one.
pub(super) struct ArcSwapOption<T>(Mutex<Option<Arc<T>>>);

pub(super) type Guard<T> = T;

// === impl ArcSwapOption ===

impl<T> ArcSwapOption<T> {
    pub(super) fn const_empty() -> Self {
        Self(Mutex::new(None))
    }

    pub(super) fn load(&self) -> Option<Arc<T>> {
        self.0.lock().expect("nothing panics under it").clone()
    }

    pub(super) fn store(&self, token: Option<Arc<T>>) {
        *self.0.lock().expect("nothing panics under it") = token;
    }
}

/// A place where the model may switch threads. Those of one channel are in each other's way, so
/// that it tries every order of them.
#[derive(Clone, Debug)]
struct Step(Arc<AtomicUsize>);

impl Step {
    fn new() -> Self {
        Self(Arc::new(AtomicUsize::new(0)))
    }

    fn take(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

pub(super) mod mpsc {
    use tokio::sync::mpsc;

    use super::Step;

    pub(in super::super) struct UnboundedSender<T>(Option<mpsc::UnboundedSender<T>>, Step);
    pub(in super::super) struct UnboundedReceiver<T>(Option<mpsc::UnboundedReceiver<T>>, Step);

    pub(in super::super) fn unbounded_channel<T>() -> (UnboundedSender<T>, UnboundedReceiver<T>) {
        let (step, (sender, receiver)) = (Step::new(), mpsc::unbounded_channel());
        (
            UnboundedSender(Some(sender), step.clone()),
            UnboundedReceiver(Some(receiver), step),
        )
    }

    impl<T> UnboundedSender<T> {
        pub(in super::super) fn is_closed(&self) -> bool {
            self.1.take();
            self.0.as_ref().is_none_or(mpsc::UnboundedSender::is_closed)
        }

        pub(in super::super) fn send(&self, message: T) -> Result<(), T> {
            self.1.take();
            match &self.0 {
                Some(sender) => sender.send(message).map_err(|error| error.0),
                None => Err(message),
            }
        }
    }

    impl<T> Drop for UnboundedSender<T> {
        fn drop(&mut self) {
            self.1.take();
            drop(self.0.take());
        }
    }

    impl<T> UnboundedReceiver<T> {
        pub(in super::super) async fn recv(&mut self) -> Option<T> {
            let Self(receiver, step) = self;
            let receiver = receiver.as_mut()?;
            std::future::poll_fn(|cx| {
                step.take();
                receiver.poll_recv(cx)
            })
            .await
        }

        pub(in super::super) fn try_recv(&mut self) -> Result<T, ()> {
            self.1.take();
            let receiver = self.0.as_mut().ok_or(())?;
            receiver.try_recv().map_err(drop)
        }

        pub(in super::super) fn close(&mut self) {
            self.1.take();
            if let Some(receiver) = &mut self.0 {
                receiver.close();
            }
        }
    }

    impl<T> Drop for UnboundedReceiver<T> {
        fn drop(&mut self) {
            self.1.take();
            drop(self.0.take());
        }
    }
}

pub(super) mod oneshot {
    use std::{
        pin::Pin,
        task::{Context, Poll},
    };

    use tokio::sync::oneshot;

    use super::Step;

    pub(in super::super) struct Sender<T>(Option<oneshot::Sender<T>>, Step);
    #[derive(Debug)]
    pub(in super::super) struct Receiver<T>(Option<oneshot::Receiver<T>>, Step);

    pub(in super::super) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let (step, (sender, receiver)) = (Step::new(), oneshot::channel());
        (
            Sender(Some(sender), step.clone()),
            Receiver(Some(receiver), step),
        )
    }

    impl<T> Sender<T> {
        pub(in super::super) fn send(mut self, message: T) -> Result<(), T> {
            self.1.take();
            match self.0.take() {
                Some(sender) => sender.send(message),
                None => Err(message),
            }
        }
    }

    impl<T> Drop for Sender<T> {
        fn drop(&mut self) {
            if let Some(sender) = self.0.take() {
                self.1.take();
                drop(sender);
            }
        }
    }

    impl<T> Future for Receiver<T> {
        type Output = Result<T, ()>;

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
            self.1.take();
            match &mut self.0 {
                Some(receiver) => Pin::new(receiver).poll(cx).map_err(drop),
                None => Poll::Ready(Err(())),
            }
        }
    }

    impl<T> Drop for Receiver<T> {
        fn drop(&mut self) {
            self.1.take();
            drop(self.0.take());
        }
    }
}

/// What becomes of a driver with its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The runtime is shut down instead of the poll of this number, from zero.
    Ends(usize),
}

/// What happens in one run of the model. It is the same in each, so it is no concern of loom's.
#[derive(Default)]
struct World {
    /// Of the first driver, the second, and so on; those without a word here just run.
    fates: VecDeque<Fate>,
    /// How often a timer runs out before what it bounds is there.
    beats: usize,
}

thread_local! {
    /// The threads of a model all run on the one thread of their test.
    static WORLD: RefCell<World> = RefCell::default();
}

pub(super) fn begin(fates: &[Fate], beats: usize) {
    WORLD.set(World {
        fates: fates.iter().copied().collect(),
        beats,
    });
}

/// Where a thread waits to be woken. Loom's own counts its references where the model can see it,
/// and a model is as slow as it has steps.
struct Parker(Notify);

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

pub(super) fn block_on<F: Future>(task: F) -> F::Output {
    let mut task = pin!(task);
    let parker = Arc::new(Parker(Notify::new()));
    let waker = Waker::from(Arc::clone(&parker));
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => parker.0.wait(),
        }
    }
}

/// A runtime: each task is a thread of the model.
pub(super) struct Handle;

impl Handle {
    pub(super) fn try_current() -> Result<Self, Infallible> {
        Ok(Self)
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + 'static) -> thread::JoinHandle<()> {
        let fate = WORLD.with_borrow_mut(|world| world.fates.pop_front());
        // On the heap, since the stack of a model's thread is small.
        let mut task = Box::pin(task);
        thread::spawn(move || {
            let mut polls = 0_usize;
            block_on(poll_fn(move |cx| {
                let poll = polls;
                polls += 1;
                if let Some(Fate::Ends(at)) = fate
                    && poll >= at
                {
                    return Poll::Ready(());
                }
                task.as_mut().poll(cx)
            }));
        })
    }
}

/// A wait without an end.
#[derive(Debug)]
pub(super) struct Patience;

// === impl Patience ===

impl Patience {
    pub(super) fn new(_: Option<Instant>) -> Self {
        Self
    }

    pub(super) fn poll(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

/// Never too late.
pub(super) async fn timeout<F: Future>(_: Duration, work: F) -> Result<F::Output, Infallible> {
    Ok(work.await)
}

/// As often too late as the world has beats.
pub(super) async fn timeout_at<F: Future>(_: Instant, work: F) -> Result<F::Output, ()> {
    let mut work = pin!(work);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => WORLD.with_borrow_mut(|world| match world.beats.checked_sub(1) {
            Some(left) => {
                world.beats = left;
                Poll::Ready(Err(()))
            }
            None => Poll::Pending,
        }),
    })
    .await
}
