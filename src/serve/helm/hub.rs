//! The search of `helm search hub --endpoint`, and the links in its results.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Serialize;
use url::{Url, form_urlencoded};

use super::row::{stored_path, unescaped};
use crate::serve::links::segment;
use crate::serve::problem::Problem;
use crate::serve::respond::respond;
use crate::serve::search::{Hit, Words, search as search_charts};
use crate::serve::site::Site;

const MAX_HITS: usize = 500;
const MAX_QUERY_BYTES: usize = 1024;

/// The part of the API of Monocular and Artifact Hub that helm reads.
#[derive(Serialize)]
struct Hits<'a> {
    data: Vec<HubChart<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HubChart<'a> {
    id: String,
    artifact_hub: ArtifactHub,
    attributes: Attributes<'a>,
    relationships: Relationships<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactHub {
    package_url: String,
}

#[derive(Serialize)]
struct Attributes<'a> {
    name: String,
    description: &'a str,
    repo: Repository,
}

#[derive(Serialize)]
struct Repository {
    /// `<namespace>.<name>`: a namespace has no dots.
    name: String,
    url: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Relationships<'a> {
    latest_chart_version: LatestVersion<'a>,
}

#[derive(Serialize)]
struct LatestVersion<'a> {
    data: VersionData<'a>,
}

#[derive(Serialize)]
struct VersionData<'a> {
    version: &'a str,
    app_version: &'a str,
}

pub(super) async fn search(
    State(site): State<Site>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = words(query.as_deref().unwrap_or_default())?;
    let visit = site.enter(&headers, None).await?;
    let base = format!("{}{}", origin(&site, &headers), site.prefix());
    let charts = visit
        .repositories()
        .flat_map(|(name, repository)| repository.charts.iter().map(move |chart| (name, chart)));
    let found = search_charts(charts, &Words::new(query.split_whitespace()), MAX_HITS);
    let data = found.hits.iter().map(|hit| hub_chart(&base, hit)).collect();
    respond(&headers, &Hits { data })
}

/// Returns the parameter `q`. helm sends others too.
fn words(query: &str) -> Result<String, Problem> {
    let mut parameters = form_urlencoded::parse(query.as_bytes());
    let words = parameters
        .find(|(name, _)| name == "q")
        .map(|(_, value)| value.into_owned());
    let words = words.unwrap_or_default();
    if words.len() > MAX_QUERY_BYTES {
        let detail = format!("the value of q takes more than {MAX_QUERY_BYTES} bytes");
        return Err(Problem::parameter("q", detail));
    }
    Ok(words)
}

fn hub_chart<'a>(base: &str, hit: &Hit<'a>) -> HubChart<'a> {
    let Hit { repository, chart, .. } = *hit;
    let full_name = format!("{}.{}", repository.namespace, repository.name);
    let path = unescaped(stored_path(&chart.chart_id));
    HubChart {
        // helm would print its endpoint, which may contain a token, without this URL.
        artifact_hub: ArtifactHub {
            package_url: format!("{base}/charts/{}/{}", segment(&full_name), segment(&path)),
        },
        id: format!("{full_name}/{path}"),
        attributes: Attributes {
            name: unescaped(&chart.name),
            description: &chart.description,
            repo: Repository {
                url: format!(
                    "{base}/helm/{}/{}",
                    segment(&repository.namespace),
                    segment(&repository.name)
                ),
                name: full_name,
            },
        },
        relationships: Relationships {
            latest_chart_version: LatestVersion {
                data: VersionData {
                    version: &chart.version,
                    app_version: &chart.app_version,
                },
            },
        },
    }
}

/// Returns the origin of `--external-url`, or else that of the request. Without the flag, there is no TLS before it.
pub(in crate::serve) fn origin(site: &Site, headers: &HeaderMap) -> String {
    if let Some(origin) = site.external_origin() {
        return origin.to_owned();
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let url = host.and_then(|host| Url::parse(&format!("http://{host}")).ok());
    url.map(|url| url.origin().ascii_serialization()).unwrap_or_default()
}

/// Redirects to the page of the chart. It tells nothing about the chart, so that it needs no credentials.
pub(super) async fn redirect(
    State(site): State<Site>,
    names: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, Problem> {
    let Path((full_name, chart)) = names.map_err(|_| Problem::unknown_path())?;
    let (namespace, repository) = full_name.split_once('.').ok_or_else(Problem::unknown_path)?;
    let parts = [namespace, repository, &chart].map(segment).join("/");
    Ok(Redirect::temporary(&format!("{}/charts/{parts}", site.prefix())).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_one_of_the_parameters() {
        assert_eq!(words("limit=5&q=web+server").unwrap(), "web server");
        assert_eq!(words("").unwrap(), "");
        assert!(words(&format!("q={}", "x".repeat(MAX_QUERY_BYTES + 1))).is_err());
    }
}
