//! A row of Kubeapps' `charts` table: the shape of its `info`, and what makes two of them different.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// One chart as it is to stand in the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChartRow {
    /// `<repository>/<name>`, a slash in the name written as `%2F`. Unique in a repository.
    pub chart_id: String,
    /// What is known of the chart.
    pub info: ChartInfo,
}

/// The JSON of `charts.info`, exactly as Kubeapps writes it and its readers want it.
///
/// A key that is not known here is an error: a stored row that does not parse is one that somebody else shaped, and is written anew.
/// What the readers require of the values: no text null (a null `category` breaks every listing), at least one version,
/// newest first, and no maintainer without a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChartInfo {
    /// The same as [`ChartRow::chart_id`].
    #[serde(rename = "ID")]
    pub id: String,
    /// The chart's name, a slash in it written as `%2F`.
    pub name: String,
    /// The repository that it is from.
    pub repo: RepoRef,
    /// Of the newest version.
    pub description: String,
    /// Of the newest version.
    pub home: String,
    /// As they came: an empty list stays one, an absent one is null.
    pub keywords: Option<Vec<String>>,
    /// Never null.
    pub maintainers: Vec<Maintainer>,
    /// As they came.
    pub sources: Option<Vec<String>>,
    /// The icon's URL, or empty.
    pub icon: String,
    /// The icon as a PNG in base64, once it was fetched.
    pub raw_icon: Option<String>,
    /// `image/png` once the icon was fetched, else empty.
    pub icon_content_type: String,
    /// Never null; empty where the chart has none.
    pub category: String,
    /// Newest first.
    #[serde(rename = "chartVersions")]
    pub chart_versions: Vec<ChartVersion>,
}

/// The repository as each chart repeats it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepoRef {
    /// Namespace of the AppRepository.
    pub namespace: String,
    /// Name of the AppRepository.
    pub name: String,
    /// Its URL, without spaces around it.
    pub url: String,
    /// Empty for a Helm repository, as Kubeapps leaves it.
    #[serde(rename = "type")]
    pub kind: String,
}

/// Who keeps a chart. Kubeapps leaves out what is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Maintainer {
    /// Never empty in what we write: Kubeapps' reader refuses the whole list otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Mail address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub email: String,
    /// Home page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
}

/// One version of a chart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChartVersion {
    /// As the index has it, verbatim.
    pub version: String,
    /// Version of what the chart installs.
    pub app_version: String,
    /// RFC 3339; `0001-01-01T00:00:00Z` where it is not known.
    pub created: String,
    /// Digest of the archive.
    pub digest: String,
    /// Where the archive is. Null rather than empty: Kubeapps takes the first one of a list that is not null.
    pub urls: Option<Vec<String>>,
    /// Not used by any reader; empty.
    pub readme: String,
    /// Not used by any reader; empty.
    pub values: String,
    /// Not used by any reader; null.
    pub additional_values: Option<BTreeMap<String, String>>,
    /// Not used by any reader; empty.
    pub schema: String,
}

/// 128 bits over all of a chart that counts as a change.
///
/// Two charts with one fingerprint need no write. `created` does not count: some repositories give every entry a new time at
/// each run of their index builder. The imported icon does not either: it comes later than the chart, by its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 16]);

impl ChartInfo {
    /// The fingerprint of this chart. Every text and every list goes in with its length, so no two charts are written alike.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        // Taken apart by name, so that a field that is added can't be forgotten here.
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
            version.feed(&mut feed);
        }
        feed.finish()
    }

    /// Whether its icon was fetched.
    pub(super) fn has_imported_icon(&self) -> bool {
        self.raw_icon.is_some() && !self.icon.is_empty()
    }

    /// Its versions, newest first; one that is there twice comes twice.
    pub(super) fn versions(&self) -> impl Iterator<Item = &str> {
        self.chart_versions.iter().map(|version| &*version.version)
    }

    /// The `chart_files_id` of each version: what their rows in Kubeapps' `files` table are found by.
    pub(super) fn file_ids(&self) -> Vec<String> {
        self.chart_versions
            .iter()
            .map(|version| format!("{}-{}", self.id, version.version))
            .collect()
    }
}

impl ChartVersion {
    fn feed(&self, feed: &mut Feed) {
        let Self {
            version,
            app_version,
            created: _,
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

/// Texts and lists on their way into a digest, each behind its length.
struct Feed(Sha256);

impl Feed {
    /// No length that a list in memory can have.
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

    fn finish(self) -> Fingerprint {
        let digest = self.0.finalize();
        let mut half = [0; 16];
        for (to, from) in half.iter_mut().zip(digest) {
            *to = from;
        }
        Fingerprint(half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row as Kubeapps v2.12.1 writes it, keys in the order in which Postgres gives them back.
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
    fn what_kubeapps_writes_is_read_and_written_alike() {
        let info = stored();
        let written: serde_json::Value = serde_json::to_value(&info).unwrap();
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(STORED).unwrap());
    }

    #[test]
    fn created_and_the_imported_icon_are_no_change() {
        let mut info = stored();
        let before = info.fingerprint();
        info.chart_versions[0].created = "2020-01-01T00:00:00Z".into();
        info.raw_icon = Some("iVBORw0KGgo=".into());
        info.icon_content_type = "image/png".into();
        assert_eq!(info.fingerprint(), before);
    }

    #[test]
    fn everything_else_is_a_change() {
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
            assert!(!seen.contains(&fingerprint), "change {at} is not seen");
            seen.push(fingerprint);
        }
    }

    #[test]
    fn text_does_not_move_over_the_border_of_its_field() {
        let mut left = stored();
        left.description = "ab".into();
        left.home = "c".into();
        let mut right = stored();
        right.description = "a".into();
        right.home = "bc".into();
        assert_ne!(left.fingerprint(), right.fingerprint());
    }

    #[test]
    fn a_row_with_a_key_of_somebody_elses_does_not_parse() {
        let foreign = STORED.replacen("\"ID\"", "\"extra\": 1, \"ID\"", 1);
        assert!(serde_json::from_str::<ChartInfo>(&foreign).is_err());
        let null_category = STORED.replacen("\"CMS\"", "null", 1);
        assert!(serde_json::from_str::<ChartInfo>(&null_category).is_err());
    }
}
