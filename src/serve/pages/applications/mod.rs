//! Applications of KubeVela and of app.k8s.io. The API server decides which of them a caller may read.
//!
//! ```text
//!  request ─► token of the caller ─► ClusterReader ─► objects ─┬► state: health, causes
//!                                                              └► tree: components, steps
//! ```

mod components;
mod list;
mod objects;
mod show;
mod state;
mod tree;

use askama::Template;
use axum::Router;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use axum::routing::get;

use super::{Frame, PageError, links, page};
use crate::serve::access::CallerToken;
use crate::serve::links::segment;
use crate::serve::problem::Problem;
use crate::serve::site::Site;
use crate::text::printable;

/// Seconds after which a page loads again while something progresses.
const RELOAD: &str = "30";

pub(super) fn routes() -> Router<Site> {
    Router::new()
        .route("/applications", get(list::list))
        .route("/applications/{namespace}/{kind}/{name}", get(show::show))
}

/// The two kinds that are named Application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Vela,
    App,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Vela, Self::App];

    fn parse(segment: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.segment() == segment)
    }

    /// Returns the kind of an object of any group and kind.
    fn of(group: &str, kind: &str) -> Option<Self> {
        let found = Self::ALL.into_iter().find(|kind| kind.group() == group);
        found.filter(|_| kind == "Application")
    }

    const fn segment(self) -> &'static str {
        match self {
            Self::Vela => "vela",
            Self::App => "app",
        }
    }

    const fn group(self) -> &'static str {
        match self {
            Self::Vela => "core.oam.dev",
            Self::App => "app.k8s.io",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Vela => "KubeVela",
            Self::App => "app.k8s.io",
        }
    }

    /// Returns the path of the objects at the API server. The namespace must be a valid name.
    fn objects(self, namespace: Option<&str>) -> String {
        let group = self.group();
        match namespace {
            Some(namespace) => format!("/apis/{group}/v1beta1/namespaces/{namespace}/applications"),
            None => format!("/apis/{group}/v1beta1/applications"),
        }
    }

    /// Returns the path of a page.
    fn page(self, prefix: &str, namespace: &str, name: &str) -> String {
        let kind = self.segment();
        format!("{prefix}/applications/{}/{kind}/{}", segment(namespace), segment(name))
    }
}

/// For a site without a cluster, or a caller without a token.
#[derive(Template)]
#[template(path = "applications/closed.html", config = "src/serve/pages/askama.toml")]
struct ClosedPage {
    frame: Frame,
    has_cluster: bool,
    sign_in: String,
}

impl ClosedPage {
    fn new(site: &Site, frame: Frame) -> Self {
        let prefix = site.prefix();
        let next = format!("{prefix}/applications");
        Self {
            frame,
            has_cluster: site.cluster().is_some(),
            sign_in: links::with_query(&format!("{prefix}/login"), [("next", next.as_str())]),
        }
    }
}

/// Returns the token of a caller whom the API server knows, whatever the caller may see of the catalog.
async fn enter(site: &Site, headers: &HeaderMap) -> Result<(Frame, Option<CallerToken>), Problem> {
    let owner = site.owner(headers).await?;
    let token = owner.as_ref().and_then(|_| site.token(headers));
    let frame = Frame {
        can_sign_in: owner.is_none() && site.has_sign_in(),
        can_sign_out: owner.is_some() && site.sessions().in_use(headers).is_some(),
        user: owner.as_deref().map(printable),
        ..Frame::without_visit(site, "applications")
    };
    Ok((frame, token))
}

/// Loads a page again by a header: an element in the page would do the same, but fails the rule meta-refresh of axe.
fn respond(
    site: &Site,
    headers: &HeaderMap,
    template: &impl Template,
    is_reloading: bool,
) -> Result<Response, PageError> {
    let mut response = page(site, headers, template)?;
    if is_reloading {
        let headers = response.headers_mut();
        headers.insert(header::REFRESH, HeaderValue::from_static(RELOAD));
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_kinds_differ_by_their_group() {
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(kind.segment()), Some(kind));
            assert_eq!(Kind::of(kind.group(), "Application"), Some(kind));
        }
        assert_eq!(Kind::of("argoproj.io", "Application"), None);
        assert_eq!(Kind::of("core.oam.dev", "WorkflowRun"), None);
    }

    #[test]
    fn names_are_one_segment_of_a_path() {
        let page = Kind::Vela.page("/catalog", "team-a", "\"><b>/..");
        assert_eq!(page, "/catalog/applications/team-a/vela/%22%3E%3Cb%3E%2F..");
    }
}
