mod fresh;

#[expect(
    clippy::duplicate_mod,
    dead_code,
    reason = "the shared parts as they are, on other locks"
)]
mod model;
