//! Lines of real servers, proxies and libraries: those with a secret that is known, and those without one.

use tower_tds_outcome::Secrets;

#[test]
fn lines_of_servers_with_a_secret_are_shown_without_it() {
    let redact = |secret, text| {
        let secrets = Secrets::default();
        secrets.add("secret", secret);
        secrets.redact(text)
    };
    let shown: Vec<_> = (WITH_A_SECRET.iter())
        .map(|(secret, text)| (secret, redact(secret, text)))
        .filter(|(secret, shown)| shown.contains(**secret))
        .collect();
    assert!(shown.is_empty(), "{shown:#?}");
}

#[test]
fn lines_of_servers_without_a_secret_stay_as_they_are() {
    let secrets = Secrets::default();
    let changed: Vec<_> = (INNOCENT.iter())
        .map(|text| secrets.redact(text))
        .filter(|shown| !INNOCENT.contains(&shown.as_str()))
        .collect();
    assert!(changed.is_empty(), "{changed:#?}");
}

/// A secret, and the text that contains it.
const WITH_A_SECRET: &[(&str, &str)] = &[
    // Keycloak.
    (
        "qW3rTz8uIoPaSdFgHjKlYxCvBnM12345",
        r#"type=CLIENT_LOGIN_ERROR, realmId=tds, clientId=reader, error=invalid_client_credentials, client_secret=qW3rTz8uIoPaSdFgHjKlYxCvBnM12345"#,
    ),
    (
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9",
        "Failed to verify token: eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl is not active",
    ),
    (
        "c2lnbmF0dXJlLW9mLTMy",
        "Failed to verify token: eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJlLW9mLTMy is not active",
    ),
    (
        "b7e4c1d2a9",
        r#"{"client_id":"reader","client_secret":"b7e4c1d2a9","grant_type":"client_credentials"}"#,
    ),
    // Vault.
    (
        "CAESIJmPl0vT8kQ2sXwZ",
        "* permission denied for token hvs.CAESIJmPl0vT8kQ2sXwZ4hGx7Rn1bYc5 (lease expired)",
    ),
    (
        "s3cr3t-w4pp3d",
        "Error unwrapping: VAULT_TOKEN=s3cr3t-w4pp3d is not a valid wrapping token",
    ),
    (
        "5f8e2c1a-9b7d-4e3f",
        r#"vault write auth/approle/login role_id=tds secret_id_accessor=none secret=5f8e2c1a-9b7d-4e3f-8a6b-1c2d3e4f5a6b"#,
    ),
    // AWS.
    (
        "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
        "aws_secret_access_key = wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
    ),
    (
        "IQoJb3JpZ2luX2VjEOr",
        "GET /bucket/a?X-Amz-Security-Token=IQoJb3JpZ2luX2VjEOr%2F%2F%2F%2F%2F%2F%2F%2F%2F%2FwEaCXVzLWVhc3QtMSJ&X-Amz-Expires=900 403",
    ),
    (
        "fe5f80f77d5fa3beca038a248ff027d0",
        "SignatureDoesNotMatch: X-Amz-Signature=fe5f80f77d5fa3beca038a248ff027d0445342fe2855ddc963176630326f1024",
    ),
    // Azure.
    (
        "Qx7~Zk1aB.cD2",
        "AADSTS7000215: Invalid client secret provided. client_secret: 'Qx7~Zk1aB.cD2-eF3gH4iJ5kL6mN7oP8q'",
    ),
    (
        "Xk9pL2mN4vB7",
        "https://acct.blob.core.windows.net/c/b?sv=2022-11-02&sr=b&sig=Xk9pL2mN4vB7%2FcZ1aQ3wE5rT%3D returned 403",
    ),
    (
        "Zm9vYmFyYmF6MTIz",
        "DefaultEndpointsProtocol=https;AccountName=tds;AccountKey=Zm9vYmFyYmF6MTIzNDU2Nzg5MDEyMzQ1Njc4OTA=;EndpointSuffix=core.windows.net",
    ),
    (
        "p4R7Kz0Q",
        "Endpoint=sb://tds.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=p4R7Kz0QmW2x",
    ),
    // Google.
    (
        "ya29.a0AfH6SMBx",
        r#"google.auth.exceptions.RefreshError: ('invalid_grant', {'access_token': 'ya29.a0AfH6SMBx7-Q2w'})"#,
    ),
    (
        "AIzaSyA1b2C3d4E5f6G7h8I9",
        "GET https://maps.googleapis.com/maps/api/js?key=AIzaSyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q 400",
    ),
    (
        "9f86d081884c7d659a2feaa0c55ad015",
        r#""private_key_id": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "client_email": "t@p.iam.gserviceaccount.com""#,
    ),
    // Redis, Postgres, proxies.
    (
        "r3d1s-Pa55",
        "connection to redis://default:r3d1s-Pa55@cache:6379/0 refused",
    ),
    (
        "p@ss/w0rd",
        "could not connect to postgres://tds:p@ss/w0rd@db.internal:5432/tds?sslmode=require",
    ),
    (
        "Tr0ub4dor",
        r#"FATAL: invalid dsn "host=db user=tds password=Tr0ub4dor&3 dbname=tds""#,
    ),
    (
        "S3cure!pw",
        "jdbc:postgresql://db:5432/tds?user=tds&password=S3cure!pw: Connection refused",
    ),
    (
        "pr0xyPass",
        "CONNECT via http://svc:pr0xyPass@proxy.corp:3128 failed: 407 Proxy Authentication Required",
    ),
    // Java, curl, serde, Rust.
    (
        "kJ8sL2pQ9wX4",
        "org.springframework.web.client.HttpClientErrorException: 401 : [client_id=reader&client_secret=kJ8sL2pQ9wX4&scope=a]",
    ),
    (
        "cmVhZGVyOmh1bnRlcjIy",
        "> Authorization: Basic cmVhZGVyOmh1bnRlcjIyMg==",
    ),
    (
        "1f2e3d4c5b6a79880f1e2d3c",
        "> authorization: Bearer 1f2e3d4c5b6a79880f1e2d3c",
    ),
    (
        "z9Y8x7W6v5U4",
        r#"invalid type: string "z9Y8x7W6v5U4t3S2r1Q0p9O8", expected u64 at line 1 column 44"#,
    ),
    (
        "hU7-kL0pQ",
        r#"Config { realm: "tds", client_id: "reader", client_secret: Some("hU7-kL0pQ"), retries: 3 }"#,
    ),
    (
        "hU7-kL0pR",
        r#"Err(Login(Credentials { user: "a", password: Secret("hU7-kL0pR") }))"#,
    ),
    (
        "q1W2e3R4t5",
        r#"error decoding response body: {\"access_token\":\"q1W2e3R4t5\",\"expires_in\":300}"#,
    ),
    (
        "xoxb-17653672481",
        "posting failed: token=xoxb-17653672481-Gx9ZyE3sTq&channel=ops",
    ),
    (
        "AbCd-EfGh-1234",
        r#"org.apache.kafka.common.errors.SaslAuthenticationException: PlainLoginModule required username="tds" password="AbCd-EfGh-1234";"#,
    ),
    (
        "Kq3v9TzX1c7RbN5m",
        "GET /hook/Kq3v9TzX1c7RbN5mW8yLp2Hd HTTP/1.1 404",
    ),
    // An ampersand that is encoded inside of the value does not end it.
    ("defgh12345", "POST /login password=abc%26defgh12345&x=1"),
    (
        "defgh12345",
        "POST /login body=password%3Dabc%2526defgh12345%26x%3D1",
    ),
];

