//! A fetcher of GTFS-realtime: the response's bytes are a message of prost.

use http::Response;
use prost::Message;
use tds_compat::{Failure, Seen, Server, json};
use tower_tds::Kind;

/// What the fetcher reads of `FeedMessage`, with the tags of gtfs-realtime.proto.
#[derive(Message)]
struct Feed {
    #[prost(message, repeated, tag = "2")]
    entity: Vec<Entity>,
}

#[derive(Message)]
struct Entity {
    #[prost(string, tag = "1")]
    id: String,
}

#[tokio::test]
async fn feed_of_positions_is_fetched() -> Result<(), Failure> {
    let server = Server::answering(|call: &Seen| {
        let entity = |line: u32| Entity { id: format!("bus-{line}") };
        let feed = Feed { entity: (0..1_000).map(entity).collect() };
        match call.uri.path() {
            "/positions.pb" => Response::new(feed.encode_to_vec().into()),
            _ => json(404, "{}"),
        }
    })
    .await?;
    let client = server.client()?;

    let feed = Feed::decode(client.get("/positions.pb").await?.bytes().await?)?;
    assert_eq!((feed.entity.len(), &*feed.entity[999].id), (1_000, "bus-999"));
    let missing = client.get("/alerts.pb").await.expect_err("it is not there");
    assert_eq!(missing.kind(), Kind::NotFound);
    assert_eq!(server.seen(), ["GET /positions.pb 0 200", "GET /alerts.pb 0 404"]);
    Ok(())
}
