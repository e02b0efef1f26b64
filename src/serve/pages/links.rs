//! Paths of pages.

use url::form_urlencoded::Serializer;

use crate::api::NamespacedName;
use crate::serve::links::segment;

pub(super) fn repository(prefix: &str, name: &NamespacedName) -> String {
    let NamespacedName { namespace, name } = name;
    format!("{prefix}/repositories/{}/{}", segment(namespace), segment(name))
}

/// Returns the path of a chart, which ends with its name. `under` is `/charts` or `/api/v1/charts`.
pub(super) fn chart(prefix: &str, under: &str, repository: &NamespacedName, chart_id: &str) -> String {
    let NamespacedName { namespace, name } = repository;
    let chart = chart_id.split_once('/').map_or(chart_id, |(_, chart)| chart);
    let chart = chart.replace("%2F", "/");
    let [namespace, name, chart] = [namespace, name, &chart].map(|name| segment(name));
    format!("{prefix}{under}/{namespace}/{name}/{chart}")
}

/// Returns a path with a query.
pub(super) fn with_query<'a>(path: &str, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let query = Serializer::new(String::new()).extend_pairs(pairs).finish();
    if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_as_one_segment() {
        let name = NamespacedName::new("team-a", "stable");
        assert_eq!(repository("/catalog", &name), "/catalog/repositories/team-a/stable");
        let path = |chart_id: &str| chart("", "/charts", &name, chart_id);
        assert_eq!(path("stable/team%2Fweb"), "/charts/team-a/stable/team%2Fweb");
        assert_eq!(path("stable/\"><b>"), "/charts/team-a/stable/%22%3E%3Cb%3E");
    }

    #[test]
    fn a_query_is_encoded() {
        assert_eq!(with_query("/", [("q", "a b&c")]), "/?q=a+b%26c");
        assert_eq!(with_query("/", []), "/");
    }
}
