//! Disks, folders and lists that cannot be used.

use std::{fs, path::Path};

use tds_sim::Config;

use super::{ended, lives};
use crate::{Bench, end, err, output, text};

#[tokio::test]
async fn the_list_of_missing_files_and_the_exit_code_do_not_depend_on_the_print() {
    let bench = Bench::new("bulk-unsaid", Config::default()).await;
    for (secret, code) in [(bench.server.client_secret(), 1), ("wrong", 4)] {
        let mut run = bench.bulk("/v1/live/a\n", &[]);
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        run.stdout(full.expect("Linux has it"));
        run.stderr(std::process::Stdio::piped());
        run.env("TDS_CLIENT_SECRET", secret);
        run.env("TDS_STATE_DIR", bench.path(secret));
        let run = end(run.spawn().expect("it starts")).await;
        ended(&run, code);
        assert!(err(&run).contains("standard output"), "{}", err(&run));
        let missing = fs::read_to_string(bench.path("rerun")).expect("it was made");
        assert_eq!(missing.is_empty(), code == 1);
        fs::remove_dir_all(bench.path("files")).expect("it was made");
        fs::remove_file(bench.path("rerun")).expect("it was made");
    }
}

/// With the suffix `.part` a name has 255 bytes.
const LONGEST_STEP: usize = 250;

#[tokio::test]
async fn the_longest_names_have_room_for_their_suffix() {
    let bench = Bench::new("bulk-long", Config::default()).await;
    let name = "x".repeat(LONGEST_STEP);
    let list = format!("/v1/live/a\t{name}\n/v1/live/b\td/{name}\n");
    let run = output(bench.bulk(&list, &[])).await;
    ended(&run, 0);
    let (list, feeds) = (bench.path("list"), bench.path("feeds"));
    let poll = [
        "poll",
        "--list",
        text(&list),
        "--out",
        text(&feeds),
        "--rounds",
        "1",
    ];
    ended(&bench.run(&poll).await, 0);
    assert!(feeds.join(&name).exists());
}

#[tokio::test]
async fn unusable_lists_and_folders_are_refused_before_any_request() {
    let bench = Bench::new("bulk-usage", Config::default()).await;
    let long = format!("/a\t{}\n", "x".repeat(LONGEST_STEP + 1));
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
        (
            "/a\tx\n\n/b\tx\n",
            "line 3: line 1 has the same file name, x:",
        ),
        ("/a b\n", "%20"),
        ("v1\n", "slash"),
        ("# nothing\n", "no line"),
        ("", "no line"),
    ] {
        let run = output(bench.bulk(list, &[])).await;
        ended(&run, 2);
        assert!(err(&run).contains(told), "{list:?}: {}", err(&run));
    }
    ended(&output(bench.bulk("/a\n", &["--jobs", "0"])).await, 2);
    for folder in ["/proc/none", "/dev/null"] {
        let list = bench.path("list");
        let run = bench
            .run(&["bulk", "--list", text(&list), "--out", folder])
            .await;
        ended(&run, 2);
        assert!(err(&run).contains(folder), "{}", err(&run));
    }
    let files = bench.path("files");
    let run = bench
        .run(&["bulk", "--list", "/none", "--out", text(&files)])
        .await;
    ended(&run, 2);
    assert!(
        err(&run).contains("one path and query per line"),
        "{}",
        err(&run)
    );
    let list = bench.path("list");
    fs::write(&list, "/a\n").expect("a file");
    for rerun in ["/none/rerun", "/"] {
        let arguments = ["bulk", "--list", text(&list), "--out", text(&files)];
        let arguments = [&arguments[..], &["--rerun", rerun]].concat();
        let run = bench.run(&arguments).await;
        ended(&run, 2);
        assert!(err(&run).contains(rerun), "{}", err(&run));
    }
    let lock = fs::File::create(files_made(&files).join(".tds.lock")).expect("a file");
    lock.lock().expect("nobody has it");
    let run = output(bench.bulk("/a\n", &[])).await;
    ended(&run, 2);
    let said = "another run writes to it; wait for its end";
    assert!(err(&run).contains(said), "{}", err(&run));
    let seen = bench.server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (0, 0));
}

#[tokio::test]
async fn read_only_folder_fails_its_own_files_alone() {
    use std::os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    };

    let bench = Bench::new("bulk-closed", Config::default()).await;
    let list = format!("/v1/live/a\tclosed/a\n/v1/live/b\tclosed/b\n{}", lives(30));
    let mut run = bench.bulk(&list, &["--jobs", "1"]);
    let closed = files_made(&bench.path("files")).join("closed");
    fs::create_dir(&closed).expect("a folder");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).expect("it is ours");
    if fs::write(closed.join("x"), "").is_ok() {
        // Root is not stopped by it, so the job runs as another user.
        fs::remove_file(closed.join("x")).expect("it is there");
        for mine in [&bench.folder, &bench.path("files"), &closed] {
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

fn files_made(files: &Path) -> &Path {
    fs::create_dir_all(files).expect("a folder");
    files
}
