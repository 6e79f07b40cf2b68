//! Texts with a secret that is known, no part of which may be shown.

use tower_tds_outcome::Secrets;

/// Each secret stands between `«` and `»`.
const TEXTS: &[&str] = &[
    // Bare, quoted, in brackets: a secret of Keycloak, Auth0, Okta; hexadecimal keys.
    "two begin here: aaa«aaaaaaaaab»",
    "cannot use «Xq7RkPz02LmVb9TtYcW4sJd8HfGn3uEa»",
    "vault returned \"«Xq7RkPz02LmVb9TtYcW4sJd8HfGn3uEa»\" for the wrong mount",
    "unexpected value <«8F14E45FCEEA167A5A36DEDD4BEA2543»>",
    "key [«9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab»] is not base64",
    "Err(BadSecret(\"«a7Gh_29-kLmN0pQrStUvWxYz12345»\"))",
    "secret=«dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk»",
    "aws: «wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY» is not the key of AKIAIOSFODNN7ABCDEFG",
    "vault: «hvs.CAESIJ3Qw9eR7tY5uI1oP2aS4dF6gH8jK0lZxCvBnM» has expired",
    "hydra: ory_at_«b1Z9rQ3mT7xK5vN2cL8hJ4fG6dS0aPqW».«y7U2iO4pA6sD8fG1hJ3kL5zX9cV0bN2m» is inactive",
    // JWTs: whole, cut, of two parts, in a path.
    "JWT «eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlc2lnbmF0dXJl» rejected.",
    "rejected: «eyJhbGciOiJub25lIn0.eyJzdWIiOiIxMjM0In0.»",
    "assertion «eyJhbGciOiJSUzI1NiIsInR5c»",
    "GET /introspect/«eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2ln» 404",
    "{\"jwt\":\"«eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl»\"}",
    // Credentials of a header.
    "bad header Authorization: Bearer «f81d4fae-7dec-11d0-a765-00a0c91e6bf6»",
    "authorization: bearer «mF_9.B5f-4.1JqM7»",
    "Authorization: Basic «bWU6cGFzc3dvcmQx»",
    "{\"Authorization\":\"Basic «czZCaGRSa3F0MzpnWDFmQmF0M2JW==»\"}",
    "headers: {\\\"authorization\\\": \\\"Bearer «mF_9.B5f-4.1JqM7»\\\"}",
    "{\"authorization\": \"Bearer «short-one-1»\"}",
    "curl -H 'Authorization: Bearer «mF_9.B5f-4.1JqM7»' failed",
    "Proxy-Authorization: Basic\n «bWU6cGFzc3dvcmQx»",
    "Bearer%20«mF_9.B5f-4.1JqM7»%26x",
    // Values by name, in a query, a form, a fragment, a path.
    "no route for GET /v2/rail?key=«4bT9x0Qz»",
    "https://h/cb#access_token=«4bT9x0Qz»&state=1 was not asked for",
    "https://h/v2;token=«4bT9x0Qz»/rail",
    "grant_type=client_credentials&client_id=me&client_secret=«hunter2-hunter»",
    "grant_type%3Dclient_credentials%26client_secret%3D«hunter2hunter»%26scope%3Dx",
    "https://store.blob.example/c/f?sv=2024-11-04&sig=«k3%2Fh1%2Bw9%3D%3D»&se=2026",
    "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=«a1b2c3d4e5+/==»;EndpointSuffix=x",
    "Server=db;User Id=me;Password=«p4ss,word»;Encrypt=true",
    "token=«12345678»",
    "client_secret\n=\n«abc123def4»",
    "password: «hunter2!».",
    "sendgrid: SG.«ngeVfQFYQlKU0ufo8x5d1A».«TwL2iGABf9DHoTf-09kqeF8tAmbihYzrnopKc-1s5cr»",
    "azure: «abc8Q»~«w1x2y3z4A5B6C7D8E9F0G1H2I3J4K5L6M»",
    // JSON, of many depths; YAML; `Debug`; other languages.
    "{\"client_secret\":\"«pa55-word»\"}",
    "{\"client_secret\" : \"«pa55\\\"-word»\", \"x\": 1}",
    "{\n  \"clientSecret\":\n    \"«pa55-word»\"\n}",
    "body was \"{\\\"password\\\":\\\"«pa55-word»\\\"}\"",
    "Error { body: \"{\\\\\\\"password\\\\\\\":\\\\\\\"«pa55-word»\\\\\\\"}\" }",
    "{&quot;password&quot;:&quot;«pa55-word»&quot;}",
    "Config { user: \"me\", password: Some(\"«CorrectHorse»\") }",
    "{'client_secret': '«pa55-word»', 'grant_type': 'client_credentials'}",
    "['client_secret' => '«pa55-word»']",
    "{password=«pa55-word», user=me}",
    "db_password: «pa55-word»\nuser: me",
    "client_secret: «correct-horse-battery»",
    "X-Vault-Token: «s.1a2b3c4d»",
    "{\"password\":\"«correct h0rse battery!»\"}",
    "{\"token\":\"«pa55-word",
    // Passwords of URLs, also without percent-encoding.
    "cannot connect to redis://:«pw»@cache:6379/0",
    "cannot connect to postgres://me:«hunter2»@db.example/x?sslmode=require",
    "proxy http://me:«p@ss»@proxy.example:3128 refused",
    "proxy http://me:«p/ss»@proxy.example:3128 refused",
    "proxy http%3A%2F%2Fme%3A«hunter2»%40proxy.example refused",
    // A path, and base64 that looks like one.
    "GET https://api.example/forecast/«3f2a9b8c7d6e5f4a3b2c1d0e9f8a7b6c»/25.03,121.56 answered 403",
    "PUT /v1/«q7W9eR2tY5uI1oP3aS6dF8gH»/stations",
    "-----BEGIN PRIVATE KEY-----\n«MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgevZzL1gdAFr88hb2»\n«OF/2NxApJCzGCEDdfSp6VQO30hyhRANCAAQRWz+jn65BtOMvdyHKcvjBeBSDZH2r»",
    // Keycloak.
    r#"type=CLIENT_LOGIN_ERROR, realmId=tds, clientId=reader, error=invalid_client_credentials, client_secret=«qW3rTz8uIoPaSdFgHjKlYxCvBnM12345»"#,
    "Failed to verify token: «eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9».eyJzdWIiOiJhIn0.c2lnbmF0dXJl is not active",
    "Failed to verify token: eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhIn0.«c2lnbmF0dXJlLW9mLTMy» is not active",
    // Vault.
    "* permission denied for token hvs.«CAESIJmPl0vT8kQ2sXwZ»4hGx7Rn1bYc5 (lease expired)",
    "Error unwrapping: VAULT_TOKEN=«s3cr3t-w4pp3d» is not a valid wrapping token",
    r#"vault write auth/approle/login role_id=tds secret_id_accessor=none secret=«5f8e2c1a-9b7d-4e3f»-8a6b-1c2d3e4f5a6b"#,
    // AWS.
    "aws_secret_access_key = «wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY»",
    "GET /bucket/a?X-Amz-Security-Token=«IQoJb3JpZ2luX2VjEOr»%2F%2F%2F%2F%2F%2F%2F%2F%2F%2FwEaCXVzLWVhc3QtMSJ&X-Amz-Expires=900 403",
    "SignatureDoesNotMatch: X-Amz-Signature=«fe5f80f77d5fa3beca038a248ff027d0»445342fe2855ddc963176630326f1024",
    // Azure.
    "AADSTS7000215: Invalid client secret provided. client_secret: '«Qx7~Zk1aB.cD2»-eF3gH4iJ5kL6mN7oP8q'",
    "https://acct.blob.core.windows.net/c/b?sv=2022-11-02&sr=b&sig=«Xk9pL2mN4vB7»%2FcZ1aQ3wE5rT%3D returned 403",
    "DefaultEndpointsProtocol=https;AccountName=tds;AccountKey=«Zm9vYmFyYmF6MTIz»NDU2Nzg5MDEyMzQ1Njc4OTA=;EndpointSuffix=core.windows.net",
    "Endpoint=sb://tds.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=«p4R7Kz0Q»mW2x",
    // Google.
    r#"google.auth.exceptions.RefreshError: ('invalid_grant', {'access_token': '«ya29.a0AfH6SMBx»7-Q2w'})"#,
    "GET https://maps.googleapis.com/maps/api/js?key=«AIzaSyA1b2C3d4E5f6G7h8I9»j0K1l2M3n4O5p6Q 400",
    r#""private_key_id": "«9f86d081884c7d659a2feaa0c55ad015»a3bf4f1b", "client_email": "t@p.iam.gserviceaccount.com""#,
    // Redis, Postgres, proxies.
    "connection to redis://default:«r3d1s-Pa55»@cache:6379/0 refused",
    "could not connect to postgres://tds:«p@ss/w0rd»@db.internal:5432/tds?sslmode=require",
    r#"FATAL: invalid dsn "host=db user=tds password=«Tr0ub4dor»&3 dbname=tds""#,
    "jdbc:postgresql://db:5432/tds?user=tds&password=«S3cure!pw»: Connection refused",
    "CONNECT via http://svc:«pr0xyPass»@proxy.corp:3128 failed: 407 Proxy Authentication Required",
    // Java, curl, serde, Rust.
    "org.springframework.web.client.HttpClientErrorException: 401 : [client_id=reader&client_secret=«kJ8sL2pQ9wX4»&scope=a]",
    "> Authorization: Basic «cmVhZGVyOmh1bnRlcjIy»Mg==",
    "> authorization: Bearer «1f2e3d4c5b6a79880f1e2d3c»",
    r#"invalid type: string "«z9Y8x7W6v5U4»t3S2r1Q0p9O8", expected u64 at line 1 column 44"#,
    r#"Config { realm: "tds", client_id: "reader", client_secret: Some("«hU7-kL0pQ»"), retries: 3 }"#,
    r#"Err(Login(Credentials { user: "a", password: Secret("«hU7-kL0pR»") }))"#,
    r#"error decoding response body: {\"access_token\":\"«q1W2e3R4t5»\",\"expires_in\":300}"#,
    "posting failed: token=«xoxb-17653672481»-Gx9ZyE3sTq&channel=ops",
    r#"org.apache.kafka.common.errors.SaslAuthenticationException: PlainLoginModule required username="tds" password="«AbCd-EfGh-1234»";"#,
    "GET /hook/«Kq3v9TzX1c7RbN5m»W8yLp2Hd HTTP/1.1 404",
    // An ampersand that is encoded inside of the value does not end it.
    "POST /login password=abc%26«defgh12345»&x=1",
    "POST /login body=password%3Dabc%2526«defgh12345»%26x%3D1",
];

