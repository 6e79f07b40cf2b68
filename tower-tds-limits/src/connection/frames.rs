//! How far one direction of an HTTP/2 connection has come, by the heads of its frames (RFC 9113,
//! section 4.1). What they carry is skipped.

/// The frames in one direction, read along byte by byte.
#[derive(Debug, Default)]
pub(super) struct Frames {
    head: [u8; HEAD],
    /// How much of the next frame's head is here.
    have: usize,
    /// How much of the last frame's payload is still to come.
    left: usize,
    /// Whether the last frame's field section goes on in the next one.
    unfinished: bool,
    begun: bool,
}

/// What a frame means for its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    /// A field section begins.
    Fields { stream: u32, last: bool },
    /// A piece of a body.
    Data { stream: u32, last: bool },
    /// The stream has ended on both sides.
    Reset { stream: u32 },
    /// The service begins a stream of its own.
    Push,
    /// Nothing.
    Other,
}

// === impl Frames ===

impl Frames {
    /// Whether one frame, and one field section, has ended and no other has begun.
    pub(super) fn is_between(&self) -> bool {
        self.have == 0 && self.left == 0 && !self.unfinished
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Reads on, to behind the next frame's head.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Option<Frame> {
        let payload = self.left.min(bytes.len());
        *bytes = bytes.split_at(payload).1;
        self.left = self.left.saturating_sub(payload);

        let missing = self.head.split_at_mut(self.have).1;
        let (head, rest) = bytes.split_at(missing.len().min(bytes.len()));
        missing.split_at_mut(head.len()).0.copy_from_slice(head);
        *bytes = rest;
        self.have = self.have.saturating_add(head.len());
        if self.have < HEAD {
            return None;
        }
        self.have = 0;
        Some(self.take_head())
    }

    fn take_head(&mut self) -> Frame {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = self.head;
        self.begun = true;
        self.left = usize::try_from(u32::from_be_bytes([0, l0, l1, l2])).unwrap_or(usize::MAX);
        if matches!(kind, HEADERS | PUSH_PROMISE | CONTINUATION) {
            self.unfinished = flags & END_HEADERS == 0;
        }
        let stream = u32::from_be_bytes([s0, s1, s2, s3]) & LARGEST_STREAM;
        let last = flags & END_STREAM != 0;
        match kind {
            DATA => Frame::Data { stream, last },
            HEADERS => Frame::Fields { stream, last },
            RST_STREAM => Frame::Reset { stream },
            PUSH_PROMISE => Frame::Push,
            _ => Frame::Other,
        }
    }
}

/// RFC 9113, section 4.1: "a fixed 9-octet header followed by a variable-length frame payload".
const HEAD: usize = 9;

/// RFC 9113, section 4.1: a stream's number has 31 bits, and the one before them is ignored.
const LARGEST_STREAM: u32 = u32::MAX >> 1;

// RFC 9113, sections 6.1 to 6.10: the types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;

// RFC 9113, sections 6.1 and 6.2: their flags.
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
