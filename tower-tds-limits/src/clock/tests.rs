use std::cell::Cell;

thread_local! {
    /// How often this thread has read the clock.
    pub(crate) static READS: Cell<usize> = const { Cell::new(0) };
}
