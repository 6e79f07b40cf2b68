//! A pager of OData: each page names the next one, as an absolute URL or as a path.

use serde_json::Value;
use tds_compat::{Failure, Seen, Server, json};

#[tokio::test]
async fn pages_are_followed_to_the_last_one() -> Result<(), Failure> {
    let server = Server::answering(|call: &Seen| {
        let host = call.headers["host"].to_str().expect("a host");
        let query = call.uri.query().unwrap_or_default();
        let next = match query {
            "$skip=2" => r#", "@odata.nextLink":"/stops?$skip=4""#.to_owned(),
            "$skip=4" => String::new(),
            _ => format!(r#", "@odata.nextLink":"http://{host}/stops?$skip=2""#),
        };
        json(200, &format!(r#"{{"value":["{query}"]{next}}}"#))
    })
    .await?;
    let client = server.client()?;

    let mut next = Some("/stops?$filter=line%20eq%20'307'".to_owned());
    let mut stops = Vec::new();
    while let Some(target) = next {
        let page: Value = serde_json::from_slice(&client.get(target).await?.bytes().await?)?;
        stops.extend(page["value"].as_array().into_iter().flatten().cloned());
        next = page["@odata.nextLink"].as_str().map(str::to_owned);
    }
    let queries = ["$filter=line%20eq%20'307'", "$skip=2", "$skip=4"];
    assert_eq!(stops, queries);
    assert_eq!(server.seen(), queries.map(|query| format!("GET /stops?{query} 0 200")));
    assert_eq!(server.tokens(), 1);
    Ok(())
}
