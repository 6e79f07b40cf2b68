//! Measures the layers, a whole call and the limiters, and writes `BENCHMARKS.md` with its plots.
//!
//! ```text
//! cargo run --release -p tds-benches --bin report
//! cargo run --release -p tds-benches --bin report overload    # that table alone, on stdout
//! cargo run --release -p tds-benches --bin report socket
//! cargo run --release -p tds-benches --bin report layers      # and its plot
//! ```

#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a report that cannot be made must not go on, and it takes a minute"
)]

mod layers;
mod limiters;
mod overload;
mod plot;
mod socket;

use std::{env, fmt::Write, fs, path::Path, process::Command};

fn main() {
    if env::args().any(|arg| arg == "overload") {
        println!("{}", overload_table(&overload::measure()));
        return;
    }
    if env::args().any(|arg| arg == "socket") {
        println!("{}", socket_table(&socket::measure()));
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.expect("the workspace");
    let plots = root.join("benches/plots");
    fs::create_dir_all(&plots).expect("a folder for plots");

    eprintln!("the layers");
    let layers = layers::measure();
    let bars: Vec<_> = layers.iter().map(|row| (row.name, row.one)).collect();
    let svg = plot::bars("Nanoseconds above a service that does nothing", &bars);
    fs::write(plots.join("layers.svg"), svg).expect("a file");
    if env::args().any(|arg| arg == "layers") {
        println!("{}", layers_table(&layers));
        return;
    }

    eprintln!("whole calls, a minute");
    let calls = socket::measure();
    let bars: Vec<_> = calls.names.into_iter().zip(calls.cpu.clone()).collect();
    let svg = plot::bars(
        "Microseconds of CPU for a call over a loopback socket",
        &bars,
    );
    fs::write(plots.join("socket.svg"), svg).expect("a file");

    eprintln!("1,500 calls by each limiter, half a minute");
    let limiters = limiters::measure();
    let lost: Vec<_> = limiters
        .iter()
        .map(|row| (row.name, f64::from(row.lost)))
        .collect();
    let svg = plot::bars("Calls of 1,500 without their data", &lost);
    fs::write(plots.join("limiters.svg"), svg).expect("a file");

    eprintln!("overload, four minutes");
    let overload = overload::measure();

    eprintln!("instructions");
    let instructions = Command::new(root.join(".ci/instructions"))
        .current_dir(root)
        .output();
    let instructions = instructions.map(|output| output.stdout).unwrap_or_default();

    let mut page = String::from(HEAD);
    page.push_str(&socket_table(&calls));
    page.push_str(&layers_table(&layers));
    page.push_str(INSTRUCTIONS);
    page.push_str(&String::from_utf8_lossy(&instructions));
    page.push_str(LIMITERS);
    for row in &limiters {
        let limiters::Row {
            name,
            accepted,
            rate,
            connections,
            lost,
            seconds,
        } = row;
        writeln!(
            page,
            "| {name} | {accepted} | {rate} | {connections} | {lost} | {seconds:.1} |"
        )
        .expect("a string");
    }
    page.push_str(&overload_table(&overload));
    // The last part is written by hand and stays as it is.
    let file = root.join("BENCHMARKS.md");
    let before = fs::read_to_string(&file).expect("the page as it was");
    let rest = before.find(REST).expect("its last part");
    page.push_str(&before[rest..]);
    fs::write(file, page).expect("a file");
}

fn layers_table(rows: &[layers::Row]) -> String {
    let mut table = String::from(LAYERS);
    for row in rows {
        let layers::Row {
            name,
            one,
            two,
            cloned,
        } = row;
        writeln!(table, "| {name} | {one:.0} | {two:.0} | {cloned:.0} |").expect("a string");
    }
    table
}

fn socket_table(rows: &socket::Rows) -> String {
    let mut table = String::from(SOCKET);
    let mut row = |name: &str, figures: Vec<String>| {
        writeln!(table, "| {name} | {} |", figures.join(" | ")).expect("a string");
    };
    row("", rows.names.map(str::to_owned).into());
    row("---", vec!["---".to_owned(); rows.names.len()]);
    let each = |figures: &[f64]| {
        figures
            .iter()
            .map(|figure| format!("{figure:.1}"))
            .collect()
    };
    row("CPU of a call, µs", each(&rows.cpu));
    for (calls, figures) in &rows.at_once {
        row(
            &format!("{calls} calls at once: CPU of a call, µs"),
            each(figures),
        );
    }
    for (rate, figures) in &rows.latency {
        let figure =
            |of: &socket::Latency| format!("{:.2}; {:.2}; {:.0}", of.median, of.most, of.cpu);
        row(
            &format!("{rate} calls a second: median, 99 %, ms; CPU, µs"),
            figures.iter().map(figure).collect(),
        );
    }
    for (bytes, figures) in &rows.bodies {
        let figures = figures.iter().map(|figure| format!("{figure:.0}"));
        row(
            &format!("bodies of {} KiB: MB/s", bytes >> 10),
            figures.collect(),
        );
    }
    table
}

fn overload_table(rows: &[overload::Row]) -> String {
    let mut table = String::from(OVERLOAD);
    let names: Vec<_> = rows.iter().take(3).map(|row| row.name).collect();
    writeln!(
        table,
        "| response, deadline, load | {} |\n|---|---|---|---|",
        names.join(" | ")
    )
    .expect("a string");
    for limiters in rows.chunks(3) {
        let load = limiters[0].load;
        write!(
            table,
            "| {:?}, {} s, {}/s |",
            load.takes,
            load.deadline.as_secs(),
            load.rate,
        )
        .expect("a string");
        for row in limiters {
            let overload::Row {
                sent,
                refused,
                answered,
                ..
            } = row;
            write!(table, " {answered} of {sent} ({refused}) |").expect("a string");
        }
        table.push('\n');
    }
    table
}

const HEAD: &str = "\
# Benchmarks

`cargo run --release -p tds-benches --bin report` writes this page, except for the last part, whose commands print its figures. This one is from a
machine with two shared cores. Compare figures only within one run.
";

const LAYERS: &str = "
## Above a service that does nothing

The table has the nanoseconds of a call that succeeds, less those of a bare service, as the median of 15 rounds. For two threads, the time from
the first call to the last is divided by the calls of one thread; there the bare service varies by 30 ns. To measure google-cloud-auth and
reqwest-retry, which need a package of their own, run `cargo bench --manifest-path benches/peers/Cargo.toml`.

![](benches/plots/layers.svg)

| layer | one thread | two threads | cloned for each call |
|---|---|---|---|
";

const INSTRUCTIONS: &str = "
`.ci/instructions` counts the instructions of a call. The `wire-` rows are whole calls over a socket, less those of hyper-util's client alone:

";

const SOCKET: &str = "
## A whole call over a loopback socket

Four clients send the same GET with a token and read the response, of 1 KiB unless a row has another size. CPU time is that of the client's
thread; the server has another one. The first row is the median of nine rounds, in which the clients take turns. Rows of calls at once and of
bodies are the median of three rounds. Rows of calls a second are one round, in which calls begin at random times, whether earlier ones have
ended or not, and all clients keep to 60 sockets: `Client` by its limits, the others by a semaphore.

![](benches/plots/socket.svg)

";

const LIMITERS: &str = "
## 1,500 GETs against a limit of 50 a second

A hundred tasks call the simulated service, which counts by a sliding counter. Arrivals are delayed by 5 ms (median) to 100 ms (p99). All
limiters are set to 50 a second and 60 connections; governor keeps its default burst of 50. A call is lost if its caller did not get the data;
the other limiters have no retry. A limiter that loses no call takes at least 30.5 s.

![](benches/plots/limiters.svg)

| limiter | accepted | 423 | 416 | lost | seconds |
|---|---|---|---|---|---|
";

const OVERLOAD: &str = "
## A minute of overload

Calls begin at random times, each with a deadline, against the same service without delays of arrivals. Each cell has the number of calls whose
caller had the data by the deadline, the number that were sent, and in brackets the number that were refused. tower and governor have a `timeout`
around the call.

";

const REST: &str = "
## By tests and programs
";
