//! Request bodies of a retry, as a server reads them: all of their bytes, or none.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tower::{BoxError, Layer, ServiceExt};
use tower_tds_errors::{ClassifyLayer, Error, GiveUp, RetryLayer};

type Read = Arc<Mutex<Vec<Result<usize, String>>>>;

/// Answers the first request with a 503 and the others with a 200, and notes what it reads of each.
async fn server(is_http2: bool) -> (SocketAddr, Read) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let read = Read::default();
    let log = Arc::clone(&read);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let log = Arc::clone(&log);
            let service = service_fn(move |request: Request<Incoming>| {
                let log = Arc::clone(&log);
                async move {
                    let body = request.into_body().collect().await;
                    let body = body.map(|body| body.to_bytes().len());
                    let failed = body.is_err();
                    let mut log = log.lock().unwrap();
                    log.push(body.map_err(|error| error.to_string()));
                    let mut response = Response::new(Full::<Bytes>::default());
                    if log.len() == 1 {
                        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                    }
                    if failed {
                        return Err("the body ended early");
                    }
                    Ok(response)
                }
            });
            tokio::spawn(async move {
                let stream = TokioIo::new(stream);
                if is_http2 {
                    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    drop(served.serve_connection(stream, service).await);
                } else {
                    let served = hyper::server::conn::http1::Builder::new();
                    drop(served.serve_connection(stream, service).await);
                }
            });
        }
    });
    (address, read)
}

/// The size that a body announces.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Hint {
    /// The bytes that are left in the stream.
    Left,
    /// The bytes that it had at first.
    First,
    Unknown,
}

/// A body whose clones share their stream, or not.
struct Stream {
    bytes: Arc<Mutex<Option<Bytes>>>,
    hint: Hint,
    first: u64,
    is_shared: bool,
}

impl Clone for Stream {
    fn clone(&self) -> Self {
        let bytes = match self.is_shared {
            true => Arc::clone(&self.bytes),
            false => Arc::new(Mutex::new(self.bytes.lock().unwrap().clone())),
        };
        Self { bytes, ..*self }
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let bytes = self.bytes.lock().unwrap().take();
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.bytes.lock().unwrap().as_ref().map_or(0, Bytes::len);
        match self.hint {
            Hint::Left => SizeHint::with_exact(left.try_into().unwrap()),
            Hint::First => SizeHint::with_exact(self.first),
            Hint::Unknown => SizeHint::default(),
        }
    }
}

/// A PUT of this body, and what the server read.
async fn put(
    body: Stream,
    is_http2: bool,
) -> (Result<StatusCode, Error>, Vec<Result<usize, String>>) {
    let (address, read) = server(is_http2).await;
    let client = Client::builder(TokioExecutor::new())
        .http2_only(is_http2)
        .build_http();
    let stack = RetryLayer::new().layer(ClassifyLayer::new().layer(client));
    let request = Request::put(format!("http://{address}/"))
        .body(body)
        .unwrap();
    let answer = stack.oneshot(request).await;
    let read = read.lock().unwrap().clone();
    (answer.map(|response| response.status()), read)
}

#[tokio::test]
async fn repeated_put_arrives_whole_or_not_at_all() {
    for (is_http2, hint, is_shared, length) in [false, true].into_iter().flat_map(|is_http2| {
        let hints = [Hint::Left, Hint::First, Hint::Unknown];
        hints.into_iter().flat_map(move |hint| {
            let kinds = [true, false].into_iter();
            kinds.flat_map(move |is_shared| {
                [0, 9, 100_000].map(|length| (is_http2, hint, is_shared, length))
            })
        })
    }) {
        let case = format!("http2 {is_http2}, {hint:?}, shared {is_shared}, {length} bytes");
        let body = Stream {
            bytes: Arc::new(Mutex::new(Some(vec![b'x'; length].into()))),
            hint,
            first: length.try_into().unwrap(),
            is_shared,
        };
        let (answer, read) = put(body, is_http2).await;
        assert_eq!(read[0], Ok(length), "{case}");
        if hint == Hint::Unknown {
            // Without a size, its copy may be incomplete.
            let error = answer.unwrap_err();
            assert_eq!(error.gave_up(), Some(GiveUp::NotReplayable), "{case}");
            assert_eq!(read.len(), 1, "{case}");
        } else if is_shared && length > 0 {
            let error = answer.unwrap_err();
            // With HTTP/2 the server itself refuses a body that is too short.
            let is_refused = is_http2 && hint == Hint::First;
            let stop = if is_refused {
                GiveUp::Attempts
            } else {
                GiveUp::NotReplayable
            };
            assert_eq!(error.gave_up(), Some(stop), "{case}: {error}");
            // Where the size is wrong, the server sees that bytes are missing.
            assert!(read[1..].iter().all(Result::is_err), "{case}: {read:?}");
            assert!(hint == Hint::First || read.len() == 1, "{case}: {read:?}");
        } else {
            assert_eq!(answer.unwrap(), StatusCode::OK, "{case}");
            assert_eq!(read, [Ok(length), Ok(length)], "{case}");
        }
    }
}
