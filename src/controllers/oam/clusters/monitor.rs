//! Connects to a cluster that is used, and probes it while it can't be reached.
//!
//! ```text
//!  read the Secret ─► parse ─► connect, until it succeeds ─► wait until the circuit opens ◄─┐
//!        ▲              │                                      └─► probe, until it succeeds ─┘
//!        │              └─► refused
//!        └── the Secret has another credential
//! ```
//! A ManagedCluster without a Secret has no credential, and starts at `connect`.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use tokio::time::{Instant, sleep, timeout};

use super::ask::{self, Answers};
use super::circuit::Circuit;
use super::connection::{Connection, RemoteTransport};
use super::credential::{ClusterAccess, CredentialError, Fingerprint};
use super::guard::GuardedTransport;
use super::identities::IdentityKinds;
use super::link::{Link, LinkState};
use super::managed::ClusterSource;
use super::shared::Shared;
use crate::runtime::jitter::jitter;
use crate::runtime::kube_client::connect_remote;
use crate::runtime::workqueue::Backoff;

const BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(60),
};
/// Time between reviews while the credential may not impersonate all: a starting API server does not know the roles, and the
/// right may be granted. Its loss has no effect, for users would get the rights of the credential.
const REVIEW_PERIOD: Duration = Duration::from_secs(60);
/// Time since the last failure after which another is no sign of an outage.
const RARE: Duration = Duration::from_secs(60);
const OWN_CLUSTER: &str = "it is the cluster of Portolan itself; use the name local";

pub(super) struct Monitor {
    pub(super) cluster: String,
    pub(super) source: ClusterSource,
    pub(super) shared: Arc<Shared>,
    pub(super) link: Arc<Link>,
}

/// Failures since a request, which was no probe, has succeeded.
#[derive(Default)]
struct Retries(u32);

impl Retries {
    async fn wait(&mut self) {
        let delay = BACKOFF.delay(self.0);
        self.0 = self.0.saturating_add(1);
        sleep(jitter(delay, 0.75..1.0)).await;
    }
}

impl Monitor {
    pub(super) async fn run(self) {
        match self.source {
            ClusterSource::Secret => self.serve_secret().await,
            ClusterSource::ManagedCluster => self.serve(Ok(ClusterAccess::Gateway)).await,
        }
    }

    /// Never ends.
    async fn serve_secret(&self) {
        let mut secret = self.read(|problem| self.fail(problem)).await;
        loop {
            let access = ClusterAccess::parse(&secret, self.shared.settings.allow_insecure);
            let fingerprint = Fingerprint::of(&secret);
            // The credential is in memory once.
            drop(secret);
            secret = tokio::select! {
                // Never ends.
                () = self.serve(access) => return,
                other = self.other_secret(fingerprint) => other,
            };
            self.link.set(LinkState::Connecting);
            // Watches must not go on with the former credential.
            self.shared.notify(&self.cluster);
        }
    }

    /// Reads the Secret until that succeeds.
    async fn read(&self, on_failure: impl Fn(String)) -> Secret {
        let mut retries = Retries::default();
        loop {
            match self.shared.read_secret(&self.cluster).await {
                Ok(secret) => return secret,
                Err(problem) => on_failure(problem),
            }
            retries.wait().await;
        }
    }

    /// Returns the Secret when it has another credential.
    async fn other_secret(&self, fingerprint: Fingerprint) -> Secret {
        loop {
            self.link.secret_changed().await;
            let cluster = &self.cluster;
            let secret = self.read(|error| tracing::debug!(cluster, error, "failed to look for another credential"));
            let secret = secret.await;
            if Fingerprint::of(&secret) != fingerprint {
                return secret;
            }
        }
    }

    /// Never ends.
    async fn serve(&self, access: Result<ClusterAccess, CredentialError>) {
        if let Err(problem) = self.try_serve(access).await {
            tracing::warn!(cluster = self.cluster, problem, "joined cluster is refused");
            self.link.set(LinkState::Refused(problem));
            self.shared.notify(&self.cluster);
        }
        pending::<()>().await;
    }

