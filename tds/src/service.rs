//! The service that a job calls: its limits, its key, and the builder of its client.

use std::{error::Error, fmt::Display, num::NonZeroU32, path::Path, sync::Arc, time::Duration};

use http::Uri;
use tds_sim::{Config, Server};
use tokio::time::timeout;
use tower_tds::{
    AuthServer, Builder, Client, Credentials, CredentialsProvider, Limits, Quota,
    layers::token::{Origin, TokenEndpoint},
};
use tower_tds_fleet::RedisTokens;

use crate::{
    answer::Accept,
    exit::{Failure, causes},
    output::{rough, warn},
    settings::{
        AUTH_URL, BASE_URL, CA_FILE, CLIENT_ID, CONNECTIONS, DISCOVER, RATE, SECRET, SECRET_FILE,
        SHARE, STATE_DIR, Setting, Settings, TOKEN_URL, count, duration, read_secret,
    },
    state::{MINUTE, State},
    wait::patiently,
};

/// Service of a job, and the builder of its client.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) builder: Builder,
    /// Base URL, or [`SIMULATED`].
    pub(crate) base_url: String,
    /// Proxy for each address, as `tds check` shows it.
    pub(crate) routes: Vec<(&'static str, String)>,
    pub(crate) accept: Accept,
    /// Simulated service, which lives as long as the job.
    pub(crate) simulated: Option<Server>,
}

impl Settings {
    /// Returns the limits of this process, which are its share of the rates and connections.
    pub(crate) fn limits(&self) -> Result<Limits, Failure> {
        let usage = |name, why: String| self.unusable(name, &why);
        let share = self.value(SHARE).unwrap_or_default();
        let (part, whole): (u32, u32) = share
            .split_once('/')
            .and_then(|(part, whole)| Some((part.parse().ok()?, whole.parse().ok()?)))
            .filter(|(part, whole)| (1..=*whole).contains(part))
            .ok_or_else(|| usage(SHARE, "write a part such as 1/4".to_owned()))?;
        let of = |name, all: NonZeroU32| {
            let own = u64::from(all.get()) * u64::from(part) / u64::from(whole);
            let own = u32::try_from(own).ok().and_then(NonZeroU32::new);
            own.ok_or_else(|| usage(name, format!("{share} of {all} is less than one")))
        };
        let mut limits: Option<Limits> = None;
        for rate in self.value(RATE).unwrap_or_default().split(',') {
            let (requests, per) = quota(rate).ok_or_else(|| {
                usage(
                    RATE,
                    format!("{rate:?}: write requests and a time, at most a month: 50/1s, 5/60s"),
                )
            })?;
            let quota = Quota::new(of(RATE, requests)?, per)
                .ok_or_else(|| usage(RATE, format!("{rate}: this rate cannot be kept")))?;
            limits = Some(match limits {
                Some(limits) => limits.also(quota),
                None => Limits::new(quota),
            });
        }
        let connections = count(self.value(CONNECTIONS).unwrap_or_default());
        let connections = connections.map_err(|why| usage(CONNECTIONS, why))?;
        let limits = limits.ok_or_else(|| usage(RATE, "it is empty".to_owned()))?;
        Ok(limits.connections(of(CONNECTIONS, connections)?))
    }

    /// Returns the service of a job that sends many requests.
    ///
    /// Because an earlier run may have used up the limits, the job first waits for one interval, if
    /// that is at most a minute. In a fleet the store has a record of their use instead.
    pub(crate) async fn service(&self) -> Result<Service, Failure> {
        let limits = self.limits()?;
        let longest = limits.quotas().iter().copied().max_by_key(Quota::per);
        let service = self.open(limits, false).await?;
        if let Some(longest) = longest.filter(|longest| longest.per() <= MINUTE)
            && self.store()?.is_none()
        {
            let earlier = || {
                let hold = rough(longest.hold());
                format!("the limits, which an earlier run may have used up: {hold}")
            };
            let stopped = timeout(longest.hold(), self.stop.requested());
            drop(patiently(stopped, earlier).await);
        }
        Ok(service)
    }

