//! Directories with the data of declared objects, which are not searched for manifests.

use std::{
    collections::BTreeSet,
    path::{Component, Path, PathBuf},
};

#[derive(Debug, Default, PartialEq, Eq)]
pub struct DataDirectories(BTreeSet<PathBuf>);

impl DataDirectories {
    /// Takes pairs of manifest and directory. Data may look like a manifest: inside named directories none counts.
    pub fn new(named: &[(&Path, PathBuf)]) -> Self {
        let is_data = |path: &Path| named.iter().any(|(_, directory)| path.starts_with(directory));
        let certain = named.iter().filter(|(manifest, _)| !is_data(manifest));
        Self(certain.map(|(_, directory)| directory.clone()).collect())
    }

    pub fn contain(&self, path: &Path) -> bool {
        self.0.iter().any(|directory| path.starts_with(directory))
    }
}

/// Returns a path relative to the `roots` of all manifests; `None` for a directory elsewhere, or with the manifest.
pub fn named_directory(url: &str, manifest: &Path, roots: [&Path; 2]) -> Option<PathBuf> {
    let path = url.trim().strip_prefix("file:")?;
    let path = Path::new(path.strip_prefix("//").unwrap_or(path));
    let base = roots[0].join(manifest.parent().unwrap_or(manifest));
    let full = normalize(&base.join(path));
    let mut relative = roots
        .iter()
        .filter_map(|root| full.strip_prefix(normalize(root)).ok().map(Path::to_owned));
    relative.next().filter(|directory| !manifest.starts_with(directory))
}

/// Resolves `.` and `..` without following links.
fn normalize(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(normalized.pop()),
            other => normalized.push(other),
        }
    }
    normalized
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("file:./charts", "a.yaml", Some("charts"))]
    #[case("file:charts/", "team/a.yaml", Some("team/charts"))]
    #[case(" file:../charts ", "team/a.yaml", Some("charts"))]
    #[case("file:///manifests/charts", "a.yaml", Some("charts"))]
    #[case("file:/real/charts", "a.yaml", Some("charts"))]
    #[case::another_scheme("https://charts.example.com", "a.yaml", None)]
    #[case::elsewhere("file:///charts", "a.yaml", None)]
    #[case::all_manifests("file:.", "a.yaml", None)]
    #[case::its_own("file:..", "team/sub/a.yaml", None)]
    fn a_file_url_names_a_directory_below_the_manifests(
        #[case] url: &str,
        #[case] manifest: &str,
        #[case] expected: Option<&str>,
    ) {
        let roots = [Path::new("/manifests"), Path::new("/real")];
        let found = named_directory(url, Path::new(manifest), roots);
        assert_eq!(found.as_deref(), expected.map(Path::new));
    }

    #[test]
    fn a_manifest_in_a_named_directory_names_none() {
        let named = |pairs: &[(&'static str, &str)]| -> DataDirectories {
            let pairs: Vec<_> = pairs.iter().map(|(a, b)| (Path::new(*a), PathBuf::from(b))).collect();
            DataDirectories::new(&pairs)
        };
        let directories = named(&[("repos.yaml", "charts"), ("charts/index.yaml", "team")]);
        assert!(directories.contain(Path::new("charts/index.yaml")));
        assert!(!directories.contain(Path::new("team/repos.yaml")) && !directories.contain(Path::new("charts.yaml")));
        // It can't be told which of the two is data.
        assert_eq!(
            named(&[("a/x.yaml", "b"), ("b/x.yaml", "a")]),
            DataDirectories::default()
        );
    }
}
