//! Prints the public items of a crate from rustdoc's JSON, one a line.
//!
//! Left out: blanket implementations and auto traits, which every type has, the items that pin-project-lite adds, and the pages of
//! documentation.

use std::{env, error::Error};

use public_api::Builder;

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("usage: tds-api rustdoc.json")?;
    let api = Builder::from_rustdoc_json(path)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()?;
    for item in api.items() {
        let line = item.to_string();
        if !line.contains("__private")
            && !line.contains("::_design")
            && !line.contains("::_servers")
        {
            println!("{line}");
        }
    }
    Ok(())
}
