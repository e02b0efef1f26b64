//! Releases that are out of date, with the rights of the person.

use super::accessibility::inspect;
use super::driver::Browser;
use super::sign_in::sign_in;
use crate::catalog::On;
use crate::serve::access::reader;
use crate::watched_releases::Watching;
use crate::watched_releases::access::allow_releases;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_sees_which_releases_are_out_of_date() {
    let watching = Watching::start(On::Sqlite, &["--releases"]).await;
    watching.declare(&["2.0.0", "1.1.0", "1.0.0"]).await;
    for (release, version) in [("current", "2.0.0"), ("old", "1.0.0"), ("lost", "1.0.5")] {
        watching.install(release, 1, version).await;
    }
    watching.until_status("current", "current").await;
    watching.until_status("old", "major").await;
    let namespace = watching.world.namespace.as_str();
    let token = reader(namespace).await;
    allow_releases(namespace, "reader").await;

    let browser = Browser::new(&watching.url).await;
    browser.open("/login").await;
    sign_in(&browser, &token).await;
    inspect(&browser, "outdated", "/outdated").await;
    let shown = browser.text("main").await;
    for part in ["Current", "Major version available", "Withdrawn", "stable"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    inspect(&browser, "outdated-filtered", "/outdated?status=major").await;
    let shown = browser.text("table").await;
    assert!(shown.contains("old") && !shown.contains("lost"), "{shown}");
    inspect(&browser, "outdated-none", "/outdated?status=patch").await;
    assert!(browser.text("main").await.contains("No release matches"));
}