const INNOCENT: &[&str] = &[
    // Kubernetes.
    "pod tds-client-7d9f8b6c5d-x2x4z is in CrashLoopBackOff",
    r#"Back-off restarting failed container=worker pod=tds-client-7d9f8b6c5d-x2x4z_default(3f1c2b4a-5d6e-7f80-91a2-b3c4d5e6f708)"#,
    "Failed to pull image registry.local/tds/client:v1.24.3-rc.2: not found",
    r#"secret "tds-credentials" not found in namespace "default""#,
    "MountVolume.SetUp failed for volume \"kube-api-access-8xk2p\" : object \"default\"/\"kube-root-ca.crt\" not registered",
    "node ip-10-0-132-47.eu-central-1.compute.internal not ready",
    "service account token for system:serviceaccount:default:tds-reader has expired",
    // TLS.
    "invalid peer certificate: certificate expired: verification time 1718000000 (UNIX), but certificate is not valid after 1717000000",
    "error:0A000086:SSL routines:tls_post_process_server_certificate:certificate verify failed (unable to get local issuer certificate)",
    "received fatal alert: HandshakeFailure, offered TLS13_AES_256_GCM_SHA384 and TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "javax.net.ssl.SSLHandshakeException: PKIX path building failed: sun.security.provider.certpath.SunCertPathBuilderException: unable to find valid certification path to requested target",
    // Keycloak and others.
    "Client secret not provided in request",
    r#"{"error":"unauthorized_client","error_description":"Invalid client or Invalid client credentials"}"#,
    "AADSTS700016: Application with identifier '11112222-bbbb-3333-cccc-4444dddd5555' was not found in the directory. Trace ID: 0b4ae1f5-1d2c-4f7e-9c58-0a6de9a20e00 Timestamp: 2024-05-14 09:12:33Z",
    "AADSTS90002: Tenant 'contoso.onmicrosoft.com' not found. Check to make sure you have the correct tenant ID.",
    "WWW-Authenticate: Bearer realm=\"tds\", error=\"invalid_token\", error_description=\"The access token expired\"",
    "Bearer token is missing or malformed",
    "Basic authentication is disabled for this tenant",
    "type=LOGIN_ERROR, realmId=tds, clientId=account-console-reader-2, userId=null, ipAddress=10.1.2.3, error=user_not_found",
    "Token exchange failed: subject_token_type is not supported: urn:ietf:params:oauth:token-type:access_token",
    "token: expired at Tue, 14 May 2024 09:12:33 GMT",
    "Password: must contain at least one uppercase letter",
    "password authentication failed for user \"tds\"",
    // Ids.
    "x-request-id: 7f3b5c1e-2a4d-4c6b-8e9f-0a1b2c3d4e5f",
    "request 01HXYZ failed in 231ms, upstream_response_time=0.231",
    "the call 550e8400e29b took 2024-05-14T09:12:33.123456Z to end",
    "nginx/1.25.3 built from 4bf2a1c, rustc 1.78.0 (9b00956e5 2024-04-29)",
    "cf-ray: 883a2f1e4c9d0b7e-FRA",
    // Paths and names.
    "/usr/lib/x86_64-linux-gnu/libssl.so.3: cannot open shared object file: No such file or directory",
    "open /var/run/secrets/kubernetes.io/serviceaccount/token: permission denied",
    "at org.keycloak.protocol.oidc.endpoints.TokenEndpoint.processGrantRequest(TokenEndpoint.java:145)",
    "java.lang.IllegalStateException at com.example.Tds2ClientAutoConfiguration$$EnhancerBySpringCGLIB$$1",
    "thread 'main' panicked at /root/.cargo/registry/src/registry.example-6f17d22bba15001f/tokio-1.37.0/src/runtime/context.rs:129:27",
    "key: /etc/ssl/private/server.key has mode 0644",
    "no route for my-very-long-service-name-v2-eu-central-1-blue-canary",
    "missing field `access_token` at line 1 column 47",
    "unknown field `refresh_token_expires`, expected one of `access_token`, `token_type`",
    "error code: MQRC_HOST_NOT_AVAILABLE_2538_RECONNECT",
    "upstream connect error or disconnect/reset before headers. reset reason: connection termination, transport failure reason: delayed connect error: 111",
    "key: sessions:reader:42 expired",
    "REDIS WRONGPASS invalid username-password pair or user is disabled.",
    "psql: error: connection to server at \"db.internal\" (10.2.3.4), port 5432 failed: FATAL: no pg_hba.conf entry for host",
    "<html><head><title>503 Service Temporarily Unavailable</title></head><body><center><h1>503</h1></center><hr>nginx</body></html>",
    "haproxy[1234]: backend tds-prod-eu-west-1a/server02 has no server available!",
    "Rate limit reached for key `anonymous`. Limit 50/s, remaining 0, reset=1718000060",
    "X-RateLimit-Key: anonymous-users",
    "cannot GET /api/v1/namespaces/kube-system/pods/coredns-5d78c9869d-abcde/log",
    "com.nimbusds.oauth2.sdk.http.HTTPResponse.ensureStatusCode(HTTPResponse.java:392)",
    "token endpoint https://login.microsoftonline.com/72f988bf-86f1-41af-91ab-2d7cd011db47/oauth2/v2.0/token: 400",
    "failed to load key pair from /home/runner/work/tds/target/debug/build/ring-1a2b3c4d5e6f7081/out",
    "bean Saml2AuthenticationTokenConverter needs OAuth2AuthorizedClientRepository",
    "user 'svc_tds_prod_2' has exceeded 'max_questions' resource",
    "topic tds-live-bus-v2-eu-central-1-retention-7d-compacted not found",
];
