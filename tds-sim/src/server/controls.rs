//! The controls: one POST each, with a form.

use std::error::Error as StdError;

use crate::{fault::Faults, sim::Sim};

/// A control: its path, its fields, what it does.
struct Control {
    path: &'static str,
    fields: &'static str,
    does: &'static str,
    apply: fn(&Sim, &Fields<'_>) -> Result<String, Refused>,
}

type Refused = Box<dyn StdError + Send + Sync>;

/// The fields of a form.
struct Fields<'a>(&'a [(String, String)]);

/// Does what a POST to `path` asks for, and says so; or says what is wrong.
pub(super) fn apply(sim: &Sim, path: &str, fields: &[(String, String)]) -> Result<String, String> {
    let control = CONTROLS.iter().find(|control| control.path == path);
    let control = control.ok_or_else(|| format!("no {path}; GET / lists what there is\n"))?;
    match (control.apply)(sim, &Fields(fields)) {
        Ok(said) if said.is_empty() => Ok("done\n".to_owned()),
        Ok(said) => Ok(said),
        Err(refused) => Err(format!("{refused}\n")),
    }
}

/// What there is.
pub(super) fn help() -> String {
    let mut text = "GET  /summary\nGET  /ledger\n".to_owned();
    for Control {
        path, fields, does, ..
    } in &CONTROLS
    {
        text.push_str(&format!("POST {path:<22} {fields:<28} {does}\n"));
    }
    text
}

// === impl Fields ===

impl Fields<'_> {
    fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        self.0
            .iter()
            .filter(move |(field, _)| field == name)
            .map(|(_, value)| &**value)
    }

    fn one(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, value)| &**value)
    }

    /// The field `client_id`, or the id of the first key.
    fn client<'a>(&'a self, sim: &'a Sim) -> &'a str {
        self.one("client_id").unwrap_or_else(|| sim.client_id())
    }

    fn required(&self, name: &str) -> Result<&str, Refused> {
        self.one(name)
            .ok_or_else(|| format!("the field {name} is missing").into())
    }
}

fn quietly<E: Into<Refused>>(done: Result<(), E>) -> Result<String, Refused> {
    done.map(|()| String::new()).map_err(Into::into)
}

fn key(key: &crate::ApiKey) -> String {
    let fields = serde_json::json!({
        "client_id": key.client_id(),
        "client_secret": key.client_secret(),
    });
    format!("{fields}\n")
}

fn faults(fields: &Fields<'_>) -> Result<Faults, Refused> {
    let delay = |name| fields.one(name).map_or(Ok(crate::Delay::None), str::parse);
    Ok(Faults {
        before_counting: delay("delay-counting")?,
        before_head: delay("delay-head")?,
        before_head_of: None,
        during_body: delay("delay-body")?,
        data: fields
            .all("fault")
            .map(str::parse)
            .collect::<Result<_, _>>()?,
        token: fields
            .all("token-fault")
            .map(str::parse)
            .collect::<Result<_, _>>()?,
    })
}

fn settings(sim: &Sim, fields: &Fields<'_>) -> Result<String, Refused> {
    if let Some(seconds) = fields.one("expires-in") {
        sim.set_expires_in(seconds.parse()?);
    }
    if let Some(format) = fields.one("error-body") {
        sim.set_error_body(format.parse()?);
    }
    match fields.one("quota") {
        None => {}
        Some("none") => sim.set_quota(None),
        Some(quota) => sim.set_quota(Some(quota.parse()?)),
    }
    Ok(String::new())
}

const CONTROLS: [Control; 13] = [
    Control {
        path: "/faults",
        fields: "fault token-fault delay-*",
        does: "replaces all faults; fields as the switches of the program, none means none",
        apply: |sim, fields| {
            sim.set_faults(faults(fields)?);
            Ok(String::new())
        },
    },
    Control {
        path: "/set",
        fields: "expires-in error-body quota",
        does: "changes those that are given; quota=none lifts it",
        apply: settings,
    },
    Control {
        path: "/revoke-all",
        fields: "",
        does: "revokes every token",
        apply: |sim, _| {
            sim.revoke_all();
            Ok(String::new())
        },
    },
    Control {
        path: "/rotate-key",
        fields: "",
        does: "signs with a new key; older tokens are no longer valid",
        apply: |sim, _| {
            sim.rotate_signing_key();
            Ok(String::new())
        },
    },
    Control {
        path: "/rotate-secret",
        fields: "[client_id]",
        does: "gives a key a new secret and says it",
        apply: |sim, fields| Ok(key(&sim.rotate_secret(fields.client(sim))?)),
    },
    Control {
        path: "/roles",
        fields: "[client_id] [role]...",
        does: "sets the roles of a key's next tokens",
        apply: |sim, fields| quietly(sim.set_roles(fields.client(sim), fields.all("role"))),
    },
    Control {
        path: "/add-member",
        fields: "member",
        does: "adds a member without keys",
        apply: |sim, fields| {
            sim.add_member(fields.required("member")?);
            Ok(String::new())
        },
    },
    Control {
        path: "/add-key",
        fields: "[member]",
        does: "gives a member, or demo, another key and says it",
        apply: |sim, fields| Ok(key(&sim.add_key(fields.one("member").unwrap_or("demo"))?)),
    },
    Control {
        path: "/disable-key",
        fields: "[client_id]",
        does: "refuses a key every token",
        apply: |sim, fields| quietly(sim.disable_key(fields.client(sim))),
    },
    Control {
        path: "/enable-key",
        fields: "[client_id]",
        does: "lets it get tokens again",
        apply: |sim, fields| quietly(sim.enable_key(fields.client(sim))),
    },
    Control {
        path: "/no-service-account",
        fields: "[client_id]",
        does: "takes its service account from a key, for good",
        apply: |sim, fields| quietly(sim.remove_service_account(fields.client(sim))),
    },
    Control {
        path: "/disable-realm",
        fields: "",
        does: "closes the realm",
        apply: |sim, _| {
            sim.disable_realm();
            Ok(String::new())
        },
    },
    Control {
        path: "/enable-realm",
        fields: "",
        does: "opens it again",
        apply: |sim, _| {
            sim.enable_realm();
            Ok(String::new())
        },
    },
];
