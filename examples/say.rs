//! Output of a program, and its exit code.

use std::{
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

use tower::BoxError;

use crate::Usage;

/// Writes to the standard output. A reader that has gone, as `head` does, is no failure.
///
/// # Errors
/// If it cannot be written for another reason, such as a full disk.
pub fn say(text: &str) -> io::Result<()> {
    say_bytes(text.as_bytes())
}

/// As [`say`], of what need not be text.
///
/// # Errors
/// As [`say`].
pub fn say_bytes(data: &[u8]) -> io::Result<()> {
    match tell(data) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// As [`say_bytes`], for a reader who has to be there.
///
/// # Errors
/// As [`say`], and if he has gone.
pub fn tell(data: &[u8]) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(data).and_then(|()| out.flush())
}

/// Writes a line to the standard error. Nobody has to be there to read it.
pub fn warn(line: &str) {
    drop(writeln!(io::stderr(), "{line}"));
}

/// Ends a program, and says why if it is not the end that was wanted: by 2 where it was started wrongly.
#[must_use]
pub fn end(outcome: Result<(), BoxError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            warn(&causes(&*error));
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}

/// How many outcomes are as wanted; and the first that is not, if there is one.
pub fn tally<T>(outcomes: Vec<Result<T, BoxError>>) -> (usize, Result<(), BoxError>) {
    let good = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let bad = outcomes.into_iter().find_map(Result::err);
    (good, bad.map_or(Ok(()), Err))
}

/// An error and what caused it, in one line.
#[must_use]
pub fn causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        line.push_str(": ");
        line.push_str(&cause.to_string());
        next = cause.source();
    }
    line
}
