//! Archives of chart versions: a redirect to the source, or the archive itself.

use std::io::{self, Read};

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use tokio::time::timeout;
use url::Url;

use super::body::stream_body;
use super::permits::ArchivePermit;
use super::render::file_name;
use super::row::{Row, base_name, stored_path};
use super::source::{ArchiveError, ArchiveRequest, ArchiveSource};
use super::{ArchiveMode, FETCH_TIMEOUT};
use crate::api::NamespacedName;
use crate::helm::location::{ArchiveLocation, locate_archive};
use crate::serve::problem::Problem;
use crate::serve::site::Site;

const UNVERIFIED: &str = "299 - \"the index contains no digest of this archive, it was not compared\"";

/// The parts of a path: `namespace`, `repository`, `chart`, `version` and `file`.
type Names = Result<Path<(String, String, String, String, String)>, PathRejection>;

pub(super) async fn show(
    State(site): State<Site>,
    method: Method,
    headers: HeaderMap,
    names: Names,
) -> Result<Response, Problem> {
    let Path((namespace, repository, chart, version, file)) = names.map_err(|_| Problem::unknown_path())?;
    let repository = NamespacedName::new(namespace, repository);
    let visit = site.enter(&headers, Some(&repository.namespace)).await?;
    visit.repository(&repository)?;
    let record = visit.loaded().records.get(&repository);
    // Without record, it is not known whether the repository needs credentials.
    let is_public = record.is_some_and(|record| record.credentials.is_empty());
    let is_registry = record.is_some_and(|record| record.kind == "oci");
    let user = visit.caller.user.clone();
    drop(visit);
    let chart_id = format!("{}/{}", repository.name, chart.replace('/', "%2F"));
    let find = {
        let (repository, chart_id) = (repository.clone(), chart_id.clone());
        move |info: &str| find(info, &chart_id, repository, &version, &file)
    };
    let found = site.rows().chart(&repository, &chart_id, find).await?;
    let found = found.and_then(|decoded| decoded.value).ok_or_else(|| {
        Problem::not_found(format!(
            "the index of {repository} has no such archive; update it with `helm repo update`"
        ))
    })?;
    let request = ArchiveRequest {
        is_public,
        is_registry,
        ..found
    };
    let helm = site.helm();
    match (helm.archives, &helm.source) {
        (ArchiveMode::Redirect, _) => redirect(&request),
        (ArchiveMode::Proxy, _) if method == Method::HEAD => Ok(archive_response(unknown_length(), None, true)),
        (ArchiveMode::Proxy, Some(source)) => {
            let permit = helm.permits.acquire(&repository.namespace, user.as_deref()).await?;
            proxy(source.as_ref(), request, permit).await
        }
        (ArchiveMode::Proxy, None) => Err(Problem::internal()),
    }
}

/// Finds a version in the row of a chart. Of duplicate versions the first counts.
fn find(info: &str, chart_id: &str, repository: NamespacedName, version: &str, file: &str) -> Option<ArchiveRequest> {
    let row = Row::decode(info)?;
    let name = row.name(stored_path(chart_id));
    if file != file_name(base_name(&name), version) {
        return None;
    }
    let mut rows = row
        .versions()
        .iter()
        .filter(|row| row.version() == version && row.url().is_some());
    let first = rows.next()?;
    let digests = [first].into_iter().chain(rows).map(|row| row.digest().to_owned());
    Some(ArchiveRequest {
        repository,
        repository_url: row.repository_url().to_owned(),
        is_public: false,
        is_registry: false,
        url: first.url()?.to_owned(),
        version: version.to_owned(),
        digests: digests.collect(),
    })
}

/// Redirects to the stored URL, unless it or its repository has credentials.
fn redirect(request: &ArchiveRequest) -> Result<Response, Problem> {
    let needs_proxy = |problem: &str| {
        Problem::refused(format!(
            "{problem}; the operator of this catalog can serve its archives with --archives=proxy"
        ))
    };
    let location = locate_archive(&request.url, &request.repository_url);
    let url = match location {
        Ok(ArchiveLocation::Web(url)) => url,
        Ok(ArchiveLocation::Registry(_)) => {
            return Err(needs_proxy("the archive is in a registry, pull it from there"));
        }
        Ok(ArchiveLocation::File(_)) => return Err(needs_proxy("the archive is a file of the process that syncs it")),
        Err(error) => return Err(Problem::not_found(format!("{error}; fix the index of the repository"))),
    };
    // Some servers expect a token in the query. A relative URL inherits both, and the URLs of a private index may have tokens.
    let repository = Url::parse(&request.repository_url).ok();
    let is_secret = |url: &Url| url.query().is_some() || has_user_info(url);
    if !request.is_public || repository.as_ref().is_some_and(is_secret) || has_user_info(&url) {
        return Err(needs_proxy(
            "the repository needs credentials, which are not sent to clients",
        ));
    }
    let location = HeaderValue::from_str(url.as_str()).map_err(|_| Problem::internal())?;
    let headers = [
        (header::LOCATION, location),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((StatusCode::FOUND, headers).into_response())
}

fn has_user_info(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

async fn proxy(
    source: &dyn ArchiveSource,
    request: ArchiveRequest,
    permit: ArchivePermit,
) -> Result<Response, Problem> {
    let repository = request.repository.clone();
    let fetched = timeout(FETCH_TIMEOUT, source.fetch(request)).await;
    let late = |_| ArchiveError::Failed {
        reason: "Timeout".to_owned(),
    };
    let fetched = fetched.map_err(late).flatten();
    let archive = fetched.inspect_err(|error| tracing::debug!(%repository, %error, "an archive is not served"))?;
    let reader = PermittedReader {
        content: archive.content,
        _permit: permit,
    };
    Ok(archive_response(
        stream_body(reader),
        Some(archive.bytes),
        archive.is_verified,
    ))
}

struct PermittedReader {
    content: Box<dyn Read + Send>,
    _permit: ArchivePermit,
}

impl Read for PermittedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.content.read(buffer)
    }
}

