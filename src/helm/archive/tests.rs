mod build;
mod hostile;
mod real;
mod rules;

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::corpus;
use build::{file, tar};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn read_within(archive: &[u8], limits: &ArchiveLimits) -> Result<ArchiveFiles, ArchiveError> {
    read(archive, limits)
}

fn read_tar(entries: &[Vec<u8>]) -> Result<ArchiveFiles, ArchiveError> {
    read_within(&gzip(&tar(entries)), &ArchiveLimits::default())
}

fn readme(text: &str) -> ArchiveFiles {
    ArchiveFiles {
        readme: text.to_owned(),
        ..ArchiveFiles::default()
    }
}
