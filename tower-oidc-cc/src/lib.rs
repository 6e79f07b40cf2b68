//! A Tower layer that puts an OIDC client-credentials bearer token on each request.
