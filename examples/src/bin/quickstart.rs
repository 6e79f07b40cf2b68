//! The main job: fetch a token, then data, inside the limits.
fn main() {}
