//! Downloads a large file piece by piece. It gets its name only when it is whole.

#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "the output of a program"
)]

use std::{env, error::Error, fs, io::Write, process};

use tds_sim::{Config, Server};
use tower_tds::{Client, Credentials};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start(Config::default()).await?;
    let credentials = Credentials::new(server.client_id(), server.client_secret())?;
    let client = Client::builder(server.auth_url(), server.base_url(), credentials).build()?;

    let folder = env::temp_dir().join(format!("download-{}", process::id()));
    fs::create_dir(&folder)?;
    let (part, whole) = (folder.join("timetable.part"), folder.join("timetable"));

    // The body has no deadline here, because a large one may take any time. It fails if nothing
    // arrives for 30 s.
    let path = "/v1/history/timetable?bytes=8000000&rate=16000000";
    let mut timetable = client.get(path).await?;
    let length = timetable.content_length().unwrap_or_default();
    let (mut file, mut received) = (fs::File::create(&part)?, 0);
    // If the connection breaks, `chunk` returns an error: the rename below is then not reached.
    while let Some(piece) = timetable.chunk().await? {
        file.write_all(&piece)?;
        received += piece.len();
        eprint!("\r{received} of {length} bytes");
    }
    eprintln!();
    // Without this sync, the file may be empty after a power cut.
    file.sync_all()?;
    fs::rename(&part, &whole)?;
    println!("{} bytes in timetable", fs::metadata(&whole)?.len());

    let seen = server.ledger().summary();
    println!("the service saw {} call", seen.data_calls);
    // Your program would keep the file.
    fs::remove_dir_all(&folder)?;
    Ok(())
}
