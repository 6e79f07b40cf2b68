//! Draws what a service sees of four limiters, as three ways of counting judge it.
//!
//! ```text
//! cargo run --release --bin limits-plot -- limits.svg
//! ```
//!
//! Everything runs under a paused clock and one seed, so that the picture is the same every time:
//! two hundred tasks that always want more, a network with lognormal delays that now and then
//! stalls for 300 ms, and a service that answers after 60 ms and counts whatever arrives.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program talks to its user"
)]

mod judge;
mod limiters;
mod network;
mod picture;

use std::{env, fs, process::ExitCode};

use crate::{
    judge::{Rule, Verdict},
    limiters::Limiter,
    picture::Panel,
};

fn main() -> ExitCode {
    let path = env::args()
        .nth(1)
        .unwrap_or_else(|| "limits.svg".to_owned());
    if path.starts_with('-') {
        eprintln!("usage: limits-plot [FILE], by default limits.svg");
        return ExitCode::from(2);
    }
    let mut panels = Vec::new();
    println!("{:32} {:>9}  refused by", "limiter", "a second");
    for limiter in Limiter::ALL {
        let arrivals = match limiters::run(limiter) {
            Ok(arrivals) => arrivals,
            Err(error) => {
                eprintln!("limits-plot: no runtime: {error}");
                return ExitCode::FAILURE;
            }
        };
        let rate = network::rate(&arrivals);
        print!("{:32} {rate:9.1} ", limiter.name());
        for rule in Rule::ALL {
            let verdict = Verdict::new(rule, &arrivals);
            print!(" {} {}", rule.name(), verdict.refused());
            panels.push(Panel {
                limiter,
                rate,
                verdict,
            });
        }
        println!(" of {}", arrivals.len());
    }
    if let Err(error) = fs::write(&path, picture::draw(&panels)) {
        eprintln!("limits-plot: {path} cannot be written: {error}");
        return ExitCode::FAILURE;
    }
    println!("drawn: {path}");
    ExitCode::SUCCESS
}
