//! The commands of the README and of the tutorials.

use std::collections::BTreeMap;

use super::console::{Block, Reader, blocks};
use super::read;
use crate::support::chart_server::{ChartServer, Page};
use crate::support::portolan::Portolan;
use crate::support::project;

#[tokio::test]
async fn the_commands_of_the_readme_print_what_it_shows() {
    let reader = Reader::new();
    reader.link("examples");
    let shown: Vec<Block> = blocks(&read("README.md".as_ref()));
    let shown = shown.iter().filter(|block| block.info == "console");
    let mut count = 0;
    for block in shown {
        reader.follow(block).await;
        count += 1;
    }
    assert_eq!(count, 1);
}

/// Serves the repository of the examples.
pub async fn serve_charts() -> ChartServer {
    let server = ChartServer::start().await;
    for entry in std::fs::read_dir(project("examples/harbour")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        server.serve(&format!("/{name}"), Page::new(std::fs::read(entry.path()).unwrap()));
    }
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_tutorial_leads_to_a_catalog() {
    let mut reader = Reader::new();
    reader.link("examples");
    let mut server = None;
    let mut running = BTreeMap::new();
    for block in blocks(&read("docs/tutorials/first-repository.md".as_ref())) {
        if block.info != "sh background" {
            if block.text.starts_with("rm ") {
                running.clear();
            }
            reader.follow(&block).await;
        } else if block.text.starts_with("python3 -m http.server 8000 ") {
            let started = serve_charts().await;
            let address = started.url("").trim_end_matches('/').to_owned();
            reader
                .substitutes
                .push(("http://127.0.0.1:8000".to_owned(), address.clone()));
            let port = address.rsplit(':').next().unwrap();
            reader.substitutes.push((":8000".to_owned(), format!(":{port}")));
            server = Some(started);
        } else {
            // The test adds an address, which the shell hands on.
            let started = reader.shell(&format!("exec {} \"$0\"", block.text.trim()));
            running.insert(block.text.clone(), Portolan::start(started));
        }
    }
    assert!(server.is_some());
    assert!(!reader.directory.join("portolan.db").exists());
}
