//! A TCP proxy in front of a server, which can close its connections and refuse new ones.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::ports::free_port;

/// Forwards connections to a server on this machine.
pub struct Gate {
    port: u16,
    target: SocketAddr,
    cuts: watch::Sender<u64>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl Gate {
    /// An open gate in front of `target`.
    pub async fn in_front_of(target: SocketAddr) -> Self {
        let gate = Self {
            port: free_port(),
            target,
            cuts: watch::Sender::new(0),
            accepting: Mutex::new(None),
        };
        gate.open().await;
        gate
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Accepts connections (again).
    pub async fn open(&self) {
        let listener = TcpListener::bind(self.address())
            .await
            .expect("the gate's port is still free");
        let (target, cuts) = (self.target, self.cuts.clone());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut cut = cuts.subscribe();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = cut.changed() => (),
                        () = pass(client, target) => (),
                    }
                });
            }
        });
        *self.accepting.lock().expect("mutex is not poisoned") = Some(task);
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

async fn pass(mut client: TcpStream, target: SocketAddr) {
    if let Ok(mut server) = TcpStream::connect(target).await {
        // An error here is a closed connection, which both sides notice.
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    }
}
