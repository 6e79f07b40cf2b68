//! A Tower layer that puts an OIDC client-credentials bearer token on each request.

pub use self::{
    credentials::Credentials,
    endpoint::TokenEndpoint,
    error::{ConfigError, Error, TokenError},
    judge::{Challenge, Judge, Judgement},
    layer::TokenLayer,
    origin::Origin,
    service::Token,
    tokens::{Tokens, TokensBuilder},
};

mod backoff;
mod clock;
mod credentials;
mod endpoint;
mod error;
pub mod future;
mod gap;
mod judge;
mod layer;
mod lifetime;
mod origin;
mod service;
mod tokens;
