//! One direction of a connection: it reads, delays and writes pieces in order.

use std::{
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
};

use bytes::{Bytes, BytesMut};
use fastrand::Rng;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::tcp::{ReadHalf, WriteHalf},
    sync::mpsc,
    time::{Instant, sleep_until},
};

use crate::delay::Delay;

/// Delays of one direction.
#[derive(Debug)]
pub(super) struct Line {
    delay: Delay,
    rng: Rng,
    start: Instant,
}

/// State of a socket that both directions use.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// Whether a write has failed. Such a write has consumed the reset that a read would have
    /// returned, so an end of the stream that is read afterwards counts as a reset.
    broken: AtomicBool,
}

/// The sender has reset the connection.
#[derive(Debug)]
pub(super) struct Reset;

/// Output of a line.
#[derive(Debug)]
enum Piece {
    Bytes(Bytes),
    End,
    Reset,
}

// === impl Line ===

impl Line {
    pub(super) fn new(delay: Delay, rng: Rng, start: Instant) -> Self {
        Self { delay, rng, start }
    }

    /// Waits for the delay of one piece.
    pub(super) async fn hold_up(&mut self) {
        sleep_until(self.out_at(Instant::now())).await;
    }

    /// Copies bytes from one socket to the other, until the end of the stream is copied or the
    /// receiver is gone.
    ///
    /// # Errors
    /// Fails if the sender has reset the connection, after the delay of the reset.
    pub(super) async fn pass(
        &mut self,
        (mut from, sender): (ReadHalf<'_>, &Side),
        (mut to, taker): (WriteHalf<'_>, &Side),
    ) -> Result<(), Reset> {
        let (held, mut out) = mpsc::channel(HELD);
        let mut reads = pin!(async {
            let mut room = BytesMut::new();
            loop {
                room.reserve(PIECE);
                let piece = match from.read_buf(&mut room).await {
                    Ok(0) if sender.is_broken() => Piece::Reset,
                    Ok(0) => Piece::End,
                    Ok(_) => Piece::Bytes(room.split().freeze()),
                    Err(_) => Piece::Reset,
                };
                let more = matches!(piece, Piece::Bytes(_));
                let due = self.out_at(Instant::now());
                if held.send((due, piece)).await.is_err() || !more {
                    return;
                }
            }
        });
        // If a piece has an earlier time than the one before it, it is written right after that.
        let mut writes = pin!(async {
            while let Some((due, piece)) = out.recv().await {
                sleep_until(due).await;
                let written = match piece {
                    Piece::Bytes(bytes) => to.write_all(&bytes).await,
                    Piece::End => return to.shutdown().await.or(Ok(())),
                    Piece::Reset => return Err(Reset),
                };
                if written.is_err() {
                    taker.broken.store(true, Ordering::Relaxed); // Both directions run in one task.
                    return Ok(());
                }
            }
            Ok(())
        });
        tokio::select! {
            passed = &mut writes => return passed,
            () = &mut reads => {}
        }
        writes.await
    }

    /// Returns the time at which a piece that was read at `now` is written.
    pub(super) fn out_at(&mut self, now: Instant) -> Instant {
        let since = now.saturating_duration_since(self.start);
        let delay = self.delay.sample(since, &mut self.rng);
        // A delay that no clock can represent counts as none.
        now.checked_add(delay).unwrap_or(now)
    }
}

// === impl Side ===

impl Side {
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }
}

/// Most bytes that share one delay. The largest TLS record fits.
const PIECE: usize = 16 * 1024;

/// Most delayed pieces of one direction. At this number the sender waits, as for a full window.
/// Full pieces add up to 8 MiB, more than a socket buffers by default.
const HELD: usize = 512;
