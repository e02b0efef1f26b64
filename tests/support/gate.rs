//! A TCP gate before a server: it can cut the connections that run through it, and be closed.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::ports::free_port;

/// Passes connections on to a server of this machine.
pub struct Gate {
    port: u16,
    target: SocketAddr,
    cuts: watch::Sender<u64>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl Gate {
    /// An open gate before `target`.
    pub async fn before(target: SocketAddr) -> Self {
        let gate = Self {
            port: free_port(),
            target,
            cuts: watch::Sender::new(0),
            accepting: Mutex::new(None),
        };
        gate.open().await;
        gate
    }

    /// The listen address.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Lets connections through (again).
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
        *self.accepting.lock().expect("no panic while it is held") = Some(task);
    }

    /// Cuts all connections that are open now; new ones are let through.
    pub fn cut(&self) {
        self.cuts.send_modify(|count| *count += 1);
    }

    /// Cuts all connections and refuses new ones.
    pub async fn close(&self) {
        let task = self.accepting.lock().expect("no panic while it is held").take();
        if let Some(task) = task {
            task.abort();
            let _ = task.await; // the listener is gone only then
        }
        self.cut();
    }
}

async fn pass(mut client: TcpStream, target: SocketAddr) {
    if let Ok(mut server) = TcpStream::connect(target).await {
        // An error here is a connection that ended, which both sides see.
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    }
}
