//! A large body goes through a program in little memory, however large it is.

use tds_sim::Config;
use tokio::runtime::Builder;

use crate::client::world::{Built as _, builder, start};

/// Downloads like the example `download`. Returns the number of bytes.
async fn download(server: &tds_sim::Server) -> usize {
    let path = format!("/v1/history/timetable?bytes={BYTES}");
    let call = builder(server).built().get(path).await;
    let (mut timetable, mut bytes) = (call.expect("data"), 0);
    while let Some(piece) = timetable.chunk().await.expect("a whole body") {
        bytes += piece.len();
    }
    bytes
}

#[test]
fn a_download_takes_less_than_4_megabytes() {
    // Allocations are counted in this thread, which is the client's.
    let serves = Builder::new_multi_thread().enable_all().build();
    let serves = serves.expect("threads");
    let server = serves.block_on(start(Config::default()));
    let downloads = Builder::new_current_thread().enable_all().build();
    let downloads = downloads.expect("a runtime");
    let mut bytes = 0;
    let seen = allocation_counter::measure(|| bytes = downloads.block_on(download(&server)));
    assert_eq!(bytes, BYTES);
    let most = seen.bytes_max;
    assert!((100_000..4_000_000).contains(&most), "{most} at once");
}

/// Twelve times the memory that the download may take.
const BYTES: usize = 50_000_000;
