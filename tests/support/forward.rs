//! Forwards requests to another server.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, header};

/// The server behind a proxy.
pub struct Upstream {
    base: String,
    client: reqwest::Client,
}

impl Upstream {
    /// A server at this address, without a path; `ca_pem` is the authority of its certificate.
    pub fn new(base: &str, ca_pem: Option<&str>) -> Self {
        portolan::http::install_crypto_provider();
        let roots = ca_pem.map(|pem| reqwest::Certificate::from_pem(pem.as_bytes()).expect("a certificate"));
        let builder = reqwest::Client::builder()
            .no_gzip()
            .no_proxy()
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .tls_certs_only(roots);
        Self {
            base: base.to_owned(),
            client: builder.build().expect("the client is valid"),
        }
    }

    /// Returns the response; `None` if there is none.
    pub async fn answer(&self, request: Request) -> Option<Response<Body>> {
        let (mut parts, body) = request.into_parts();
        // These headers belong to one connection, not to the request.
        for name in [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING] {
            parts.headers.remove(name);
        }
        let url = format!("{}{}", self.base, parts.uri);
        let request = self.client.request(parts.method, url).headers(parts.headers);
        let body = reqwest::Body::wrap_stream(body.into_data_stream());
        let answer = request.body(body).send().await.ok()?;
        let mut response = Response::builder().status(answer.status());
        for (name, value) in answer.headers() {
            if !matches!(*name, header::CONNECTION | header::TRANSFER_ENCODING) {
                response = response.header(name, value);
            }
        }
        let body = Body::from_stream(answer.bytes_stream());
        Some(response.body(body).expect("the response is valid"))
    }
}
