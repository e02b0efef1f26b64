//! What others would do with the same bytes: parse them whole, or only read and hash them. Each in a process of its own, so
//! that its memory can be told.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

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

/// Measures all of them over a file.
pub fn rows(file: &Path) -> Vec<Row> {
    BASELINES.iter().map(|(name, title)| row(name, title, file)).collect()
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
    let bytes = std::fs::read(file).expect("the file is there");
    match name.as_str() {
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
