#![expect(
    clippy::disallowed_methods,
    reason = "the time of the deadline does not matter here"
)]

use std::thread;

use http::Request;

use super::*;

/// A request, and the layer's handle to it.
fn request() -> (Request<()>, HandOver) {
    let mut request = Request::new(());
    let deadline = DeadlineAt::new(Instant::now());
    request.extensions_mut().insert(deadline);
    let hand_over = HandOver::insert(request.extensions_mut());
    (request, hand_over.expect("it has a deadline"))
}

#[test]
fn request_that_was_given_up_while_it_was_held_is_never_taken() {
    let (request, layer) = request();
    assert_eq!(layer.place(), Handed::Unknown);
    assert!(HandOver::hold(request.extensions()));
    assert_eq!(layer.give_up(), Handed::Held);
    assert!(!HandOver::take(request.extensions()));
    assert!(!HandOver::hold(request.extensions()));
    assert_eq!(layer.give_up(), Handed::Held, "the answer stays the same");
}

#[test]
fn taken_request_that_comes_back_unwritten_is_taken_again_unless_it_was_given_up() {
    for gives_up in [false, true] {
        let (request, layer) = request();
        assert!(HandOver::hold(request.extensions()));
        assert!(HandOver::take(request.extensions()));
        if gives_up {
            assert_eq!(layer.give_up(), Handed::Taken);
        }
        // Its connection was closed.
        assert_eq!(HandOver::hold(request.extensions()), !gives_up);
        assert_eq!(HandOver::take(request.extensions()), !gives_up);
    }
}

#[test]
fn request_may_have_been_sent_if_no_client_marks_it_or_it_was_copied() {
    let (first, layer) = request();
    assert_eq!(layer.give_up(), Handed::Unknown);
    assert!(
        !HandOver::hold(first.extensions()),
        "nothing is sent after its caller has gone"
    );
    let (second, layer) = request();
    assert!(HandOver::hold(second.extensions()));
    let copy = second.clone();
    for request in [&second, &copy] {
        assert!(HandOver::hold(request.extensions()) && HandOver::take(request.extensions()));
        assert_eq!(layer.place(), Handed::Unknown);
    }
    assert_eq!(layer.give_up(), Handed::Unknown);
    assert!(!HandOver::hold(copy.extensions()));
    assert!(
        HandOver::hold(Request::new(()).extensions()),
        "no layer asks"
    );
}

#[test]
fn end_of_a_connection_counts_after_its_request_was_taken_and_not_of_a_copy() {
    let (request, layer) = request();
    let client = HandOver::of(request.extensions()).unwrap();
    client.end();
    assert_eq!(layer.place(), Handed::Unknown);
    assert!(HandOver::hold(request.extensions()) && HandOver::take(request.extensions()));
    client.end();
    assert_eq!(layer.give_up(), Handed::Ended);
    let copy = request.clone();
    client.end();
    assert_eq!(layer.place(), Handed::Unknown);
    drop(copy);
    assert!(HandOver::of(Request::new(()).extensions()).is_none());
}

#[test]
fn client_and_layer_agree_at_any_time() {
    for _ in 0..200 {
        let (request, layer) = request();
        assert!(HandOver::hold(request.extensions()));
        let client = thread::spawn(move || HandOver::take(request.extensions()));
        let is_unsent = layer.give_up() == Handed::Held;
        assert_eq!(client.join().unwrap(), !is_unsent);
    }
}
