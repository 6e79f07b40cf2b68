//! Access to a server of this program: by its key; without one, from this machine alone.

use std::{
    env,
    net::{IpAddr, SocketAddr},
};

use http::{
    HeaderMap, HeaderValue, StatusCode, Uri,
    header::{AUTHORIZATION, HOST, ORIGIN},
};

use crate::{exit::Failure, refusal::Refusal};

/// What a request has to bring.
#[derive(Debug, Clone)]
pub(crate) struct Access(Option<HeaderValue>);

// === impl Access ===

impl Access {
    /// For this machine alone, which is all that may reach these addresses.
    ///
    /// # Errors
    /// The option whose address others can reach, and with `advice` what to do.
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

    /// For whoever brings the key that the environment has.
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

    /// Lets in who has the key; without one, whoever means this machine. A page in a browser that was led
    /// here by a name of its own does not: it would read data with this key.
    pub(crate) fn admit(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Refusal> {
        // RFC 9112, section 3.2: of two, somebody in front may have meant the other.
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().map(HeaderValue::to_str).transpose();
        let (Ok(host), None) = (host, hosts.next()) else {
            let refusal = Refusal::new(StatusCode::BAD_REQUEST, "invalid_request");
            return Err(refusal.because("send one Host, of ASCII characters"));
        };
        let Some(key) = &self.0 else {
            // Nor does one that asks for it as it is: it could read the data, or only use up the quota.
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
        // A scheme knows no case (RFC 9110, section 11.1).
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

/// No name but one, which no other can be made to lead to; and addresses of this machine.
fn is_local(host: &str) -> bool {
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Compares all of it, so that the time tells nothing of where it differs.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |bits, (a, b)| bits | (a ^ b));
    std::hint::black_box(differing) == 0 && one.len() == other.len()
}

const KEY: &str = "TDS_GATEWAY_KEY";

const SCHEME: &[u8] = b"Bearer ";

/// What nobody guesses, of hexadecimal digits.
const SHORTEST_KEY: usize = 16;
