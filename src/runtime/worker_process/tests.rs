use std::os::unix::net::UnixStream;
use std::thread;

use super::*;

const SOON: Duration = Duration::from_secs(20);

fn shell(script: &str) -> WorkerProcesses {
    WorkerProcesses::new(program(script), |_| true)
}

fn program(script: &str) -> Program {
    Program {
        paths: vec!["/none".into(), "/bin/sh".into()],
        name: "portolan-test",
        arguments: vec!["-c".into(), script.into()],
        environment: Vec::new(),
        framing: Framing::LengthPrefix,
        max_response: 1024 * 1024,
        max_memory: None,
    }
}

/// A program that answers each request with the same bytes.
fn echo() -> WorkerProcesses {
    shell("exec /bin/cat")
}

fn call(worker: &mut Worker, request: &[u8], within: Duration) -> Result<Vec<u8>, WorkerError> {
    worker.call(request, Instant::now() + within, &CancellationToken::new())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[tokio::test]
async fn a_child_is_used_again_and_ends_after_a_minute_without_work() {
    let pool = echo();
    let first = blocking({
        let pool = pool.clone();
        move || {
            let mut worker = pool.checkout().unwrap();
            assert_eq!(call(&mut worker, b"one", SOON).unwrap(), b"one");
            assert_eq!(call(&mut worker, &[7; 300_000], SOON).unwrap(), [7; 300_000]);
            worker.process.as_ref().unwrap().id()
        }
    });
    let first = first.await;
    assert_eq!(pool.idle(), 1);
    let again = blocking({
        let pool = pool.clone();
        move || pool.checkout().unwrap().process.as_ref().unwrap().id()
    });
    assert_eq!((again.await, pool.idle()), (first, 1));

    assert!(pool.end_idle().is_some_and(|next| next <= IDLE));
    pool.0.idle.lock().processes[0].0 = Instant::now().checked_sub(IDLE).unwrap();
    assert_eq!(pool.end_idle(), None);
    assert_eq!((pool.idle(), pool.resident_bytes()), (0, 0));
    assert!(!std::path::Path::new(&format!("/proc/{first}")).exists());
}

#[tokio::test]
async fn children_run_side_by_side() {
    let pool = echo();
    blocking(move || {
        let mut workers = [pool.checkout().unwrap(), pool.checkout().unwrap()];
        for worker in &mut workers {
            assert_eq!(call(worker, b"x", SOON).unwrap(), b"x");
        }
        drop(workers);
        assert_eq!(pool.idle(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_child_that_does_not_answer_is_killed_at_the_deadline() {
    let pool = shell("exec /bin/sleep 1000");
    blocking(move || {
        let mut worker = pool.checkout().unwrap();
        let id = worker.process.as_ref().unwrap().id();
        let late = call(&mut worker, b"x", Duration::from_millis(10)).unwrap_err();
        assert!(matches!(late, WorkerError::Deadline), "{late}");
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
        assert!(matches!(call(&mut worker, b"x", SOON), Err(WorkerError::Failed(_))));
        drop(worker);
        assert_eq!(pool.idle(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_canceled_call_kills_its_child() {
    let pool = shell("exec /bin/sleep 1000");
    blocking(move || {
        let cancel = CancellationToken::new();
        cancel.cancel();
        let canceled = pool.checkout().unwrap().call(b"x", Instant::now() + SOON, &cancel);
        assert!(matches!(canceled, Err(WorkerError::Canceled)));
        assert_eq!(pool.idle(), 0);
    })
    .await;
}

#[tokio::test]
async fn limits_are_distinguished_from_faults_by_the_last_words() {
    for (script, expected) in [
        (
            "echo 'fatal error: runtime: out of memory' >&2; exit 2",
            "memory limit exceeded",
        ),
        (
            "echo 'memory allocation of 9 bytes failed' >&2; kill -ABRT $$",
            "memory limit exceeded",
        ),
        (
            "echo \"thread 'worker' has overflowed its stack\" >&2; kill -ABRT $$",
            "stack limit exceeded",
        ),
        ("kill -XCPU $$", "CPU time limit exceeded"),
        ("echo sorry >&2; exit 3", "child process failed: exit status: 3: sorry"),
        // Longer than any response.
        (
            "printf '\\377\\377\\377\\377'; exec /bin/sleep 1000",
            "exceeds the limit of 1048576",
        ),
    ] {
        let pool = shell(script);
        let error = blocking(move || {
            let mut worker = pool.checkout().unwrap();
            let error = call(&mut worker, b"x", SOON).unwrap_err().to_string();
            drop(worker);
            assert_eq!(pool.idle(), 0);
            error
        });
        let error = error.await;
        assert!(error.contains(expected), "{script}: {error}");
    }
}

#[tokio::test]
async fn a_child_that_ended_while_idle_is_replaced() {
    let pool = echo();
    blocking(move || {
        let worker = pool.checkout().unwrap();
        let id = worker.process.as_ref().unwrap().id();
        drop(worker);
        pool.0.idle.lock().processes[0].1.kill();
        let mut worker = pool.checkout().unwrap();
        assert_ne!(worker.process.as_ref().unwrap().id(), id);
        assert_eq!(call(&mut worker, b"x", SOON).unwrap(), b"x");
    })
    .await;
}

#[test]
fn a_child_has_an_empty_environment() {
    let mut worker = shell("set >&2; exit 1").checkout().unwrap();
    let error = call(&mut worker, b"x", SOON).unwrap_err().to_string();
    assert!(!error.contains("HOME=/") && !error.contains("CARGO"), "{error}");
}

#[test]
fn a_program_that_does_not_exist_is_reported() {
    let paths = vec!["/none".into()];
    let pool = WorkerProcesses::new(Program { paths, ..program("") }, |_| true);
    let Err(WorkerError::Start(error)) = pool.checkout().map(drop) else {
        panic!("a program without a file started");
    };
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[tokio::test]
async fn a_child_is_replaced_when_it_is_no_longer_reusable() {
    let pool = WorkerProcesses::new(program("exec /bin/cat"), |usage| {
        usage.calls < 3 && usage.memory.is_some()
    });
    blocking(move || {
        let call = || {
            let mut worker = pool.checkout().unwrap();
            call(&mut worker, b"x", SOON).unwrap();
            let id = worker.process.as_ref().unwrap().id();
            drop(worker);
            (id, pool.idle())
        };
        // Three calls end a child.
        let idle = [(); 5].map(|()| call().1);
        assert_eq!(idle, [1, 1, 0, 1, 1]);
        pool.checkout().unwrap().discard();
        assert_eq!((pool.idle(), pool.0.running.lock().len()), (0, 0));
    })
    .await;
}

#[tokio::test]
async fn lines_are_answered_by_lines() {
    const LINES: &str = r#"while read -r line; do
        case $line in two) printf 'a\nb\n';; long) echo 01234567890;; *) echo "$ANSWER $line";; esac
    done"#;
    let program = Program {
        framing: Framing::Lines,
        max_response: 10,
        environment: vec![("ANSWER", "yes".to_owned())],
        ..program(LINES)
    };
    let pool = WorkerProcesses::new(program, |_| true);
    blocking(move || {
        let mut worker = pool.checkout().unwrap();
        assert_eq!(call(&mut worker, b"one", SOON).unwrap(), b"yes one");
        assert_eq!(call(&mut worker, b"2", SOON).unwrap(), b"yes 2");
        let error = call(&mut worker, b"two", SOON).unwrap_err().to_string();
        assert_eq!(error, "child process failed: more than one response");
        let error = call(&mut pool.checkout().unwrap(), b"long", SOON)
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("exceeds the limit of 10"), "{error}");
    })
    .await;
}

#[test]
fn a_child_that_takes_too_much_memory_is_killed_while_it_works() {
    // A shell keeps what it captures.
    let program = Program {
        max_memory: Some(64 * 1024 * 1024),
        ..program("x=$(yes | head -c 400000000); exec /bin/sleep 1000")
    };
    let pool = WorkerProcesses::new(program, |_| true);
    let mut worker = pool.checkout().unwrap();
    let id = worker.process.as_ref().unwrap().id();
    let error = call(&mut worker, b"x", 10 * SOON).unwrap_err();
    assert!(matches!(error, WorkerError::Memory), "{error}");
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
}

/// Runs the child's loop on a thread, and returns the parent's end of the socket.
fn serving(handler: impl FnMut(Vec<u8>) -> Vec<u8> + Send + 'static) -> (UnixStream, thread::JoinHandle<()>) {
    let (parent, socket) = UnixStream::pair().unwrap();
    let serving = thread::spawn(move || child::run_on_socket(&socket, 1024 * 1024, || Ok(()), handler).unwrap());
    (parent, serving)
}

fn read(socket: &UnixStream) -> std::io::Result<Vec<u8>> {
    Framing::LengthPrefix.read(std::io::BufReader::new(socket), 10)
}

#[test]
fn the_child_answers_in_order_until_its_input_closes() {
    let (parent, serving) = serving(|request| request.into_iter().rev().collect());
    for (request, response) in [(&b"abc"[..], &b"cba"[..]), (b"", b""), (b"12", b"21")] {
        Framing::LengthPrefix.write(&parent, request).unwrap();
        assert_eq!(read(&parent).unwrap(), response);
    }
    drop(parent);
    serving.join().unwrap();
}

#[test]
fn the_child_ends_if_its_work_panics() {
    let (parent, serving) = serving(|_| std::panic::resume_unwind(Box::new("on purpose")));
    Framing::LengthPrefix.write(&parent, b"x").unwrap();
    assert!(read(&parent).is_err());
    serving.join().unwrap();
}
