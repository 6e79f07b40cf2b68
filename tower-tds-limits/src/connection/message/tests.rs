#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]

use super::Message;

/// Where the response ends; `None` if that cannot be told.
fn end_of(response: &str) -> Option<usize> {
    let mut message = Message::response();
    let beyond = message.read_on(response.as_bytes()).len();
    message.is_whole().then(|| response.len() - beyond)
}

fn ends(response: &str, behind: &str) {
    let whole = format!("{response}{behind}");
    assert_eq!(end_of(&whole), Some(response.len()), "{whole:?}");
}

fn cannot_be_told(response: &str) {
    let mut message = Message::response();
    message.read_on(response.as_bytes());
    assert!(message.is_opaque(), "{response:?}");
}

#[test]
fn a_length_ends_a_body() {
    ends("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbus", "HTTP");
    ends("HTTP/1.1 200\r\nA: b\r\ncontent-length:0\r\n\r\n", "\r\n");
    ends("HTTP/1.0 423 Locked\nContent-Length: 1\n\n\n", "x");
    assert_eq!(
        end_of("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbu"),
        None
    );
}

#[test]
fn the_last_chunk_and_its_trailers_end_a_body() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n";
    ends(&format!("{head}3\r\nbus\r\n0\r\n\r\n"), "x");
    ends(
        &format!("{head}00a;x=y\r\n0\r\n\r\n12345\r\n0\r\nA: b\r\n\r\n"),
        "",
    );
    assert_eq!(end_of(&format!("{head}3\r\nbus\r\n0\r\n")), None);
    cannot_be_told(&format!("{head}3x\r\nbus\r\n"));
    cannot_be_told(&format!("{head}\r\n"));
    cannot_be_told(&format!("{head}ffffffffffffffffff\r\n"));
}

#[test]
fn some_responses_have_no_body_whatever_their_fields_say() {
    ends("HTTP/1.1 204 No Content\r\n\r\n", "x");
    ends(
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
        "x",
    );
    let mut to_head = Message::response();
    to_head.answer_with_the_head();
    let beyond = to_head.read_on(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx");
    assert_eq!((to_head.is_whole(), beyond), (true, &b"x"[..]));
}

#[test]
fn interim_responses_are_skipped() {
    let interim = "HTTP/1.1 103 Early Hints\r\nContent-Length: 7\r\n\r\n";
    ends(
        &format!("\r\nHTTP/1.1 100 Continue\r\n\r\n{interim}HTTP/1.1 204 OK\r\n\r\n"),
        "x",
    );
}

#[test]
fn what_could_be_read_in_two_ways_is_not_read() {
    cannot_be_told("HTTP/1.1 200 OK\r\n\r\n");
    cannot_be_told("HTTP/1.1 101 Switching Protocols\r\n\r\n");
    cannot_be_told("HTTP/2 200\r\n");
    cannot_be_told("<html>\n");
    cannot_be_told("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n");
    cannot_be_told("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n");
    cannot_be_told("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n");
    cannot_be_told("HTTP/1.1 200 OK\r\nContent-Length: +3\r\n");
    cannot_be_told("HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n");
    cannot_be_told("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n");
    cannot_be_told("HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n");
    cannot_be_told("HTTP/1.1 200 OK\r\ncolon there is none\r\n");
    cannot_be_told(&"x".repeat(500_000));
}

#[test]
fn a_request_without_a_length_has_no_body() {
    let mut request = Message::request();
    let beyond = request.read_on(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nx");
    assert_eq!((request.is_whole(), beyond), (true, &b"x"[..]));
    for other in [
        "CONNECT a:1 HTTP/1.1\r\n",
        "PRI * HTTP/2.0\r\n",
        "\x16\x03\x01\n",
    ] {
        let mut request = Message::request();
        request.read_on(other.as_bytes());
        assert!(request.is_opaque(), "{other:?}");
    }
}
