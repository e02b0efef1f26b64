/// The reason why a request to a cluster can't be sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum ClusterError {
    #[error("no such cluster {cluster:?}; `portolan cluster list` shows all")]
    NotJoined { cluster: String },
    /// The joined clusters are not known.
    #[error("{0}")]
    Unknown(String),
    /// The Secret is not usable until it changes.
    #[error("cluster {cluster} is refused: {problem}")]
    Refused { cluster: String, problem: String },
    /// The identity of an Application, which must not get the rights of the credential instead.
    #[error(
        "the credential of cluster {cluster} may impersonate other identities, but no {missing}; grant it the verb \
         impersonate on {missing} there"
    )]
    NotImpersonated { cluster: String, missing: String },
    /// The first attempt with this credential has not ended.
    #[error("cluster {cluster} is being connected")]
    Connecting { cluster: String },
    #[error("cluster {cluster} can't be reached: {problem}")]
    Unreachable { cluster: String, problem: String },
}
