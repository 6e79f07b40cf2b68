//! A log in memory.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn text(&self) -> String {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&log).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
