//! Disks, folders and lists that cannot be used.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    process::Stdio,
};

use super::lives;
use crate::{Bench, end, ended, err, output, says};

#[tokio::test]
async fn the_list_of_missing_files_and_the_exit_code_do_not_depend_on_the_print() {
    for (secret, code) in [(None, 1), (Some("wrong"), 4)] {
        let bench = Bench::new().await;
        let mut run = bench.bulk("/v1/live/a\n", "");
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        run.stdout(full.expect("Linux has it"))
            .stderr(Stdio::piped());
        run.envs(secret.map(|secret| ("TDS_CLIENT_SECRET", secret)));
        let run = end(run.spawn().expect("it starts")).await;
        ended(&run, code);
        says(&run, "standard output");
        let missing = fs::read_to_string(bench.path("rerun")).expect("it was made");
        assert_eq!(missing.is_empty(), code == 1);
    }
}

/// With the suffix `.part` a name has 255 bytes.
const LONGEST_STEP: usize = 250;

#[tokio::test]
async fn the_longest_names_have_room_for_their_suffix() {
    let bench = Bench::new().await;
    let name = "x".repeat(LONGEST_STEP);
    let list = format!("/v1/live/a\t{name}\n/v1/live/b\td/{name}\n");
    ended(&output(bench.bulk(&list, "")).await, 0);
    bench
        .ends(0, "poll --list list --out feeds --rounds 1")
        .await;
    assert!(bench.path("feeds").join(&name).exists());
}

#[tokio::test]
async fn unusable_lists_and_folders_are_refused_before_any_request() {
    let bench = Bench::new().await;
    let long = format!("/a\t{}\n", "x".repeat(LONGEST_STEP + 1));
    let twice = "line 3: line 1 has the same file name, x:";
    for (list, told) in [
        (&*long, "too long"),
        ("/a\t../x\n", "leaves the folder"),
        ("/a\t/etc/x\n", "leaves the folder"),
        ("/a\tb/../../x\n", "leaves the folder"),
        ("/a\t./x\n", "leaves the folder"),
        ("/a\tb//x\n", "leaves the folder"),
        ("/a\t\n", "leaves the folder"),
        ("/a\tb\\x\n", "backslashes"),
        ("/a\tx.part\n", "not yet whole"),
        ("/a\t.tds.lock\n", "not yet whole"),
        ("/a\td/.tds.lock\n", "not yet whole"),
        ("/a\t.tds.lock/y\n", "not yet whole"),
        ("/a\t.tds-manifest.jsonl\n", "not yet whole"),
        ("/a\tx.part/y\n", "not yet whole"),
        ("/a\tx\n\n/b\tx\n", twice),
        (
            "/a\tx/y\n/b\tx\n",
            "x is the name of a file and of a folder",
        ),
        ("/a b\n", "%20"),
        ("v1\n", "slash"),
        ("# nothing\n", "no line"),
        ("", "no line"),
    ] {
        let run = output(bench.bulk(list, "")).await;
        ended(&run, 2);
        says(&run, told);
    }
    bench.list("/a\n");
    fs::create_dir_all(bench.path("files")).expect("a folder");
    let lock = fs::File::create(bench.path("files/.tds.lock")).expect("a file");
    lock.lock().expect("nobody has it");
    for (arguments, told) in [
        ("--list list --out files --jobs 0", "--jobs"),
        ("--list list --out /proc/none", "/proc/none"),
        ("--list list --out /dev/null", "/dev/null"),
        ("--list /none --out files", "one path and query per line"),
        ("--list list --out files --rerun /none/rerun", "/none/rerun"),
        ("--list list --out files --rerun /", "--rerun /: "),
        (
            "--list list --out files",
            "another run writes to it; wait for its end",
        ),
    ] {
        let run = bench.ends(2, &format!("bulk {arguments}")).await;
        says(&run, told);
    }
    assert_eq!(bench.asked(), (0, 0));
}

#[tokio::test]
async fn read_only_folder_fails_its_own_files_alone() {
    let bench = Bench::new().await;
    let list = format!("/v1/live/a\tclosed/a\n/v1/live/b\tclosed/b\n{}", lives(30));
    let mut run = bench.bulk(&list, "--jobs 1");
    let closed = bench.path("files/closed");
    fs::create_dir_all(&closed).expect("a folder");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).expect("it is ours");
    if fs::write(closed.join("x"), "").is_ok() {
        // Root is not stopped by it, so the job runs as another user.
        fs::remove_file(closed.join("x")).expect("it is there");
        for mine in [bench.path(""), bench.path("files"), closed] {
            chown(mine, Some(NOBODY), Some(NOBODY)).expect("it may");
        }
        run.uid(NOBODY).gid(NOBODY);
    }
    let run = output(run).await;
    ended(&run, 1);
    let report = bench.report(&run);
    assert_eq!(
        (&report["ok"], &report["failed"]["disk"]),
        (&30.into(), &2.into())
    );
    assert_eq!(report["again"][0], "/v1/live/a\tclosed/a");
    assert_eq!(err(&run).matches("denied").count(), 1, "{}", err(&run));
}

/// A user without rights.
const NOBODY: u32 = 65_534;
