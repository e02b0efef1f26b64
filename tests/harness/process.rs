use std::process::Command;
use std::time::Duration;

use crate::support::eventually::eventually;
use crate::support::ports::free_port;
use crate::support::process::{Process, Reaper, ScratchFolder};

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn children_end_when_the_test_process_does() {
    let reaper = Reaper::start();
    let mut child = Process::spawn(Command::new("sleep").arg("1000"), "KILL");
    reaper.watch(child.id(), "TERM");
    drop(reaper); // closes the pipe, as the end of this process would
    assert!(!child.wait(SOON).await.success(), "a signal ended it");
}

#[tokio::test]
async fn a_dropped_child_is_gone_and_a_dropped_folder_too() {
    let child = Process::spawn(Command::new("sleep").arg("1000"), "KILL");
    let folder = ScratchFolder::new("self-test");
    let file = folder.write("file", "text");
    let process = format!("/proc/{}", child.id());
    drop(child);
    drop(folder);
    assert!(!file.exists());
    assert!(!std::path::Path::new(&process).exists());
}

#[test]
fn no_port_is_given_twice() {
    let mut ports: Vec<u16> = (0..100).map(|_| free_port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 100);
}

#[tokio::test]
#[should_panic(expected = "seen last: still low water")]
async fn a_condition_that_never_comes_fails_with_what_was_seen() {
    eventually(Duration::from_millis(100), "high water", async || {
        Err::<(), _>("still low water")
    })
    .await;
}
