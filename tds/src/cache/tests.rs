//! Tests of what the cache forgets.

use std::time::Duration;

use tower_tds_outcome::Secrets;

use super::{Book, MOST, OVERHEAD};
use crate::ending::Trouble;

#[test]
fn resources_that_fail_take_no_more_memory_than_others() {
    let mut book = Book::default();
    for n in 0..=MOST / OVERHEAD {
        book.resource(&n.to_string());
    }
    let (failed, soon) = (Err(Trouble::Empty), Duration::ZERO);
    drop(book.ended("/v1/live/bus".into(), failed, &Secrets::default(), soon));
    assert!(book.resources.len() <= MOST / OVERHEAD);
    assert!(book.resources.contains_key("/v1/live/bus"));
}
