//! The stop signal of a program.

#[cfg(unix)]
use std::task::Poll;

use tokio::signal;

/// Ends when somebody wants the program to: Ctrl-C, what a service manager sends, or the end of its terminal.
pub(crate) async fn asked() {
    #[cfg(unix)]
    {
        use signal::unix::SignalKind;

        let mut kinds = vec![SignalKind::terminate()];
        // What was started by nohup outlives its terminal: to listen to the signal would end it.
        if !hangup_is_ignored() {
            kinds.push(SignalKind::hangup());
        }
        let signals = kinds.into_iter().map(signal::unix::signal);
        let mut signals: Vec<_> = signals.filter_map(Result::ok).collect();
        let any = std::future::poll_fn(|cx| {
            let come = signals
                .iter_mut()
                .any(|signal| signal.poll_recv(cx).is_ready());
            if come { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::select! {
            () = any => {}
            _ = signal::ctrl_c() => {}
        }
    }
    #[cfg(not(unix))]
    drop(signal::ctrl_c().await);
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
