//! The tutorial of a push, with servers of the test in place of the reader's Python programs.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use tokio::net::TcpListener;

use super::console::{Reader, blocks};
use super::read;
use crate::support::chart_server::{ChartServer, Page};
use crate::support::control_plane::ControlPlane;
use crate::support::eventually::SOON;
use crate::support::portolan::Portolan;
use crate::support::ports::free_port;

/// Serves the files that the reader has published so far.
fn publish(reader: &Reader, server: &ChartServer) {
    let Ok(files) = fs::read_dir(reader.directory.join("site")) else {
        return;
    };
    for file in files {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        server.serve(&format!("/{name}"), Page::new(fs::read(file.path()).unwrap()));
    }
}

/// Starts a server that appends each message to the file, as the tutorial's `chat.py`.
async fn start_chat(file: PathBuf) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let chat = Router::new().route("/", post(append)).with_state(file);
    tokio::spawn(async move { axum::serve(listener, chat).await });
    url
}

async fn append(State(file): State<PathBuf>, message: String) -> StatusCode {
    let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
    file.write_all(format!("{message}\n").as_bytes()).unwrap();
    StatusCode::NO_CONTENT
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tutorial_leads_from_a_push_to_a_notification() {
    let control_plane = ControlPlane::start().await;
    let mut reader = Reader::of(&control_plane);
    reader.link("examples");
    let server = ChartServer::start().await;
    reader.substitutes = vec![
        (
            "http://127.0.0.1:8000".to_owned(),
            server.url("").trim_end_matches('/').to_owned(),
        ),
        (
            "http://127.0.0.1:9000".to_owned(),
            start_chat(reader.directory.join("chat.txt")).await,
        ),
        ("127.0.0.1:8091".to_owned(), format!("127.0.0.1:{}", free_port())),
    ];
    let mut running = Vec::new();
    for block in blocks(&read("docs/tutorials/push-to-notification.md".as_ref())) {
        if block.info != "sh background" {
            if block.text.starts_with("rm ") {
                running.clear();
            }
            reader.follow(&block).await;
            publish(&reader, &server);
        } else if block.text.starts_with("portolan ") {
            // The test adds an address, which the shell hands on.
            let started = reader.shell(&format!("exec {} \"$0\"", block.text.trim()));
            let started = Portolan::start(started);
            started.ready(SOON).await;
            running.push(started);
        }
    }
    assert!(!reader.directory.join("portolan.db").exists());
}