/// Returns the body of a response to HEAD, whose length is known after a download only.
fn unknown_length() -> Body {
    Body::from_stream(stream::empty::<io::Result<Vec<u8>>>())
}

fn archive_response(body: Body, bytes: Option<u64>, is_verified: bool) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/gzip"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(bytes) = bytes {
        headers.insert(header::CONTENT_LENGTH, bytes.into());
    }
    if !is_verified {
        headers.insert(header::WARNING, HeaderValue::from_static(UNVERIFIED));
    }
    response
}

impl From<ArchiveError> for Problem {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Failed { .. } => Self::bad_gateway(error.to_string()),
            ArchiveError::Busy { retry_after } => Self::unavailable(error.to_string(), retry_after),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(url: &str, repository_url: &str) -> ArchiveRequest {
        ArchiveRequest {
            repository: NamespacedName::new("team-a", "stable"),
            repository_url: repository_url.to_owned(),
            is_public: true,
            is_registry: false,
            url: url.to_owned(),
            version: "1.0.0".to_owned(),
            digests: Vec::new(),
        }
    }

    fn location(request: &ArchiveRequest) -> Result<String, StatusCode> {
        match redirect(request) {
            Ok(response) => Ok(response.headers()[header::LOCATION].to_str().unwrap().to_owned()),
            Err(problem) => Err(problem.into_response().status()),
        }
    }

    #[test]
    fn archives_of_public_repositories_are_where_their_index_says() {
        let repository = "https://charts.example/stable";
        for (url, target) in [
            ("web-1.0.0.tgz", "https://charts.example/stable/web-1.0.0.tgz"),
            ("https://cdn.example/web.tgz?v=1", "https://cdn.example/web.tgz?v=1"),
        ] {
            assert_eq!(location(&request(url, repository)).as_deref(), Ok(target));
        }
    }

    #[test]
    fn credentials_are_never_part_of_a_redirect() {
        let repository = "https://charts.example/stable";
        let private = ArchiveRequest {
            is_public: false,
            ..request("web-1.0.0.tgz", repository)
        };
        for refused in [
            private,
            request("web-1.0.0.tgz", "https://me:hush@charts.example"),
            request("web-1.0.0.tgz", "https://charts.example?token=hush"),
            request("https://me:hush@cdn.example/web.tgz", repository),
            request(
                "https://cdn.example/web.tgz?token=hush",
                "https://me:hush@charts.example",
            ),
            request("oci://registry.example/web:1.0.0", repository),
            request("web-1.0.0.tgz", "file:./charts"),
        ] {
            assert_eq!(location(&refused), Err(StatusCode::FORBIDDEN), "{refused:?}");
        }
        assert_eq!(
            location(&request("javascript:alert(1)", repository)),
            Err(StatusCode::NOT_FOUND)
        );
    }

    #[test]
    fn only_a_stored_version_is_found_with_the_digests_of_its_duplicates() {
        let info = json!({
            "name": "team%2Fweb", "repo": {"url": " https://charts.example "},
            "chartVersions": [
                {"version": "1.0.0", "digest": "ab", "urls": ["a.tgz", "b.tgz"]},
                {"version": "1.0.0", "digest": "cd", "urls": ["c.tgz"]},
                {"version": "0.9.0", "urls": null},
            ],
        });
        let find = |version: &str, file: &str| {
            let repository = NamespacedName::new("team-a", "stable");
            find(&info.to_string(), "stable/team%2Fweb", repository, version, file)
        };
        let found = find("1.0.0", "web-1.0.0.tgz").unwrap();
        assert_eq!(
            (&*found.url, &*found.repository_url),
            ("a.tgz", "https://charts.example")
        );
        assert_eq!(found.digests, ["ab", "cd"]);
        assert!(find("1.0.0", "web-1.0.1.tgz").is_none());
        assert!(find("0.9.0", "web-0.9.0.tgz").is_none());
        assert!(find("2.0.0", "web-2.0.0.tgz").is_none());
    }
}
