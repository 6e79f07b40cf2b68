//! The question: one token request, as it is sent (RFC 6749, section 4.4.2).

use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};

use crate::{Credentials, Parameters, TokenEndpoint, TokenError, form::Form};

#[cfg(test)]
mod tests;

/// Whom to ask, and for what.
pub(in crate::tokens) struct Ask {
    endpoint: TokenEndpoint,
    parameters: Parameters,
}

// === impl Ask ===

impl Ask {
    pub(in crate::tokens) fn new(endpoint: TokenEndpoint, parameters: Parameters) -> Self {
        Self {
            endpoint,
            parameters,
        }
    }

    /// Makes one request. Each attempt makes its own: a signed statement is good for one.
    pub(super) fn request_at<B: From<Bytes>>(
        &self,
        now: SystemTime,
        credentials: &Credentials,
    ) -> Result<Request<B>, TokenError> {
        let mut form = Form::default();
        form.append("grant_type", "client_credentials");
        let proof = credentials.prove_at(now, &self.endpoint, &mut form)?;
        self.parameters.append_to(&mut form);

        let mut request = Request::new(B::from(form.into_bytes()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.uri().clone();
        let headers = request.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
        // Without it, a Keycloak in trouble may answer with a page for a browser.
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(proof) = proof {
            headers.insert(header::AUTHORIZATION, proof);
        }
        Ok(request)
    }
}
