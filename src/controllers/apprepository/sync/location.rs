//! Locates the index of a repository: a web URL or, for manifests only, a file.

use std::path::{Path, PathBuf};

use url::Url;

use super::request::SyncError;
use crate::controllers::apprepository::spec::{RepositoryKind, RepositorySpec};
use crate::http::{self as fetch, Fetcher};
use crate::oci::{self, OciError, Registry};

/// Files that `file:` URLs may name.
#[derive(Clone, Debug)]
pub enum FileAccess {
    /// Users of a cluster must not read files of this machine.
    Never,
    /// Files below these directories, with symbolic links resolved.
    Below(Vec<PathBuf>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    Web(Url),
    File(PathBuf),
}

/// Locates the index of the repository at `url`. A path after `file:` is relative to the directory of `manifest`.
pub fn locate(url: &str, manifest: Option<&Path>, files: &FileAccess) -> Result<Location, SyncError> {
    if !url.starts_with("file:") {
        return Ok(Location::Web(fetch::index_url(url)?));
    }
    locate_file(url, "index.yaml", manifest, files).map(Location::File)
}

/// Checks a URL without a request.
pub fn check_url(spec: &RepositorySpec, fetcher: &Fetcher) -> Result<(), SyncError> {
    match spec.kind {
        RepositoryKind::Helm => locate(&spec.url, None, &FileAccess::Never).map(drop),
        RepositoryKind::Oci => {
            let url = Url::parse(&spec.url).map_err(|error| OciError::InvalidUrl(error.to_string()));
            let registry = url.and_then(|url| Registry::new(fetcher.clone(), &url, oci::Limits::default()));
            registry.map(drop).map_err(|error| (&error).into())
        }
    }
}

/// Returns the path of `file` in the repository at the `file:` URL `url`. Fails if it must not be read.
pub fn locate_file(url: &str, file: &str, manifest: Option<&Path>, files: &FileAccess) -> Result<PathBuf, SyncError> {
    let FileAccess::Below(roots) = files else {
        let message = "file: URLs are only allowed with --manifests; serve the repository over http or https";
        return Err(SyncError::stalled("FileNotAllowed", message));
    };
    let path = url.strip_prefix("file:").unwrap_or(url);
    // `file:///x` names the path `/x`; `file:x` and `file:./x` are relative.
    let path = Path::new(path.strip_prefix("//").unwrap_or(path));
    let base = manifest.and_then(Path::parent).unwrap_or(Path::new("."));
    let path = base.join(path).join(file);
    let resolved = path.canonicalize().map_err(|error| {
        let message = format!("failed to read file {}: {error}", path.display());
        SyncError::stalled("FileNotFound", message)
    })?;
    let mut roots = roots.iter().filter_map(|root| root.canonicalize().ok());
    if !roots.any(|root| resolved.starts_with(root)) {
        let message = format!(
            "file {} is outside the manifest directory; allow its directory with --allow-file-root",
            resolved.display()
        );
        return Err(SyncError::stalled("FileNotAllowed", message));
    }
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, FileAccess) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["manifests/charts", "elsewhere"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("index.yaml"), "entries: {}").unwrap();
        }
        let access = FileAccess::Below(vec![folder.path().join("manifests")]);
        (folder, access)
    }

    #[test]
    fn a_relative_file_is_resolved_against_its_manifest() {
        let (folder, access) = folder();
        let manifest = folder.path().join("manifests/repos.yaml");
        for url in ["file:./charts", "file:charts", "file:charts/"] {
            let Ok(Location::File(path)) = locate(url, Some(&manifest), &access) else {
                panic!("{url}")
            };
            assert!(path.ends_with("manifests/charts/index.yaml"));
        }
    }

    #[test]
    fn a_file_outside_the_directory_is_refused_even_through_a_symlink() {
        let (folder, access) = folder();
        let manifest = folder.path().join("manifests/repos.yaml");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), folder.path().join("manifests/link")).unwrap();
        let absolute = format!("file://{}", folder.path().join("elsewhere").display());
        for url in ["file:../elsewhere", "file:./link", &absolute] {
            assert_eq!(
                locate(url, Some(&manifest), &access).unwrap_err().reason,
                "FileNotAllowed",
                "{url}"
            );
        }
    }

    #[test]
    fn an_additional_allowed_directory_may_be_read() {
        let (folder, _) = folder();
        let access = FileAccess::Below(vec![folder.path().join("manifests"), folder.path().join("elsewhere")]);
        let url = format!("file://{}", folder.path().join("elsewhere").display());
        assert!(matches!(locate(&url, None, &access), Ok(Location::File(_))));
    }

    #[test]
    fn a_cluster_reads_no_files() {
        assert_eq!(
            locate("file:///etc", None, &FileAccess::Never).unwrap_err().reason,
            "FileNotAllowed"
        );
    }

    #[test]
    fn an_invalid_url_is_refused_with_its_reason() {
        let failed = locate("not a url", None, &FileAccess::Never).unwrap_err();
        assert!(!failed.transient);
        assert_eq!(failed.reason, "InvalidURL");
    }
}
