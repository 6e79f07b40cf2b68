//! The stop signal of a program.

use tokio::signal;

/// Ends when somebody wants the program to: Ctrl-C, or what a service manager sends.
pub(crate) async fn asked() {
    #[cfg(unix)]
    if let Ok(mut terminate) = signal::unix::signal(signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = signal::ctrl_c() => {}
        }
        return;
    }
    drop(signal::ctrl_c().await);
}
