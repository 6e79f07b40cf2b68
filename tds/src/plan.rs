//! `tds bulk --dry-run`: prints what would be fetched, resumed and skipped.

use serde_json::json;
use tokio::fs;

use crate::{
    download::{Downloads, Found},
    ending::Trouble,
    exit::{Exit, Failure},
    list::Item,
    output::{self, counted},
    save::PART,
};

/// Prints a line for each item, and the totals.
pub(crate) async fn print(
    downloads: &Downloads,
    items: &[Item],
    is_json: bool,
) -> Result<Exit, Failure> {
    let (mut fetched, mut resumed, mut skipped) = (0, 0, 0);
    for item in items {
        let path = downloads.out.join(&item.name);
        let found = downloads.look(item, &path).await;
        let found =
            found.map_err(|error| Trouble::from(error).failure(&item.name.to_string_lossy()));
        let mut part = path.into_os_string();
        part.push(PART);
        let begun = match downloads.manifest.part(item).filter(|_| downloads.resume) {
            Some(_) => fs::metadata(part).await.map_or(0, |part| part.len()),
            None => 0,
        };
        let (count, what) = match found? {
            Found::Whole => (&mut skipped, "skip"),
            Found::Outdated(_) | Found::Missing if begun > 0 => (&mut resumed, "resume"),
            Found::Outdated(_) | Found::Missing => (&mut fetched, "fetch"),
        };
        *count += 1;
        let name = item.name.display();
        let (text, url) = (format!("{what}\t{name}\t{}\n", item.target), &item.target);
        let file = name.to_string();
        let event =
            json!({ "event": "plan", "file": file, "url": url, "would": what, "has": begun });
        if !output::tell(is_json, &event, text)? {
            return Ok(Exit::Whole);
        }
    }
    let files = counted(fetched + resumed + skipped, "file");
    output::note(&format!(
        "{files}: {fetched} to fetch, {resumed} to resume, {skipped} to skip; nothing was requested"
    ));
    Ok(Exit::Whole)
}
