//! The admin listener: the ledger to read, and the controls to change what happens next.

use std::error::Error as StdError;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde::Serialize;

use crate::{ApiKey, body::Body, delay::Delay, error::Error, fault::Faults, sim::Sim};

/// The fields of a form.
struct Fields(Vec<(String, String)>);

type Refused = Box<dyn StdError + Send + Sync>;

/// Answers `GET /ledger`, `GET /summary`, `GET /` and the controls.
pub(super) async fn answer(sim: Sim, request: Request<Incoming>) -> Result<Response<Body>, Error> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    if head.method == Method::GET {
        return Ok(match path {
            "/ledger" => json(&sim.ledger().full()),
            "/summary" => json(&sim.ledger().summary()),
            "/" => Body::page(StatusCode::OK, TEXT, HELP),
            _ => Body::page(StatusCode::NOT_FOUND, TEXT, unknown(path)),
        });
    }
    let form = Limited::new(body, FORM_MOST)
        .collect()
        .await
        .map_err(|error| Error::failed("the body of the request could not be read", error))?
        .to_bytes();
    let fields = Fields(form_urlencoded::parse(&form).into_owned().collect());
    Ok(match control(&sim, path, &fields) {
        Ok(None) => Body::page(StatusCode::OK, TEXT, "done\n"),
        Ok(Some(key)) => {
            let key = serde_json::json!({
                "client_id": &*key.client_id,
                "client_secret": &*key.client_secret,
            });
            Body::page(StatusCode::OK, TEXT, format!("{key}\n"))
        }
        Err(refused) => Body::page(StatusCode::BAD_REQUEST, TEXT, format!("{refused}\n")),
    })
}

/// Runs the control at `path`. Returns the key if it created or changed one.
fn control(sim: &Sim, path: &str, fields: &Fields) -> Result<Option<ApiKey>, Refused> {
    let client = fields.one("client_id").unwrap_or(sim.client_id());
    match path {
        "/faults" => sim.set_faults(fields.faults()?),
        "/set" => {
            if let Some(seconds) = fields.one("expires-in") {
                sim.set_expires_in(seconds.parse()?);
            }
            if let Some(quota) = fields.one("quota") {
                let quota = (quota != "none").then(|| quota.parse()).transpose()?;
                sim.set_quota(quota);
            }
        }
        "/revoke-all" => sim.revoke_all(),
        "/roles" => sim.set_roles(client, fields.all("role"))?,
        "/add-key" => return Ok(Some(sim.add_key(fields.one("member").unwrap_or("demo"))?)),
        "/rotate-secret" => return Ok(Some(sim.rotate_secret(client)?)),
        "/disable-key" => sim.disable_key(client)?,
        _ => return Err(unknown(path).trim_end().into()),
    }
    Ok(None)
}

// === impl Fields ===

impl Fields {
    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(field, _)| field == name)
            .map(|(_, value)| &**value)
    }

    fn one(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// The faults of a form whose fields are the switches of the program.
    fn faults(&self) -> Result<Faults, Refused> {
        let delay = |name| self.one(name).map_or(Ok(Delay::None), str::parse);
        Ok(Faults {
            before_counting: delay("delay-counting")?,
            before_head: delay("delay-head")?,
            before_head_of: None,
            data: self
                .all("fault")
                .map(str::parse)
                .collect::<Result<_, _>>()?,
            token: self
                .all("token-fault")
                .map(str::parse)
                .collect::<Result<_, _>>()?,
        })
    }
}

fn json(value: &impl Serialize) -> Response<Body> {
    let text = serde_json::to_string(value).unwrap_or_default() + "\n";
    Body::page(StatusCode::OK, "application/json", text)
}

fn unknown(path: &str) -> String {
    format!("unknown path {path}; GET / lists all controls\n")
}

/// The longest form that is read.
const FORM_MOST: usize = 64 * 1024;

const TEXT: &str = "text/plain; charset=utf-8";

const HELP: &str = "\
GET  /summary
GET  /ledger
POST /faults              fault token-fault delay-*    replaces all faults; the fields are named as the switches; without fields, no faults
POST /set                 expires-in quota             changes the given fields; quota=none removes the quota
POST /revoke-all                                       revokes every token
POST /roles               [client_id] [role]...        sets the roles of a key's next tokens
POST /add-key             [member]                     adds a key to a member (default: demo) and prints it
POST /rotate-secret       [client_id]                  gives a key a new secret and prints it
POST /disable-key         [client_id]                  refuses all further token requests of a key
";
