//! tonic: a generated client takes any service of its own body.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, uri::PathAndQuery};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper_util::{client::legacy, rt::TokioExecutor};
use tds_compat::{Failure, Seen, Server, answered};
use tonic::{Code, Request, client::Grpc};
use tonic_prost::ProstCodec;
use tower::ServiceBuilder;
use tower_tds::layers::errors::RetryLayer;

/// Two empty messages, and trailers.
fn stream(_: &Seen) -> Response<Body> {
    let end = |name, value| (http::HeaderName::from_static(name), HeaderValue::from_static(value));
    let trailers = HeaderMap::from_iter([end("grpc-status", "5"), end("line", "307")]);
    let messages = [Frame::data(Bytes::from_static(&[0; 5])), Frame::data(Bytes::from_static(&[0; 5]))];
    let frames = messages.into_iter().chain([Frame::trailers(trailers)]).map(Ok::<_, Failure>);
    Response::new(Body::new(StreamBody::new(futures_util::stream::iter(frames))))
}

#[tokio::test]
async fn tonic_streams_through_the_layers_and_reads_trailers() -> Result<(), Failure> {
    let server = Server::answering(stream).await?;
    let once = RetryLayer::new().replay(|_: &tonic::body::Body| None);
    let http = legacy::Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let stack = ServiceBuilder::new().map_result(answered).layer(server.client()?.layer().retry(once)).service(http);
    let mut grpc = Grpc::with_origin(stack, server.uri("")?);

    grpc.ready().await?;
    let path = PathAndQuery::from_static("/lines.Lines/List");
    let mut lines = grpc.server_streaming(Request::new(()), path, ProstCodec::<(), ()>::default()).await?.into_inner();
    assert_eq!((lines.message().await?, lines.message().await?), (Some(()), Some(())));
    let end = lines.message().await.expect_err("the status is in the trailers");
    assert_eq!((end.code(), end.metadata().get("line").map(AsRef::as_ref)), (Code::NotFound, Some(&b"307"[..])));
    assert_eq!(server.seen(), ["POST /lines.Lines/List 5 200"]);
    Ok(())
}
