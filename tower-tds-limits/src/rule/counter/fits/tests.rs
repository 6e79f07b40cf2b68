use super::*;

const SECOND: u64 = 1_002_000_000;

fn at(nanos: u64) -> Tick {
    Tick::ZERO.plus(nanos)
}

#[test]
fn times_stay_what_they_are_when_the_row_moves_along() {
    let mut fits = Fits::new(SECOND);
    let numbers = || 1..=50;
    fits.put_off(Chord {
        phi: at(2 * SECOND - 100_000_000),
        before: 0,
        until: 50,
    });
    let times: Vec<Tick> = numbers().map(|number| fits.at(number)).collect();
    let now = at(2 * SECOND + 300_000_000);
    fits.put_off(Chord {
        phi: now,
        before: 50,
        until: 60,
    });
    assert!(fits.since > Tick::ZERO);
    for (number, time) in numbers().zip(times) {
        let expected = if time > now { time } else { Tick::ZERO };
        assert_eq!(fits.at(number), expected, "{number}");
    }
}

#[test]
fn a_time_is_rounded_up_by_less_than_a_unit_for_each_number() {
    for (period, unit) in [(SECOND, 2), (60 * SECOND, 112), (1_001_500, 1)] {
        let mut fits = Fits::new(period);
        let phi = at(period + 12_345);
        fits.put_off(Chord {
            phi,
            before: 7,
            until: 57,
        });
        for number in 8..=57 {
            let over = number - 7;
            let exact = phi.plus((period * over).div_ceil(50));
            let rounded = fits.at(number);
            assert!(rounded >= exact, "{number} in {period}");
            assert!(
                rounded.since(exact) <= unit * (over + 1),
                "{number} in {period}"
            );
        }
    }
}
