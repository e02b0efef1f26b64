use std::process::Command;
use std::time::Duration;

use crate::support::eventually::{SOON, eventually};
use crate::support::ports::free_port;
use crate::support::process::{Process, Reaper, ScratchDir};

#[tokio::test]
async fn children_end_when_the_test_process_does() {
    let reaper = Reaper::start();
    let mut child = Process::spawn(Command::new("sleep").arg("1000"), "KILL");
    reaper.watch(child.id(), "TERM");
    drop(reaper); // closes the pipe, like the end of this process
    assert!(!child.wait(SOON).await.success(), "terminated by a signal");
}

#[tokio::test]
async fn dropping_kills_a_child_and_deletes_a_directory() {
    let child = Process::spawn(Command::new("sleep").arg("1000"), "KILL");
    let directory = ScratchDir::new("self-test");
    let file = directory.write("file", "text");
    let process = format!("/proc/{}", child.id());
    drop(child);
    drop(directory);
    assert!(!file.exists());
    assert!(!std::path::Path::new(&process).exists());
}

#[test]
fn ports_are_unique() {
    let mut ports: Vec<u16> = (0..100).map(|_| free_port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 100);
}

#[tokio::test]
#[should_panic(expected = "last result: value is 0")]
async fn a_timeout_reports_the_last_observation() {
    eventually(Duration::from_millis(100), "high water", async || {
        Err::<(), _>("value is 0")
    })
    .await;
}
