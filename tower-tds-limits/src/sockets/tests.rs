use std::{num::NonZeroU32, sync::Arc, time::Duration};

use proptest::{collection::vec, prelude::*};
use tokio::time::Instant;
use tokio_test::{assert_pending, assert_ready, task};

use super::{ConnectionPermit, Connections};
use crate::{
    limits::Limits,
    wait::{Limit, Priority, shared::Shared},
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn connections(most: u32) -> Connections {
    let most = NonZeroU32::new(most).expect("a count is not zero");
    Connections::new(&Limits::default().connections(most))
}

/// Opens a socket if that is allowed.
fn open(connections: &mut Connections, priority: Priority, now: Instant) -> bool {
    let opens = connections.is_open(priority, now);
    if opens {
        connections.admit(priority, None);
    }
    opens
}

/// Opens as many data sockets as are allowed.
fn fill(connections: &mut Connections, now: Instant) -> u32 {
    let mut opened = 0;
    while open(connections, Priority::Normal, now) {
        opened += 1;
    }
    opened
}

#[test]
fn smaller_share_keeps_open_sockets_and_larger_allows_more() {
    let now = Instant::now();
    let mut connections = connections(4);
    assert_eq!(fill(&mut connections, now), 3);
    let _over = connections.set_share(0, now + SECOND, now);
    assert_eq!(connections.open(now), 3);
    assert_eq!(connections.opens(Priority::High, now).0, None);
    for _ in 0..3 {
        connections.returning.push((now, Priority::Normal));
    }
    assert_eq!(connections.opens(Priority::High, now).0, None);
    let _over = connections.set_share(2, now + SECOND, now);
    assert_eq!(fill(&mut connections, now), 1);
    let _over = connections.set_share(4, now + SECOND, now);
    assert_eq!(
        fill(&mut connections, now + SECOND),
        0,
        "the share has ended"
    );
}

proptest! {
    #[test]
    fn connection_limit_holds_and_recovers_after_ten_minutes(
        most in 1_u32..10,
        steps in vec((0_u32..6, 0_u64..2_000), 1..200),
    ) {
        let mut connections = connections(most);
        let mut now = Instant::now();
        let (mut data, mut tokens) = (0, 0);
        for (step, pause) in steps {
            now += Duration::from_millis(pause);
            let before = connections.most_at(now);
            match step {
                0 | 1 => data += u32::from(open(&mut connections, Priority::Normal, now)),
                2 => tokens += u32::from(open(&mut connections, Priority::High, now)),
                3 if data > 0 => {
                    connections.returning.push((now, Priority::Normal));
                    data -= 1;
                }
                4 if tokens > 0 => {
                    connections.returning.push((now + SECOND, Priority::High));
                    tokens -= 1;
                }
                _ => connections.lowered = Some((before - before / 2, now + 10 * MINUTE)),
            }
            prop_assert!(connections.open(now) <= most);
            prop_assert!(connections.data <= (most - 1).max(1));
        }
        now += 10 * MINUTE;
        prop_assert_eq!(connections.most_at(now), most);
        prop_assert_eq!(connections.open(now), data + tokens);
    }
}

#[test]
fn moved_reader_is_woken_at_the_end_of_its_share() {
    let shared = Arc::new(Shared::new(Connections::new(&Limits::default())));
    let mut permit = ConnectionPermit::new(&shared, Priority::Normal);
    let (mut first, mut second) = (task::spawn(()), task::spawn(()));
    for _ in 0..2 {
        first.enter(|cx, _| assert_pending!(permit.poll_over(cx)));
    }
    second.enter(|cx, _| assert_pending!(permit.poll_over(cx)));
    let over = shared.update(|it| it.set_share(4, Instant::now(), Instant::now()));
    drop(over.expect("it has ended"));
    assert!(second.is_woken());
    let error = second.enter(|cx, _| assert_ready!(permit.poll_over(cx)));
    assert!(error.to_string().contains("end of its share"), "{error}");
}
