//! The examples as their users run them.

use std::process::Command;

#[test]
fn each_example_makes_three_calls_with_one_token() {
    for program in [
        env!("CARGO_BIN_EXE_own-stack"),
        env!("CARGO_BIN_EXE_token-only"),
    ] {
        let run = Command::new(program).output().expect("it starts");
        let out = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success(), "{program}: {run:?}");
        assert!(out.starts_with("bus: 128 bytes\n"), "{program}: {out}");
        assert!(
            out.ends_with("\n3 calls, 1 token request\n"),
            "{program}: {out}"
        );
    }
}
