//! How far a message has come, by HTTP/1.1's framing (RFC 9112, section 6).
//!
//! What cannot be told for sure makes the message opaque, which is always safe: nobody is ever
//! cut off for it.

mod head;

use self::head::{Body, Head};

/// One request or response, read along byte by byte.
#[derive(Debug)]
pub(super) struct Message {
    part: Part,
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    head: Head,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    // ## StartLine => (Fields | Opaque)
    StartLine,
    // ## Fields => (Counted | ChunkSize | Whole | Opaque); an interim response => StartLine
    Fields,
    // ## Counted => Whole
    Counted(u64),
    // ## ChunkSize => (Chunk | Trailers | Opaque)
    ChunkSize,
    // ## Chunk => ChunkSize
    Chunk(u64),
    // ## Trailers => Whole
    Trailers,
    Whole,
    Opaque,
}

// === impl Message ===

impl Message {
    pub(super) const fn request() -> Self {
        Self::new(Head::of_request())
    }

    pub(super) const fn response() -> Self {
        Self::new(Head::of_response())
    }

    const fn new(head: Head) -> Self {
        Self {
            part: Part::StartLine,
            line: Vec::new(),
            head,
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.part == Part::Whole
    }

    pub(super) fn is_opaque(&self) -> bool {
        self.part == Part::Opaque
    }

    /// Whether the head is still under way.
    pub(super) fn in_head(&self) -> bool {
        matches!(self.part, Part::StartLine | Part::Fields)
    }

    /// Whether the request's response has no body, whatever its fields say.
    pub(super) fn asks_for_the_head(&self) -> bool {
        self.head.asks_for_the_head()
    }

    /// This is the response to a request for the head alone.
    pub(super) fn answer_with_the_head(&mut self) {
        self.head.answer_with_the_head();
    }

    /// Reads on; gives what lies behind the message's end.
    pub(super) fn read_on<'b>(&mut self, mut bytes: &'b [u8]) -> &'b [u8] {
        while !bytes.is_empty() {
            bytes = match self.part {
                Part::Whole => return bytes,
                Part::Opaque => return &[],
                Part::Counted(left) => self.skip(bytes, left, Part::Counted, Part::Whole),
                Part::Chunk(left) => self.skip(bytes, left, Part::Chunk, Part::ChunkSize),
                Part::StartLine | Part::Fields | Part::ChunkSize | Part::Trailers => {
                    self.read_line(bytes)
                }
            };
        }
        bytes
    }

    fn skip<'b>(
        &mut self,
        bytes: &'b [u8],
        left: u64,
        more: fn(u64) -> Part,
        over: Part,
    ) -> &'b [u8] {
        let here = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let (part, rest) = match usize::try_from(left) {
            Ok(left) if left <= bytes.len() => (over, bytes.split_at(left).1),
            Ok(_) | Err(_) => (more(left.saturating_sub(here)), &[][..]),
        };
        self.part = part;
        rest
    }

    fn read_line<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            if self.line.len().saturating_add(bytes.len()) > LONGEST_LINE {
                self.part = Part::Opaque;
            } else {
                self.line.extend_from_slice(bytes);
            }
            return &[];
        };
        let (line, rest) = bytes.split_at(end);
        if self.line.is_empty() {
            self.take_line(line);
        } else {
            let mut whole = std::mem::take(&mut self.line);
            whole.extend_from_slice(line);
            self.take_line(&whole);
        }
        rest.split_first().map_or(&[], |(_newline, rest)| rest)
    }

    fn take_line(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.part = match self.part {
            // Parsers skip empty lines before a message (RFC 9112, section 2.2).
            Part::StartLine if line.is_empty() => Part::StartLine,
            Part::StartLine => self
                .head
                .start(line)
                .map_or(Part::Opaque, |()| Part::Fields),
            Part::Fields if line.is_empty() => match self.head.end() {
                Body::None => Part::Whole,
                Body::Length(length) => Part::Counted(length),
                Body::Chunks => Part::ChunkSize,
                Body::AnotherHead => Part::StartLine,
                Body::Unknown => Part::Opaque,
            },
            Part::Fields => self
                .head
                .field(line)
                .map_or(Part::Opaque, |()| Part::Fields),
            Part::ChunkSize => match chunk_size(line) {
                Some(0) => Part::Trailers,
                // Its data, and the line's end behind them.
                Some(size) => size.checked_add(2).map_or(Part::Opaque, Part::Chunk),
                None => Part::Opaque,
            },
            Part::Trailers if line.is_empty() => Part::Whole,
            Part::Trailers => Part::Trailers,
            part @ (Part::Counted(_) | Part::Chunk(_) | Part::Whole | Part::Opaque) => part,
        };
    }
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let end = line.iter().position(|byte| !byte.is_ascii_hexdigit());
    let (size, extension) = line.split_at(end.unwrap_or(line.len()));
    match extension.first() {
        None | Some(b';' | b' ' | b'\t') => {}
        Some(_) => return None,
    }
    u64::from_str_radix(str::from_utf8(size).ok()?, 16).ok()
}

/// As long a head as hyper reads at the most, 400 KiB and a little (`DEFAULT_MAX_BUFFER_SIZE` in
/// its `proto/h1/io.rs`); longer ones are errors there.
const LONGEST_LINE: usize = 8192 + 4096 * 100;

#[cfg(test)]
mod tests;
