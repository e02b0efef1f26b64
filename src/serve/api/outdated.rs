//! The comparison of installed charts with the catalog, by names and versions.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodRouter, post};

use crate::releases::{MAX_CHARTS, OutdatedRequest, OutdatedResponse};
use crate::serve::access::check_origin;
use crate::serve::outdated;
use crate::serve::problem::Problem;
use crate::serve::respond::{Content, JSON, negotiate, send};
use crate::serve::site::Site;

const MAX_BODY: usize = 1024 * 1024;
const MAX_PREFERRED: usize = 100;
const MAX_SOURCES: usize = 100;

pub(super) fn route() -> MethodRouter<Site> {
    post(judge).layer(DefaultBodyLimit::max(MAX_BODY))
}

/// Reads the body last, so that only callers who were identified take memory for it.
async fn judge(State(site): State<Site>, headers: HeaderMap, request: Request) -> Result<Response, Problem> {
    if site.sessions().in_use(&headers).is_some() {
        // A page of another site would have the cookie of this one.
        check_origin(&headers, site.external_origin()).map_err(|error| Problem::form(error.to_string()))?;
    }
    let visit = site.enter(&headers, None).await?;
    negotiate(&headers, &[JSON])?;
    if !is_json(&headers) {
        return Err(Problem::media_type(JSON));
    }
    let body = Bytes::from_request(request, &site).await;
    let request = parse(&body.map_err(|error| refuse(&error))?)?;
    let response = OutdatedResponse {
        items: outdated::judge_charts(&site, &visit, request).await?,
        stale: visit.stale().is_some(),
    };
    send(&headers, Content::json(&response)?).await
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = value.unwrap_or_default().split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case(JSON)
}

fn parse(body: &[u8]) -> Result<OutdatedRequest, Problem> {
    let request: OutdatedRequest =
        serde_json::from_slice(body).map_err(|error| Problem::body(format!("the body is not valid: {error}")))?;
    let limits = [
        (request.charts.len(), MAX_CHARTS, "charts"),
        (request.prefer.len(), MAX_PREFERRED, "preferred repositories"),
    ];
    let sources = request.charts.iter().map(|chart| chart.sources.len());
    let sources = sources.map(|count| (count, MAX_SOURCES, "sources of a chart"));
    let exceeded = limits
        .into_iter()
        .chain(sources)
        .find(|(count, limit, _)| count > limit);
    match exceeded {
        Some((_, limit, of)) => Err(Problem::body(format!("more than {limit} {of}; send several requests"))),
        None => Ok(request),
    }
}

fn refuse(error: &BytesRejection) -> Problem {
    if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
        Problem::body_too_large(MAX_BODY)
    } else {
        Problem::query("failed to read the body; send it again")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_beyond_a_limit_is_refused() {
        let chart = |sources: usize| json!({ "name": "web", "version": "1.0.0", "sources": vec!["x"; sources] });
        let preferred = json!({ "namespace": "a", "name": "b" });
        let parsed = |body: serde_json::Value| parse(body.to_string().as_bytes()).map_err(|problem| problem.detail);
        assert!(parsed(json!({ "charts": vec![chart(MAX_SOURCES); MAX_CHARTS], "prefer": [preferred] })).is_ok());
        for (body, named) in [
            (json!({ "charts": vec![chart(0); MAX_CHARTS + 1] }), "charts"),
            (json!({ "charts": [chart(MAX_SOURCES + 1)] }), "sources"),
            (
                json!({ "charts": [], "prefer": vec![preferred; MAX_PREFERRED + 1] }),
                "preferred",
            ),
            (json!({ "charts": [{ "name": "web" }] }), "version"),
            (json!([]), "not valid"),
        ] {
            let detail = parsed(body).unwrap_err();
            assert!(detail.contains(named), "{detail}");
        }
    }
}
