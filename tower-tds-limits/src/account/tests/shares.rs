//! Several independent processes, as one server counts them.

use super::*;

/// Members whose shares move: a member gives away the part of its share that it does not hold.
struct Fleet {
    members: Vec<Account>,
    shares: Vec<Share>,
}

impl Fleet {
    /// The sum over all members of the larger of share and held permits.
    fn taken(&mut self, now: Instant) -> Share {
        let mut taken = Share::default();
        for (member, share) in self.members.iter_mut().zip(&self.shares) {
            let held = member.held(now);
            taken.requests += held.requests.max(share.requests);
            taken.places += held.places.max(share.places);
        }
        taken
    }

    fn set(&mut self, member: usize, share: Share, now: Instant) {
        self.shares[member] = share;
        // This test does not look at sockets.
        let share = Share {
            connections: 60,
            ..share
        };
        self.members[member].set_share(share, now + ms(600_000), None, now, 0);
    }
}

#[test]
fn moving_shares_together_stay_within_every_rule() {
    for (name, delays) in DELAYS {
        for seed in 1..=2 {
            // The burst is given, because an automatic one rests on evidence.
            let rules = Rules {
                bucket: Some(Burst::Of(10)),
                ..Rules::default()
            };
            let counted = counted_while_shares_move(seed, rules, delays);
            assert!(counted.len() > 1_200, "{name}: {}", counted.len());
            let second = largest_second(&counted);
            assert!(second <= 50, "{name}: {second} in a second");
            let level = largest_level(&counted);
            assert!(level <= 10.0 + 1e-6, "{name}: {level}");
            let weighted = largest_weighted_second(&counted[..1_200]);
            assert!(weighted <= 50.0 + 1e-6, "{name}: {weighted}");
        }
    }
}

/// The places of all members are summed at each step: those without evidence, and those that have
/// not drained.
#[test]
fn requests_without_evidence_stay_within_the_places_of_all_shares_together() {
    for (name, delays) in DELAYS {
        let counted = counted_while_shares_move(1, Rules::default(), delays);
        assert!(counted.len() > 1_200, "{name}: {}", counted.len());
        let second = largest_second(&counted);
        assert!(second <= 50, "{name}: {second} in a second");
    }
}

/// Three members, always backlogged for two minutes; every 100 ms a random one shrinks, and another
/// one takes the free part.
fn counted_while_shares_move(seed: u64, rules: Rules, delays: Delays) -> Vec<Duration> {
    let start = Instant::now();
    let mut rng = fastrand::Rng::with_seed(seed);
    let whole = Share {
        requests: 50,
        places: 11,
        connections: 0,
    };
    let limits = Limits::default().rules(rules).in_flight(count(500));
    let mut fleet = Fleet {
        members: (0..3).map(|_| Account::new(&limits)).collect(),
        shares: vec![Share::default(); 3],
    };
    for member in 0..3 {
        fleet.set(member, Share::default(), start);
    }
    let mut answers: BinaryHeap<Reverse<(Duration, usize, Granted)>> = BinaryHeap::new();
    let mut counted = Vec::new();
    for tick in 0..120_000 {
        let at = ms(tick);
        let now = start + at;
        while let Some(Reverse((answer, member, grant))) = answers.peek().copied()
            && answer <= at
        {
            answers.pop();
            fleet.members[member].prove_by_head(start + answer, grant, Outcome::Accepted, true);
        }
        if tick % 100 == 0 {
            let shrinks = rng.usize(..3);
            let mut share = fleet.shares[shrinks];
            share.requests = rng.u32(..=share.requests);
            share.places = rng.u32(..=share.places);
            fleet.set(shrinks, share, now);
            let grows = rng.usize(..3);
            let taken = fleet.taken(now);
            // A member may claim more than its share for a moment, because it rounds up.
            let free = (
                whole.requests.saturating_sub(taken.requests),
                whole.places.saturating_sub(taken.places),
            );
            let mut share = fleet.shares[grows];
            let held = fleet.members[grows].held(now);
            share.requests = share.requests.max(held.requests) + free.0;
            share.places = share.places.max(held.places) + free.1;
            fleet.set(grows, share, now);
        }
        for member in 0..3 {
            while fleet.members[member].is_open(Priority::Normal, now) {
                let grant = granted(&mut fleet.members[member], now);
                let (there, back) = delays(&mut rng, at);
                counted.push(at + there);
                answers.push(Reverse((at + there + back, member, grant)));
            }
        }
        let held = fleet
            .members
            .iter_mut()
            .map(|member| member.held(now).places);
        let held: u32 = held.sum();
        assert!(held <= whole.places, "{at:?}: {held} places");
    }
    counted.sort_unstable();
    counted
}

