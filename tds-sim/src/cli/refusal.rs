//! Errors for switches that make no sense.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// One line that says which switch and why. The rest of clap's message is general advice.
pub(crate) fn refusal(error: &clap::Error) -> String {
    // To clap a negative value is one more switch, unless the switch before it may have one.
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(switch)) = error.get(ContextKind::InvalidArg)
        && switch
            .trim_start_matches('-')
            .starts_with(|c: char| c.is_ascii_digit())
    {
        return format!(
            "error: no switch but --skew takes a negative value, such as {switch}; see --help"
        );
    }
    let error = error.to_string();
    let first = error
        .lines()
        .map(str::trim)
        .take_while(|line| !line.is_empty());
    let first = first.collect::<Vec<_>>().join(" ");
    format!("{first}; see --help")
}
