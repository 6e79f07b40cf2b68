//! A server that records what it saw, and clients of it, for the integrations in `tests/`.

use std::{
    convert::Infallible,
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{
        HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
        header::{AUTHORIZATION, CONTENT_TYPE, HOST},
    },
    routing::any,
};
use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use tokio::net::{TcpListener, TcpStream};
use tower::{Service, ServiceExt};
use tower_tds::{Client, Credentials, Error};

/// The error of a test.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A service on a socket of the loopback interface, with its token endpoint.
///
/// It refuses calls without its token, and answers the first PUT of each path with 503.
#[derive(Debug)]
pub struct Server {
    /// Its URL, without a path.
    pub url: String,
    log: Arc<Log>,
}

/// A call as the server saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its method.
    pub method: Method,
    /// Its target.
    pub uri: Uri,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its whole body.
    pub body: Bytes,
    /// The status of the answer.
    pub status: StatusCode,
}

/// One HTTP/1 connection of hyper, without a pool.
#[derive(Debug)]
pub struct Connection(SendRequest<Full<Bytes>>);

#[derive(Debug, Default)]
struct Log {
    /// Locked to read or to add a call; no `.await` happens under it.
    calls: Mutex<Vec<Seen>>,
    tokens: AtomicUsize,
}

/// For `map_result`, above the layers: an error with a status is a response again, for crates that read statuses
/// themselves.
///
/// # Errors
/// The error, if there was no response.
pub fn answered<B>(result: Result<Response<B>, Error>) -> Result<Response<Either<B, Full<Bytes>>>, Error> {
    match result {
        Ok(response) => Ok(response.map(Either::Left)),
        Err(error) => Ok(error.into_response()?.map(|body| Either::Right(Full::new(body)))),
    }
}

// === impl Server ===

impl Server {
    /// Starts a server with these pages, a path and a text of JSON each. Any other path is a 404.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn start(pages: &[(&str, &str)]) -> io::Result<Self> {
        let page = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        let pages: Vec<_> = pages.iter().map(page).collect();
        Self::answering(move |call| {
            let page = pages.iter().find(|(path, _)| path == call.uri.path());
            page.map_or_else(|| json(404, NOT_FOUND), |(_, text)| json(200, text))
        })
        .await
    }

    /// Starts a server whose data calls `answer` answers.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn answering<F>(answer: F) -> io::Result<Self>
    where
        F: Fn(&Seen) -> Response<Body> + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let log = Arc::new(Log::default());
        let (server, answer) = (Arc::clone(&log), Arc::new(answer));
        let handler = move |request| handle(Arc::clone(&server), Arc::clone(&answer), request);
        let routes = Router::new().fallback(any(handler));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok(Self { url, log })
    }

    /// A client of this server.
    ///
    /// # Errors
    /// Never, because the settings are right.
    pub fn client(&self) -> Result<Client, Failure> {
        let key = Credentials::new("my-client-id", "s3cr3t")?;
        Ok(Client::builder(&*self.url, &self.url, key).build()?)
    }

    /// The URI of a path of this server.
    ///
    /// # Errors
    /// If it cannot be one.
    pub fn uri(&self, path: &str) -> Result<Uri, Failure> {
        Ok(format!("{}{path}", self.url).parse()?)
    }

    /// The value of the header `Host` of its URL.
    ///
    /// # Errors
    /// Never, because a URL has a host.
    pub fn host(&self) -> Result<HeaderValue, Failure> {
        Ok(self.url.trim_start_matches("http://").parse()?)
    }

    /// Reads and writes `/v1/live/bus` through a stack, by a path or by a whole URI, and checks what
    /// the server saw: the write twice, whole each time.
    ///
    /// # Errors
    /// If a call fails.
    ///
    /// # Panics
    /// If the server saw something else.
    pub async fn check<S, B>(&self, mut stack: S, origin: &str) -> Result<(), Failure>
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>, Error: Into<Failure>>,
        B: axum::body::HttpBody<Error: Into<Failure>>,
    {
        self.log.calls().clear();
        for (method, body) in [(Method::GET, ""), (Method::PUT, "[308,309]")] {
            let request = Request::builder().method(method).uri(format!("{origin}/v1/live/bus"));
            let stack = stack.ready().await.map_err(Into::into)?;
            let response = stack.call(request.body(body.into())?).await.map_err(Into::into)?;
            let body = response.into_body().collect().await.map_err(Into::into)?;
            assert_eq!(body.to_bytes(), "[307]");
        }
        let seen = ["GET /v1/live/bus 0 200", "PUT /v1/live/bus 9 503", "PUT /v1/live/bus 9 200"];
        assert_eq!(self.seen(), seen);
        let host = self.host()?;
        assert!(self.calls().iter().all(|call| call.headers.get(HOST) == Some(&host)));
        Ok(())
    }

    /// Returns what the server saw of each data call: method, path and query, the length of the
    /// body, and the status of the answer.
    #[must_use]
    pub fn seen(&self) -> Vec<String> {
        let line = |call: &Seen| {
            let target = call.uri.path_and_query().map_or("/", |target| target.as_str());
            format!("{} {target} {} {}", call.method, call.body.len(), call.status.as_u16())
        };
        self.log.calls().iter().map(line).collect()
    }

    /// Returns the data calls.
    #[must_use]
    pub fn calls(&self) -> Vec<Seen> {
        self.log.calls().clone()
    }

    /// Returns the number of token requests.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.log.tokens.load(Ordering::Relaxed)
    }
}

