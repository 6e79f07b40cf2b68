#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]

use proptest::{collection::vec, prelude::*};

use super::Streams;
use crate::connection::exchange::Traffic;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;

/// The flags: a stream's last frame, and the last of a field section.
const LAST: u8 = 1;
const FIELDS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: usize) -> Vec<u8> {
    let length = u32::try_from(payload).expect("a short frame").to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    // Bytes that would be a frame's head, were they read as one.
    frame.extend([0, 0, 1, DATA, LAST].iter().cycle().take(payload));
    frame
}

/// A connection on which both sides have said what they want.
fn agreed() -> Streams {
    let mut streams = Streams::default();
    streams.wrote(&frame(SETTINGS, 0, 0, 18));
    assert_eq!(streams.traffic(), Traffic::Busy, "the service may refuse");
    streams.read(&frame(SETTINGS, 0, 0, 6)).expect("a frame");
    assert_eq!(streams.traffic(), Traffic::Unused);
    streams
}

#[test]
fn a_stream_is_open_until_both_sides_have_ended_it() {
    let mut streams = agreed();
    streams.wrote(&frame(HEADERS, FIELDS, 1, 30));
    streams.read(&frame(HEADERS, FIELDS, 1, 30));
    streams.read(&frame(DATA, LAST, 1, 0));
    assert_eq!(streams.traffic(), Traffic::Busy, "the upload goes on");
    streams.read(&frame(DATA, LAST, 1, 0));
    assert_eq!(streams.traffic(), Traffic::Busy, "said twice");
    streams.wrote(&frame(DATA, LAST, 1, 10));
    assert_eq!(streams.traffic(), Traffic::Free);

    streams.wrote(&frame(HEADERS, FIELDS | LAST, 3, 30));
    streams.wrote(&frame(HEADERS, FIELDS | LAST, 5, 30));
    // An interim response, a response, trailers.
    for flags in [FIELDS, FIELDS, FIELDS | LAST] {
        assert_eq!(streams.traffic(), Traffic::Busy);
        streams.read(&frame(HEADERS, flags, 5, 30));
    }
    assert_eq!(streams.traffic(), Traffic::Busy, "the third has no answer");
    streams.read(&frame(HEADERS, FIELDS | LAST, 3, 30));
    assert_eq!(streams.traffic(), Traffic::Free);
}

#[test]
fn a_reset_of_either_side_ends_a_stream_for_good() {
    let mut streams = agreed();
    streams.wrote(&frame(HEADERS, FIELDS, 1, 30));
    streams.wrote(&frame(RST_STREAM, 0, 1, 4));
    assert_eq!(streams.traffic(), Traffic::Free);
    // What was on its way.
    streams.read(&frame(DATA, 0, 1, 10));
    assert_eq!(streams.traffic(), Traffic::Free);

    streams.wrote(&frame(HEADERS, FIELDS, 3, 30));
    streams.read(&frame(RST_STREAM, 0, 3, 4));
    streams.wrote(&frame(HEADERS, FIELDS | LAST, 3, 5));
    assert_eq!(streams.traffic(), Traffic::Free);
}

#[test]
fn a_connection_is_busy_while_a_frame_or_a_field_section_is_under_way() {
    let mut streams = agreed();
    let whole = frame(PING, 0, 0, 8);
    for cut in 1..whole.len() {
        let (first, second) = whole.split_at(cut);
        streams.read(first);
        assert_eq!(streams.traffic(), Traffic::Busy, "{cut} read");
        streams.read(second);
        streams.wrote(first);
        assert_eq!(streams.traffic(), Traffic::Busy, "{cut} written");
        streams.wrote(second);
        assert_eq!(streams.traffic(), Traffic::Unused);
    }

    streams.wrote(&frame(HEADERS, LAST, 1, 30));
    streams.read(&frame(HEADERS, FIELDS | LAST, 1, 30));
    assert_eq!(streams.traffic(), Traffic::Busy, "more fields");
    streams.wrote(&frame(CONTINUATION, 0, 1, 30));
    streams.wrote(&frame(CONTINUATION, FIELDS, 1, 30));
    assert_eq!(streams.traffic(), Traffic::Free);
}

#[test]
fn a_service_that_begins_streams_itself_is_not_understood() {
    let mut streams = agreed();
    streams.wrote(&frame(HEADERS, FIELDS | LAST, 1, 30));
    assert!(streams.read(&frame(PUSH_PROMISE, FIELDS, 1, 30)).is_none());
}

proptest! {
    /// However the bytes are cut: free when the last stream has ended, and at no time before.
    #[test]
    fn no_cut_of_the_bytes_makes_a_busy_connection_look_free(
        lengths in vec(0_usize..40, 1..10),
        cuts in vec(1_usize..40, 1..40),
    ) {
        let mut streams = agreed();
        let (mut requests, mut responses) = (Vec::new(), Vec::new());
        for (stream, length) in (1_u32..).step_by(2).zip(lengths) {
            requests.extend(frame(HEADERS, FIELDS, stream, length));
            requests.extend(frame(DATA, LAST, stream, length));
            responses.extend(frame(HEADERS, FIELDS, stream, length));
            responses.extend(frame(PING, 0, 0, 8));
            responses.extend(frame(DATA, 0, stream, length));
            responses.extend(frame(HEADERS, FIELDS | LAST, stream, length));
        }
        let mut cuts = cuts.into_iter().cycle();
        let mut pieces = |mut bytes: Vec<u8>| {
            let mut pieces = Vec::new();
            while !bytes.is_empty() {
                let rest = bytes.split_off(cuts.next().unwrap_or(1).min(bytes.len()));
                pieces.push(std::mem::replace(&mut bytes, rest));
            }
            pieces
        };
        for piece in pieces(requests) {
            streams.wrote(&piece);
            prop_assert_eq!(streams.traffic(), Traffic::Busy);
        }
        let pieces = pieces(responses);
        let last = pieces.len() - 1;
        for (n, piece) in pieces.into_iter().enumerate() {
            prop_assert!(streams.read(&piece).is_some());
            let expected = if n < last { Traffic::Busy } else { Traffic::Free };
            prop_assert_eq!(streams.traffic(), expected);
        }
    }

    /// Whatever the bytes are, reading them neither panics nor begins a stream.
    #[test]
    fn any_bytes_can_be_read(wrote in vec(any::<u8>(), 0..200), read in vec(any::<u8>(), 0..200)) {
        let mut streams = Streams::default();
        streams.read(&read);
        prop_assert_ne!(streams.traffic(), Traffic::Free);
        streams.wrote(&wrote);
    }
}
