//! The parameters of the page. The API has a repository's namespace and name apart, and a select element has one value.

use url::form_urlencoded::{self, Serializer};

use crate::serve::pages::links::with_query;

const FILTERS: [&str; 5] = ["q", "namespace", "repository", "category", "keyword"];

/// The parameters of a page, without empty ones, which forms send.
pub(super) struct Selection(Vec<(String, String)>);

impl Selection {
    pub(super) fn parse(query: &str) -> Self {
        let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
        Self(pairs.filter(|(_, value)| !value.trim().is_empty()).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut pairs = self.0.iter();
        pairs.find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns the namespace of the list; `None` for all.
    pub(super) fn namespace(&self) -> Option<&str> {
        let of_repository = self.get("repository").and_then(|name| name.split_once('/'));
        of_repository.map_or_else(|| self.get("namespace"), |(namespace, _)| Some(namespace))
    }

    pub(super) fn has_filter(&self) -> bool {
        FILTERS.iter().any(|name| self.get(name).is_some())
    }

    /// Returns the query of the same list in the API.
    pub(super) fn api_query(&self, limit: usize) -> String {
        let repository = self.get("repository").and_then(|name| name.split_once('/'));
        let mut query = Serializer::new(String::new());
        for (name, value) in &self.0 {
            match (name.as_str(), repository) {
                ("repository", Some((namespace, name))) => {
                    query
                        .append_pair("namespace", namespace)
                        .append_pair("repository", name);
                }
                ("namespace", Some(_)) => {}
                (name, _) => {
                    query.append_pair(name, value);
                }
            }
        }
        if self.get("limit").is_none() {
            query.append_pair("limit", &limit.to_string());
        }
        query.finish()
    }

    /// Returns a link to a list with another value of a parameter, or without it. Only a cursor keeps the place in the list.
    pub(super) fn link_with(&self, path: &str, name: &str, value: Option<&str>) -> String {
        let kept = self.0.iter().filter(|(other, _)| other != name && other != "cursor");
        let kept = kept.map(|(name, value)| (name.as_str(), value.as_str()));
        with_query(path, kept.chain(value.map(|value| (name, value))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_a_namespace_and_a_name_in_the_api() {
        let query = |query: &str| Selection::parse(query).api_query(24);
        assert_eq!(query("q=a+b&category="), "q=a+b&limit=24");
        assert_eq!(
            query("repository=team-a%2Fstable&namespace=other&limit=5"),
            "namespace=team-a&repository=stable&limit=5"
        );
        assert_eq!(
            query("repository=stable&namespace=x"),
            "repository=stable&namespace=x&limit=24"
        );
    }

    #[test]
    fn a_link_keeps_the_other_filters_and_begins_the_list_again() {
        let selection = Selection::parse("q=web&keyword=logs&cursor=abc");
        assert_eq!(selection.link_with("/", "keyword", None), "/?q=web");
        assert_eq!(
            selection.link_with("/", "cursor", Some("def")),
            "/?q=web&keyword=logs&cursor=def"
        );
        assert!(selection.has_filter() && !Selection::parse("sort=name&q=").has_filter());
    }
}
