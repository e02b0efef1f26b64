mod bounds;
mod document;
mod fast_path;
mod fuzz;
mod metadata;
mod real;
mod rules;
mod slices;

#[path = "../../../../tests/support/index_generator.rs"]
pub(super) mod generator;

use std::convert::Infallible;
use std::io::Cursor;

use super::*;
use crate::corpus;

type Decoded = Result<(Vec<Chart>, Summary), DecodeError<Infallible>>;

fn decode_within(index: &[u8], limits: &DecodeLimits) -> Decoded {
    let mut charts = Vec::new();
    let summary = decode(Cursor::new(index), limits, &mut charts)?;
    Ok((charts, summary))
}

fn decode_text(index: impl AsRef<[u8]>) -> Decoded {
    decode_within(index.as_ref(), &DecodeLimits::default())
}

/// Returns the only chart of an index with this version, in YAML's flow notation or JSON.
fn chart_of(entry: &str) -> Chart {
    let (mut charts, summary) = decode_text(format!("apiVersion: v1\nentries:\n  a:\n  - {entry}\n")).unwrap();
    assert_eq!(summary.skipped.count, 0, "{:?}", summary.skipped);
    assert_eq!(charts.len(), 1, "{entry}");
    charts.remove(0)
}

/// Returns the skipped version of such an index.
fn skip_of(entry: &str) -> Skip {
    let (charts, mut summary) = decode_text(format!("apiVersion: v1\nentries:\n  a:\n  - {entry}\n")).unwrap();
    assert_eq!((charts.len(), summary.skipped.count), (0, 1), "{entry}");
    assert_eq!((summary.names, summary.versions), (0, 0));
    summary.skipped.first.remove(0)
}

fn versions(chart: &Chart) -> Vec<&str> {
    chart.versions.iter().map(|version| version.version.as_str()).collect()
}
