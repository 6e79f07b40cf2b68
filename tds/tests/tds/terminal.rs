//! The output of `tds bulk` on a terminal of 80 columns.

use crate::{Bench, by, end, ended, line, out, piped, skipped};

#[tokio::test]
async fn terminal_of_80_columns_shows_all_progress() {
    if skipped("script") {
        return;
    }
    let bench = Bench::new().await;
    // Seven are under way for two seconds each, and the others wait.
    bench.list("/v1/history/{1..21}?bytes=60000&rate=30000\n");
    let plain = bench.tds("bulk --list list --out files --jobs 80 --connections 8");
    let line = format!("stty cols 80 rows 24; exec {}", line(&plain));
    let run = end(piped(by("script", &["-qec", &line, "/dev/null"], &plain))).await;
    ended(&run, 0);

    let all = out(&run);
    let drawn: Vec<_> = all.split(['\r', '\n']).flat_map(rows).collect();
    let shows = |start: &str, words: &[&str]| {
        let has =
            |row: &String| row.starts_with(start) && words.iter().all(|word| row.contains(word));
        assert!(drawn.iter().any(has), "{start} {words:?}: {drawn:?}");
    };
    shows("█", &["/21 files, ", "/s, ", " s to go", " MB"]);
    let waits = "waits for another response body to end";
    shows(waits, &[]);
    shows("21 files: 21 ok, 0 skipped, 0 failed", &[]);
    // No row has text of another row.
    let starts = ["█", "░", "waits for ", "21 files: "];
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
