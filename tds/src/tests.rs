//! The parsers of the program read any text without a panic, and accept only values within their
//! bounds.
//!
//! Each text is an example with a few random changes. As the seed is fixed, a failure repeats.

use std::{fs, path::Component, time::Duration};

use http::{HeaderMap, HeaderValue, header::CACHE_CONTROL};

use tokio::time::Instant;
use tower_tds::{Error, Kind};
use tower_tds_outcome::{Cause, Outcome};

use crate::{
    answer, breaker, download, ending, exit, freshness, header, list, manifest, save, settings,
    status,
};

/// Generator of pseudorandom numbers, with Knuth's constants.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }

    /// Returns one of the examples, with pieces of all examples, numbers and odd characters put in
    /// random places.
    fn text(&mut self, examples: &[&str]) -> String {
        let mut text: Vec<char> = examples[self.below(examples.len())].chars().collect();
        for _ in 0..self.below(5) {
            let at = self.below(text.len() + 1);
            let end = (at + self.below(4)).min(text.len());
            let other: Vec<_> = examples[self.below(examples.len())].chars().collect();
            let from = self.below(other.len());
            let to = (from + self.below(12)).min(other.len());
            let piece = match self.below(3) {
                0 => other[from..to].to_vec(),
                _ => ODD[self.below(ODD.len())].chars().collect(),
            };
            text.splice(at..end, piece);
        }
        text.into_iter().collect()
    }
}

const ODD: [&str; 22] = [
    "0",
    "1",
    "-",
    "/",
    "..",
    "{",
    "}",
    "{}",
    "{1..3}",
    "\t",
    "\n",
    "\r",
    "\"",
    ",",
    "=",
    "#",
    " ",
    "\u{0}",
    "é",
    "18446744073709551615",
    "9223372036854775807",
    "4294967296",
];

fn each(examples: &[&str], check: impl Fn(&str)) {
    let mut random = Random(7);
    for _ in 0..1_000 {
        let text = random.text(examples);
        // Catches a panic, so that the report can show the text that caused it.
        let shown = std::panic::AssertUnwindSafe(|| check(&text));
        assert!(std::panic::catch_unwind(shown).is_ok(), "{text:?}");
    }
}

#[test]
fn any_list_stays_in_its_folder_and_can_be_run_again() {
    let examples = [
        "/v1/live/bus\n",
        "/v1/{01..12}?n={1..2}\t{}/{}.json\n/v1/live/a\tb\n",
        "/v1/{2026-01-01..2026-01-31}\r\n# a comment\n",
        "/v1/{2026-01..2026-12}/{bus,metro}\t{}/{}\n",
    ];
    each(&examples, |text| {
        let Ok(items) = list::parse(text) else { return };
        for item in &items {
            let mut parts = item.name.components();
            assert!(parts.all(|part| matches!(part, Component::Normal(_))));
            assert!(item.target.starts_with('/') && !item.target.contains(char::is_whitespace));
        }
        let lines: String = items.iter().map(|item| item.line.clone() + "\n").collect();
        let again = list::parse(&lines).expect("lines of a list");
        let names = |items: &[list::Item]| {
            items
                .iter()
                .map(|item| item.name.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&items), names(&again));
    });
}

#[test]
fn a_range_of_too_many_digits_and_a_line_of_too_many_ranges_are_refused() {
    let ranges = |count| format!("/{}", "{1..1}".repeat(count));
    assert!(list::parse(&ranges(1_300)).is_ok());
    let zeros = "0".repeat(70_000);
    for line in [format!("/{{{zeros}..1}}"), ranges(50_000)] {
        assert!(list::parse(&line).is_err());
    }
}

