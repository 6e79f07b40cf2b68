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
    match io.kind() {
        io::ErrorKind::ConnectionRefused => Some("connect: connection refused".to_owned()),
        io::ErrorKind::ConnectionReset => Some("connection reset by the server".to_owned()),
        io::ErrorKind::TimedOut => Some("it took too long".to_owned()),
        // What rustls finds wrong comes as such an error with its own inside.
        io::ErrorKind::InvalidData => {
            let inner = io.get_ref().map(ToString::to_string)?;
            Some(format!("tls: {}", short(&inner)))
        }
        _ => None,
    }
}

/// One line of it, without anything that a terminal would act on.
fn short(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).take(LONGEST).collect()
}

/// The name is added where it is known.
pub(super) const NO_SUCH_HOST: &str = "dns: no such host";
const LONGEST: usize = 160;
