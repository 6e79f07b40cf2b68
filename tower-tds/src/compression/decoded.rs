//! Decoded bodies: gzip of as many members as there are (RFC 1952, section 2.2), and br.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder};
use bytes::{Buf, Bytes, BytesMut};
use futures_core::Stream;
use http::HeaderMap;
use http_body::{Body, Frame};
use pin_project_lite::pin_project;
use tokio::io::AsyncBufRead;
use tokio_util::io::{StreamReader, poll_read_buf};
use tower::BoxError;

/// The content codings that are undone (RFC 9110, section 8.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    Brotli,
}

pin_project! {
    /// A body as it was before it was coded. It is whole if all of its bytes are of the coding.
    pub(crate) struct Decoded<B: Body> {
        #[pin]
        decoder: Decoder<B>,
        buffer: BytesMut,
        is_over: bool,
    }
}

pin_project! {
    #[project = DecoderProjection]
    enum Decoder<B: Body> {
        Gzip { #[pin] decoder: GzipDecoder<Reader<B>> },
        Brotli { #[pin] decoder: BrotliDecoder<Reader<B>> },
    }
}

type Reader<B> = StreamReader<Pieces<B>, Bytes>;

pin_project! {
    /// The data of a body, and what else comes with it.
    #[project = PiecesProjection]
    struct Pieces<B> {
        #[pin]
        body: B,
        is_empty: bool,
        trailers: Option<HeaderMap>,
        error: Option<BoxError>,
    }
}

// === impl Coding ===

impl Coding {
    /// `None` of any other coding, and of several.
    pub(super) fn of(value: &[u8]) -> Option<Self> {
        let is = |name: &str| value.eq_ignore_ascii_case(name.as_bytes());
        if is("gzip") || is("x-gzip") {
            Some(Self::Gzip)
        } else {
            is("br").then_some(Self::Brotli)
        }
    }
}

// === impl Decoded ===

impl<B> Decoded<B>
where
    B: Body<Error: Into<BoxError>>,
{
    pub(super) fn new(body: B, coding: Coding) -> Self {
        let reader = StreamReader::new(Pieces {
            body,
            is_empty: true,
            trailers: None,
            error: None,
        });
        let decoder = match coding {
            Coding::Gzip => {
                let mut decoder = GzipDecoder::new(reader);
                decoder.multiple_members(true);
                Decoder::Gzip { decoder }
            }
            Coding::Brotli => Decoder::Brotli {
                decoder: BrotliDecoder::new(reader),
            },
        };
        Self {
            decoder,
            buffer: BytesMut::new(),
            is_over: false,
        }
    }

    /// The body as it is on the wire.
    pub(crate) fn get_ref(&self) -> &B {
        let reader = match &self.decoder {
            Decoder::Gzip { decoder } => decoder.get_ref(),
            Decoder::Brotli { decoder } => decoder.get_ref(),
        };
        &reader.get_ref().body
    }
}

impl<B> Body for Decoded<B>
where
    B: Body<Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        if !*this.is_over {
            match ready!(this.decoder.as_mut().poll_data(this.buffer, cx)) {
                Ok(data) if data.is_empty() => *this.is_over = true,
                Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Err(error) => {
                    *this.is_over = true;
                    let of_body = this.decoder.pieces().error.take();
                    return Poll::Ready(Some(Err(of_body.unwrap_or_else(|| error.into()))));
                }
            }
        }
        let trailers = this.decoder.pieces().trailers.take();
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }
}

// === impl Decoder ===

impl<B> Decoder<B>
where
    B: Body<Error: Into<BoxError>>,
{
    /// The next decoded bytes; none at the end.
    fn poll_data(
        mut self: Pin<&mut Self>,
        buffer: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Bytes>> {
        buffer.reserve(PIECE);
        let read = match self.as_mut().project() {
            DecoderProjection::Gzip { decoder } => poll_read_buf(decoder, cx, buffer),
            DecoderProjection::Brotli { decoder } => poll_read_buf(decoder, cx, buffer),
        };
        match ready!(read) {
            Ok(0) => {}
            Ok(_) => return Poll::Ready(Ok(buffer.split().freeze())),
            Err(error) => {
                let pieces = self.pieces();
                // A body of no bytes is one in any coding.
                let is_none = *pieces.is_empty && pieces.error.is_none();
                return Poll::Ready(if is_none {
                    Ok(Bytes::new())
                } else {
                    Err(error)
                });
            }
        }
        let behind = ready!(self.reader().poll_fill_buf(cx))?;
        if behind.is_empty() {
            return Poll::Ready(Ok(Bytes::new()));
        }
        let why = "the body goes on behind the end of its coding";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)))
    }

    fn reader(self: Pin<&mut Self>) -> Pin<&mut Reader<B>> {
        match self.project() {
            DecoderProjection::Gzip { decoder } => decoder.get_pin_mut(),
            DecoderProjection::Brotli { decoder } => decoder.get_pin_mut(),
        }
    }

    fn pieces(self: Pin<&mut Self>) -> PiecesProjection<'_, B> {
        self.reader().get_pin_mut().project()
    }
}

// === impl Pieces ===

impl<B> Stream for Pieces<B>
where
    B: Body<Error: Into<BoxError>>,
{
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        loop {
            let frame = match ready!(this.body.as_mut().poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    *this.error = Some(error.into());
                    return Poll::Ready(Some(Err(io::ErrorKind::Other.into())));
                }
            };
            match frame.into_data() {
                Ok(mut data) if data.has_remaining() => {
                    *this.is_empty = false;
                    let data = data.copy_to_bytes(data.remaining());
                    return Poll::Ready(Some(Ok(data)));
                }
                Ok(_) => {}
                Err(other) => *this.trailers = other.into_trailers().ok(),
            }
        }
    }
}

/// Decoded bytes that are handed on at once, as tower-http has it.
const PIECE: usize = 4096;
