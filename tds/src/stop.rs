//! The stop signal of a program.

#[cfg(unix)]
use std::task::Poll;

use tokio::signal;

/// Ends when somebody wants the program to: Ctrl-C, what a service manager sends, or the end of its terminal.
pub(crate) async fn asked() {
    signalled().await;
}

/// Ends as the process that has no other way to be ended: the first of a container, which a signal ends only if it
/// listens. Others are ended by the signal itself, as shells and service managers want to see it.
pub(crate) async fn asked_as_the_first() -> u8 {
    if std::process::id() != 1 {
        return std::future::pending().await;
    }
    signalled().await
}

/// Gives the number of the signal.
async fn signalled() -> u8 {
    #[cfg(unix)]
    {
        use signal::unix::SignalKind;

        let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate()];
        // What was started by nohup outlives its terminal: to listen to the signal would end it.
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
    #[cfg(not(unix))]
    {
        drop(signal::ctrl_c().await);
        2
    }
}

/// Also where nobody says.
#[cfg(unix)]
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The first of the signals is the hangup.
    ignored.is_none_or(|mask| mask & 1 == 1)
}
