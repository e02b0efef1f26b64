//! A TCP proxy in front of a server, which can close its connections and refuse new ones.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::eventually::{SOON, eventually};

/// Forwards connections to a server on this machine.
pub struct Gate {
    address: SocketAddr,
    /// Bound to the address but not listening, so that the port stays the gate's own while it is closed.
    _reservation: TcpSocket,
    target: SocketAddr,
    cuts: watch::Sender<u64>,
    is_stalled: watch::Sender<bool>,
    delay: watch::Sender<Duration>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl Gate {
    /// An open gate in front of `target`.
    pub async fn in_front_of(target: SocketAddr) -> Self {
        let reservation = bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a port is free");
        let gate = Self {
            address: reservation.local_addr().expect("the socket is bound"),
            _reservation: reservation,
            target,
            cuts: watch::Sender::new(0),
            is_stalled: watch::Sender::new(false),
            delay: watch::Sender::new(Duration::ZERO),
            accepting: Mutex::new(None),
        };
        gate.open().await;
        gate
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections (again).
    pub async fn open(&self) {
        // A program that another test starts has a copy of the closed listener until it runs.
        let listener = eventually(SOON, "the gate to listen again", async || {
            bind(self.address).and_then(|socket| socket.listen(1024))
        })
        .await;
        let (target, cuts, is_stalled) = (self.target, self.cuts.clone(), self.is_stalled.clone());
        let delay = self.delay.clone();
        let task = tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else {
                    // No file is left for now, or the client is gone.
                    tokio::task::yield_now().await;
                    continue;
                };
                let (mut cut, stalled, delay) = (cuts.subscribe(), is_stalled.subscribe(), delay.subscribe());
                tokio::spawn(async move {
                    tokio::select! {
                        _ = cut.changed() => (),
                        () = pass(client, target, stalled, &delay) => (),
                    }
                });
            }
        });
        *self.accepting.lock().expect("mutex is not poisoned") = Some(task);
    }

    /// Keeps connections open and accepts new ones, and forwards nothing on any of them, also later.
    pub fn stall(&self) {
        self.is_stalled.send_replace(true);
    }

    /// Forwards each packet after this time from now on, also on open connections: the server is far away.
    pub fn delay(&self, time: Duration) {
        self.delay.send_replace(time);
    }

    /// Forwards on new connections again.
    pub fn resume(&self) {
        self.is_stalled.send_replace(false);
    }

    /// Closes all open connections; new ones are accepted.
    pub fn disconnect(&self) {
        self.cuts.send_modify(|count| *count += 1);
    }

    /// Closes all connections and refuses new ones.
    pub async fn close(&self) {
        let task = self.accepting.lock().expect("mutex is not poisoned").take();
        if let Some(task) = task {
            task.abort();
            let _ = task.await; // only then the listener is closed
        }
        self.disconnect();
    }
}

/// A socket for this address, which several may have as long as at most one listens.
fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn pass(
    mut client: TcpStream,
    target: SocketAddr,
    mut stalled: watch::Receiver<bool>,
    delay: &watch::Receiver<Duration>,
) {
    let Ok(mut server) = TcpStream::connect(target).await else {
        return;
    };
    let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
    tokio::select! {
        biased;
        () = async { drop(stalled.wait_for(|stalled| *stalled).await) } => std::future::pending().await,
        // An error here is a closed connection, which both sides notice.
        _ = async { tokio::try_join!(forward(from_client, to_server, delay), forward(from_server, to_client, delay)) } => (),
    }
}

async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    delay: &watch::Receiver<Duration>,
) -> io::Result<()> {
    let mut packet = vec![0; 64 << 10];
    loop {
        let length = from.read(&mut packet).await?;
        let time = *delay.borrow();
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&packet[..length]).await?;
    }
}
