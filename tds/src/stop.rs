//! The signals that stop the program.

#[cfg(unix)]
use std::task::Poll;

use tokio::{signal, sync::SetOnce};

/// Stops a job by Ctrl-C, a service manager's signal, or the end of its terminal.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    armed: SetOnce<()>,
    signal: SetOnce<()>,
}

// === impl Stop ===

impl Stop {
    /// Replaces the default action of the signals, which ends the program at once.
    pub(crate) fn arm(&self) {
        // Setting it again changes nothing.
        drop(self.armed.set(()));
    }

    /// Waits for the first signal, records it, and returns its number.
    pub(crate) async fn listen(&self) -> u8 {
        self.armed.wait().await;
        let number = signalled().await;
        drop(self.signal.set(()));
        number
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.signal.initialized()
    }

    /// Waits until a signal is recorded.
    pub(crate) async fn requested(&self) {
        self.signal.wait().await;
    }
}

/// Waits for a signal, and returns its number.
async fn signalled() -> u8 {
    #[cfg(unix)]
    {
        use signal::unix::SignalKind;

        let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate()];
        // Under nohup a program outlives its terminal, and a handler for the signal would end it.
        if !hangup_is_ignored() {
            kinds.push(SignalKind::hangup());
        }
        let signals = kinds
            .into_iter()
            .filter_map(|kind| Some((signal::unix::signal(kind).ok()?, kind.as_raw_value())));
        let mut signals: Vec<_> = signals.collect();
        std::future::poll_fn(|cx| {
            let come = signals
                .iter_mut()
                .find_map(|(signal, number)| signal.poll_recv(cx).is_ready().then_some(*number));
            come.map_or(Poll::Pending, |number| {
                Poll::Ready(u8::try_from(number).unwrap_or_default())
            })
        })
        .await
    }
    #[cfg(windows)]
    {
        use signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_logoff, ctrl_shutdown};

        let (Ok(mut c), Ok(mut pause), Ok(mut close), Ok(mut logoff), Ok(mut shutdown)) = (
            ctrl_c(),
            ctrl_break(),
            ctrl_close(),
            ctrl_logoff(),
            ctrl_shutdown(),
        ) else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = c.recv() => 2,
            _ = pause.recv() => 2,
            _ = close.recv() => 15,
            _ = logoff.recv() => 15,
            _ = shutdown.recv() => 15,
        }
    }
}

/// Whether the hangup signal is ignored. Also true where the system does not show this.
#[cfg(unix)]
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGHUP is signal 1, the lowest bit.
    ignored.is_none_or(|mask| mask & 1 == 1)
}