    /// Returns the reason why the credential is refused.
    async fn try_serve(&self, access: Result<ClusterAccess, CredentialError>) -> Result<(), String> {
        let access = access.map_err(|error| error.to_string())?;
        let is_gateway = matches!(access, ClusterAccess::Gateway);
        let (transport, url) = self.shared.transport(&self.cluster, access).await?;
        let mut retries = Retries::default();
        let answers = self.answers(&transport, &mut retries).await;
        if let Some(uid) = &answers.system_uid
            && self.shared.is_own(&self.cluster, uid).await
        {
            return Err(OWN_CLUSTER.to_owned());
        }
        let circuit = Arc::new(Circuit::default());
        let guarded = GuardedTransport {
            transport: transport.clone(),
            circuit: Arc::clone(&circuit),
        };
        let shared = &self.shared;
        let connection = Connection {
            client: connect_remote(guarded, &url, &shared.settings.requests, &shared.options),
            version: answers.version,
            // The own API server takes the identity, and checks that it may use cluster-gateway.
            can_impersonate: if is_gateway {
                IdentityKinds::ALL
            } else {
                answers.can_impersonate
            },
            number: shared.next_number(),
        };
        let connection = Arc::new(connection);
        self.connected(&connection, &circuit);
        self.supervise(&transport, connection, circuit, retries).await;
        Ok(())
    }

    /// Asks the cluster until it answers.
    async fn answers(&self, transport: &RemoteTransport, retries: &mut Retries) -> Answers {
        loop {
            match ask::answers(transport).await {
                Ok(answers) => return answers,
                Err(problem) => self.fail(problem),
            }
            retries.wait().await;
        }
    }

    /// Probes the cluster while the circuit is open. Never ends.
    async fn supervise(
        &self,
        transport: &RemoteTransport,
        mut connection: Arc<Connection>,
        circuit: Arc<Circuit>,
        mut retries: Retries,
    ) {
        let mut opened = Instant::now();
        loop {
            connection = self.wait_until_open(transport, connection, &circuit).await;
            let is_rare = std::mem::replace(&mut opened, Instant::now()).elapsed() >= RARE;
            if circuit.take_success() {
                retries = Retries::default();
                // A single lost response is no outage: an admission webhook or an aggregated API server is slow.
                if is_rare && ask::version(transport).await.is_ok() {
                    circuit.close();
                    self.publish(&connection, &circuit);
                    continue;
                }
            }
            let error = circuit.problem();
            tracing::warn!(
                cluster = self.cluster,
                error,
                "joined cluster can't be reached, probing it"
            );
            let version = loop {
                retries.wait().await;
                match ask::version(transport).await {
                    Ok(version) => break version,
                    Err(problem) => circuit.set_open(problem),
                }
            };
            if version != connection.version {
                connection = Arc::new(Connection {
                    client: connection.client.clone(),
                    version,
                    ..*connection
                });
            }
            circuit.set_half_open();
            self.connected(&connection, &circuit);
        }
    }

    /// Returns the connection, with the right to impersonate if it has been granted since.
    async fn wait_until_open(
        &self,
        transport: &RemoteTransport,
        mut connection: Arc<Connection>,
        circuit: &Arc<Circuit>,
    ) -> Arc<Connection> {
        loop {
            if connection.can_impersonate == IdentityKinds::ALL {
                circuit.opened().await;
                return connection;
            }
            if timeout(REVIEW_PERIOD, circuit.opened()).await.is_ok() {
                return connection;
            }
            let Ok(found) = ask::can_impersonate(transport).await else {
                continue;
            };
            let can_impersonate = connection.can_impersonate.union(found);
            if can_impersonate != connection.can_impersonate {
                tracing::info!(
                    cluster = self.cluster,
                    "more identities may be impersonated in the joined cluster now"
                );
                connection = Arc::new(Connection {
                    client: connection.client.clone(),
                    version: connection.version.clone(),
                    can_impersonate,
                    number: connection.number,
                });
                self.publish(&connection, circuit);
            }
        }
    }

    fn connected(&self, connection: &Arc<Connection>, circuit: &Arc<Circuit>) {
        tracing::info!(cluster = self.cluster, "joined cluster is reachable");
        self.publish(connection, circuit);
    }

    fn publish(&self, connection: &Arc<Connection>, circuit: &Arc<Circuit>) {
        self.link.set(LinkState::Connected {
            connection: Arc::clone(connection),
            circuit: Arc::clone(circuit),
        });
        self.shared.notify(&self.cluster);
    }

    fn fail(&self, problem: String) {
        // Logged once in a series.
        if matches!(self.link.state(), LinkState::Failed(_)) {
            tracing::debug!(
                cluster = self.cluster,
                error = problem,
                "failed to connect to joined cluster"
            );
        } else {
            tracing::warn!(
                cluster = self.cluster,
                error = problem,
                "failed to connect to joined cluster, retrying"
            );
        }
        self.link.set(LinkState::Failed(problem));
    }
}
