use std::io::Write as _;

use super::Wiped;

#[test]
fn it_holds_what_was_put_into_it_however_it_grows() {
    let mut wiped = Wiped::default();
    let mut whole = Vec::new();
    for n in 0..100_u8 {
        let piece = vec![n; usize::from(n)];
        wiped.push(&piece);
        whole.extend(piece);
        write!(wiped, "{n}").unwrap();
        write!(whole, "{n}").unwrap();
    }
    assert_eq!(wiped.as_slice(), whole);
    assert_eq!(wiped.into_bytes(), whole);
}

#[test]
fn a_buffer_that_is_large_enough_stays_where_it_is() {
    let mut wiped = Wiped::with_capacity(100);
    let at = wiped.as_slice().as_ptr();
    for _ in 0..100 {
        wiped.push(b"x");
    }
    assert_eq!(wiped.as_slice().as_ptr(), at);
}
