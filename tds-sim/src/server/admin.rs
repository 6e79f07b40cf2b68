//! Admin listener: the ledger to read, and the controls to change what happens next.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, LOCATION},
    request::Parts,
};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde_json::json;

use crate::{
    body::Body,
    clock::lock,
    delay::Delay,
    error::Error,
    fault::Faults,
    ledger::Filter,
    realm::ApiKey,
    server::{
        admin::fields::{Fields, Refused, parse},
        page,
    },
    sim::Sim,
    state::Part,
    stub::{Calls, Stub, pairs},
    text::{parse_duration, word},
};

mod fields;

/// Answers a request to the admin listener.
pub(super) async fn answer(sim: Sim, request: Request<Incoming>) -> Result<Response<Body>, Error> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_MOST).collect().await;
    let body = body
        .map_err(|error| Error::failed("the body of the request could not be read", error))?
        .to_bytes();
    let path = head.uri.path();
    // Checks the request by the list of controls that people read.
    let words = |line: &'static str| line.split_whitespace().collect::<Vec<_>>();
    let routes = || ROUTES.lines().map(words);
    let is_here = |at: &str| at == path || at == STUB && path.starts_with(STUB);
    let method = head.method.as_str();
    let Some(known) = routes().find_map(|line| match &*line {
        [of, at, "(", known @ .., ")"] if *of == method && is_here(at) => Some(known.to_vec()),
        _ => None,
    }) else {
        let is_known = routes().any(|line| line.get(1).is_some_and(|at| is_here(at)));
        let status = match is_known {
            true => StatusCode::METHOD_NOT_ALLOWED,
            false => StatusCode::NOT_FOUND,
        };
        let unknown = format!("unknown: {method} {path}; GET / lists all\n");
        return Ok(Body::page(status, TEXT, unknown));
    };
    let query = head.uri.query().unwrap_or_default();
    let done = match Fields::read(&known, query, &head.headers, &body) {
        Ok(fields) if head.method == Method::GET => read(&sim, &head, &fields).await,
        Ok(fields) => control(&sim, &head, &fields).map(|key| done(&head, key)),
        Err(refused) => Err(refused),
    };
    let refuse = |refused| Body::page(StatusCode::BAD_REQUEST, TEXT, format!("{refused}\n"));
    Ok(done.unwrap_or_else(refuse))
}

/// Answers a GET.
async fn read(sim: &Sim, head: &Parts, fields: &Fields) -> Result<Response<Body>, Refused> {
    Ok(match head.uri.path() {
        "/ledger" => ledger(sim, fields).await?,
        "/summary" => Body::json(StatusCode::OK, &sim.ledger().summary()),
        "/ready" => Body::page(StatusCode::OK, TEXT, "ready\n"),
        "/events" => page::events(sim.clone()),
        "/page.js" => Body::page(StatusCode::OK, "text/javascript", page::SCRIPT),
        _ if is_browser(head) => page::whole(sim),
        _ => Body::page(StatusCode::OK, TEXT, ROUTES),
    })
}

/// Lists the arrivals that match, after waiting for them if the request wants that. Answers 504 if
/// they do not come in time.
async fn ledger(sim: &Sim, fields: &Fields) -> Result<Response<Body>, Refused> {
    let time = |name| -> Result<Option<Duration>, Refused> {
        let seconds = fields.parsed(name)?.map(Duration::try_from_secs_f64);
        Ok(seconds.transpose()?)
    };
    let mut filter = Filter {
        path: fields.parsed("path")?,
        status: Vec::new(),
        from: time("from")?,
        to: time("to")?,
    };
    for status in fields.all("status") {
        let status: StatusCode = parse("status", status)?;
        filter.status.push(status.as_u16());
    }
    let timeout = fields.one("timeout").map(parse_duration).transpose()?;
    let wanted = fields.parsed("wait")?;
    let ledger = sim.ledger();
    let status = match (wanted, timeout) {
        (None, None) => StatusCode::OK,
        (None, Some(_)) => return Err("`timeout` is for `wait`, such as wait=3&timeout=2s".into()),
        (Some(calls), timeout) => {
            let timeout = timeout.unwrap_or(WAIT).min(Delay::LONGEST);
            let came = tokio::time::timeout(timeout, ledger.wait(&filter, calls)).await;
            came.map_or(StatusCode::GATEWAY_TIMEOUT, |()| StatusCode::OK)
        }
    };
    let (summary, arrivals) = ledger.find(&filter, usize::MAX);
    let found = json!({ "summary": summary, "arrivals": arrivals });
    Ok(Body::json(status, &found))
}

