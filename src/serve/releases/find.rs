use serde::{Deserialize, Serialize};

use crate::releases::watched::{JudgedReleases, WatchedRelease};
use crate::releases::{JudgedRelease, Judgement, Release, ReleaseKind, Status};
use crate::serve::access::Visible;
use crate::serve::api::parameters::Parameters;
use crate::serve::problem::Problem;

/// The values of `status`, and their names on the page.
pub(in crate::serve) const STATUSES: [(&str, &str); 8] = [
    ("outdated", "Out of date"),
    ("patch", "Patch available"),
    ("minor", "Minor version available"),
    ("major", "Major version available"),
    ("withdrawn", "Withdrawn"),
    ("notListed", "Not listed"),
    ("current", "Current"),
    ("unknown", "Unknown"),
];

/// The last release of a page.
#[derive(Serialize, Deserialize)]
struct Position(String, String, ReleaseKind, [String; 2]);

impl Position {
    fn of(item: &WatchedRelease) -> Self {
        let (namespace, name, kind, chart) = item.key();
        Self(namespace.to_owned(), name.to_owned(), kind, chart.map(str::to_owned))
    }

    fn is_before(&self, item: &WatchedRelease) -> bool {
        let Self(namespace, name, kind, chart) = self;
        let chart = chart.each_ref().map(String::as_str);
        (namespace.as_str(), name.as_str(), *kind, chart) < item.key()
    }
}

/// A list as a request asks for it.
pub(in crate::serve) struct Query {
    parameters: Parameters,
    limit: usize,
    after: Option<Position>,
}

/// A page of a list.
pub(in crate::serve) struct Found<'a> {
    pub(in crate::serve) items: Vec<JudgedRelease>,
    /// The cursor of the next page.
    pub(in crate::serve) next: Option<String>,
    pub(in crate::serve) is_incomplete: bool,
    /// Names objects of the caller's namespaces, and why they can't be read.
    pub(in crate::serve) unreadable: Vec<&'a str>,
}

impl Query {
    pub(in crate::serve) fn parse(query: Option<&str>) -> Result<Self, Problem> {
        let parameters = Parameters::list(query, "releases", &["namespace", "status"])?;
        if let Some(status) = parameters.get("status")
            && !STATUSES.iter().any(|(known, _)| *known == status)
        {
            let known = STATUSES.map(|(known, _)| known).join(", ");
            return Err(Problem::parameter(
                "status",
                format!("unknown value of status; use one of {known}"),
            ));
        }
        Ok(Self {
            limit: parameters.limit()?,
            after: parameters.cursor()?,
            parameters,
        })
    }

    pub(in crate::serve) fn namespace(&self) -> Option<&str> {
        self.parameters.get("namespace")
    }

    pub(in crate::serve) fn status(&self) -> Option<&str> {
        self.parameters.get("status")
    }

    pub(in crate::serve) const fn is_continued(&self) -> bool {
        self.after.is_some()
    }

    /// `visible` are the namespaces of the releases that the caller may list, `repositories` those of the repositories.
    pub(in crate::serve) fn find<'a>(
        &self,
        releases: &'a JudgedReleases,
        visible: &Visible,
        repositories: &Visible,
    ) -> Result<Found<'a>, Problem> {
        let is_asked =
            |namespace: &str| visible.contains(namespace) && self.namespace().is_none_or(|asked| asked == namespace);
        let items = releases.items.iter().filter(|item| is_asked(&item.release.namespace));
        let items = items.filter(|item| self.after.as_ref().is_none_or(|after| after.is_before(item)));
        let items = items.map(|item| (item, item.judgement(|namespace| repositories.contains(namespace))));
        let mut items = items.filter(|(_, judgement)| {
            let status = judgement.and_then(status);
            self.status().is_none_or(|asked| is_in(asked, status))
        });
        let page: Vec<_> = items.by_ref().take(self.limit).collect();
        let has_more = items.next().is_some();
        let last = page.last().filter(|_| has_more).map(|(item, _)| Position::of(item));
        // Beyond the limit, the namespaces are not known.
        let has_hidden = releases.unreadable_count > releases.unreadable.len();
        let unreadable = releases.unreadable.iter();
        let unreadable: Vec<&str> = unreadable
            .filter(|unreadable| match unreadable.namespace.as_str() {
                // A list of a whole cluster.
                "" => matches!(visible, Visible::All),
                namespace => is_asked(namespace),
            })
            .map(|unreadable| unreadable.message.as_str())
            .collect();
        Ok(Found {
            items: page
                .into_iter()
                .map(|(item, judgement)| judged(item, judgement))
                .collect(),
            next: last.map(|last| self.parameters.next(&last)).transpose()?,
            is_incomplete: !releases.is_complete || releases.left_out > 0 || has_hidden || !unreadable.is_empty(),
            unreadable,
        })
    }
}

/// A judgement that would reveal repositories is unknown.
fn judged(item: &WatchedRelease, judgement: Option<&Judgement>) -> JudgedRelease {
    let mut release = Release::clone(&item.release);
    // Flux may have it from a source of another namespace.
    release.chart.url = None;
    JudgedRelease {
        release,
        judgement: judgement.cloned().unwrap_or_else(Judgement::unknown),
    }
}

fn status(judgement: &Judgement) -> Option<Status> {
    judgement.verdict.as_ref().map(|verdict| verdict.status)
}

fn is_in(asked: &str, status: Option<Status>) -> bool {
    let name = match status {
        None => "unknown",
        Some(Status::Current) => "current",
        Some(Status::Patch) => "patch",
        Some(Status::Minor) => "minor",
        Some(Status::Major) => "major",
        Some(Status::Withdrawn) => "withdrawn",
        Some(Status::NotListed) => "notListed",
    };
    asked == name || (asked == "outdated" && matches!(name, "patch" | "minor" | "major" | "withdrawn"))
}
