//! What others would do with the same bytes: parse them whole, unpack them, or only read and hash them. Each in a process of its
//! own, so that its memory can be told.

use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};

use crate::measure;
use crate::report::{Case, Row};

/// Asks this program to be the process of one baseline; its name and a file follow.
pub const ARGUMENT: &str = "--baseline";

const BASELINES: [(&str, &str); 3] = [
    ("yaml", "serde_yaml, the whole into its own `Value`"),
    ("json", "serde_yaml, the whole into serde_json's `Value`"),
    ("hash", "read and SHA-256"),
];

/// Measures what can be done with an index.
pub fn of_index(file: &Path) -> Vec<Row> {
    BASELINES.iter().map(|(name, title)| row(name, title, file)).collect()
}

/// Measures the unpacking of all archives of a folder.
pub fn of_archives(folder: &Path) -> Row {
    row(
        "archives",
        "read, SHA-256, gunzip and untar, one after the other",
        folder,
    )
}

fn row(name: &str, title: &'static str, file: &Path) -> Row {
    const RUNS: usize = 3;
    let runs: Vec<Vec<f64>> = (0..RUNS)
        .map(|_| {
            let mut command = Command::new(std::env::current_exe().expect("this program is a file"));
            let output = command
                .args([ARGUMENT, name])
                .arg(file)
                .output()
                .expect("it can be run");
            let text = String::from_utf8(output.stdout).expect("it prints numbers");
            text.split_whitespace()
                .map(|number| number.parse().expect("it prints numbers"))
                .collect()
        })
        .collect();
    let column = |at: usize| measure::median(runs.iter().map(|run| run[at]).collect());
    Row {
        case: Case::Baseline(title),
        database: String::new(),
        wall: Some(column(0)),
        cpu: column(1),
        postgres_cpu: None,
        peak: column(2) as u64,
        requests: String::new(),
    }
}

/// Does the work and prints seconds of time, seconds of CPU and bytes of memory.
pub fn child(arguments: &[String]) {
    let [name, file] = arguments else {
        panic!("a baseline and a file are wanted");
    };
    let started = Instant::now();
    let read = |path: &Path| std::fs::read(path).expect("the file is there");
    let bytes = if name == "archives" {
        Vec::new()
    } else {
        read(file.as_ref())
    };
    match name.as_str() {
        "archives" => {
            for archive in std::fs::read_dir(file).expect("the folder is there") {
                unpack(&read(&archive.expect("it can be read").path()));
            }
        }
        "yaml" => drop(std::hint::black_box(
            serde_yaml::from_slice::<serde_yaml::Value>(&bytes).unwrap(),
        )),
        "json" => drop(std::hint::black_box(
            serde_yaml::from_slice::<serde_json::Value>(&bytes).unwrap(),
        )),
        _ => drop(std::hint::black_box(Sha256::digest(&bytes))),
    }
    let wall = started.elapsed();
    let own = std::process::id();
    println!(
        "{} {} {}",
        wall.as_secs_f64(),
        measure::cpu(own).expect("we are here").as_secs_f64(),
        measure::peak_memory(own).expect("we are here")
    );
}

fn unpack(archive: &[u8]) {
    std::hint::black_box(Sha256::digest(archive));
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    for entry in archive.entries().expect("it is an archive") {
        let mut file = Vec::new();
        entry
            .and_then(|mut entry| entry.read_to_end(&mut file))
            .expect("it can be unpacked");
        std::hint::black_box(file);
    }
}
