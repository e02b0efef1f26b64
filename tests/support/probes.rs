//! Asks for the liveness probe of a process while others attack it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use super::portolan::Portolan;

const INTERVAL: Duration = Duration::from_millis(100);
/// Latest answer of a process whose runtime is never held.
const LATEST: Duration = Duration::from_secs(1);
/// Time without an answer after which a request is given up: that of a liveness probe that restarts the container.
const TIMEOUT: Duration = Duration::from_secs(12);
/// Longest time for which this thread sleeps. If it sleeps longer, the machine is busy.
const TICK: Duration = Duration::from_millis(10);

/// Asks a process for `/livez` every 100 ms. When it is dropped, the test fails if an answer took more than a second, not
/// counting the time for which this process had no CPU either.
pub struct Probes {
    has_ended: Arc<AtomicBool>,
    prober: Option<JoinHandle<Answers>>,
}

#[derive(Default)]
struct Answers {
    count: usize,
    slowest: Duration,
    failed: Option<String>,
}

impl Probes {
    pub fn of(portolan: &Portolan) -> Self {
        let address = portolan.address().parse().expect("an address and a port");
        let has_ended = Arc::<AtomicBool>::default();
        let ended = Arc::clone(&has_ended);
        Self {
            has_ended,
            prober: Some(spawn(move || probe(address, &ended))),
        }
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        let Some(Ok(answers)) = self.prober.take().map(JoinHandle::join) else {
            return;
        };
        let Answers { count, slowest, failed } = answers;
        println!("{count} answers of /livez, the slowest after {slowest:?}");
        if !std::thread::panicking() {
            assert_eq!(failed, None, "a probe failed");
            assert!(count > 0 && slowest <= LATEST, "a probe was answered after {slowest:?}");
        }
    }
}

fn probe(address: SocketAddr, has_ended: &AtomicBool) -> Answers {
    let mut answers = Answers::default();
    while !has_ended.load(Ordering::Relaxed) {
        let asked = Instant::now();
        match ask(address) {
            Ok(time) => {
                answers.count += 1;
                answers.slowest = answers.slowest.max(time);
            }
            Err(error) => {
                let failed = || format!("{error} after {:?}", asked.elapsed());
                answers.failed.get_or_insert_with(failed);
            }
        }
        sleep(INTERVAL.saturating_sub(asked.elapsed()));
    }
    answers
}

/// Returns the time until the answer.
fn ask(address: SocketAddr) -> std::io::Result<Duration> {
    let asked = Instant::now();
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: portolan\r\nConnection: close\r\n\r\n")?;
    stream.set_read_timeout(Some(TICK))?;
    let (mut answer, mut without_cpu) = ([0; 15], Duration::ZERO);
    let mut length = 0;
    while length < answer.len() {
        let before = Instant::now();
        match stream.read(&mut answer[length..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => length += read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
        without_cpu += before.elapsed().saturating_sub(2 * TICK);
        if asked.elapsed() > TIMEOUT {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    match &answer {
        b"HTTP/1.1 200 OK" => Ok(asked.elapsed().saturating_sub(without_cpu)),
        other => Err(std::io::Error::other(String::from_utf8_lossy(other).into_owned())),
    }
}
