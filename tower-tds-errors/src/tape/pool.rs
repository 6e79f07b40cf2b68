//! The spare records of a thread.

use std::cell::Cell;

use super::record::Record;

thread_local! {
    /// A list through the records, so that taking one and giving it back is a write each.
    static SPARES: Cell<Option<Box<Record>>> = const { Cell::new(None) };
}

/// A spare record with whatever was written on it, or a new one if the thread has none.
#[inline]
pub(super) fn take() -> Box<Record> {
    let spare = SPARES.try_with(|spares| {
        let mut spare = spares.take()?;
        spares.set(spare.below.take());
        Some(spare)
    });
    spare.ok().flatten().unwrap_or_else(fresh)
}

/// Keeps the record, if it is not a large one and there are few.
#[inline]
pub(super) fn give(mut record: Box<Record>) {
    if record.bytes.capacity() > LARGEST {
        return discard(record);
    }
    // A thread that is ending keeps nothing.
    SPARES
        .try_with(|spares| {
            let below = spares.take();
            let depth = below.as_ref().map_or(0, |below| below.depth);
            if depth < MOST {
                record.depth = depth.saturating_add(1);
                record.below = below;
                spares.set(Some(record));
            } else {
                spares.set(below);
                discard(record);
            }
        })
        .ok();
}

#[cold]
fn discard(record: Box<Record>) {
    drop(record);
}

#[cold]
fn fresh() -> Box<Record> {
    let mut record = Box::<Record>::default();
    record.bytes.reserve(TYPICAL);
    record
}

/// A URI, and the handful of headers that programs set themselves.
const TYPICAL: usize = 512;

/// What servers accept of a head by default (nginx: 8 KiB a line); beyond it is rare.
const LARGEST: usize = 8 * 1024;

/// Two for each of the 60 connections that the service allows, all polled by one thread.
const MOST: usize = 128;
