//! Indexes from local files.

use super::*;

#[tokio::test]
async fn a_file_is_read_as_a_body() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("index.yaml");
    std::fs::write(&path, b"hello").unwrap();
    let body = fetcher().read_file(&path, &limits()).await.unwrap();
    assert_eq!(
        body.sha256,
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    );
    assert_eq!((body.bytes, &body.validators), (5, &Validators::default()));
    std::fs::write(&path, b"other").unwrap();
    assert_eq!(bytes(body), b"hello");
}

#[tokio::test]
async fn errors_distinguish_missing_unreadable_and_large_files() {
    let directory = tempfile::tempdir().unwrap();
    let missing = fetcher()
        .read_file(&directory.path().join("none"), &limits())
        .await
        .unwrap_err();
    assert_eq!((missing.reason(), missing.is_transient()), ("FileNotFound", false));
    let of_directory = fetcher().read_file(directory.path(), &limits()).await.unwrap_err();
    assert_eq!(
        (of_directory.reason(), of_directory.is_transient()),
        ("FileUnreadable", false)
    );

    let path = directory.path().join("large");
    std::fs::write(&path, [b'x'; 101]).unwrap();
    let small = FetchLimits {
        max_bytes: 100,
        ..limits()
    };
    let error = fetcher().read_file(&path, &small).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("limit of 100 bytes (size is at least 101 bytes)"),
        "{error}"
    );
}
