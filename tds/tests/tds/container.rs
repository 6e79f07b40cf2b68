//! The container file: its instructions, stages, files and commands, without an engine.

use std::{collections::BTreeSet, path::Path};

use crate::{err, out, output, tds};

const FILE: &str = include_str!("../../../Containerfile");

/// The instructions, each with its arguments.
fn instructions() -> Vec<(&'static str, Vec<&'static str>)> {
    let lines = FILE.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let split = |line: &'static str| {
        let (name, rest) = line.split_once(' ').expect("an instruction has arguments");
        (name, rest.split_whitespace().collect())
    };
    lines.map(split).collect()
}

#[test]
fn container_file_copies_only_what_a_stage_built() {
    let mut stages = BTreeSet::new();
    let mut made = BTreeSet::from(["/etc/ssl/certs/ca-certificates.crt".to_owned()]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (name, arguments) in instructions() {
        match (name, &arguments[..]) {
            ("FROM", [image, "AS", stage]) => {
                assert!(*image == "scratch" || image.starts_with("rust:"), "{image}");
                assert!(stages.insert(*stage), "{stage} is there twice");
            }
            ("RUN", ["cargo", "build", "--locked", "--release", rest @ ..]) => {
                for package in rest.chunks(2).filter(|pair| pair[0] == "-p") {
                    assert!(root.join(package[1]).join("src/main.rs").exists());
                    made.insert(format!("/src/target/release/{}", package[1]));
                }
                assert!(rest.ends_with(&["--features", "tds-sim/cli"]));
            }
            ("COPY", [from, source, target]) => {
                let stage = from.strip_prefix("--from=").expect("an earlier stage");
                assert!(stages.contains(stage), "{stage}");
                assert!(made.contains(*source), "{source}");
                made.insert((*target).to_owned());
            }
            ("ENTRYPOINT", [program, ..]) => {
                let program = program.trim_matches(['[', ']', ',', '"']);
                assert!(made.contains(program), "{program}");
            }
            ("RUN" | "WORKDIR" | "COPY" | "USER" | "EXPOSE" | "ENV" | "VOLUME", _) => {}
            (name, arguments) => unreachable!("{name} {arguments:?}"),
        }
    }
    assert_eq!(stages, BTreeSet::from(["build", "tds", "tds-sim"]));
}

#[test]
fn container_runs_as_a_user_who_owns_its_state() {
    for stage in FILE
        .split("\nFROM ")
        .filter(|stage| stage.starts_with("scratch "))
    {
        // Kubernetes refuses a name, because it cannot compare that with root.
        let user = stage.lines().find_map(|line| line.strip_prefix("USER "));
        let user = user.expect("a user");
        let ids: Vec<u32> = user
            .split(':')
            .map(|id| id.parse().expect("a number"))
            .collect();
        assert!(ids.len() == 2 && !ids.contains(&0), "{user}");
        // A volume takes the owner of the folder that it covers, and that of a folder which is not there is root.
        for folder in stage
            .lines()
            .filter_map(|line| line.strip_prefix("VOLUME "))
        {
            let copied = format!("COPY --from=build --chown={user} {folder} {folder}\n");
            assert!(stage.contains(&copied), "{folder} is not {user}'s");
        }
    }
}

#[test]
fn container_is_built_from_a_version_and_leaves_health_to_compose() {
    for (name, arguments) in instructions() {
        assert_ne!(name, "HEALTHCHECK");
        if let ("FROM", [image, ..]) = (name, &arguments[..]) {
            // `rust:1` and `rust:latest` change under a build; a version with its patch does not.
            let version = image.strip_prefix("rust:").map(|tag| tag.split('-').next());
            let parts = version.flatten().map(|version| version.split('.').count());
            assert!(*image == "scratch" || parts == Some(3), "{image}");
        }
    }
}

#[tokio::test]
async fn container_entry_points_are_valid_commands() {
    let points = FILE
        .lines()
        .filter_map(|line| line.strip_prefix("ENTRYPOINT "));
    let points: Vec<Vec<String>> = points
        .map(|point| serde_json::from_str(point).expect("JSON"))
        .collect();
    assert_eq!((&*points[0][0], &*points[1][0]), ("/tds-sim", "/tds"));
    // The simulator's own tests start it with switches; this has those of its help.
    let cli = include_str!("../../../tds-sim/src/cli.rs");
    for switch in points[0].iter().filter_map(|word| word.strip_prefix("--")) {
        let field = format!("    {}: ", switch.replace('-', "_"));
        assert!(cli.contains(&field), "{switch}");
    }
    let version = output(tds("--version")).await;
    assert!(out(&version).starts_with("tds "), "{}", err(&version));
}
