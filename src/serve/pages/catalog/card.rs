//! A chart in a list.

use jiff::Timestamp;

use crate::serve::pages::links;
use crate::serve::pages::shown::{When, letter, name};
use crate::serve::search::Hit;
use crate::text::printable;

pub(super) struct Card {
    pub(super) name: String,
    pub(super) link: String,
    pub(super) version: String,
    pub(super) app_version: String,
    pub(super) description: String,
    pub(super) repository: String,
    pub(super) repository_link: String,
    /// The path of the icon. Without one, a letter needs no request.
    pub(super) icon: Option<String>,
    pub(super) letter: String,
    pub(super) created: Option<When>,
    /// The name is only similar to the words.
    pub(super) is_similar: bool,
}

impl Card {
    pub(super) fn new(prefix: &str, hit: Hit<'_>, now: Timestamp) -> Self {
        let Hit {
            repository,
            chart,
            fuzzy,
        } = hit;
        let icon = || {
            format!(
                "{}/icon",
                links::chart(prefix, "/api/v1/charts", repository, &chart.chart_id)
            )
        };
        Self {
            name: name(&chart.name),
            link: links::chart(prefix, "/charts", repository, &chart.chart_id),
            version: printable(&chart.version),
            app_version: printable(&chart.app_version),
            description: printable(&chart.description),
            repository: printable(&repository.to_string()),
            repository_link: links::repository(prefix, repository),
            icon: chart.has_icon.then(icon),
            letter: letter(&chart.name),
            created: chart.created.map(|created| When::new(created, now)),
            is_similar: fuzzy,
        }
    }

    /// A card with all parts, each of them empty.
    pub(super) fn blank() -> Self {
        let empty = String::new;
        Self {
            name: empty(),
            link: empty(),
            version: empty(),
            app_version: "-".to_owned(),
            description: empty(),
            repository: empty(),
            repository_link: empty(),
            icon: None,
            letter: empty(),
            created: Some(When {
                relative: empty(),
                absolute: empty(),
                rfc3339: empty(),
            }),
            is_similar: true,
        }
    }
}
