//! The spare buffers of a thread.

use std::cell::RefCell;

thread_local! {
    static SPARES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer: a spare one, if the thread has any.
pub(super) fn take() -> Vec<u8> {
    let spare = SPARES.try_with(|spares| spares.try_borrow_mut().ok()?.pop());
    let spare = spare.ok().flatten();
    spare.unwrap_or_else(|| Vec::with_capacity(TYPICAL))
}

/// Keeps the buffer, if it is not a large one and there are few.
pub(super) fn give(mut buffer: Vec<u8>) {
    if buffer.capacity() > LARGEST {
        return;
    }
    buffer.clear();
    // A thread that is ending keeps nothing.
    SPARES
        .try_with(|spares| {
            if let Ok(mut spares) = spares.try_borrow_mut()
                && spares.len() < MOST
            {
                spares.push(buffer);
            }
        })
        .ok();
}

/// The handful of headers that programs set themselves.
const TYPICAL: usize = 512;

/// What servers accept of a head by default (nginx: 8 KiB a line); beyond it is rare.
const LARGEST: usize = 8 * 1024;

/// One for each of the 60 connections that the service allows, all polled by one thread.
const MOST: usize = 64;
