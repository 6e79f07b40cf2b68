//! For months of history: each file is there only when it is whole, and a second run does the rest.
//!
//! ```text
//! cargo run --bin bulk -- history
//! ```
//!
//! All downloads are asked for at once: how many of them run, and when each starts, is the limits'
//! business. Bodies go to the disk as they come, compressed on the way.

use std::{path::Path, process::ExitCode};

use http::{Request, Uri};
use http_body_util::BodyExt;
use tds_examples::{Service, argument, causes, end, say, warn};
use tokio::{fs, io::AsyncWriteExt, task::JoinSet};
use tower::{BoxError, ServiceExt};
use tower_tds::{Client, RequestBody};

#[tokio::main]
async fn main() -> ExitCode {
    end(run().await)
}

async fn run() -> Result<(), BoxError> {
    let folder = argument("bulk [FOLDER]")?.unwrap_or_else(|| "history".to_owned());
    let service = Service::find().await?;
    let client = service.client()?.compression().build()?;
    let made = fs::create_dir_all(&folder).await;
    made.map_err(|error| format!("the folder {folder} cannot be made: {error}"))?;

    let mut downloads = JoinSet::new();
    for day in 1..=31 {
        let file = Path::new(&folder).join(format!("2026-10-{day:02}.csv"));
        if !fs::try_exists(&file).await? {
            let url = service.url(&format!("/v1/history/2026-10-{day:02}"))?;
            let client = client.clone();
            downloads.spawn(async move {
                let done = download(client, url, &file).await;
                done.map_err(|error| warn(&format!("{}: {}", file.display(), causes(&*error))))
            });
        }
    }
    let wanted = downloads.len();
    let brought = downloads.join_all().await.into_iter().flatten().count();
    say(&format!("{brought} of {wanted} missing files brought\n"))?;
    if brought < wanted {
        return Err("run it again for the others".into());
    }
    Ok(())
}

/// Writes beside the file and renames in the end, so that whoever sees the file sees all of it.
async fn download(client: Client, url: Uri, file: &Path) -> Result<(), BoxError> {
    let request = Request::get(url).body(RequestBody::default())?;
    let mut body = client.oneshot(request).await?.into_body();
    let part = file.with_extension("part");
    let mut out = fs::File::create(&part).await?;
    // However long it takes in all, half a minute without a byte is the end: the client sees to it.
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            out.write_all(&data).await?;
        }
    }
    if !body.is_verifiable() {
        return Err("nothing said how long it is, so that it may be cut: it stays a .part".into());
    }
    out.sync_all().await?;
    Ok(fs::rename(&part, file).await?)
}
