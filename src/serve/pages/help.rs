//! Help: what the catalog shows, and how programs use it.

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

use super::{Frame, PageError, page};
use crate::serve::site::Site;

#[derive(Template)]
#[template(path = "help.html", config = "src/serve/pages/askama.toml")]
struct HelpPage {
    frame: Frame,
    /// Requests of a caller per second, and after a pause.
    rate: u32,
    burst: u32,
}

/// Shows the help also to callers without a token: it says how to get one.
pub(super) async fn show(State(site): State<Site>, headers: HeaderMap) -> Result<Response, PageError> {
    let frame = match site.enter(&headers, None).await {
        Ok(visit) => Frame::new(&site, &visit, "help"),
        Err(_) => Frame::without_visit(&site, "help"),
    };
    let limits = site.request_limits();
    let help = HelpPage {
        frame,
        rate: limits.rate.get(),
        burst: limits.burst.get(),
    };
    page(&site, &headers, &help)
}
