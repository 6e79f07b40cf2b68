//! Draws what a service sees of four limiters, as three ways of counting judge it.
//!
//! ```text
//! cargo run --release --bin limits-plot -- limits.svg
//! ```
//!
//! Everything runs under a paused clock and one seed, so that the picture is the same every time:
//! two hundred tasks that always want more, a network with lognormal delays that now and then
//! stalls for 300 ms, and a service that answers after 60 ms and counts whatever arrives.

mod judge;
mod limiters;
mod network;
mod picture;

use std::{error::Error, fs::File, io::Write, path::PathBuf, process::ExitCode};

use clap::Parser;
use tds_examples::{causes, say, warn};

use crate::{
    judge::{Rule, Verdict},
    limiters::Limiter,
    picture::Panel,
};

/// Draws what a service sees of four limiters, as three ways of counting judge it.
#[derive(Debug, Parser)]
#[command(name = "limits-plot")]
struct Arguments {
    /// The SVG file to draw
    #[arg(default_value = "limits.svg")]
    file: PathBuf,
}

fn main() -> ExitCode {
    let path = Arguments::parse().file;
    // It is opened first, or else a path that cannot be written would be found out at the end.
    let file = match File::create(&path) {
        Ok(file) => file,
        Err(error) => {
            let path = path.display();
            warn(&format!(
                "limits-plot: {path} cannot be written: {error}; name a file in a folder that is there"
            ));
            return ExitCode::from(2);
        }
    };
    match draw(file).and_then(|()| Ok(say(&format!("drawn: {}\n", path.display()))?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            warn(&format!("limits-plot: {}", causes(&*error)));
            ExitCode::FAILURE
        }
    }
}

/// Runs the limiters, says what became of their requests, and draws it.
fn draw(mut file: File) -> Result<(), Box<dyn Error>> {
    let mut panels = Vec::new();
    say(&format!("{:32} {:>9}  refused by\n", "limiter", "a second"))?;
    for limiter in Limiter::ALL {
        let arrivals = limiters::run(limiter)?;
        let rate = network::rate(&arrivals);
        let mut row = format!("{:32} {rate:9.1} ", limiter.name());
        for rule in Rule::ALL {
            let verdict = Verdict::new(rule, &arrivals);
            row.push_str(&format!(" {} {}", rule.name(), verdict.refused()));
            panels.push(Panel {
                limiter,
                rate,
                verdict,
            });
        }
        say(&format!("{row} of {}\n", arrivals.len()))?;
    }
    file.write_all(picture::draw(&panels).as_bytes())?;
    Ok(())
}