    /// Returns the service of a job that sends one request.
    pub(crate) async fn service_for_one(&self) -> Result<Service, Failure> {
        self.open(self.limits()?, true).await
    }

    /// Builds the client, and joins the fleet if there is one.
    pub(crate) async fn client(&self, builder: Builder) -> Result<Client, Failure> {
        let client = builder.build()?;
        self.stop.arm();
        self.join(client.limiter()).await?;
        Ok(client)
    }

    /// Returns the one of these settings that has a value. If several have one, that of the strongest
    /// source wins.
    fn one_of(&self, names: &[&str]) -> Result<Option<&Setting>, Failure> {
        let mut all: Vec<_> = names.iter().filter_map(|name| self.find(name)).collect();
        all.sort_by_key(|setting| setting.source);
        match all[..] {
            [first, second, ..] if first.source == second.source => Err(Failure::usage(format!(
                "{} and {} are both set: unset one of them",
                first.name, second.name
            ))),
            _ => Ok(all.first().copied()),
        }
    }

    /// Checks the settings, or starts the simulated service.
    async fn open(&self, limits: Limits, is_for_one: bool) -> Result<Service, Failure> {
        if self.simulate {
            return simulated(limits, self.accept.clone()).await;
        }
        let secret = self.one_of(&[SECRET, SECRET_FILE])?;
        let mut missing = Vec::new();
        let mut required = |name| {
            let value = self.value(name);
            missing.extend(value.is_none().then_some(name));
            value.unwrap_or_default()
        };
        let auth = self.one_of(&[AUTH_URL, TOKEN_URL, DISCOVER])?;
        let auth_name = auth.map_or(AUTH_URL, |auth| auth.name);
        let (auth, base, id) = (required(auth_name), required(BASE_URL), required(CLIENT_ID));
        if secret.is_none() {
            missing.push("TDS_CLIENT_SECRET (or TDS_CLIENT_SECRET_FILE)");
        }
        let (Some(secret), []) = (secret, &missing[..]) else {
            let names = missing.join(", ");
            return Err(Failure::usage(format!(
                "not set: {names}; --simulate calls a simulated service instead"
            )));
        };
        for (name, url) in [(auth_name, auth), (BASE_URL, base)] {
            let unusable = |why: &str| self.unusable(name, &why);
            let uri = url.parse::<Uri>();
            let uri = uri.map_err(|why| unusable(&format!("{why}; give https://host")))?;
            Origin::from_uri(&uri).map_err(|why| unusable(&causes(&why)))?;
        }
        if auth_name == TOKEN_URL && auth.contains('?') {
            warn("TDS_TOKEN_URL has a query, which may hold a key, so it is not shown");
        }
        let (provider, secret) = if secret.name == SECRET_FILE {
            // Reads the file now, because the token provider would retry an unusable one for two
            // minutes.
            let path = &*secret.value;
            let secret = read_secret(Path::new(path))
                .map_err(|error| self.unusable(SECRET_FILE, &format_args!("{path}: {error}")))?;
            (CredentialsProvider::file(id, path), secret)
        } else {
            let key = Credentials::new(id, &*secret.value).map_err(|error| {
                let why = causes(&error);
                Failure::usage(format!("{CLIENT_ID} or {SECRET} is not usable: {why}"))
            })?;
            (key.into(), secret.value.clone())
        };
        let unusable = |error: &dyn Error| self.unusable(auth_name, &causes(error));
        let server = match auth_name {
            TOKEN_URL => {
                let uri = auth.parse().map_err(|error| unusable(&error))?;
                let endpoint = TokenEndpoint::new(uri);
                endpoint.map_err(|error| unusable(&error))?.into()
            }
            DISCOVER => {
                let endpoint = TokenEndpoint::discover(auth);
                endpoint.map_err(|error| unusable(&error))?.into()
            }
            _ => AuthServer::from(auth),
        };
        let mut builder = Client::builder(server, base, provider);
        let is_secure = [auth, base].iter().any(|url| url.starts_with("https://"));
        let system = std::env::var(SSL_CERT_FILE).ok().filter(|_| is_secure);
        if let Some(path) = system.filter(|path| !path.is_empty()) {
            certificates(&path).map_err(|why| self.unusable(SSL_CERT_FILE, &why))?;
        }
        if let Some(path) = self.value(CA_FILE) {
            let pem = certificates(path).map_err(|why| self.unusable(CA_FILE, &why))?;
            builder = builder.root_certificate(&pem);
        }
        let routes = self.routes([(auth_name, auth), (BASE_URL, base)]);
        builder = self.routed(builder);
        // Members of a fleet share the token in their store, and their shares replace turns.
        let state = match self.store()? {
            Some((store, name)) => {
                let store = RedisTokens::new(store, name, &secret);
                builder = builder.tokens(|tokens| tokens.store(store));
                None
            }
            // The setting's name is part of the key, because one address may be that of a server
            // and of an issuer.
            None => {
                let key = [auth_name, auth, id];
                State::open(self.value(STATE_DIR), &key, &limits, is_for_one)
            }
        };
        if let Some(state) = &state {
            let store = state.tokens();
            builder = builder.tokens(|tokens| tokens.store(store));
        }
        Ok(Service {
            builder: builder.limits(limits),
            base_url: base.to_owned(),
            routes,
            accept: Accept {
                state: state.map(Arc::new),
                ..self.accept.clone()
            },
            simulated: None,
        })
    }
}