#[test]
fn any_manifest_keeps_its_other_lines() {
    let folder = std::env::temp_dir().join(format!("tds-manifest-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let line =
        r#"{"file":"a","url":"/a","base_url":"http://b","accept":"*/*","etag":"\"x\"","length":7}"#;
    let cut = r#"{"file":"b","url":"/b","base_url":"http://b","part":"boot","etag":null}"#;
    let item = list::parse("/a\ta\n").expect("a list").remove(0);
    each(&[line, cut], |text| {
        let others = text.replace("\"a\"", "\"c\"");
        // The second line was cut within a character.
        let lines = [others.as_bytes(), b"\n{\"file\":\"\xc3\n", line.as_bytes()].concat();
        fs::write(folder.join(save::MANIFEST), lines).expect("a file");
        let manifest = manifest::Manifest::open(&folder, "http://b/", "*/*", true).expect("text");
        assert_eq!(manifest.outdated(&item, 7, None), None);
        assert!(manifest.outdated(&item, 8, None).is_some());
        assert!(manifest.part(&item).is_none());
    });
    fs::remove_dir_all(&folder).expect("it is there");
}

#[test]
fn any_settings_are_read_or_refused() {
    let lines = [
        "TDS_AUTH_URL=https://a",
        "export TDS_LOG='json:debug'\n# b\n\nTDS_RATE=\"5/60s\"",
    ];
    each(&lines, |text| {
        let Ok(settings) = settings::lines(text) else {
            return;
        };
        assert!(
            settings
                .iter()
                .all(|(name, value)| name.trim() == name && !value.is_empty())
        );
    });
    each(
        &["50/1s", "5/60s,1000/1h", "1/4", "1000/1day", "60"],
        |text| {
            for (rate, share, connections) in [
                (text, "1/1", "60"),
                ("50/1s", text, "60"),
                ("50/1s", "1/1", text),
            ] {
                let values = [
                    (settings::RATE, rate),
                    (settings::SHARE, share),
                    (settings::CONNECTIONS, connections),
                ];
                let settings = settings::Settings::of(
                    values
                        .map(|(name, value)| settings::Setting {
                            name,
                            value: value.to_owned(),
                            source: settings::Source::Flag,
                        })
                        .into(),
                    false,
                );
                let Ok(limits) = settings.limits() else {
                    continue;
                };
                let month = Duration::from_secs(31 * 86_400);
                assert!(limits.quotas().iter().all(|quota| quota.per() <= month));
            }
        },
    );
}

#[test]
fn any_headers_of_a_response_are_read_within_bounds() {
    let month = Duration::from_secs(2_678_400);
    each(
        &[
            "max-age=60, public",
            "s-maxage=\"9\"",
            "no-store",
            "private, max-age=1",
            "stale-if-error=60, stale-while-revalidate=30",
        ],
        |text| {
            let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) else {
                return;
            };
            let headers = HeaderMap::from_iter([(CACHE_CONTROL, value)]);
            let times = freshness::Times::of(&headers, None, [Duration::ZERO; 2]);
            let all = [times.fresh, times.on_error, times.meanwhile];
            assert!(all.iter().all(|time| *time <= month));
        },
    );
    let known = manifest::Version {
        etag: Some("\"x\"".to_owned()),
        ..manifest::Version::default()
    };
    each(&["bytes 5-9/10", "bytes 5-9/*", "bytes */10"], |text| {
        let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) else {
            return;
        };
        let tag = HeaderValue::from_static("\"x\"");
        let headers = HeaderMap::from_iter(
            [("content-range", value), ("etag", tag)]
                .map(|(name, value)| (http::HeaderName::from_static(name), value)),
        );
        assert!(answer::rest(&headers, 5, &known).is_none_or(|whole| whole > 5));
    });
    each(&["<b>{ready}</b> & \"x\""], |text| {
        assert!(!status::escaped(text).contains(['<', '>', '"', '{']));
    });
}

#[test]
fn an_open_that_is_cancelled_at_any_step_leaves_the_folder_as_it_was() {
    let folder = std::env::temp_dir().join(format!("tds-open-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let old = folder.join("old.part");
    for steps in 0..10 {
        fs::write(&old, b"abc").expect("a file");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .max_blocking_threads(1)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            for name in ["new", "old"] {
                let path = folder.join(name);
                let mut open = std::pin::pin!(save::Part::open(&path));
                for _ in 0..steps {
                    let is_open = tokio::select! {
                        biased;
                        part = &mut open => part.is_ok(),
                        step = tokio::task::spawn_blocking(|| ()) => step.is_err(),
                    };
                    if is_open {
                        break;
                    }
                }
            }
        });
        drop(runtime);
        assert!(!folder.join("new.part").exists(), "after {steps} steps");
        let kept = fs::read(&old).expect("the bytes of an earlier run");
        assert_eq!(kept, b"abc", "after {steps} steps");
    }
    drop(fs::remove_dir_all(&folder));
}

#[tokio::test(start_paused = true)]
async fn a_breaker_opens_after_three_failures_and_probes_ever_less_often() {
    let (breaker, begun) = (breaker::Breaker::new(header::MONTH), Instant::now());
    let early = breaker.pass().await;
    for opens in [false, false, true, false] {
        let (_, line) = breaker.failed("/a", &early, "why");
        let begins = line.is_some_and(|line| line.starts_with("outage: why; one file is retried"));
        assert_eq!(begins, opens);
    }
    let mut probes = Vec::new();
    for _ in 0..8 {
        let probe = breaker.pass().await;
        let at = begun.elapsed().as_secs();
        // Once a minute there is a line. A failure of a call that was already in flight does not
        // delay the next probe.
        let (_, line) = breaker.failed("/b", &early, "why");
        assert_eq!(line.is_some(), [61, 121].contains(&at));
        assert_eq!(breaker.failed("/a", &probe, "why"), (true, None));
        probes.push(at);
    }
    assert_eq!(probes, [1, 3, 7, 15, 31, 61, 91, 121]);
    assert_eq!(
        breaker.answered().expect("a line"),
        "outage over after 2 min and 18 failures: the service answers"
    );
    // After a success three files have to fail, because one path may fail alone.
    for file in ["/a", "/b"].repeat(20) {
        assert_eq!(breaker.failed(file, &early, "why"), (false, None));
    }
    assert!(breaker.failed("/c", &early, "why").0);
}

