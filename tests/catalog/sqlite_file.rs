//! A SQLite file that is deleted or replaced while it is open, and a disk that is full.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use portolan::api::NamespacedName;
use portolan::catalog::{Catalog, ErrorKind, Record, SyncCommit};

use super::{Fixture, On, chart, record, repository, rows, settings};

const ORIGIN: &str = "here";

fn path(fixture: &Fixture) -> PathBuf {
    fixture.settings.database.sqlite_path().unwrap().to_owned()
}

async fn commit(catalog: &Catalog, name: NamespacedName, origin: &str, chart_name: &str) {
    let mut record = Record::new(name, "uid-1");
    record.origin = origin.to_owned();
    let charts = vec![chart(chart_name, &["1.0.0"])];
    let commit = SyncCommit::new(record, None, "checksum");
    catalog.commit(commit, rows(charts)).await.unwrap();
}

/// Moves a database with one repository of this origin to the path of the open one.
async fn replace(fixture: &Fixture, origin: &str) {
    let other = Fixture::new(On::Sqlite).await;
    commit(&other.catalog, NamespacedName::new("kubeapps", "replaced"), origin, "b").await;
    other.catalog.close().await;
    let super::Tables::Sqlite(pool) = &other.tables else {
        panic!("not SQLite")
    };
    pool.close().await;
    fs::rename(path(&other), path(fixture)).unwrap();
}

#[tokio::test]
async fn a_deleted_file_is_created_again_and_all_repositories_are_synced() {
    let fixture = Fixture::new(On::Sqlite).await;
    commit(&fixture.catalog, repository(), ORIGIN, "a").await;
    let rebuilt = fixture.catalog.rebuilt();
    assert!(
        !fixture.catalog.follow_file(ORIGIN).await.unwrap(),
        "nothing has changed"
    );
    assert!(!rebuilt.has_changed().unwrap());

    fs::remove_file(path(&fixture)).unwrap();
    assert!(fixture.catalog.follow_file(ORIGIN).await.unwrap());
    assert!(rebuilt.has_changed().unwrap(), "every repository is enqueued");
    assert_eq!(fixture.catalog.record(&repository()).await.unwrap(), None);
    commit(&fixture.catalog, repository(), ORIGIN, "a").await;
    assert!(!fixture.catalog.follow_file(ORIGIN).await.unwrap());
    fixture.catalog.close().await;
    let reader = Catalog::open_read_only(&fixture.settings).await.unwrap();
    assert_eq!(
        reader.repositories().await.unwrap()[0].charts,
        1,
        "the new file has the rows"
    );
}

#[tokio::test]
async fn a_restored_file_of_the_same_origin_is_opened() {
    let fixture = Fixture::new(On::Sqlite).await;
    commit(&fixture.catalog, repository(), ORIGIN, "a").await;
    replace(&fixture, ORIGIN).await;
    assert!(fixture.catalog.follow_file(ORIGIN).await.unwrap());
    let names: Vec<_> = fixture.catalog.records().await.unwrap();
    assert_eq!(names[0].name.name, "replaced");
    commit(&fixture.catalog, repository(), ORIGIN, "a").await;
}

#[tokio::test]
async fn a_file_of_another_origin_is_not_written() {
    let fixture = Fixture::new(On::Sqlite).await;
    commit(&fixture.catalog, repository(), ORIGIN, "a").await;
    replace(&fixture, "elsewhere").await;
    let foreign = fs::read(path(&fixture)).unwrap();
    let error = fixture.catalog.follow_file(ORIGIN).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ForeignFile { .. }), "{error}");
    for error in [
        fixture.try_sync("new", vec![]).await.unwrap_err(),
        fixture.catalog.ping().await.unwrap_err(),
    ] {
        assert!(matches!(error.kind(), ErrorKind::ForeignFile { .. }), "{error}");
    }
    assert!(fs::read(path(&fixture)).unwrap() == foreign, "the file was written");
}

/// Limits the size of the files that a process writes, as a full disk does.
#[tokio::test]
async fn a_full_disk_is_transient_and_recovers_without_a_restart() {
    let fixture = Fixture::new(On::Sqlite).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let volume = Volume::new(512);
    let url = format!("sqlite://{}", volume.path.join("portolan.db").display());
    let mut settings = settings(&url);
    settings.limits.repository = Some(1 << 30);
    let catalog = Catalog::open(&settings).await.unwrap();
    let charts = |count: usize| -> Vec<_> {
        let big = |at: usize| {
            let mut info = chart(&format!("c{at}"), &["1.0.0"]);
            info.description = "x".repeat(10_000);
            info
        };
        (0..count).map(big).collect()
    };
    let commit = async |checksum: &str, count| {
        let stored = catalog.record(&repository()).await?;
        let expected = stored.as_ref().map(|record| record.uid.clone());
        let commit = SyncCommit::new(stored.unwrap_or_else(record), expected, checksum);
        catalog.commit(commit, rows(charts(count))).await
    };
    commit("small", 2).await.unwrap();
    for _ in 0..3 {
        let error = commit("large", 100).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
    volume.resize(65_536);
    assert_eq!(commit("large", 100).await.unwrap().added, 98);
    catalog.close().await;
}

/// A small file system in memory.
struct Volume {
    directory: tempfile::TempDir,
    path: PathBuf,
}

impl Volume {
    fn new(kibibytes: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("volume");
        fs::create_dir(&path).unwrap();
        let volume = Self { directory, path };
        volume.mount(&format!("size={kibibytes}k"));
        volume
    }

    fn resize(&self, kibibytes: u32) {
        self.mount(&format!("remount,size={kibibytes}k"));
    }

    fn mount(&self, options: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&self.path);
        assert!(mount.status().unwrap().success(), "mounting needs root");
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        let _ = &self.directory;
    }
}
