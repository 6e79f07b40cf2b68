use proptest::{collection::vec, prelude::*, sample::select};

use super::{Exchange, PREFACE, Traffic};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nbus 307";

#[test]
fn a_connection_is_free_between_exchanges_only() {
    let mut exchange = Exchange::new();
    assert_eq!(exchange.traffic(), Traffic::Unused);
    for _ in 0..3 {
        exchange.wrote(GET.as_bytes());
        assert_eq!(exchange.traffic(), Traffic::Busy);
        exchange.read(OK.as_bytes());
        assert_eq!(exchange.traffic(), Traffic::Free);
    }
}

#[test]
fn an_upload_that_is_answered_early_leaves_its_rest_unsent() {
    let mut exchange = Exchange::new();
    exchange.wrote(b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nab");
    exchange.read(OK.as_bytes());
    assert_eq!(exchange.traffic(), Traffic::Unsent);
    exchange.wrote(b"c");
    assert_eq!(exchange.traffic(), Traffic::Unsent);
    exchange.wrote(b"d");
    assert_eq!(exchange.traffic(), Traffic::Free);
}

#[test]
fn the_answer_to_a_head_request_has_no_body_whatever_its_length_says() {
    let mut exchange = Exchange::new();
    exchange.wrote(b"HEAD / HTTP/1.1\r\n");
    exchange.wrote(b"Host: a\r\n\r\n");
    exchange.read(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n");
    assert_eq!(exchange.traffic(), Traffic::Free);
    // And the next answer has one again.
    exchange.wrote(GET.as_bytes());
    exchange.read(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n");
    assert_eq!(exchange.traffic(), Traffic::Busy);
}

#[test]
fn what_does_not_take_turns_is_opaque_for_good() {
    let unasked = |exchange: &mut Exchange| exchange.read(b"HTTP/1.1 408 Late\r\n\r\n");
    let pipelined = |exchange: &mut Exchange| {
        exchange.wrote(GET.as_bytes());
        exchange.wrote(GET.as_bytes());
    };
    let hasty = |exchange: &mut Exchange| {
        exchange.wrote(b"GET / ");
        exchange.read(OK.as_bytes());
    };
    let talkative = |exchange: &mut Exchange| {
        exchange.wrote(GET.as_bytes());
        exchange.read(OK.as_bytes());
        exchange.read(b"x");
    };
    let all: [&dyn Fn(&mut Exchange); 4] = [&unasked, &pipelined, &hasty, &talkative];
    for one in all {
        let mut exchange = Exchange::new();
        one(&mut exchange);
        assert_eq!(exchange.traffic(), Traffic::Opaque);
        exchange.wrote(GET.as_bytes());
        exchange.read(OK.as_bytes());
        assert_eq!(exchange.traffic(), Traffic::Opaque);
    }
}

#[test]
fn the_first_bytes_tell_the_protocols_apart_wherever_they_are_cut() {
    let preface = PREFACE;
    for cut in 1..preface.len() {
        let (first, second) = preface.split_at(cut);
        let mut exchange = Exchange::new();
        exchange.wrote(first);
        assert_eq!(exchange.traffic(), Traffic::Busy, "{cut}");
        exchange.wrote(second);
        assert!(exchange.is_http2(), "{cut}");
        assert_eq!(exchange.traffic(), Traffic::Busy, "{cut}");
        // An empty SETTINGS frame, and half a head of the next.
        exchange.read(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
        assert_eq!(exchange.traffic(), Traffic::Unused, "{cut}");
        exchange.read(&[0, 0, 0, 4]);
        assert_eq!(exchange.traffic(), Traffic::Busy, "{cut}");
    }
    let post = "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
    let mut exchange = Exchange::new();
    for byte in post.as_bytes() {
        exchange.wrote(&[*byte]);
        assert_eq!(exchange.traffic(), Traffic::Busy);
    }
    exchange.read(OK.as_bytes());
    assert_eq!(exchange.traffic(), Traffic::Free);
}

fn requests() -> impl Strategy<Value = &'static str> {
    select(vec![
        GET,
        "POST /a HTTP/1.1\r\ncontent-length: 3\r\n\r\n\r\n\r",
        "POST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nGET \r\n0\r\n\r\n",
    ])
}

fn responses() -> impl Strategy<Value = &'static str> {
    select(vec![
        OK,
        "HTTP/1.1 423 Locked\r\nContent-Length: 4\r\nServer: x\r\n\r\n\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
    ])
}

proptest! {
    /// However the bytes are cut: free at the end of each exchange, and at no time before.
    #[test]
    fn no_cut_of_the_bytes_makes_a_busy_connection_look_free(
        exchanges in vec((requests(), responses()), 1..6),
        cuts in vec(1_usize..40, 1..40),
    ) {
        let mut cuts = cuts.into_iter().cycle();
        let mut pieces = |mut bytes: &'static [u8]| {
            let mut pieces = Vec::new();
            while !bytes.is_empty() {
                let (piece, rest) = bytes.split_at(cuts.next().unwrap_or(1).min(bytes.len()));
                pieces.push(piece);
                bytes = rest;
            }
            pieces
        };
        let mut exchange = Exchange::new();
        for (request, response) in exchanges {
            for piece in pieces(request.as_bytes()) {
                exchange.wrote(piece);
                prop_assert_eq!(exchange.traffic(), Traffic::Busy);
            }
            let pieces = pieces(response.as_bytes());
            let last = pieces.len().saturating_sub(1);
            for (n, piece) in pieces.into_iter().enumerate() {
                exchange.read(piece);
                let expected = if n < last { Traffic::Busy } else { Traffic::Free };
                prop_assert_eq!(exchange.traffic(), expected);
            }
        }
    }

    /// Whatever the bytes are, reading them neither panics nor frees a connection unasked.
    #[test]
    fn any_bytes_can_be_read(wrote in vec(any::<u8>(), 0..200), read in vec(any::<u8>(), 0..200)) {
        let mut exchange = Exchange::new();
        exchange.wrote(&wrote);
        exchange.read(&read);
        prop_assert_ne!(exchange.traffic(), Traffic::Free);
    }
}