#[test]
fn empty_or_ended_share_grants_nothing() {
    let now = Instant::now();
    let until = now + ms(500);
    let mut account = Account::new(&Limits::default());
    let empty = |requests, places| Share {
        requests,
        places,
        connections: 5,
    };
    for share in [empty(0, 5), empty(5, 0)] {
        account.set_share(share, until, None, now, 0);
        assert_eq!(account.opens(Priority::High, now).0, None);
    }
    account.set_share(empty(2, 2), until, None, now, 0);
    for _ in 0..2 {
        assert!(account.is_open(Priority::Normal, now));
        let grant = granted(&mut account, now);
        account.prove_by_head(now, grant, Outcome::Accepted, true);
    }
    assert_eq!(
        account.held(now),
        Share {
            requests: 2,
            places: 2,
            connections: 0
        }
    );
    // The next permit would be back after the share's end.
    assert_eq!(account.opens(Priority::Normal, now).0, None);
    account.set_share(empty(3, 11), until, None, now, 0);
    assert!(account.is_open(Priority::Normal, now));
    for why in [None, Some("unreachable")] {
        account.set_share(empty(3, 11), until, why, now, 0);
        let cause = WaitCause::Share(why);
        assert_eq!(account.opens(Priority::Normal, until), (None, cause));
    }
    let later = now + ms(2_100);
    let held = account.held(later);
    assert_eq!((held.requests, held.places), (0, 0));
}

#[test]
fn requests_close_their_sockets_while_a_share_has_too_many() {
    let now = Instant::now();
    let mut account = Account::new(&Limits::default());
    let share = Share {
        requests: 9,
        places: 9,
        connections: 5,
    };
    for (open, closes) in [(5, false), (6, true), (5, false)] {
        account.set_share(share, now + ms(5_000), None, now, open);
        assert_eq!(granted(&mut account, now).closes_socket, closes, "{open}");
    }
    let refused = granted(&mut account, now);
    account.lower_sockets(now, refused, false);
    account.set_share(share, now + ms(5_000), None, now, 5);
    assert!(granted(&mut account, now).closes_socket, "after a 416");
}

#[test]
fn suspended_machine_is_detected_while_a_share_is_held() {
    let now = Instant::now();
    let mut account = Account::new(&Limits::default());
    let share = Share {
        requests: 10,
        places: 5,
        connections: 5,
    };
    let before = clock::suspended();
    assert!(
        !account.was_suspended(before + ms(60_000)),
        "it has no share"
    );
    account.set_share(share, now + ms(5_000), None, now, 0);
    assert!(!account.was_suspended(before));
    assert!(account.was_suspended(before + ms(1_000)));
}

/// Slow responses hold permits and no places, as they do without a fleet.
#[test]
fn automatic_burst_stays_automatic_within_a_share() {
    let limits = Limits::default().in_flight(count(500));
    for took in [300, 1_000, 3_000] {
        let rate = |is_shared| {
            let mut account = Account::new(&limits);
            if is_shared {
                let now = Instant::now();
                let whole = Share {
                    connections: 500,
                    ..account.whole()
                };
                account.set_share(whole, now + ms(3_600_000), None, now, 0);
            }
            let (_, last) = counted_of(account, &limits, 1_000, 1, |_, _| (ms(10), ms(took - 10)));
            1_000.0 / last.as_secs_f64()
        };
        let (shared, alone) = (rate(true), rate(false));
        assert!(shared >= 0.99 * alone, "{took} ms: {shared} of {alone}");
    }
}
