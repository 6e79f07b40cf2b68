//! Token, limits and errors for a public transport data service, assembled over hyper and rustls.
