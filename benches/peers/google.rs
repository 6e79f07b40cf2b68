//! google-cloud-auth, with a token that it keeps.

use std::{
    error::Error,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpListener,
    thread,
};

use bytes::Bytes;
use google_cloud_auth::credentials::{CacheableResource, Credentials, EntityTag, user_account};
use http::{Extensions, HeaderMap, Request, Response};
use http_body_util::Full;
use serde_json::json;
use tds_benches::Echo;
use tokio::runtime::{Builder, Runtime};
use tower::service_fn;
use tower_service::Service;

type Body = Full<Bytes>;
type BoxError = Box<dyn Error + Send + Sync>;

/// Credentials that have their token, of the size that a Keycloak gives.
#[derive(Debug)]
pub struct Google {
    credentials: Credentials,
    tag: EntityTag,
    headers: HeaderMap,
    /// Runtime of the task that would renew the token.
    _runtime: Runtime,
}

// === impl Google ===

impl Google {
    /// Fetches the token from an endpoint on the loopback.
    ///
    /// # Errors
    /// If no token is available.
    pub fn new() -> Result<Self, BoxError> {
        crate::install_cryptography();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let user = user_account::Builder::new(json!({
            "type": "authorized_user",
            "client_id": "id",
            "client_secret": "secret",
            "refresh_token": "refresh",
            "token_uri": format!("http://{}/token", listener.local_addr()?),
        }));
        thread::spawn(move || give_token(&listener));
        let (credentials, first) = runtime.block_on(async {
            let credentials = user.build()?;
            let first = credentials.headers(Extensions::new()).await?;
            Ok::<_, BoxError>((credentials, first))
        })?;
        let CacheableResource::New { entity_tag, data } = first else {
            return Err("the first headers cannot be unchanged".into());
        };
        Ok(Self {
            credentials,
            tag: entity_tag,
            headers: data,
            _runtime: runtime,
        })
    }

    /// Asks the credentials for the headers at each request, as Google's own clients do.
    pub fn fetched(
        &self,
    ) -> impl Service<Request<Body>, Response = Response<Body>, Error = BoxError> + Clone + Send
    {
        service_fn(async |mut request: Request<Body>| {
            match self.credentials.headers(Extensions::new()).await? {
                CacheableResource::New { data, .. } => request.headers_mut().extend(data),
                CacheableResource::NotModified => {
                    return Err("headers without a tag cannot be unchanged".into());
                }
            }
            Ok(Echo::new().call(request).await?)
        })
    }

    /// Keeps the headers, and checks whether they are the same.
    pub fn compared(
        &self,
    ) -> impl Service<Request<Body>, Response = Response<Body>, Error = BoxError> + Clone + Send
    {
        service_fn(async |mut request: Request<Body>| {
            let mut extensions = Extensions::new();
            extensions.insert(self.tag.clone());
            match self.credentials.headers(extensions).await? {
                CacheableResource::NotModified => {
                    let headers = self.headers.iter();
                    let headers = headers.map(|(name, value)| (name.clone(), value.clone()));
                    request.headers_mut().extend(headers);
                }
                CacheableResource::New { .. } => {
                    return Err("the token changed, but it is valid for a day".into());
                }
            }
            Ok(Echo::new().call(request).await?)
        })
    }
}

/// Answers one request for a token, whatever it contains, and closes.
fn give_token(listener: &TcpListener) -> io::Result<()> {
    let (stream, _) = listener.accept()?;
    let mut request = BufReader::new(&stream);
    let mut length = 0;
    let mut line = String::new();
    while request.read_line(&mut line)? > "\r\n".len() {
        if let Some(("content-length", value)) = line.to_ascii_lowercase().split_once(':') {
            length = value.trim().parse().unwrap_or_default();
        }
        line.clear();
    }
    io::copy(&mut request.take(length), &mut io::sink())?;
    let token = "x".repeat(1_400);
    let body = format!(r#"{{"access_token":"{token}","token_type":"Bearer","expires_in":86400}}"#);
    let length = body.len();
    write!(
        &stream,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}
