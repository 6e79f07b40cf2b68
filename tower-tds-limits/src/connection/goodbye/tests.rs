use tokio::io::ReadBuf;

use super::{GOAWAY, Goodbye};

/// What is said to a reader with so much room; `None` if there is nothing to say.
fn said(goodbye: &mut Goodbye, asked: bool, room: usize) -> Option<Vec<u8>> {
    let mut buf = vec![0; room];
    let mut buf = ReadBuf::new(&mut buf);
    let something = goodbye.say(asked, &mut buf);
    something.then(|| buf.filled().to_vec())
}

#[test]
fn nothing_is_said_before_it_is_asked_for_and_it_is_said_once() {
    let mut goodbye = Goodbye::default();
    assert_eq!(said(&mut goodbye, false, 100), None);
    assert_eq!(said(&mut goodbye, true, 100).as_deref(), Some(GOAWAY));
    assert_eq!(said(&mut goodbye, true, 100), None);
}

#[test]
fn once_begun_it_is_said_to_its_end_however_small_the_pieces_are() {
    for room in 1..GOAWAY.len() {
        let mut goodbye = Goodbye::default();
        let mut whole = said(&mut goodbye, true, room).expect("it was asked for");
        // A request came, and the socket stays: half a frame would break what follows.
        while let Some(piece) = said(&mut goodbye, false, room) {
            whole.extend(piece);
        }
        assert_eq!(whole, GOAWAY, "{room} bytes at a time");
    }
}
