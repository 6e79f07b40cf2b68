//! Page of the admin listener: calls as they come, limits against their use, faults.
//!
//! The server makes the whole page for each event, so that it looks the same without JavaScript.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Response, StatusCode};
use tokio::sync::mpsc;

use crate::{
    body::Body,
    clock::lock,
    intake::ip,
    ledger::{Arrival, Filter},
    sim::Sim,
};

/// Returns the page.
pub(super) fn whole(sim: &Sim) -> Response<Body> {
    let page = PAGE.replace("{content}", &content(sim));
    let mut page = Body::page(StatusCode::OK, "text/html; charset=utf-8", page);
    let policy = HeaderName::from_static("content-security-policy");
    page.headers_mut()
        .insert(policy, HeaderValue::from_static(POLICY));
    page
}

/// Returns events with the content of the page, one after each change, and one a second because the
/// use of a limit falls with time.
pub(super) fn events(sim: Sim) -> Response<Body> {
    let (send, pieces) = mpsc::channel(1);
    tokio::spawn(async move {
        let ledger = sim.ledger();
        loop {
            let changed = ledger.changed.notified();
            let event = format!("data: {}\n\n", content(&sim));
            if send.send(event.into()).await.is_err() {
                return;
            }
            tokio::select! {
                () = changed => tokio::time::sleep(PAUSE).await,
                () = send.closed() => return,
                () = tokio::time::sleep(SECOND) => {}
            }
        }
    });
    Body::stream("text/event-stream", pieces)
}

/// Makes the content of the page, on one line.
fn content(sim: &Sim) -> String {
    let mut html = String::from("<h2>Limits</h2><ul>");
    limits(sim, &mut html);
    html.push_str("</ul><h2>Faults in force</h2><ul>");
    let faults = sim.faults();
    let data = faults.data.iter().map(ToString::to_string);
    let token = faults.token.iter().map(|fault| format!("token: {fault}"));
    for fault in data.chain(token) {
        html += &format!("<li>{}</li>", escaped(&fault));
    }
    let (_, calls) = sim.ledger().find(&Filter::default(), ROWS);
    html.push_str(TABLE);
    html.extend(calls.iter().rev().map(row));
    html + "</tbody></table>"
}

/// Adds each limit with its use by each address and key.
fn limits(sim: &Sim, html: &mut String) {
    let (state, ledger) = (&sim.state, sim.ledger());
    let (config, now) = (state.config(), state.clock.now());
    let lately = Filter {
        from: Some(now.saturating_sub(config.per)),
        ..Filter::default()
    };
    let (_, lately) = ledger.find(&lately, usize::MAX);
    let mut meter = |what: &str, used: u32, of: u32| {
        let (max, high) = (of.max(1), f64::from(of) * 0.8);
        *html += &format!(
            "<li><meter min=0 max={max} high={high} value={used}></meter> {used} of {of} {what}</li>"
        );
    };
    for (address, peer) in &lock(&state.intake.gate).peers {
        let calls = lately.iter().filter(|call| ip(call.peer) == *address);
        let calls = u32::try_from(calls.count()).unwrap_or(u32::MAX);
        let what = format!("requests of {address} in the last {:?}", config.per);
        meter(&what, calls, config.rate);
        let what = format!("connections of {address}, {} in use", peer.busy);
        meter(&what, peer.sockets, config.connections);
    }
    let most = config.quota.map_or(0, |quota| quota.calls);
    for (client, calls) in lock(&state.usage).used_at(now) {
        meter(&format!("calls of {}", escaped(client)), calls, most);
    }
}

/// Makes the row of a call.
fn row(call: &Arrival) -> String {
    let text = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
    let took = call.ended.map(|ended| ended.saturating_sub(call.at));
    format!(
        "<tr class=s{}><td>{:.3} s<td>{}<td>{}<td>{}<td>{:?}<td>{}<td>{}<td>{}<td>{}",
        call.status.unwrap_or(0) / 100,
        call.at.as_secs_f64(),
        escaped(call.method.as_str()),
        escaped(&call.target),
        text(call.status.map(u64::from)),
        call.outcome,
        took.map_or(String::new(), |took| format!("{took:.1?}")),
        call.peer,
        text(call.connection),
        text(call.token),
    )
}

/// Escapes text for HTML, outside of attributes.
fn escaped(text: &str) -> String {
    let safe = text.replace('&', "&amp;").replace('<', "&lt;");
    safe.replace(char::is_control, "\u{fffd}")
}

pub(super) const SCRIPT: &str = include_str!("page.js");

const PAGE: &str = include_str!("page.html");

const TABLE: &str = "</ul><h2>Calls</h2><table><thead><tr><th>At<th>Method<th>Target<th>Status<th>Outcome\
     <th>Took<th>From<th>Connection<th>Token</thead><tbody>";

/// Lets only the page's own script run, because parts of the page come from clients.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; \
     connect-src 'self'; form-action 'self'; frame-ancestors 'none'";

/// Newest calls on the page.
const ROWS: usize = 100;

/// Shortest time between two events, so that a thousand calls a second make only five.
const PAUSE: Duration = Duration::from_millis(200);

const SECOND: Duration = Duration::from_secs(1);
