//! Memory of concurrent imports.

use std::io::Cursor;

use image::{DynamicImage, ImageFormat, RgbaImage};

use super::{ALL, SOON, World, chart};
use crate::support::archives::{Archive, Chart};
use crate::support::chart_server::Page;
use crate::support::eventually::eventually;
use crate::support::portolan::{Portolan, peak_memory};

/// Number of concurrent imports of files.
const REPOSITORIES: usize = 4;

/// Other memory: the binary, its threads, the database, sixteen downloads, and freed memory that the allocator keeps.
const REST_MIB: u64 = 128;

/// An archive with seven megabytes of stored files.
fn large(name: &str) -> Archive {
    let text = "It is a long way to the harbour. ".repeat(110_000);
    Chart::new(name, "1.0.0")
        .file("README.md", &text)
        .file("values.yaml", text.replace("It", "# "))
        .pack()
}

/// Imports until a statement counts `all`.
async fn imported(world: &World, flags: &[&str], all: usize, statement: &str) -> Portolan {
    let portolan = world.run(flags).await;
    let all = all.to_string();
    eventually(4 * SOON, "all to be imported", async || {
        let count = world.texts(statement).await;
        (count == [all.clone()]).then_some(()).ok_or(format!("{count:?}"))
    })
    .await;
    portolan
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_archives_need_no_more_memory_than_a_few() {
    /// Number of concurrent archives.
    const EACH: usize = 4;
    let world = World::new().await;
    for repository in 0..REPOSITORIES {
        let name = format!("large-{repository}");
        let archives: Vec<Archive> = (0..EACH).map(|number| large(&format!("chart-{number}"))).collect();
        let url = world.serve(&name, &archives);
        world.declare(&name, &url, "");
    }
    let count = "SELECT CAST(count(*) AS TEXT) FROM files WHERE length(info ->> 'Readme') > 2000000";
    let portolan = imported(&world, &[ALL], REPOSITORIES * EACH, count).await;
    let peak = peak_memory(&portolan);
    assert!(peak < REST_MIB + 32, "{peak} MiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_icons_need_no_more_memory_than_two() {
    /// An unoptimized build needs one second for each.
    const EACH: usize = 4;
    let world = World::new().await;
    let pixels = RgbaImage::from_pixel(1024, 1024, image::Rgba([1, 2, 3, 255]));
    let mut icon = Cursor::new(Vec::new());
    DynamicImage::from(pixels)
        .write_to(&mut icon, ImageFormat::Png)
        .unwrap();
    world.server.serve("/icon.png", Page::new(icon.into_inner()));
    for repository in 0..REPOSITORIES {
        let name = format!("large-{repository}");
        let entries = (0..EACH).map(|number| {
            let mut entry = chart(&format!("chart-{number}"), "1.0.0").index_entry(&[]);
            entry["icon"] = world.server.url("/icon.png").into();
            entry
        });
        let url = world.serve_entries(&name, entries);
        world.declare(&name, &url, "");
    }
    let count = "SELECT CAST(count(*) AS TEXT) FROM charts WHERE info ->> 'raw_icon' <> ''";
    let portolan = imported(&world, &["--icons", "--chart-files=none"], REPOSITORIES * EACH, count).await;
    let peak = peak_memory(&portolan);
    assert!(peak < REST_MIB, "{peak} MiB");
}
