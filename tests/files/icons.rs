use std::io::Cursor;

use base64::Engine as _;
use image::{DynamicImage, ImageFormat, RgbaImage};
use serde_json::Value;

use super::{World, chart};
use crate::support::chart_server::{ChartServer, Fault, Page, RecordedRequest};
use crate::support::portolan::command;
use crate::support::world::succeeded;

const ICONS: &str = "--icons";

fn picture(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let pixels = RgbaImage::from_fn(width, height, |x, y| image::Rgba([x as u8, y as u8, 7, 255]));
    let image = DynamicImage::ImageRgba8(pixels);
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// Claims 60,000 pixels per side, but has almost no content.
fn bomb() -> Vec<u8> {
    let mut png = picture(1, 1, ImageFormat::Png);
    let side = 60_000_u32.to_be_bytes();
    png[16..20].copy_from_slice(&side);
    png[20..24].copy_from_slice(&side);
    let mut sum = flate2::Crc::new();
    sum.update(&png[12..29]);
    let sum = sum.sum().to_be_bytes();
    png[29..33].copy_from_slice(&sum);
    png
}

const SVG: &str = r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 400"><rect width="400" height="400" fill="red"/></svg>"#;

fn index(icons: &[(&str, String)]) -> Vec<Value> {
    icons
        .iter()
        .map(|(name, icon)| {
            let mut entry = chart(name, "1.0.0").index_entry(&[]);
            entry["icon"] = icon.as_str().into();
            entry
        })
        .collect()
}

/// Size of the stored icon of a chart.
async fn icon(world: &World, name: &str) -> Option<(u32, u32)> {
    let info = world
        .chart(&format!("stable/{name}"))
        .await
        .expect("the chart is stored");
    let Some(base64) = info["raw_icon"].as_str() else {
        assert_eq!(info["icon_content_type"], "");
        return None;
    };
    assert_eq!(info["icon_content_type"], "image/png");
    let bytes = base64::engine::general_purpose::STANDARD.decode(base64).unwrap();
    let image = image::load_from_memory_with_format(&bytes, ImageFormat::Png).unwrap();
    Some((image.width(), image.height()))
}

#[tokio::test]
async fn icons_are_converted_to_png_of_at_most_160_pixels_except_svgs_and_malicious_ones_are_not_stored() {
    let world = World::new().await;
    let pages: [(&str, &'static str, Vec<u8>); 9] = [
        ("png", "image/png", picture(320, 320, ImageFormat::Png)),
        ("wide", "image/png", picture(640, 160, ImageFormat::Png)),
        ("small", "image/png", picture(20, 10, ImageFormat::Png)),
        ("webp", "image/webp", picture(200, 200, ImageFormat::WebP)),
        ("svg", "image/svg+xml", SVG.into()),
        ("bomb", "image/png", bomb()),
        ("html", "text/html", b"<!DOCTYPE html><html>Please log in</html>".to_vec()),
        ("large", "image/png", vec![0; 30 << 20]),
        (
            "reaching",
            "image/svg+xml",
            format!(r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><image href="{}" width="9" height="9"/></svg>"#,
                world.server.url("/icons/secret")).into(),
        ),
    ];
    let mut icons: Vec<(&str, String)> = Vec::new();
    for (name, content_type, bytes) in pages {
        let path = format!("/icons/{name}");
        world.server.serve(&path, Page::new(bytes).content_type(content_type));
        icons.push((name, world.server.url(&path)));
    }
    let data = base64::engine::general_purpose::STANDARD.encode(picture(300, 150, ImageFormat::Png));
    icons.push(("data", format!("data:image/png;base64,{data}")));
    icons.push(("absent", world.server.url("/icons/absent")));
    icons.push(("file", "file:///etc/hostname".to_owned()));
    icons.push(("none", String::new()));
    world.declare("stable", &world.serve_entries("stable", index(&icons)), "");

    world.once(&[]).await;
    assert!(world.server.requests("/icons/png").is_empty());
    assert_eq!(icon(&world, "png").await, None);

    world.once(&[ICONS]).await;
    for (name, size) in [
        ("png", (160, 160)),
        ("wide", (160, 40)),
        ("small", (20, 10)),
        ("webp", (160, 160)),
        ("data", (160, 80)),
    ] {
        assert_eq!(icon(&world, name).await, Some(size), "{name}");
    }
    for name in ["svg", "reaching", "bomb", "html", "large", "absent", "file", "none"] {
        assert_eq!(icon(&world, name).await, None, "{name}");
    }
    assert!(
        world.server.requests("/icons/secret").is_empty(),
        "external references of an icon must not be fetched"
    );

    let svgs = "SELECT chart_id FROM portolan_svg_icons ORDER BY chart_id";
    assert_eq!(world.texts(svgs).await, ["stable/reaching", "stable/svg"]);
    // The chart of an SVG keeps its URL, which Kubeapps shows.
    let chart = world.chart("stable/svg").await.unwrap();
    assert_eq!(chart["icon"], world.server.url("/icons/svg").as_str());

    // Failed icons wait for their retry, stored ones stay.
    world.once(&[ICONS]).await;
    for name in ["png", "svg", "bomb", "absent"] {
        assert_eq!(world.server.requests(&format!("/icons/{name}")).len(), 1, "{name}");
    }
}

#[tokio::test]
async fn an_icon_is_kept_while_its_url_is_unchanged() {
    let world = World::new().await;
    world.server.serve(
        "/icons/one",
        Page::new(picture(100, 100, ImageFormat::Png)).content_type("image/png"),
    );
    world.server.serve(
        "/icons/two",
        Page::new(picture(50, 50, ImageFormat::Png)).content_type("image/png"),
    );
    let mut entries = index(&[("web", world.server.url("/icons/one"))]);
    world.declare("stable", &world.serve_entries("stable", entries.clone()), "");
    world.once(&[ICONS]).await;
    entries[0]["description"] = "another".into();
    world.serve_entries("stable", entries.clone());
    // Even after a sync that imports no icons.
    world.once(&[]).await;
    assert_eq!(world.chart("stable/web").await.unwrap()["description"], "another");
    assert_eq!(icon(&world, "web").await, Some((100, 100)));
    world.once(&[ICONS]).await;
    assert_eq!(world.server.requests("/icons/one").len(), 1);

    entries[0]["icon"] = world.server.url("/icons/two").into();
    world.serve_entries("stable", entries);
    world.once(&[ICONS]).await;
    assert_eq!(icon(&world, "web").await, Some((50, 50)));
}

#[tokio::test]
async fn credentials_are_sent_only_for_icons_on_the_repositorys_host() {
    let world = World::new().await;
    let elsewhere = ChartServer::start().await;
    for server in [&world.server, &elsewhere] {
        server.serve(
            "/icon",
            Page::new(picture(10, 10, ImageFormat::Png)).content_type("image/png"),
        );
    }
    world
        .server
        .break_path("/moved", Fault::redirect(&elsewhere.url("/redirected")));
    elsewhere.serve(
        "/redirected",
        Page::new(picture(10, 10, ImageFormat::Png)).content_type("image/png"),
    );
    let entries = index(&[
        ("own", world.server.url("/icon")),
        ("other", elsewhere.url("/icon")),
        ("moved", world.server.url("/moved")),
    ]);
    let url = world.serve_entries("stable", entries);
    let mut sync = command([
        "sync",
        "stable",
        &url,
        "helm",
        ICONS,
        "--database-url",
        &world.database_url(),
    ]);
    sync.env("AUTHORIZATION_HEADER", "Bearer hush");
    succeeded(sync).await;
    for name in ["own", "other", "moved"] {
        assert_eq!(icon(&world, name).await, Some((10, 10)), "{name}");
    }
    let sent = |seen: &[RecordedRequest]| seen[0].headers.contains_key("authorization");
    assert!(sent(&world.server.requests("/icon")));
    assert!(!sent(&elsewhere.requests("/icon")));
    assert!(sent(&world.server.requests("/moved")));
    assert!(!sent(&elsewhere.requests("/redirected")));
}
