//! The picture of the limits, as its user makes it.

use std::{fs, process::Command};

fn limits_plot() -> Command {
    Command::new(env!("CARGO_BIN_EXE_limits-plot"))
}

#[test]
fn ours_is_refused_by_nobody_and_every_other_by_everybody() {
    let path = std::env::temp_dir().join(format!("limits-plot-{}.svg", std::process::id()));
    let output = limits_plot().arg(&path).output().expect("it runs");
    assert!(output.status.success());
    let table = String::from_utf8(output.stdout).expect("text");
    let rows: Vec<&str> = table.lines().skip(1).take(4).collect();
    for row in &rows {
        let none = ["sliding log 0 ", "counter 0 ", "leaky bucket 0 "];
        let none = none.iter().filter(|none| row.contains(**none)).count();
        let expected = if row.starts_with("tower-tds-limits") {
            3
        } else {
            0
        };
        assert_eq!(none, expected, "{row}");
    }
    assert_eq!(rows.len(), 4, "{table}");
    let picture = fs::read_to_string(&path).expect("it is drawn");
    fs::remove_file(&path).expect("it is ours");
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
    // The one that the crate's README shows is this one.
    let shown = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tower-tds-limits/limits.svg"
    );
    let shown = fs::read_to_string(shown).expect("the README shows it");
    assert!(
        shown == picture,
        "make it anew: cargo run --release --bin limits-plot -- tower-tds-limits/limits.svg"
    );
}

#[test]
fn a_path_that_cannot_be_written_is_named() {
    let output = limits_plot()
        .arg("/nowhere/limits.svg")
        .output()
        .expect("it runs");
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(
        error.contains("/nowhere/limits.svg cannot be written"),
        "{error}"
    );
}

#[test]
fn help_is_an_answer_and_an_unknown_option_is_not() {
    let help = limits_plot().arg("--help").output().expect("it runs");
    assert_eq!(help.status.code(), Some(0));
    let output = limits_plot().arg("--wrong").output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(error.contains("--wrong"), "{error}");
}