#[test]
fn deadline_that_passes_in_a_pause_after_a_429_is_the_quotas() {
    let late = |cause: &'static str| {
        let mut late = Cause::new(Outcome::NoPermit);
        late.waited_for = Some(cause.into());
        Error::from(late.over("late"))
    };
    let paused = late("the end of the pause after a 429");
    assert_eq!(exit::Exit::of(&paused), exit::Exit::Quota);
    assert_eq!(exit::Exit::of(&late("a permit")), exit::Exit::Unreachable);
    let wait = download::wait(&paused.into(), 9, true);
    assert!(wait.is_some_and(|wait| wait <= Duration::from_secs(60)));
}

#[test]
fn a_job_that_waits_for_the_quota_tries_each_minute_whatever_the_hint() {
    // None, an hour, a day, and a time since 1970 that was read as a duration.
    for hint in [
        None,
        Some(5),
        Some(60),
        Some(3_600),
        Some(86_400),
        Some(1_795_000_000),
    ] {
        for kind in [Kind::Throttled, Kind::QuotaExhausted] {
            let mut cause = Cause::new(Outcome::QuotaExceeded(None));
            cause.wait = hint.map(Duration::from_secs);
            let mut error = Error::from(cause);
            error.set_kind(kind);
            let wait = download::wait(&error.into(), 1, true).expect("it waits");
            let seconds = hint.unwrap_or(60).min(60);
            assert_eq!(wait, Duration::from_secs(seconds), "{hint:?}");
        }
    }
}

#[test]
fn a_pause_ends_a_job_after_eight_seconds_or_two_seconds_after_its_end() {
    let seconds = Duration::from_secs;
    for (pause, ends) in [(1, 8), (5, 8), (6, 8), (7, 9), (60, 62)] {
        let (mut ending, begun) = (ending::Ending::new(None, false), Instant::now());
        for second in 0..=ends {
            let exit = ending.paused(Some(seconds(pause)), begun + seconds(second));
            assert_eq!(exit.is_some(), second == ends, "{pause} s, {second} s");
        }
        // A received byte begins the time anew.
        ending.progressed();
        let exit = ending.paused(Some(seconds(pause)), begun + seconds(ends));
        assert!(exit.is_none(), "{pause} s");
    }
}

#[test]
fn names_that_windows_cannot_hold_are_told_apart_and_no_path_makes_one() {
    for name in [
        "con",
        "NUL",
        "aux.json",
        "a/Prn.x/b",
        "com1",
        "LPT9.txt",
        "com¹",
        "nul .x",
        "x?.json",
        "a:b.json",
        "*",
        "dot.",
        "sp ",
        "a/b./c",
    ] {
        assert!(crate::system::not_on_windows(name).is_some(), "{name}");
    }
    for name in [
        "sub/dir/file.json",
        "console",
        "com",
        "com10",
        "lpt",
        "auxiliary.x",
        "a.con",
        "公車.json",
        "x$=,+@%20",
    ] {
        assert_eq!(crate::system::not_on_windows(name), None, "{name}");
    }
    let paths = "/con\n/nul.json\n/a?b*c:d\n/dot.\n/COM1\n/.hidden\n";
    let items = list::parse(paths).expect("a list");
    for item in items {
        let name = item.name.to_str().expect("text");
        assert_eq!(crate::system::not_on_windows(name), None, "{name}");
    }
}

/// Advice names options and settings of the program, and no function of the libraries.
#[test]
fn no_advice_names_a_function() {
    for kind in Kind::ALL {
        let trouble = ending::Trouble::from(Error::new(*kind, "why"));
        let line = trouble.line("x".as_ref());
        assert_no_function(&line);
        let of_programmers = [
            "client;",
            "one client",
            "one limiter",
            "source of this error",
        ];
        assert!(of_programmers.iter().all(|it| !line.contains(it)), "{line}");
    }
    let unknown = std::io::Error::new(
        std::io::ErrorKind::InvalidData,
        "invalid peer certificate: UnknownIssuer",
    );
    let unknown = Error::new(Kind::Tls, unknown).with_advice("call Builder::root_certificate");
    let line = ending::Trouble::from(unknown).line("x".as_ref());
    assert_no_function(&line);
    assert!(line.contains("--ca or TDS_CA_FILE"), "{line}");
}

