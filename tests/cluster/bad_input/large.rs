//! An index over the default size limit.

use std::time::Instant;

use super::*;
use crate::support::chart_server::Page;
use crate::support::portolan::peak_memory;

const MIB: usize = 1024 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_of_101_mib_is_refused_with_or_without_content_length_in_little_memory() {
    let fixture = Fixture::new(&[]).await;
    let world = &fixture.world;
    let mut text = index(&[("web", &["2.0.0"])]);
    let filler = format!("# {}\n", "x".repeat(1021));
    text.extend(std::iter::repeat_n(filler.as_str(), 101 * MIB / filler.len()));
    let page = Page::new(text);
    let pages = [("announced", page.clone()), ("unpacked", page.gzip())];
    for (name, _) in &pages {
        world
            .declare(name, &world.serve(name, index(&[("web", &["1.0.0"])])))
            .await;
        world.until_ready(name).await;
    }
    let started = Instant::now();
    for (name, page) in pages {
        let before = fixture.rows(name).await;
        world.server.serve(&index_path(name), page);
        fixture.world.resync(name, "now").await;
        let object = world.until_ready_is(name, "False", "TooLarge").await;
        assert_eq!(condition(&object, "Stalled"), Some(("True", "TooLarge")));
        assert!(
            message(&object).contains("the limit of 104857600 bytes"),
            "{}",
            message(&object)
        );
        fixture
            .event_with(name, "SyncStalled", &["TooLarge", "raise the limit"])
            .await;
        assert_eq!(fixture.rows(name).await, before);
    }
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    let peak = peak_memory(&fixture.portolan);
    assert!(peak < 100, "{peak} MiB: the body was in memory");
}
