//! Output of the program.

use std::{
    error::Error,
    io::{self, Write},
};

/// Writes to the standard output. A closed pipe, as with `head`, is not an error.
pub(crate) fn say(text: &str) -> io::Result<()> {
    say_bytes(text.as_bytes())
}

/// Writes bytes to the standard output, as [`say`] does.
pub(crate) fn say_bytes(data: &[u8]) -> io::Result<()> {
    match tell(data) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// As [`say_bytes`], and an error if the reader has closed the pipe.
pub(crate) fn tell(data: &[u8]) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(data).and_then(|()| out.flush())
}

/// Writes a line to the standard error, and ignores errors.
pub(crate) fn warn(line: &str) {
    drop(writeln!(io::stderr(), "{line}"));
}

/// An error and its causes, in one line.
pub(crate) fn causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        line.push_str(": ");
        line.push_str(&cause.to_string());
        next = cause.source();
    }
    line
}