/// Texts of the libraries that name a function or a feature, as their sources have them. A new one
/// has to become a row of `exit::WORDS`, or of this list if it cannot reach the program.
#[test]
fn each_text_of_a_library_that_names_a_function_has_its_own_words() {
    let others = [
        // Of calls and builders that this program does not make.
        "Replay<",
        "Builder::tls",
        "Builder::connector",
        "`shutdown`",
        "`bytes`",
        "`ring`",
        "`poll_ready`",
        "`oneshot`",
        "`for_origin`",
        "`requests`",
        // These replace advice by kind.
        "`chunk`",
        "Builder::root_certificate",
        // Of commands for a shell.
        "`openssl ",
    ];
    let mut texts = Vec::new();
    for library in [
        "tower-tds",
        "tower-tds-limits",
        "tower-tds-fleet",
        "tower-oidc-cc",
        "tower-tds-errors",
    ] {
        let folder = format!("{}/../{library}/src", env!("CARGO_MANIFEST_DIR"));
        for file in sources(folder.as_ref()) {
            let source = fs::read_to_string(&file).expect("text");
            texts.extend(literals(&source));
        }
    }
    assert!(texts.len() > 300, "{}", texts.len());
    let (mut replaced, is_other) = (0, |text: &str| others.iter().any(|it| text.contains(it)));
    for text in texts.iter().filter(|text| !is_other(text)) {
        let ours = exit::plain(text);
        assert_no_function(&ours);
        replaced += usize::from(ours != *text);
    }
    assert!(
        replaced >= exit::WORDS.len(),
        "{replaced} texts for {} rows",
        exit::WORDS.len()
    );
}

fn assert_no_function(line: &str) {
    assert!(!line.contains('`') && !line.contains("::"), "{line}");
}

/// Returns the files of a library without its tests.
fn sources(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let all = fs::read_dir(folder)
        .expect("a folder")
        .map(|it| it.expect("a file").path());
    let all = all.filter(|path| !path.to_string_lossy().contains("tests"));
    let files = all.flat_map(|path| {
        if path.is_dir() {
            sources(&path)
        } else {
            vec![path]
        }
    });
    files.collect()
}

/// Returns the texts with a blank in a source: its literals, without those of attributes.
fn literals(source: &str) -> Vec<String> {
    let code = source.lines().map(str::trim);
    let code = code.filter(|line| !line.starts_with("//") && !line.starts_with('#'));
    let code = code.filter(|line| !line.starts_with("note = ") && !line.starts_with("message = "));
    let code: Vec<_> = code.collect();
    let code = code.join("\n").replace("\\\n", "").replace("\\\"", "'");
    let code = code.replace("'\"'", "' '");
    let texts = code.split('"').skip(1).step_by(2);
    texts
        .filter(|text| text.contains(' '))
        .map(str::to_owned)
        .collect()
}

#[test]
fn addresses_are_shown_without_users_passwords_and_queries() {
    for (address, shown) in [
        ("https://data.example", "https://data.example"),
        (
            "https://data.example:8443/x/",
            "https://data.example:8443/x/",
        ),
        (
            "https://data.example/x?key=s3cr3t",
            "https://data.example/x",
        ),
        ("https://data.example/x?key=s3cr3t@b#c", "(not shown)"),
        (
            "https://s3cr3t@auth.example:8443",
            "https://auth.example:8443",
        ),
        ("http://u:s3cr3t@[::1]:1", "http://[::1]:1"),
        ("http://[::1]", "http://[::1]"),
        ("redis://:s3cr3t@127.0.0.1:1/0", "redis://127.0.0.1:1/0"),
        (
            "redis+unix:///run/redis.sock?pass=s3cr3t",
            "redis+unix:///run/redis.sock",
        ),
        ("redis://:s3cr/3t@127.0.0.1:1/0", "(not shown)"),
        ("redis://:s3cr?3t@127.0.0.1:1/0", "(not shown)"),
        ("redis://:1234/3t@127.0.0.1:1/0", "(not shown)"),
        ("redis://u:1234?3t@127.0.0.1:1", "(not shown)"),
        ("u:s3cr3t@127.0.0.1", "127.0.0.1"),
        ("127.0.0.1:8080", "127.0.0.1:8080"),
    ] {
        assert_eq!(settings::address_of(address), shown, "{address}");
    }
}