async fn simulated(limits: Limits, accept: Accept) -> Result<Service, Failure> {
    let unusable =
        |error: &dyn Error| Failure::usage(format!("no simulated service: {}", causes(error)));
    let server = Server::start(Config::default()).await;
    let server = server.map_err(|error| unusable(&error))?;
    warn("a simulated service answers; its data is invented");
    let key = Credentials::new(server.client_id(), server.client_secret());
    let key = key.map_err(|error| unusable(&error))?;
    let builder = Client::builder(server.auth_url(), server.base_url(), key);
    Ok(Service {
        builder: builder.limits(limits),
        base_url: SIMULATED.to_owned(),
        routes: Vec::new(),
        accept,
        simulated: Some(server),
    })
}

/// Reads a file of root certificates, or returns what is wrong with it.
fn certificates(path: &str) -> Result<Vec<u8>, String> {
    let refused = |why: &dyn Display| {
        format!("{path}: {why}; name a readable file in PEM, with lines BEGIN CERTIFICATE")
    };
    let pem = std::fs::read(path).map_err(|error| refused(&error))?;
    let has = |text: &[u8]| pem.windows(text.len()).any(|bytes| bytes == text);
    let why = match &*pem {
        [] => "the certificate file is empty",
        [0x30, ..] => "the certificate is DER; convert it with openssl x509 -inform der",
        [0xef, 0xbb, 0xbf, ..] | [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            "it begins with a byte-order mark; save the certificates as plain text"
        }
        _ if has(b"BEGIN CERTIFICATE") => return Ok(pem),
        _ if has(b"BEGIN TRUSTED CERTIFICATE") => {
            "it is a TRUSTED CERTIFICATE; convert it with openssl x509"
        }
        _ => "it has no certificate",
    };
    Err(refused(&why))
}

/// Parses a limit: `5/60s`, `50/s`, `1000/1h`, or `5/60` in seconds.
fn quota(text: &str) -> Option<(NonZeroU32, Duration)> {
    let (requests, per) = text.trim().split_once('/')?;
    let per = match per.chars().next()? {
        first if !first.is_ascii_digit() => format!("1{per}"),
        _ if per.ends_with(|last: char| last.is_ascii_digit()) => format!("{per}s"),
        _ => per.to_owned(),
    };
    Some((requests.parse().ok()?, duration(&per).ok()?))
}

/// Where the platform's root certificates are, if this is set.
const SSL_CERT_FILE: &str = "SSL_CERT_FILE";

/// Replaces the base URL of the simulated service, whose port changes with each run.
const SIMULATED: &str = "simulated";
