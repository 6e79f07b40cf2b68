//! A process whose memory is looked at while it stands still.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::FileExt as _,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use zeroize::Zeroizing;

pub(crate) struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: BufReader<ChildStdout>,
    stopped: bool,
}

// === impl Process ===

impl Process {
    /// Starts this test binary anew, for one case, with what it needs in masked variables.
    pub(crate) fn start(case: &str, given: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "memory::the_process_that_is_looked_at",
                "--nocapture",
            ])
            .args(["--test-threads", "1"])
            .env("MEMORY_CASE", case)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        for (name, value) in given {
            command.env(name, masked(value));
        }
        let mut child = command.spawn().unwrap();
        Self {
            stdin: child.stdin.take().unwrap(),
            lines: BufReader::new(child.stdout.take().unwrap()),
            child,
            stopped: false,
        }
    }

    /// Lets it run to its next stop, which is this one.
    pub(crate) fn stops_at(&mut self, at: &str) {
        if self.stopped {
            self.stdin.write_all(b"on\n").unwrap();
        }
        let mut line = String::new();
        while line.trim() != at {
            line.clear();
            let read = self.lines.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "the process ended before {at}");
            let stop = STOPS.contains(&line.trim());
            assert!(
                !stop || line.trim() == at,
                "it is at {line} and not at {at}"
            );
        }
        self.stopped = true;
    }

    /// All of each text is there, or the scan does not know what it looks for.
    pub(crate) fn finds(&self, texts: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        let memory = self.memory();
        for text in texts {
            let text = text.as_ref();
            assert!(memory.contains(text), "not found: {}", shown(text));
        }
    }

    pub(crate) fn finds_one_of(&self, texts: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        let memory = self.memory();
        let mut texts = texts.into_iter();
        // The last digits of base64 depend on what follows.
        let found = texts.any(|text| memory.contains(&text.as_ref()[..64]));
        assert!(found, "found none of them");
    }

    /// No piece of any text is there.
    pub(crate) fn finds_nothing(&self, texts: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        let memory = self.memory();
        for text in texts {
            for piece in text.as_ref().chunks_exact(PIECE) {
                assert!(!memory.contains(piece), "found {}", shown(piece));
            }
        }
    }

    fn memory(&self) -> Memory {
        let id = self.child.id();
        let memory = fs::File::open(format!("/proc/{id}/mem")).unwrap();
        let maps = fs::read_to_string(format!("/proc/{id}/maps")).unwrap();
        let mut runs = Vec::new();
        for line in maps.lines() {
            let (range, rest) = line.split_once(' ').unwrap();
            if !rest.starts_with("rw") {
                continue;
            }
            let (start, end) = range.split_once('-').unwrap();
            let [start, end] = [start, end].map(|at| u64::from_str_radix(at, 16).unwrap());
            let mut run = Vec::new();
            let mut page = vec![0; PAGE];
            for at in (start..end).step_by(PAGE) {
                // A page that was never written to holds no secret.
                if memory.read_exact_at(&mut page, at).is_ok() && page.iter().any(|b| *b != 0) {
                    run.extend_from_slice(&page);
                } else {
                    runs.push(std::mem::take(&mut run));
                }
            }
            runs.push(run);
        }
        runs.retain(|run| !run.is_empty());
        Memory { runs }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The child is this test's own, and may stand at a stop without a waiter.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Whatever may be written, without the pages that are zero.
struct Memory {
    runs: Vec<Vec<u8>>,
}

// === impl Memory ===

impl Memory {
    fn contains(&self, text: &[u8]) -> bool {
        let first = text[0];
        self.runs.iter().any(|run| {
            let mut rest = run.as_slice();
            while let Some(at) = rest.iter().position(|b| *b == first) {
                rest = &rest[at..];
                if rest.starts_with(text) {
                    return true;
                }
                rest = &rest[1..];
            }
            false
        })
    }
}

fn shown(text: &[u8]) -> String {
    text.escape_ascii().to_string()
}

/// A text as a variable of the environment may carry it and no scan takes it for the text.
pub(crate) fn masked(text: &str) -> String {
    text.bytes().map(|b| format!("{:02x}", b ^ MASK)).collect()
}

/// The value of a variable before it was masked, in memory that is wiped.
pub(crate) fn unmasked(name: &str) -> Zeroizing<String> {
    let masked = env::var(name).unwrap();
    let mut text = Zeroizing::new(String::with_capacity(masked.len()));
    for at in (0..masked.len()).step_by(2) {
        let byte = u8::from_str_radix(&masked[at..at + 2], 16).unwrap();
        text.push(char::from(byte ^ MASK));
    }
    text
}

const STOPS: [&str; 4] = ["asked", "held", "dropped", "refused"];
const PIECE: usize = 16;
const PAGE: usize = 4096;
const MASK: u8 = 0xa5;
