//! Expanding icons, and icons with external references.

use serde_json::json;

use super::{World, peak_memory};
use crate::support::archives::{Chart, index};
use crate::support::chart_server::{Fault, Page};

/// A small SVG file that must not be read.
const PLAIN: &str =
    r#"<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><rect width="8" height="8" fill="red"/></svg>"#;

/// Returns a valid PNG.
fn good() -> Vec<u8> {
    let mut png = std::io::Cursor::new(Vec::new());
    let square = image::RgbaImage::from_pixel(8, 8, image::Rgba([255, 0, 0, 255]));
    square.write_to(&mut png, image::ImageFormat::Png).unwrap();
    png.into_inner()
}

/// Returns a PNG whose header claims a size that its data does not have.
pub fn claims(side: u32) -> Vec<u8> {
    let chunk = |kind: &[u8], content: &[u8]| {
        let named = [kind, content].concat();
        let mut sum = flate2::Crc::new();
        sum.update(&named);
        [
            &u32::try_from(content.len()).unwrap().to_be_bytes()[..],
            &named,
            &sum.sum().to_be_bytes(),
        ]
        .concat()
    };
    let head = [&side.to_be_bytes()[..], &side.to_be_bytes(), &[8, 6, 0, 0, 0]].concat();
    // Compressed zeros: lines of a filter byte and pixels.
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, &vec![0; 32 << 20]).unwrap();
    let lines = encoder.finish().unwrap();
    [
        &b"\x89PNG\r\n\x1a\n"[..],
        &chunk(b"IHDR", &head),
        &chunk(b"IDAT", &lines),
        &chunk(b"IEND", b""),
    ]
    .concat()
}

