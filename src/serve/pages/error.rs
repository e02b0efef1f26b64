//! Problems as pages, for browsers.

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};

use super::links::with_query;
use super::{Frame, HTML, page};
use crate::serve::problem::Problem;
use crate::serve::respond::negotiate;
use crate::serve::site::Site;

const PROBLEM: &str = "application/problem+json";
/// Paths below the prefix whose clients are programs.
const MACHINE_PATHS: [&str; 2] = ["/api/", "/helm/"];
/// Headers of a problem that its page has too.
const KEPT_HEADERS: [&str; 2] = ["allow", "retry-after"];

/// A problem of a page. [`show_problems`] shows it.
#[derive(Debug)]
pub(super) struct PageError(Problem);

impl<E: Into<Problem>> From<E> for PageError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

#[derive(Template)]
#[template(path = "error.html", config = "src/serve/pages/askama.toml")]
struct ErrorPage<'a> {
    frame: Frame,
    title: &'a str,
    detail: String,
    advice: &'static str,
    retry_after: Option<u64>,
    needs_namespace: bool,
}

impl<'a> ErrorPage<'a> {
    fn new(site: &Site, problem: &'a Problem) -> Self {
        Self {
            frame: Frame::without_visit(site, ""),
            title: problem.title,
            detail: sentence(&problem.detail),
            advice: advice(problem),
            retry_after: problem.retry_after,
            needs_namespace: problem.needs_namespace,
        }
    }
}

/// Makes a sentence of a detail, without the hint for clients of the API.
pub(super) fn sentence(detail: &str) -> String {
    let detail = detail.split("; see /api/").next().unwrap_or_default();
    let mut characters = detail.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string());
    let end = if detail.ends_with(['.', '?', '!']) { "" } else { "." };
    format!("{}{}{end}", first.unwrap_or_default(), characters.as_str())
}

fn advice(problem: &Problem) -> &'static str {
    match problem.status() {
        _ if problem.needs_namespace => "Enter the namespace that you want to see.",
        _ if problem.is_of_form() => "Open the page by the address of the catalog, and send its form again.",
        _ if problem.is_of_cluster() => {
            "Ask an administrator of the cluster for this right. A new right applies at once."
        }
        StatusCode::BAD_REQUEST => "Correct the address, or start again from the catalog.",
        StatusCode::UNAUTHORIZED => "Sign in with a token of the cluster.",
        StatusCode::FORBIDDEN => {
            "Ask an administrator for this right, which the role view of Portolan's chart grants. \
             A new right applies within a minute."
        }
        StatusCode::NOT_FOUND => "It may have been removed, or the address has a typing error. Search the catalog.",
        StatusCode::METHOD_NOT_ALLOWED => "Open the page by a link instead of a form.",
        StatusCode::MISDIRECTED_REQUEST => "Use the address that your administrator gave you.",
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => "Wait a moment, then load the page again.",
        StatusCode::URI_TOO_LONG => "Shorten the search.",
        _ => "Load the page again. If this goes on, tell your administrator the time and the address.",
    }
}

/// Shows the problems of all routes to browsers, except those of machine paths, and asks callers without a token to sign in.
/// Other clients get them as JSON.
pub(in crate::serve) async fn show_problems(State(site): State<Site>, request: Request, next: Next) -> Response {
    let is_page = prefers_html(request.headers()) && !is_machine_path(site.prefix(), request.uri().path());
    if !is_page {
        return next.run(request).await;
    }
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let mut response = next.run(request).await;
    let Some(problem) = response.extensions_mut().remove::<Problem>() else {
        return response;
    };
    let mut shown = if problem.status() == StatusCode::UNAUTHORIZED && is_read(&method) {
        sign_in(&site, &uri)
    } else {
        show(&site, &problem)
    };
    let (parts, _) = response.into_parts();
    for name in KEPT_HEADERS {
        if let Some(value) = parts.headers.get(name) {
            shown.headers_mut().insert(name, value.clone());
        }
    }
    // Permits of the request end with its body.
    shown.extensions_mut().extend(parts.extensions);
    shown
}

fn prefers_html(headers: &HeaderMap) -> bool {
    negotiate(headers, &[PROBLEM, HTML]).is_ok_and(|media_type| media_type == HTML)
}

fn is_machine_path(prefix: &str, path: &str) -> bool {
    let path = path.strip_prefix(prefix).unwrap_or(path);
    MACHINE_PATHS.iter().any(|machine| path.starts_with(machine))
}

fn is_read(method: &Method) -> bool {
    [Method::GET, Method::HEAD].contains(method)
}

/// Redirects to the sign-in, which returns to the page.
fn sign_in(site: &Site, uri: &Uri) -> Response {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let login = with_query(&format!("{}/login", site.prefix()), [("next", path)]);
    let mut response = Redirect::to(&login).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn show(site: &Site, problem: &Problem) -> Response {
    // Without the headers of the request: there is no earlier representation of a problem.
    let mut response = match page(site, &HeaderMap::new(), &ErrorPage::new(site, problem)) {
        Ok(response) => response,
        Err(error) => return error.into_response(),
    };
    *response.status_mut() = problem.status();
    let headers = response.headers_mut();
    headers.remove(header::ETAG);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_becomes_a_sentence_for_people() {
        let detail = "there is no repository a/b; see /api/v1/repositories";
        assert_eq!(sentence(detail), "There is no repository a/b.");
        assert_eq!(sentence("retry later."), "Retry later.");
        assert_eq!(sentence(""), ".");
    }

    #[test]
    fn browsers_get_pages_and_programs_problems() {
        let prefers = |accept: &'static str| {
            prefers_html(&HeaderMap::from_iter([(
                header::ACCEPT,
                HeaderValue::from_static(accept),
            )]))
        };
        assert!(prefers(
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
        ));
        assert!(!prefers("*/*") && !prefers("application/json") && !prefers_html(&HeaderMap::new()));
        assert!(is_machine_path("/catalog", "/catalog/api/v1/charts") && is_machine_path("", "/helm/a/b/index.yaml"));
        assert!(!is_machine_path("/catalog", "/catalog/repositories") && !is_machine_path("", "/"));
    }
}
