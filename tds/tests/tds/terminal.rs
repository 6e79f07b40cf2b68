//! The output of `tds bulk` on a terminal of 80 columns.

use std::fs;

use tds_sim::Config;

use crate::{Bench, by, end, out, piped, skipped, text};

#[tokio::test]
async fn terminal_of_80_columns_shows_all_progress() {
    if skipped("script") {
        return;
    }
    let bench = Bench::new("terminal", Config::default()).await;
    let (list, files) = (bench.path("list"), bench.path("files"));
    // Fifty are under way for two seconds each, and forty wait.
    let lines = (0..90).map(|n| format!("/v1/history/{n}?bytes=60000&rate=30000\n"));
    fs::write(&list, lines.collect::<String>()).expect("a file");
    let arguments = ["bulk", "--list", text(&list), "--out", text(&files)];
    let plain = bench.tds(&[&arguments[..], &["--jobs", "80"]].concat());
    let words = plain.get_args().map(|word| word.to_str().expect("text"));
    let words: Vec<_> = words.collect();
    let line = format!(
        "stty cols 80 rows 24; exec {} {}",
        env!("CARGO_BIN_EXE_tds"),
        words.join(" ")
    );
    let run = end(piped(by("script", &["-qec", &line, "/dev/null"], &plain))).await;
    let all = out(&run);
    assert_eq!(run.status.code(), Some(0), "{all}");

    let drawn: Vec<_> = all.split(['\r', '\n']).flat_map(rows).collect();
    let shows = |start: &str, words: &[&str]| {
        let has =
            |row: &String| row.starts_with(start) && words.iter().all(|word| row.contains(word));
        assert!(drawn.iter().any(has), "{start} {words:?}: {drawn:?}");
    };
    shows("█", &["/90 files, ", "/s, ", " s to go", " MB"]);
    let waits = "waits for a place in flight: responses are slow, or bodies are not read";
    shows(waits, &[]);
    shows("90 files: 90 ok, 0 skipped, 0 failed", &[]);
    // No row has text of another row.
    let starts = ["█", "░", "waits for ", "90 files: "];
    let stray = |row: &&String| !row.is_empty() && !starts.iter().any(|at| row.starts_with(at));
    assert_eq!(drawn.iter().find(stray), None);
}

/// Returns the rows of a terminal of 80 columns after this output.
fn rows(line: &str) -> Vec<String> {
    let line: Vec<_> = without_escapes(line).chars().collect();
    let rows = line.chunks(80).map(|row| row.iter().collect::<String>());
    rows.map(|row| row.trim_end().to_owned()).collect()
}

/// The part of a line that a terminal shows.
fn without_escapes(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    let after = parts.map(|part| {
        let end = part.find(|c: char| c.is_ascii_alphabetic());
        end.map_or("", |end| &part[end + 1..])
    });
    first + &after.collect::<String>()
}