fn svg(content: &str) -> Vec<u8> {
    format!(r#"<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="8" height="8">{content}</svg>"#)
        .into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn icons_neither_exhaust_memory_nor_cause_other_requests() {
    let world = World::new().await;
    let spy = world.attacker.url("/spied");
    let file = format!("file://{}", world.directory.write("secret.svg", PLAIN).display());
    let laughs: String = (1..10).fold("<!ENTITY a0 \"ha\">".to_owned(), |text, level| {
        text + &format!("<!ENTITY a{level} \"{}\">", format!("&a{};", level - 1).repeat(10))
    });
    let uses: String = (1..20).fold(
        "<g id=\"g0\"><rect width=\"1\" height=\"1\"/></g>".to_owned(),
        |text, level| {
            text + &format!(
                "<g id=\"g{level}\">{}</g>",
                format!("<use xlink:href=\"#g{}\"/>", level - 1).repeat(10)
            )
        },
    );
    let bombs: Vec<(&str, &str, Vec<u8>)> = vec![
        ("pixels", "image/png", claims(65_535)),
        ("more-pixels", "image/png", claims(u32::MAX >> 1)),
        ("gif", "image/gif", b"GIF89a\xff\xff\xff\xff\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\xff\xff\xff\xff\0\x02\x02D\x01\0;".to_vec()),
        ("laughs", "image/svg+xml", format!("<!DOCTYPE svg [{laughs}]><svg xmlns=\"http://www.w3.org/2000/svg\"><text>&a9;</text></svg>").into()),
        ("external-entity", "image/svg+xml", format!("<!DOCTYPE svg [<!ENTITY x SYSTEM \"{spy}\">]><svg xmlns=\"http://www.w3.org/2000/svg\"><text>&x;</text></svg>").into()),
        ("uses", "image/svg+xml", svg(&uses)),
        ("deep", "image/svg+xml", svg(&format!("{}{}", "<g>".repeat(9_000), "</g>".repeat(9_000)))),
        ("unclosed", "image/svg+xml", "<g>".repeat(150_000).into()),
        ("noise", "image/svg+xml", svg("<filter id=\"f\"><feTurbulence numOctaves=\"1000000\"/></filter><rect width=\"8\" height=\"8\" filter=\"url(#f)\"/>")),
        ("page", "text/html", b"<html><body>log in</body></html>".to_vec()),
        ("large", "image/svg+xml", svg(&"<!-- -->".repeat(100_000))),
    ];
    // External references must not be fetched.
    let references = [
        (
            "image",
            format!("<image xlink:href=\"{spy}\" width=\"8\" height=\"8\"/>"),
        ),
        (
            "image-file",
            format!("<image href=\"{file}\" width=\"8\" height=\"8\"/>"),
        ),
        ("use", format!("<use xlink:href=\"{spy}#a\"/>")),
        (
            "style",
            format!("<style>@import url({spy}); rect {{ fill: url({spy}#a) }}</style>"),
        ),
        (
            "foreign",
            format!("<foreignObject><iframe src=\"{spy}\"/></foreignObject><script href=\"{spy}\"/>"),
        ),
        (
            "font",
            format!("<style>@font-face {{ font-family: x; src: url({spy}) }}</style><text font-family=\"x\">x</text>"),
        ),
    ];
    let referring: Vec<(&str, &str, Vec<u8>)> = references
        .iter()
        .map(|(name, content)| {
            (
                *name,
                "image/svg+xml",
                svg(&format!("{content}<rect width=\"8\" height=\"8\" fill=\"red\"/>")),
            )
        })
        .collect();
    let mut entries = Vec::new();
    for (name, content_type, bytes) in bombs.iter().chain(&referring) {
        let path = format!("/icons/{name}");
        world
            .attacker
            .serve(&path, Page::new(bytes.clone()).content_type(content_type));
        entries.push(
            Chart::new(name, "1.0.0")
                .field("icon", world.attacker.url(&path))
                .pack()
                .index_entry(&[]),
        );
    }
    let others = [
        ("endless", world.attacker.url("/icons/endless")),
        ("a-file", file.clone()),
        ("a-device", "file:///dev/zero".to_owned()),
        ("data-bomb", format!("data:image/png;base64,{}", "A".repeat(100))),
        ("script", "javascript:alert(1)".to_owned()),
    ];
    world.attacker.break_path("/icons/endless", Fault::EndlessGzip);
    for (name, icon) in &others {
        entries.push(
            Chart::new(name, "1.0.0")
                .field("icon", json!(icon))
                .pack()
                .index_entry(&[]),
        );
    }
    world.attack("icons", index(entries));
    world
        .honest
        .serve("/icon.png", Page::new(good()).content_type("image/png"));
    let honest = Chart::new("harbour", "1.0.0")
        .field("icon", world.honest.url("/icon.png"))
        .pack();
    world
        .honest
        .serve("/charts/index.yaml", Page::new(index([honest.index_entry(&[])])));

    let portolan = world.run(&["--icons"]).await;
    world.until_icon("honest/harbour").await;
    // SVGs are stored as they came, and never parsed.
    let is_stored = |name: &str| ["laughs", "external-entity", "uses", "deep", "noise"].contains(&name);
    let (stored, bombs): (Vec<_>, Vec<_>) = bombs.iter().map(|(name, ..)| *name).partition(|name| is_stored(name));
    for name in stored.into_iter().chain(referring.iter().map(|(name, ..)| *name)) {
        world.until_svg_icon(&format!("icons/{name}")).await;
    }
    for name in bombs.into_iter().chain(others.iter().map(|(name, _)| *name)) {
        let error = world.until_icon_of_chart_failed(&format!("icons/{name}")).await;
        assert!(
            error.contains("icon") || error.contains("exceeds the limit") || error.contains("scheme"),
            "{name}: {error}"
        );
    }
    world.until_ready("icons").await;
    world.until_honest_is_served().await;
    assert_eq!(world.attacker.count("/spied"), 0);
    let peak = peak_memory(&portolan);
    assert!(peak < 160, "{peak} MiB, although two icons at a time take 27 MiB each");
    assert!(!portolan.lines().join("\n").contains("panicked"), "a decoder panicked");
}
