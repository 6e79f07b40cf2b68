//! Token requests with a secret, right and wrong.

use super::side::Row;

/// Every row with its name.
pub(super) fn rows() -> Vec<(&'static str, Row)> {
    let mut rows = forms();
    rows.extend(headers());
    rows.extend(elsewhere());
    rows
}

/// The client in the form.
fn forms() -> Vec<(&'static str, Row)> {
    let with = |more: &str| granted(&format!("{POST}&{more}"));
    let typed = |kind| form(&format!("grant_type={GRANT}&{POST}")).kind(Some(kind));
    vec![
        ("a secret", granted(POST)),
        ("openid", with("scope=openid")),
        ("email", with("scope=email")),
        ("an empty scope", with("scope=")),
        ("an unknown scope", with("scope=nope")),
        ("a known and an unknown scope", with("scope=email+nope")),
        (
            "more than is known",
            with("resource=https%3A%2F%2Fa.example&audience=x&tenant=y"),
        ),
        (
            "a wrong secret",
            granted("client_id=<id:post>&client_secret=no"),
        ),
        ("no secret", granted("client_id=<id:post>")),
        (
            "an empty secret",
            granted("client_id=<id:post>&client_secret="),
        ),
        ("a secret and a line end", granted(&format!("{POST}%0A"))),
        (
            "an unknown client",
            granted("client_id=no&client_secret=no"),
        ),
        ("no client", form(&format!("grant_type={GRANT}"))),
        ("an empty client", granted("client_id=&client_secret=no")),
        (
            "a disabled client",
            granted("client_id=<id:off>&client_secret=<secret:off>"),
        ),
        ("no grant type", form(POST)),
        ("an empty grant type", form(&format!("grant_type=&{POST}"))),
        (
            "an unknown grant type",
            form(&format!("grant_type=no&{POST}")),
        ),
        (
            "an unknown grant type, a wrong secret",
            form("grant_type=no&client_id=<id:post>&client_secret=no"),
        ),
        (
            "the password grant",
            form(&format!("grant_type=password&username=a&password=b&{POST}")),
        ),
        ("the grant type twice", with(&format!("grant_type={GRANT}"))),
        ("the secret twice", with("client_secret=no")),
        ("the scope twice", with("scope=email&scope=email")),
        ("the resource twice", with("resource=a%3Ab&resource=c%3Ad")),
        (
            "the scope twice, a wrong secret",
            granted("client_id=<id:post>&client_secret=no&scope=email&scope=email"),
        ),
        ("nothing", form("")),
        (
            "a charset",
            typed("application/x-www-form-urlencoded; charset=utf-8"),
        ),
        ("text", typed("text/plain")),
        ("no media type", granted(POST).kind(None)),
        (
            "JSON",
            form(r#"{"grant_type":"client_credentials"}"#).kind(Some("application/json")),
        ),
        (
            "multipart",
            form(MULTIPART).kind(Some("multipart/form-data; boundary=x")),
        ),
    ]
}

/// The client in a header.
fn headers() -> Vec<(&'static str, Row)> {
    let alone = |header| form(&format!("grant_type={GRANT}")).authorization(header);
    let beside = |header, more: &str| granted(more).authorization(header);
    let right = "Basic of <id:post>:<secret:post>";
    vec![
        ("Basic", alone(right)),
        ("Basic, all form-encoded", alone("Basic of <encoded:post>")),
        ("Basic, a wrong secret", alone("Basic of <id:post>:no")),
        ("Basic, no secret", alone("Basic of <id:post>:")),
        ("Basic, an unknown client", alone("Basic of no:no")),
        (
            "Basic, a disabled client",
            alone("Basic of <id:off>:<secret:off>"),
        ),
        ("Basic and the same fields", beside(right, POST)),
        (
            "Basic, wrong, and right fields",
            beside("Basic of <id:post>:no", POST),
        ),
        (
            "Basic, right, and wrong fields",
            beside(right, "client_id=<id:post>&client_secret=no"),
        ),
        (
            "Basic, right, and a wrong secret",
            beside(right, "client_secret=no"),
        ),
        (
            "Basic, right, and another client",
            beside(right, "client_id=no"),
        ),
        ("Basic, a raw percent sign", alone("Basic of <id:post>:50%")),
        (
            "Basic, a raw percent sign and letters",
            alone("Basic of <id:post>:50%zz"),
        ),
        ("Basic, a raw slash", alone("Basic of <id:post>:a/b")),
        ("Basic, a raw colon", alone("Basic of <id:post>:a:b")),
        ("Basic, a raw umlaut", alone("Basic of <id:post>:ü")),
        ("Basic, no colon", alone("Basic of nobody")),
        ("Basic, nothing", alone("Basic ")),
        ("Basic, no base64", alone("Basic !!!")),
        ("Bearer", alone("Bearer abc")),
        ("Bearer and right fields", beside("Bearer abc", POST)),
    ]
}

/// Other methods and other places.
fn elsewhere() -> Vec<(&'static str, Row)> {
    let at = |path| granted(POST).path(path);
    vec![
        ("GET", form("").method("GET")),
        ("PUT", granted(POST).method("PUT")),
        ("DELETE", form("").method("DELETE")),
        ("OPTIONS", form("").method("OPTIONS")),
        (
            "a slash at the end",
            at("/auth/realms/ServiceConnect/protocol/openid-connect/token/"),
        ),
        (
            "another realm",
            at("/auth/realms/other/protocol/openid-connect/token"),
        ),
        (
            "nothing in the realm",
            at("/auth/realms/ServiceConnect/nothing"),
        ),
        (
            "outside of /auth",
            at("/realms/ServiceConnect/protocol/openid-connect/token"),
        ),
    ]
}

pub(super) fn form(body: &str) -> Row {
    Row::new(body)
}

pub(super) fn granted(more: &str) -> Row {
    Row::new(&format!("grant_type={GRANT}&{more}"))
}

const GRANT: &str = "client_credentials";
const POST: &str = "client_id=<id:post>&client_secret=<secret:post>";
const MULTIPART: &str =
    "--x\r\ncontent-disposition: form-data; name=grant_type\r\n\r\nclient_credentials\r\n--x--\r\n";