/// Runs a control. Returns the key if it created or changed one.
fn control(sim: &Sim, head: &Parts, fields: &Fields) -> Result<Option<ApiKey>, Refused> {
    let client = fields.one("client_id").unwrap_or(sim.client_id());
    let path = head.uri.path();
    match path {
        "/faults" => sim.set_faults(faults(fields)?),
        "/set" => set(sim, fields)?,
        "/reset" => {
            let parts: Result<Vec<Part>, _> = fields.all("part").map(str::parse).collect();
            match &*parts? {
                [] => sim.reset(Part::ALL),
                parts => sim.reset(parts.iter().copied()),
            }
        }
        "/revoke-all" => sim.revoke_all(),
        "/roles" => {
            let known = ["live", "history", "none"].map(|role| (role, role));
            let roles = fields.all("role").map(|role| word("role", role, &known));
            sim.set_roles(client, roles.collect::<Result<Vec<_>, _>>()?)?;
        }
        "/add-key" => return Ok(Some(sim.add_key(fields.one("member").unwrap_or("demo"))?)),
        "/rotate-secret" => return Ok(Some(sim.rotate_secret(client)?)),
        "/disable-key" => sim.disable_key(client)?,
        path => {
            // The last slash of the prefix belongs to the path.
            let calls = Calls {
                path: path.strip_prefix("/stub").unwrap_or(path).parse()?,
                method: fields.parsed("method")?,
                query: fields.one("query").map(pairs),
            };
            let put = (head.method == Method::PUT)
                .then(|| stub(fields))
                .transpose()?;
            let stubs = &mut *lock(&sim.state.stubs);
            let before = stubs.len();
            stubs.retain(|(known, _)| *known != calls);
            match put {
                Some(stub) => stubs.push((calls, Arc::new(stub))),
                None if stubs.len() == before => {
                    return Err(format!("there is no stub for {}", calls.path).into());
                }
                None => {}
            }
        }
    }
    Ok(None)
}

/// Reads faults, whose fields have the names of the program's options.
fn faults(fields: &Fields) -> Result<Faults, Refused> {
    let data: Result<_, _> = fields.all("fault").map(str::parse).collect();
    let token: Result<_, _> = fields.all("token-fault").map(str::parse).collect();
    Ok(Faults {
        before_counting: fields.parsed("delay-counting")?.unwrap_or_default(),
        before_head: fields.parsed("delay-head")?.unwrap_or_default(),
        before_head_of: None,
        data: data?,
        token: token?,
    })
}

/// Changes all of the given settings or none. Their fields have the names of the program's options.
fn set(sim: &Sim, fields: &Fields) -> Result<(), Refused> {
    let mut config = (*sim.state.config()).clone();
    for (name, value) in fields.each() {
        let length = || match parse_duration(value) {
            Ok(Duration::ZERO) => Err(format!("field `{name}`: use a length above zero").into()),
            length => length.map_err(Refused::from),
        };
        let unless_none = value != "none";
        match name {
            "expires-in" => config.expires_in = parse(name, value)?,
            "quota" => config.quota = unless_none.then(|| value.parse()).transpose()?,
            "retry-after" => config.retry_after = parse(name, value)?,
            "rule" => config.rule = value.parse()?,
            "rate" => config.rate = parse(name, value)?,
            "per" => config.per = length()?,
            "connections" => config.connections = parse(name, value)?,
            "count-connections" => config.counting = value.parse()?,
            "error-body" => config.error_body = value.parse()?,
            "live-bytes" => config.live_bytes = parse(name, value)?,
            _ => config.live_every = unless_none.then(length).transpose()?,
        }
    }
    if fields.each().next().is_none() {
        return Err("nothing to set; GET / lists the settings".into());
    }
    sim.state.set(config);
    Ok(())
}

/// Reads the answer of a stub.
fn stub(fields: &Fields) -> Result<Stub, Refused> {
    let status = fields.parsed("status")?.unwrap_or(StatusCode::OK);
    if status.is_informational() {
        return Err("field `status`: use 200 to 999, because 1xx answers nothing".into());
    }
    let mut headers = HeaderMap::new();
    let members = fields.one("headers").unwrap_or("{}");
    for (name, value) in serde_json::from_str::<BTreeMap<String, String>>(members)
        .map_err(|_| "bad `headers`; use a JSON object of texts")?
    {
        let name: HeaderName = parse("headers", &name)?;
        headers.insert(name, parse("headers", &value)?);
    }
    let body = fields.one("body").unwrap_or_default();
    if !body.is_empty() && !headers.contains_key(CONTENT_TYPE) {
        let is_json = body.starts_with(['{', '[']);
        let kind = if is_json { "application/json" } else { TEXT };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    let delay = fields.one("delay").map(parse_duration).transpose()?;
    Ok(Stub {
        status,
        headers,
        body: Bytes::from(body.to_owned()),
        delay: delay.unwrap_or_default(),
    })
}

/// Returns the answer to a control that was run. Browsers are sent back to the page.
fn done(head: &Parts, key: Option<ApiKey>) -> Response<Body> {
    let text = match key {
        Some(key) => {
            let (id, secret) = (&*key.client_id, &*key.client_secret);
            format!("{}\n", json!({ "client_id": id, "client_secret": secret }))
        }
        None => "done\n".to_owned(),
    };
    let mut response = Body::page(StatusCode::OK, TEXT, text);
    if is_browser(head) {
        *response.status_mut() = StatusCode::SEE_OTHER;
        let page = HeaderValue::from_static("/");
        response.headers_mut().insert(LOCATION, page);
    }
    response
}

/// Whether the request accepts HTML, as one from a browser does.
fn is_browser(head: &Parts) -> bool {
    let accept = head.headers.get(ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Each control, with its fields in brackets and, on the next line, what it does.
const ROUTES: &str = include_str!("controls.txt");

/// Prefix of the path of a stub.
const STUB: &str = "/stub/";

/// Longest body that is read.
const BODY_MOST: usize = 16 * 1024 * 1024;

/// Timeout of a wait that has none.
const WAIT: Duration = Duration::from_secs(5);

const TEXT: &str = "text/plain; charset=utf-8";
