//! A row of Kubeapps' `charts` table: the format of its `info`, and the fingerprint that detects changes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChartRow {
    /// `<repository>/<name>` with `/` in the name escaped as `%2F`; unique in a repository.
    pub chart_id: String,
    pub info: ChartInfo,
}

/// As Kubeapps writes it. Unknown keys are an error: another program wrote the row, and the next sync rewrites it.
/// Kubeapps' readers require non-null texts (a null `category` breaks every listing), at least one version, newest
/// first, and maintainer names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChartInfo {
    #[serde(rename = "ID")]
    pub id: String,
    pub name: String,
    pub repo: RepoRef,
    pub description: String,
    pub home: String,
    /// Null and an empty list stay distinct, as in the index.
    pub keywords: Option<Vec<String>>,
    pub maintainers: Vec<Maintainer>,
    pub sources: Option<Vec<String>>,
    pub icon: String,
    pub raw_icon: Option<String>,
    pub icon_content_type: String,
    pub category: String,
    #[serde(rename = "chartVersions")]
    pub chart_versions: Vec<ChartVersion>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepoRef {
    pub namespace: String,
    pub name: String,
    pub url: String,
    /// Empty for a Helm repository, as in Kubeapps.
    #[serde(rename = "type")]
    pub kind: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Maintainer {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub email: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChartVersion {
    pub version: String,
    pub app_version: String,
    /// RFC 3339; `0001-01-01T00:00:00Z` if unknown.
    pub created: String,
    pub digest: String,
    /// Null rather than empty: Kubeapps reads the first URL of a non-null list.
    pub urls: Option<Vec<String>>,
    /// Always empty, as are `values`, `additional_values` and `schema`. No reader uses them.
    pub readme: String,
    pub values: String,
    pub additional_values: Option<BTreeMap<String, String>>,
    pub schema: String,
}

/// Charts with equal fingerprints need no write. Excludes `created`, which some index builders change at each run, and
/// the imported icon, which is written separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChartFingerprint([u8; 16]);

impl ChartInfo {
    #[must_use]
    pub fn fingerprint(&self) -> ChartFingerprint {
        self.hash(false)
    }

    pub(super) fn fingerprint_with_times(&self) -> ChartFingerprint {
        self.hash(true)
    }

    /// Lengths are part of the hash, so that no two charts share an encoding.
    fn hash(&self, with_times: bool) -> ChartFingerprint {
        // Destructured, so that a new field is a compile error here.
        let Self {
            id,
            name,
            repo,
            description,
            home,
            keywords,
            maintainers,
            sources,
            icon,
            raw_icon: _,
            icon_content_type: _,
            category,
            chart_versions,
        } = self;
        let RepoRef {
            namespace,
            name: repo_name,
            url,
            kind,
        } = repo;
        let mut feed = Feed(Sha256::new());
        for text in [
            id,
            name,
            namespace,
            repo_name,
            url,
            kind,
            description,
            home,
            icon,
            category,
        ] {
            feed.text(text);
        }
        feed.texts(keywords.as_deref());
        feed.texts(sources.as_deref());
        feed.count(maintainers.len());
        for Maintainer { name, email, url } in maintainers {
            for text in [name, email, url] {
                feed.text(text);
            }
        }
        feed.count(chart_versions.len());
        for version in chart_versions {
            version.feed(&mut feed, with_times);
        }
        feed.finish()
    }

    pub(super) fn has_imported_icon(&self) -> bool {
        self.raw_icon.is_some() && !self.icon.is_empty()
    }

    pub(super) fn versions(&self) -> impl Iterator<Item = &str> {
        self.chart_versions.iter().map(|version| &*version.version)
    }

    /// Returns the `chart_files_id` of each version in Kubeapps' `files` table.
    pub(super) fn file_ids(&self) -> Vec<String> {
        self.chart_versions
            .iter()
            .map(|version| format!("{}-{}", self.id, version.version))
            .collect()
    }
}

impl ChartVersion {
    fn feed(&self, feed: &mut Feed, with_times: bool) {
        let Self {
            version,
            app_version,
            created,
            digest,
            urls,
            readme,
            values,
            additional_values,
            schema,
        } = self;
        for text in [version, app_version, digest, readme, values, schema] {
            feed.text(text);
        }
        if with_times {
            feed.text(created);
        }
        feed.texts(urls.as_deref());
        match additional_values {
            None => feed.absent(),
            Some(map) => {
                feed.count(map.len());
                for (key, value) in map {
                    feed.text(key);
                    feed.text(value);
                }
            }
        }
    }
}

struct Feed(Sha256);

impl Feed {
    fn absent(&mut self) {
        self.0.update([0xff; 8]);
    }

    fn count(&mut self, count: usize) {
        self.0.update((count as u64).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.update(text.as_bytes());
    }

    fn texts(&mut self, texts: Option<&[String]>) {
        match texts {
            None => self.absent(),
            Some(texts) => {
                self.count(texts.len());
                texts.iter().for_each(|text| self.text(text));
            }
        }
    }

    fn finish(self) -> ChartFingerprint {
        let digest = self.0.finalize();
        let mut half = [0; 16];
        for (to, from) in half.iter_mut().zip(digest) {
            *to = from;
        }
        ChartFingerprint(half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of Kubeapps v2.12.1, with keys in the order of Postgres.
    const STORED: &str = r#"{"ID": "bitnami/wordpress", "home": "http://www.wordpress.com/", "icon": "https://example.com/w.png",
        "name": "wordpress", "repo": {"url": "https://charts.example.com", "name": "bitnami", "type": "", "namespace": "kubeapps"},
        "sources": null, "category": "CMS", "keywords": ["cms"], "raw_icon": null, "description": "new description!",
        "maintainers": [{"name": "bot", "email": "bot@example.com"}], "chartVersions": [{"urls": ["https://example.com/w-0.7.5.tgz"],
        "digest": "74889e", "readme": "", "schema": "", "values": "", "created": "2017-12-06T18:48:59.644981487Z",
        "version": "0.7.5", "app_version": "4.9.1", "additional_values": null}], "icon_content_type": ""}"#;

    fn stored() -> ChartInfo {
        serde_json::from_str(STORED).unwrap()
    }

    #[test]
    fn rows_of_kubeapps_survive_a_round_trip() {
        let info = stored();
        let written: serde_json::Value = serde_json::to_value(&info).unwrap();
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(STORED).unwrap());
    }

    #[test]
    fn created_and_the_imported_icon_do_not_change_the_fingerprint() {
        let mut info = stored();
        let before = info.fingerprint();
        info.chart_versions[0].created = "2020-01-01T00:00:00Z".into();
        info.raw_icon = Some("iVBORw0KGgo=".into());
        info.icon_content_type = "image/png".into();
        assert_eq!(info.fingerprint(), before);
        assert_ne!(info.fingerprint_with_times(), stored().fingerprint_with_times());
    }

    #[test]
    fn every_other_field_changes_the_fingerprint() {
        let changes: Vec<fn(&mut ChartInfo)> = vec![
            |i| i.id.push('x'),
            |i| i.name.push('x'),
            |i| i.repo.namespace.push('x'),
            |i| i.repo.name.push('x'),
            |i| i.repo.url.push('x'),
            |i| i.repo.kind.push('x'),
            |i| i.description.push('x'),
            |i| i.home.push('x'),
            |i| i.keywords = None,
            |i| i.keywords = Some(vec![]),
            |i| i.keywords = Some(vec!["c".into(), "ms".into()]),
            |i| i.maintainers.clear(),
            |i| i.maintainers[0].url.push('x'),
            |i| i.sources = Some(vec![]),
            |i| i.icon.push('x'),
            |i| i.category.push('x'),
            |i| i.chart_versions.push(ChartVersion::default()),
            |i| i.chart_versions[0].version.push('x'),
            |i| i.chart_versions[0].app_version.push('x'),
            |i| i.chart_versions[0].digest.push('x'),
            |i| i.chart_versions[0].urls = None,
            |i| i.chart_versions[0].readme.push('x'),
            |i| i.chart_versions[0].values.push('x'),
            |i| i.chart_versions[0].additional_values = Some(BTreeMap::new()),
            |i| i.chart_versions[0].schema.push('x'),
        ];
        let mut seen = vec![stored().fingerprint()];
        for (at, change) in changes.iter().enumerate() {
            let mut info = stored();
            change(&mut info);
            let fingerprint = info.fingerprint();
            assert!(!seen.contains(&fingerprint), "change {at} is not detected");
            seen.push(fingerprint);
        }
    }

    #[test]
    fn text_that_moves_to_the_next_field_changes_the_fingerprint() {
        let mut left = stored();
        left.description = "ab".into();
        left.home = "c".into();
        let mut right = stored();
        right.description = "a".into();
        right.home = "bc".into();
        assert_ne!(left.fingerprint(), right.fingerprint());
    }

    #[test]
    fn a_row_with_an_unknown_key_does_not_parse() {
        let foreign = STORED.replacen("\"ID\"", "\"extra\": 1, \"ID\"", 1);
        assert!(serde_json::from_str::<ChartInfo>(&foreign).is_err());
        let null_category = STORED.replacen("\"CMS\"", "null", 1);
        assert!(serde_json::from_str::<ChartInfo>(&null_category).is_err());
    }
}
