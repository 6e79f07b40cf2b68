//! What happened at the root of somebody else's error, in a few words.

use std::{error::Error, io};

/// Finds the root of an error and says it in the words of the network, where it is one of it.
///
/// HTTP clients wrap a name that is not found four times; whoever reads a log wants that name. A
/// root that nothing is known of is quoted, cut short and on one line.
pub(super) fn root(error: &(dyn Error + 'static)) -> String {
    let mut found = None;
    let mut next = Some(error);
    let mut last = error;
    while let Some(link) = next {
        found = found.or_else(|| network(link));
        last = link;
        next = link.source();
    }
    found.unwrap_or_else(|| short(&last.to_string()))
}

fn network(link: &(dyn Error + 'static)) -> Option<String> {
    let text = link.to_string();
    // hyper-util's connector says the first, the resolver the second.
    if text == "dns error" || text.contains("failed to lookup address") {
        return Some(NO_SUCH_HOST.to_owned());
    }
    let io = link.downcast_ref::<io::Error>()?;
    let says = [
        (
            io::ErrorKind::ConnectionRefused,
            "connect: connection refused",
        ),
        (
            io::ErrorKind::ConnectionReset,
            "connection reset by the server",
        ),
        (io::ErrorKind::TimedOut, "it took too long"),
    ];
    if let Some((_, text)) = says.into_iter().find(|(kind, _)| *kind == io.kind()) {
        return Some(text.to_owned());
    }
    // What rustls finds wrong comes as such an error with its own inside.
    let inner = io
        .get_ref()
        .filter(|_| io.kind() == io::ErrorKind::InvalidData)?;
    Some(format!("tls: {}", short(&inner.to_string())))
}

/// One line of it, without anything that a terminal would act on.
fn short(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).take(LONGEST).collect()
}

/// The name is added where it is known.
pub(super) const NO_SUCH_HOST: &str = "dns: no such host";
const LONGEST: usize = 160;
