//! The turn of a file's readers.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn who_gets_the_turn_finds_no_thread_of_the_one_before() {
    let (threads, turn) = (Threads::default(), Arc::new(sync::Mutex::new(())));
    for _ in 0..1_000 {
        let held = Arc::clone(&turn).lock_owned().await;
        assert_eq!(threads.0.load(Ordering::Relaxed), 0);
        assert!(threads.start(held, || ()).is_ok());
    }
}
