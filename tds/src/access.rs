//! Access to a server of this program: with its key, or without a key from this machine alone.

use std::{
    env,
    net::{IpAddr, SocketAddr},
};

use http::{
    HeaderMap, HeaderValue, StatusCode, Uri,
    header::{AUTHORIZATION, HOST, ORIGIN},
};

use crate::{exit::Failure, refusal::Refusal};

/// The key that a request must have, if one is set.
#[derive(Debug, Clone)]
pub(crate) struct Access(Option<HeaderValue>);

// === impl Access ===

impl Access {
    /// Admits this machine alone, if only this machine can reach the addresses.
    ///
    /// # Errors
    /// If others can reach an address. The error names its option, and `advice` the next step.
    pub(crate) fn local(
        listens: &[(&str, Option<SocketAddr>)],
        advice: &str,
    ) -> Result<Self, Failure> {
        for (option, listen) in listens {
            if let Some(listen) = listen.filter(|listen| !listen.ip().is_loopback()) {
                return Err(Failure::usage(format!(
                    "{option} {listen}: other machines can reach it: {advice}"
                )));
            }
        }
        Ok(Self(None))
    }

    /// Admits requests with the key from the environment.
    pub(crate) fn keyed() -> Result<Self, Failure> {
        let key = env::var(KEY).unwrap_or_default();
        let key = key.trim();
        match HeaderValue::try_from(format!("Bearer {key}")) {
            Ok(mut value) if key.len() >= SHORTEST_KEY => {
                value.set_sensitive(true);
                Ok(Self(Some(value)))
            }
            Ok(_) | Err(_) => Err(Failure::usage(format!(
                "--allow-remote: set {KEY} to a key of {SHORTEST_KEY} characters or more"
            ))),
        }
    }

    /// Admits requests with the key, or without a key those to a local host name.
    ///
    /// A page in a browser may reach this address by another host name (DNS rebinding). It is
    /// refused, because it would read data with this key.
    pub(crate) fn admit(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Refusal> {
        // RFC 9112, section 3.2: with two, a proxy in front may have used the other.
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().map(HeaderValue::to_str).transpose();
        let (Ok(host), None) = (host, hosts.next()) else {
            let refusal = Refusal::new(StatusCode::BAD_REQUEST, "invalid_request");
            return Err(refusal.because("send one Host, of ASCII characters"));
        };
        let Some(key) = &self.0 else {
            // A page that uses the local host name is refused as well: it could use up the quota.
            let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
            let page = headers.contains_key(ORIGIN)
                || site.is_some_and(|site| site != b"none" && site != b"same-origin");
            if page {
                let refusal = Refusal::new(StatusCode::FORBIDDEN, "foreign_origin");
                return Err(refusal.because("pages of others are not served; set a key"));
            }
            let host = uri.host().or_else(|| {
                let host = host?;
                Some(host.rsplit_once(':').map_or(host, |(name, port)| {
                    if port.ends_with(']') { host } else { name }
                }))
            });
            return match host {
                Some(host) if !is_local(host) => {
                    let refusal = Refusal::new(StatusCode::FORBIDDEN, "foreign_host");
                    Err(refusal.because("ask for it by 127.0.0.1, localhost or [::1]"))
                }
                Some(_) | None => Ok(()),
            };
        };
        let brought = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        // A scheme ignores case (RFC 9110, section 11.1).
        let brought = brought.and_then(|brought| brought.split_at_checked(SCHEME.len()));
        let brought = brought.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME));
        let key = key.as_bytes().get(SCHEME.len()..).unwrap_or_default();
        if brought.is_some_and(|(_, brought)| same(brought, key)) {
            return Ok(());
        }
        let refusal = Refusal::new(StatusCode::UNAUTHORIZED, "gateway_key");
        Err(refusal.because("bring 'Authorization: Bearer' with the gateway's key"))
    }
}

/// Whether a host is `localhost` or a loopback address. Any other name could be made to lead here.
fn is_local(host: &str) -> bool {
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Compares all bytes, so that the time does not reveal the first difference.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |bits, (a, b)| bits | (a ^ b));
    std::hint::black_box(differing) == 0 && one.len() == other.len()
}

const KEY: &str = "TDS_GATEWAY_KEY";

const SCHEME: &[u8] = b"Bearer ";

/// Sixteen hexadecimal digits are too many to guess.
const SHORTEST_KEY: usize = 16;
