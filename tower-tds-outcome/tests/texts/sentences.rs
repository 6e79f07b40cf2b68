//! What real servers, proxies and libraries say, which stays byte for byte.

use tower_tds_outcome::Secrets;

const SENTENCES: &[&str] = &[
    // Keycloak and its gateways.
    "Invalid client or Invalid client credentials",
    "unauthorized_client: INVALID_CREDENTIALS: Invalid client credentials",
    "Bearer realm=\"master\", error=\"invalid_token\", error_description=\"Token verification failed\"",
    "type=\"CLIENT_LOGIN_ERROR\", realmId=\"outline\", clientId=\"alto-portal\", userId=\"null\", ipAddress=\"172.20.0.1\", error=\"invalid_client_credentials\", grant_type=\"client_credentials\", client_auth_method=\"client-secret\"",
    "WARN  [org.keycloak.events] (executor-thread-13) type=REFRESH_TOKEN_ERROR, realmId=3f2504e0-4f89-11d3-9a0c-0305e82c3301, error=invalid_token, auth_method=validate_access_token",
    "Client secret not provided in request",
    "Parameter client_assertion_type is missing",
    "Token is not active: exp=1732717571, now=1732717600",
    "Failed to verify token: Invalid token signature",
    "Session not active",
    "Access token does not have the required scope/role: Missing required realm role",
    "accessing introspection endpoint (https://sso.example.com/auth/realms/ServiceConnect/protocol/openid-connect/token/introspect) failed: timeout",
    // Entra, Auth0, Okta, Google, Cognito, Spring.
    "AADSTS7000215: Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the client secret ID, for a secret added to app 'a8fdfbd0-da97-42d9-8f1a-fd6a7cb650b4'.\r\nTrace ID: 6f6c4645-0202-4486-b625-fa957dfc4700\r\nCorrelation ID: 5fc87507-4086-4e77-b415-cee677eb232e\r\nTimestamp: 2023-05-06 06:03:00Z",
    "{\"error\":\"invalid_grant\",\"error_description\":\"AADSTS9002313: Invalid request. Request is malformed or invalid. Trace ID: 416deea9-9d5c-4cbe-81eb-e6397b902000 Correlation ID: bd487592-f96d-48f0-b095-f9ade4b75d45 Timestamp: 2024-10-03 18:40:55Z\",\"error_codes\":[9002313],\"timestamp\":\"2024-10-03 18:40:55Z\"}",
    "AADSTS7000218: The request body must contain the following parameter: 'client_assertion' or 'client_secret'. Trace ID: 6ee9ec92-6726-422a-85ce-86a1a6502800",
    "{\"error_uri\":\"https://login.microsoftonline.com/error?code=7000215\"}",
    "{\"error\":{\"code\":\"InvalidAuthenticationToken\",\"message\":\"Access token has expired or is not yet valid.\"}}",
    "{\"error\":\"access_denied\",\"error_description\":\"Service not enabled within domain: https://api.example.com/v2/\"}",
    "{\"errorCode\":\"E0000011\",\"errorSummary\":\"Invalid token provided\",\"errorLink\":\"E0000011\",\"errorCauses\":[]}",
    "Client authentication failed. Either the client or the client credentials are invalid.",
    "{\"error\":\"invalid_grant\",\"error_description\":\"Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat and exp values in the JWT claim.\"}",
    "NotAuthorizedException: Access Token has been revoked",
    "An error occurred while attempting to decode the Jwt: Signed JWT rejected: Another algorithm expected, or no matching key(s) found",
    "Password must be reset: reset it at https://sso.example.com/realms/main/login-actions/reset-credentials",
    "Password expired. Ask an administrator to reset it",
    "{\"errors\":{\"password\":\"Password must contain at least 8 characters\"}}",
    // nginx, HAProxy, envoy, Kong, Apigee, Varnish, Cloudflare.
    "400 Request Header Or Cookie Too Large",
    "502 Bad Gateway: nginx/1.25.3",
    "2021/04/27 22:55:10 [error] 874#874: *62373 SSL_do_handshake() failed (SSL: error:14094410:SSL routines:ssl3_read_bytes:sslv3 alert handshake failure:SSL alert number 40) while SSL handshaking to upstream, client: 127.0.0.1, server: greeter.reev.grpc, request: \"POST /com.example.GreeterService/greet HTTP/2.0\", upstream: \"grpcs://10.244.1.7:9090\", host: \"greeter.reev.grpc:443\"",
    "upstream timed out (110: Connection timed out) while reading response header from upstream, client: 46.101.51.219, request: \"GET /v1/live/bus HTTP/1.1\", upstream: \"https://195.201.11.86:8443/v1/live/bus\"",
    "peer closed connection in SSL handshake (104: Connection reset by peer) while SSL handshaking to upstream",
    "cannot load certificate key \"/etc/nginx/ssl/server.key\": BIO_new_file() failed (SSL: error:02001002:system library:fopen:No such file or directory)",
    "SSL_CTX_use_PrivateKey_file(\"/etc/ssl/private/key.pem\") failed (SSL: error:0B080074:x509 certificate routines:X509_check_private_key:key values mismatch)",
    "503 Service Unavailable: No server is available to handle this request.",
    "backend be_tokens has no server available!",
    "upstream connect error or disconnect/reset before headers. reset reason: remote connection failure, transport failure reason: TLS error: 268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED",
    "upstream_reset_before_response_started{connection_failure}",
    "Jwt verification fails: Jwt issuer is not configured",
    "Secret is not supplied by SDS",
    "RBAC: access denied",
    "API rate limit exceeded for 'Minute Calls'",
    "No API key found in request",
    "Invalid authentication credentials: key=missing",
    "{\"fault\":{\"faultstring\":\"Invalid ApiKey\",\"detail\":{\"errorcode\":\"oauth.v2.InvalidApiKey\"}}}",
    "Error 1020 Ray ID: 8a1b2c3d4e5f6071 2026-11-27 14:26:11 UTC",
    "plan \"basic\" month-2026-11 ended",
    // TLS, HTTP clients, DNS.
    "invalid peer certificate: UnknownIssuer",
    "invalid peer certificate: certificate not valid for name \"sso.example.com\"; certificate is only valid for DnsName(\"other.example.com\")",
    "invalid peer certificate: Expired",
    "received fatal alert: HandshakeFailure",
    "error sending request for url (https://sso.example.com/auth/realms/ServiceConnect/protocol/openid-connect/token)",
    "client error (Connect): dns error: failed to lookup address information: Name or service not known",
    "error trying to connect: tcp connect error: Connection refused (os error 111)",
    "connection closed before message completed",
    "tunnel error: proxy authorization required",
    "ERR_SSL_VERSION_OR_CIPHER_MISMATCH",
    "error:0909006C:PEM routines:get_name:no start line:crypto/pem/pem_lib.c:745:Expecting: ANY PRIVATE KEY",
    "unable to get local issuer certificate (depth 1, CN=Example Root R2, O=Example)",
    "unsupported protocol: TLSv1.0, TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384",
    // Redis, Vault, Kubernetes, clouds, JVMs.
    "WRONGPASS invalid username-password pair or user is disabled.",
    "NOAUTH Authentication required.",
    "NOPERM User tokens has no permissions to run the 'evalsha' command",
    "MOVED 3999 127.0.0.1:6381",
    "Error making API request.\n\nURL: GET http://vault:8200/v1/secret/data/tds/client\nCode: 403. Errors:\n\n* permission denied",
    "auth.kubernetes.auth_kubernetes_7d5bd6ff: login unauthorized due to: lookup failed: [invalid bearer token, Token has been invalidated, unknown]",
    "login unauthorized: err=\"Post \\\"https://10.0.0.1:57741/apis/authentication.k8s.io/v1/tokenreviews\\\": dial tcp 10.0.0.1:57741: i/o timeout\"",
    "MountVolume.SetUp failed for volume \"tds\" : secret \"tds-client\" not found",
    "couldn't find key client-secret in Secret default/tds-client",
    "secrets \"tds-client\" is forbidden: User \"system:serviceaccount:default:tds\" cannot get resource \"secrets\" in API group \"\" in the namespace \"default\"",
    "pods keycloak-7d9f8b6c5d-x2x4z.keycloak.svc.cluster.local: no route to host",
    "could not resolve ec2-203-0-113-25.eu-west-1.compute.amazonaws.com",
    "host internal-a1b2c3d4e5f6a7b8c9d0-1234567890.eu-west-1.elb.amazonaws.com is gone",
    "open /var/run/secrets/kubernetes.io/serviceaccount/token: no such file or directory",
    "java.lang.IllegalArgumentException: at org.springframework.security.oauth2.client.registration.ClientRegistrations.fromIssuerLocation(ClientRegistrations.java:150)",
    "unknown member 3F2504E0-4F89-11D3-9A0C-0305E82C3301",
    // Words after the names of secrets, and names that only look like them.
    "error code: ACCESS_DENIED",
    "error code: INVALID_CLIENT_CREDENTIALS",
    "token: expired",
    "invalid token: InvalidSignature",
    "secret: not_found",
    "Password: Required",
    "key: not-before",
    "key: /etc/ssl/private/server.key",
    "unexpected token: IDENTIFIER, expected: STRING",
    "tower::key::Error: missing",
    "password=********",
    "Authorization: Required",
    "Basic authentication is disabled for this user",
    "Bearer authentication is required",
    "client_id=0oa1b2c3d4e5f6g7h8i9j0k1l2m3 is not registered",
    "{\"clientId\":\"AbCd1234EfGh5678IjKl9012MnOp3456\",\"error\":\"unknown\"}",
    "GET /v1/live/bus/interCity/stations/2026-11-27/departures answered 404",
    "urn:ietf:params:oauth:client-assertion-type:jwt-bearer is not supported",
    "額度已用完",
    "La contraseña: inválida",
    "ssh://git@github.com/example/tds.git is not an http address",
    "https://[::1]:8443/v1/@me answered 404",
];

#[test]
fn sentences_of_real_servers_stay_byte_for_byte() {
    let mut harmed = Vec::new();
    for text in SENTENCES {
        let clean = Secrets::default().redact(text);
        if clean != *text {
            harmed.push(format!("{text}\n  -> {clean}"));
        }
    }
    assert!(
        SENTENCES.len() >= 60 && harmed.is_empty(),
        "{} of {}:\n{}",
        harmed.len(),
        SENTENCES.len(),
        harmed.join("\n")
    );
}
