//! Icons from a chart server to the pages.

use std::io::Cursor;

use image::{ImageFormat, RgbaImage};
use rstest::rstest;

use super::{SOON, Serving, database, declare, once};
use crate::catalog::On;
use crate::support::archives::{self, Chart};
use crate::support::chart_server::Page;
use crate::support::eventually::eventually;
use crate::support::world::World;

const SCRIPT: &[u8] =
    b"<?xml version='1.0'?><!-- icon --><svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>";

fn png() -> Vec<u8> {
    let mut png = Cursor::new(Vec::new());
    RgbaImage::new(8, 8).write_to(&mut png, ImageFormat::Png).unwrap();
    png.into_inner()
}

#[rstest]
#[tokio::test]
async fn icons_of_a_chart_server_are_shown_by_their_content(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    let large = format!(
        "<svg xmlns='http://www.w3.org/2000/svg'>{}</svg>",
        " ".repeat(200 * 1024)
    );
    let mut entries = Vec::new();
    for (name, claimed, icon) in [
        ("raster", "image/svg+xml", png()),
        ("script", "text/plain", SCRIPT.to_vec()),
        (
            "page",
            "image/svg+xml",
            b"<!DOCTYPE html><html><svg></svg></html>".to_vec(),
        ),
        ("large", "image/svg+xml", large.into_bytes()),
    ] {
        let path = format!("/icons/{name}");
        world.server.serve(&path, Page::new(icon).content_type(claimed));
        let chart = Chart::new(name, "1.0.0").field("icon", world.server.url(&path));
        entries.push(chart.pack().index_entry(&[]));
    }
    declare(&world, "stable", archives::index(entries));
    once(&world, &url, &["--icons"]).await;
    let serving = Serving::of(&world, &url).await;
    for (chart, media_type, has_icon) in [
        ("raster", "image/png", true),
        ("script", "image/svg+xml", true),
        ("page", "image/svg+xml", false),
        ("large", "image/svg+xml", false),
    ] {
        let path = format!("/charts/default/stable/{chart}");
        assert_eq!(serving.json(&path).await["hasIcon"], has_icon, "{chart}");
        let list = serving.json("/charts").await;
        let items = list["items"].as_array().unwrap();
        let item = items.iter().find(|item| item["name"] == chart).unwrap();
        assert_eq!(item["hasIcon"], has_icon, "{chart}");
        let icon = serving.get(&format!("{path}/icon")).await;
        assert_eq!((icon.status, icon.header("content-type")), (200, media_type), "{chart}");
        assert_eq!(
            icon.header("content-security-policy"),
            "default-src 'none'; style-src 'unsafe-inline'; sandbox"
        );
        assert_eq!(icon.header("x-content-type-options"), "nosniff");
        assert_eq!(icon.header("cross-origin-resource-policy"), "same-origin");
        assert!(!icon.header("etag").is_empty(), "{icon:?}");
        match chart {
            "script" => assert_eq!(icon.body, SCRIPT),
            // A letter stands for what is no icon.
            "page" | "large" => assert!(icon.text().contains("</text>"), "{icon:?}"),
            _ => {}
        }
    }
}

#[rstest]
#[tokio::test]
async fn an_icon_that_is_imported_later_is_shown_soon_and_known_by_its_etag(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let world = World::new().await;
    let url = database(&world, on).await;
    world
        .server
        .serve("/icon", Page::new(SCRIPT).content_type("image/svg+xml"));
    let chart = Chart::new("script", "1.0.0").field("icon", world.server.url("/icon"));
    declare(&world, "stable", archives::index([chart.pack().index_entry(&[])]));
    once(&world, &url, &[]).await;
    let serving = Serving::of(&world, &url).await;
    let has_icon = async || serving.json("/charts").await["items"][0]["hasIcon"].clone();
    assert_eq!(has_icon().await, false);
    once(&world, &url, &["--icons"]).await;
    eventually(SOON, "the icon in the list", async || {
        let has_icon = has_icon().await;
        if has_icon == true { Ok(()) } else { Err(has_icon) }
    })
    .await;
    let icon = serving.get("/charts/default/stable/script/icon").await;
    assert_eq!(icon.body, SCRIPT);
    let known = [("if-none-match", icon.header("etag"))];
    let again = serving
        .request("/api/v1/charts/default/stable/script/icon", &known)
        .await;
    assert_eq!((again.status, again.body.len()), (304, 0));
    let policy = again.header("content-security-policy");
    assert!(policy.contains("sandbox"), "{policy}");
}