#[test]
fn no_part_of_a_secret_is_shown() {
    let mut shown = Vec::new();
    for marked in TEXTS {
        let text = marked.replace(['«', '»'], "");
        let parts = marked
            .split('«')
            .skip(1)
            .map(|part| part.split('»').next().unwrap());
        let secrets = Secrets::default();
        parts
            .clone()
            .for_each(|secret| drop(secrets.add("secret", secret)));
        let clean = secrets.redact(&text);
        for secret in parts {
            let letters: Vec<char> = secret.chars().collect();
            let pieces = letters.windows(letters.len().min(6)).map(String::from_iter);
            if !clean.contains("[redacted]")
                || pieces.into_iter().any(|piece| clean.contains(&piece))
            {
                shown.push(format!("{text}\n  -> {clean}"));
                break;
            }
        }
    }
    assert!(
        TEXTS.len() >= 40 && shown.is_empty(),
        "{} of {}:\n{}",
        shown.len(),
        TEXTS.len(),
        shown.join("\n")
    );
}

/// Texts that have no known value, and what is shown of them.
const SYNTAX: &str = r#"
redis://:pw@cache:6379/0 -> redis://:[redacted]@cache:6379/0
redis://default:p@ss/w?0rd@cache:6379/0 refused -> redis://default:[redacted]@cache:6379/0 refused
at postgres://tds:p%40ss%2Fw0rd@db/x?sslkey=a%26b: no -> at postgres://tds:[redacted]@db/x?[redacted]: no
proxy http%3A%2F%2Fme%3Ahunter2%40proxy.example refused -> proxy http%3A%2F%2Fme%3A[redacted]%40proxy.example refused
GET https://sk_live_4bT9x0Qz:@api.example/v1: 401 -> GET https://[redacted]:@api.example/v1: 401
(https://ghp_4bT9x0Qz@git.example:8443/x?y) ssh://git@h -> (https://[redacted]@git.example:8443/x?[redacted]) ssh://git@h
via https://me@corp:hunter2@proxy:3128, https://4bT9x0Qz@[::1]:8443/ -> via https://me@corp:[redacted]@proxy:3128, https://[redacted]@[::1]:8443/
see <https://h.example/a?b=c> and "https://h.example/?d" -> see <https://h.example/a?[redacted]> and "https://h.example/?[redacted]"
for url=https%3A%2F%2Fh%2F%3Fkey%3Da%2520b%26c%3D4bT9x0Qz and -> for url=https%3A%2F%2Fh%2F%3F[redacted] and
Cannot GET /v2/rail?key=4bT9x0Qz -> Cannot GET /v2/rail?[redacted]
{"path":"/v2/rail?key=4bT9x0Qz"}, [/v2?k=1] TCP/IP? and/or? a?b/c -> {"path":"/v2/rail?[redacted]"}, [/v2?[redacted]] TCP/IP? and/or? a?b/c
Bearer mF_9.B5f-4.1JqM7, please -> Bearer [redacted], please
headers: {\"authorization\": \"bearer mF_9.B5f-4.1JqM7\"} -> headers: {\"authorization\": \"bearer [redacted]\"}
Proxy-Authorization: Basic bWU6cGFzc3dvcmQx== -> Proxy-Authorization: Basic [redacted]
authorization=Basic+bWU6cGFzc3dvcmQx&x=1 -> authorization=Basic+[redacted]&x=1
GET /introspect/eyJhbGciOiJSUzI1NiJ9.eyJzdWIi.c2ln 404 -> GET /introspect/[redacted] 404
assertion eyJhbGciOiJSUzI1NiIsInR5c -> assertion [redacted]
"#;

#[test]
fn what_syntax_shows_to_be_secret_is_hidden_and_what_stands_around_it_stays() {
    for (text, clean) in SYNTAX.lines().filter_map(|line| line.split_once(" -> ")) {
        assert_eq!(Secrets::default().redact(text), clean);
    }
}