// === impl Connection ===

impl Connection {
    /// Connects to a server.
    ///
    /// # Errors
    /// If it cannot.
    pub async fn open(url: &str) -> Result<Self, Failure> {
        let socket = TcpStream::connect(url.trim_start_matches("http://")).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }
}

impl Service<Request<Full<Bytes>>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

// === impl Log ===

impl Log {
    fn calls(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn handle<F>(log: Arc<Log>, answer: Arc<F>, request: Request<Body>) -> Result<Response<Body>, Infallible>
where
    F: Fn(&Seen) -> Response<Body>,
{
    let (parts, body) = request.into_parts();
    let mut seen = Seen {
        method: parts.method,
        uri: parts.uri,
        headers: parts.headers,
        // A body that breaks off is seen as empty.
        body: to_bytes(body, usize::MAX).await.unwrap_or_default(),
        status: StatusCode::OK,
    };
    if seen.uri.path().starts_with("/auth/realms/") {
        log.tokens.fetch_add(1, Ordering::Relaxed);
        return Ok(json(200, TOKEN));
    }
    let has_token = seen.headers.get(AUTHORIZATION).is_some_and(|token| token == "Bearer t0k3n");
    let is_first = |call: &Seen| call.method != seen.method || call.uri != seen.uri;
    let response = if !has_token {
        json(401, r#"{"message":"no Authorization header found"}"#)
    } else if seen.method == Method::PUT && log.calls().iter().all(is_first) {
        json(503, r#"{"message":"busy"}"#)
    } else {
        answer(&seen)
    };
    seen.status = response.status();
    log.calls().push(seen);
    Ok(response)
}

/// An answer with a body of JSON.
#[must_use]
pub fn json(status: u16, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(text.to_owned()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// hyper's client, to be put under layers.
#[must_use]
pub fn http<B>() -> Http<HttpConnector, B>
where
    B: axum::body::HttpBody<Data: Send> + Send,
{
    Http::builder(TokioExecutor::new()).build_http()
}

const TOKEN: &str = r#"{"access_token":"t0k3n","token_type":"Bearer","expires_in":86400}"#;

/// As GitHub and Kubernetes answer.
const NOT_FOUND: &str =
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Not Found","reason":"NotFound","code":404}"#;
