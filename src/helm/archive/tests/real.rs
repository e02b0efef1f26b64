//! Compares real archives with the results of Kubeapps.

use std::fs;

use serde_json::Value;

use super::*;

#[test]
fn real_archives_give_the_same_files_as_kubeapps() {
    let (Some(corpus), Some(goldens)) = (corpus::corpus(), corpus::goldens()) else {
        return;
    };
    let rows = fs::read_to_string(goldens.join("archives.files.jsonl")).unwrap();
    let index: Value = serde_yaml::from_str(&fs::read_to_string(goldens.join("archives.index.yaml")).unwrap()).unwrap();
    let mut compared = 0;
    for row in rows.lines().map(|row| serde_json::from_str::<Value>(row).unwrap()) {
        let (_, name) = row["chart_id"].as_str().unwrap().split_once('/').unwrap();
        let archive = index["entries"][name][0]["urls"][0].as_str().unwrap();
        let archive = fs::File::open(corpus.join("charts").join(archive)).unwrap();
        let files = read(archive, &ArchiveLimits::default()).unwrap();
        let info = &row["info"];
        assert_eq!(files.readme, info["Readme"], "{name}");
        assert_eq!(files.values, info["DefaultValues"], "{name}");
        assert_eq!(files.schema, info["Schema"], "{name}");
        assert_eq!(
            serde_json::to_value(&files.additional_values).unwrap(),
            info["AdditionalDefaultValues"],
            "{name}"
        );
        compared += 1;
    }
    assert_eq!(compared, 10);

    let page = fs::read(corpus.join("charts/sonatype__nexus-repository-manager-42.0.2.tgz")).unwrap();
    let error = read_within(&page, &ArchiveLimits::default()).unwrap_err();
    assert!(matches!(error, ArchiveError::NotAnArchive(_)));
}
