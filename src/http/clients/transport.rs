//! Requests of another library, such as a Kubernetes client, to one server.
//!
//! Address policy, proxies, TLS and credentials are those of a [`Fetcher`]. The caller limits the requests, and the time
//! and the size of responses, which are streamed and may have any status.

use std::task::{Context, Poll};
use std::time::Duration;

use ::url::Url;
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::http::{Request, Response, Uri};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use tower::{BoxError, Service};

use crate::http::error::classify;
use crate::http::host_credentials::header;
use crate::http::request_loop::bad_redirect;
use crate::http::{FetchError, Fetcher, url};

#[derive(Clone)]
pub struct HttpTransport {
    client: reqwest::Client,
    server: Url,
    proxy: Option<Url>,
    authorization: Option<HeaderValue>,
}

impl Fetcher {
    /// Returns a service for requests to paths below the URL of a server.
    ///
    /// `connect` is the timeout of connecting, including DNS and TLS.
    pub async fn transport(&self, server: &Url, connect: Duration) -> Result<HttpTransport, FetchError> {
        url::check(server)?;
        let (client, proxy) = self.0.clients.client(server, connect, true).await?;
        let credentials = self.credentials_for(server);
        Ok(HttpTransport {
            client,
            server: url::bare(server),
            proxy: proxy.cloned(),
            authorization: credentials.as_ref().map(header).transpose()?,
        })
    }
}

impl<B> Service<Request<B>> for HttpTransport
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<reqwest::Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.clone().send(request).boxed()
    }
}

impl HttpTransport {
    async fn send<B>(self, request: Request<B>) -> Result<Response<reqwest::Body>, BoxError>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let url = self.url(&parts.uri)?;
        // Requests are in memory already.
        let body = to_bytes(Body::new(body), usize::MAX).await?;
        let mut headers = parts.headers;
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let request = self.client.request(parts.method, url.clone()).headers(headers);
        let sent = request.body(body).send().await;
        let response = sent.map_err(|error| classify(&error, &url, self.proxy.as_ref()))?;
        if response.status().is_redirection() {
            return Err(bad_redirect(&url, "redirects are not followed here").into());
        }
        Ok(response.into())
    }

    fn url(&self, uri: &Uri) -> Result<Url, BoxError> {
        let path = format!("{}{}", self.server.path().trim_end_matches('/'), uri.path());
        let mut url = self.server.clone();
        url.set_path(&path);
        // A URL has no `..`, which would lead to another path than the caller has chosen.
        if url.path() != path {
            return Err(format!("invalid path of a request: {path}").into());
        }
        url.set_query(uri.query());
        Ok(url)
    }
}
