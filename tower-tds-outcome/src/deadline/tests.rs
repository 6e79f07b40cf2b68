#![expect(
    clippy::disallowed_methods,
    reason = "the time of the deadline does not matter here"
)]

use std::thread;

use http::Request;

use super::*;

/// A request, and the handles of its client and of its layer.
fn request() -> (Request<()>, HandOver, HandOver) {
    let mut request = Request::new(());
    let deadline = DeadlineAt::new(Instant::now());
    request.extensions_mut().insert(deadline);
    let layer = HandOver::insert(request.extensions_mut());
    let client = HandOver::of(request.extensions());
    (request, client, layer)
}

#[test]
fn request_that_was_given_up_while_it_was_held_is_never_taken() {
    let (_, mut client, layer) = request();
    assert_eq!(layer.handed(), Handed::Unknown);
    assert!(client.mark(Handed::Held));
    assert_eq!(layer.give_up(), Handed::Held);
    assert!(!client.mark(Handed::Taken));
    assert!(!client.mark(Handed::Held));
    assert_eq!(layer.give_up(), Handed::Held, "the answer stays the same");
}

#[test]
fn taken_request_that_comes_back_unwritten_is_taken_again_unless_it_was_given_up() {
    for gives_up in [false, true] {
        let (_, mut client, layer) = request();
        assert!(client.mark(Handed::Held));
        assert!(client.mark(Handed::Taken));
        if gives_up {
            assert_eq!(layer.give_up(), Handed::Taken);
        }
        // Its connection was closed.
        assert_eq!(client.mark(Handed::Held), !gives_up);
        assert_eq!(client.mark(Handed::Taken), !gives_up);
    }
}

#[test]
fn request_may_have_been_sent_if_no_client_marks_it_or_it_was_copied() {
    let (_, mut client, layer) = request();
    assert_eq!(layer.give_up(), Handed::Unknown);
    let goes_on = client.mark(Handed::Held);
    assert!(!goes_on, "nothing is sent after its caller has gone");
    let (second, mut client, layer) = request();
    assert!(client.mark(Handed::Held));
    let mut copy = HandOver::of(second.clone().extensions());
    for client in [&mut client, &mut copy] {
        assert!(client.mark(Handed::Held) && client.mark(Handed::Taken));
        assert_eq!(layer.handed(), Handed::Unknown);
    }
    assert_eq!(layer.give_up(), Handed::Unknown);
    assert!(!copy.mark(Handed::Held));
    let mut of_no_layer = HandOver::of(Request::new(()).extensions());
    assert!(of_no_layer.mark(Handed::Held));
    assert_eq!(of_no_layer.give_up(), Handed::Unknown);
}

#[test]
fn end_of_a_connection_counts_after_its_request_was_taken_and_not_of_a_copy() {
    let (request, mut client, layer) = request();
    client.mark(Handed::Ended);
    assert_eq!(layer.handed(), Handed::Unknown);
    assert!(client.mark(Handed::Held) && client.mark(Handed::Taken));
    client.mark(Handed::Ended);
    assert_eq!(layer.give_up(), Handed::Ended);
    let copy = request.clone();
    client.mark(Handed::Ended);
    assert_eq!(layer.handed(), Handed::Unknown);
    drop(copy);
}

#[test]
fn client_and_layer_agree_at_any_time() {
    for _ in 0..200 {
        let (_, mut client, layer) = request();
        assert!(client.mark(Handed::Held));
        let client = thread::spawn(move || client.mark(Handed::Taken));
        let is_unsent = layer.give_up() == Handed::Held;
        assert_eq!(client.join().unwrap(), !is_unsent);
    }
}
