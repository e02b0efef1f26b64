use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::sleep;

use super::SelfSigned;
use super::configurations::Configurations;
use super::credentials::{CertificateCredentials, Foreign, SecretState};
use super::issue::IssuedCertificate;
use crate::api::NamespacedName;
use crate::controllers::FIELD_MANAGER;
use crate::runtime::kube_client::{ApiError, call};
use crate::server::tls::ServedCertificate;

const PERIOD: Duration = Duration::from_mins(1);
/// Without a certificate to serve.
const RETRY: Duration = Duration::from_secs(5);
/// API servers learn of changed configurations by watches.
const PROPAGATION: Duration = Duration::from_secs(30);
/// Attempts of a round while other replicas write.
const ATTEMPTS: usize = 3;

#[derive(Debug, thiserror::Error)]
pub enum SelfSignedError {
    #[error("failed to issue a certificate: {0}")]
    Issue(#[from] rcgen::Error),
    #[error("failed to {verb} {object}: {cause}")]
    Request {
        verb: &'static str,
        object: String,
        cause: ApiError,
    },
    #[error(
        "Secret {secret} is not overwritten with a self-signed certificate, because {reason}; delete it, choose another name, \
         or serve a certificate of another issuer from files (--webhook-cert-dir)"
    )]
    Foreign { secret: NamespacedName, reason: Foreign },
    #[error("Secret {0} was changed {ATTEMPTS} times while it was read; look for another program that writes it")]
    Contended(NamespacedName),
}

impl SelfSignedError {
    /// Returns true if a retry may succeed without a change by a user.
    fn is_retryable(&self) -> bool {
        match self {
            Self::Request { cause, .. } => cause.is_retryable(),
            Self::Contended(_) => true,
            Self::Issue(_) | Self::Foreign { .. } => false,
        }
    }

    /// A failed test of a patch is 422.
    fn may_be_conflict(&self) -> bool {
        matches!(self, Self::Request { cause, .. } if matches!(cause.code, Some(409 | 422)))
    }
}

/// The result of a round.
struct Round {
    credentials: CertificateCredentials,
    /// Fails if the credentials are due and could not be renewed.
    renewed: Result<(), SelfSignedError>,
    /// Fails if API servers may not trust the credentials.
    trusted: Result<(), SelfSignedError>,
}

enum Issue {
    Written,
    /// Another replica was faster.
    Conflict,
}

pub(super) struct Keeper<'a> {
    settings: &'a SelfSigned,
    client: &'a Client,
    served: &'a ServedCertificate,
    current: Option<CertificateCredentials>,
    /// Kinds of configurations that were reported as absent.
    absent: BTreeSet<&'static str>,
    /// The last error that was logged.
    problem: Option<String>,
}

impl<'a> Keeper<'a> {
    pub(super) fn new(settings: &'a SelfSigned, client: &'a Client, served: &'a ServedCertificate) -> Self {
        Self {
            settings,
            client,
            served,
            current: None,
            absent: BTreeSet::new(),
            problem: None,
        }
    }

    pub(super) async fn run(mut self) -> Result<Infallible, SelfSignedError> {
        loop {
            let result = self.keep_once(Timestamp::now()).await;
            self.served.set_outdated(result.is_err());
            match result {
                Err(error) if self.current.is_none() && !error.is_retryable() => return Err(error),
                Err(error) => self.report(&error),
                Ok(()) => self.problem = None,
            }
            sleep(self.current.as_ref().map_or(RETRY, |_| PERIOD)).await;
        }
    }

    /// Logs each problem once.
    fn report(&mut self, error: &SelfSignedError) {
        let text = error.to_string();
        if self.problem.as_ref() != Some(&text) {
            tracing::warn!(%error, "failed to keep the certificate of webhooks");
            self.problem = Some(text);
        }
    }

    /// Brings Secret, configurations and the served certificate up to date.
    pub(super) async fn keep_once(&mut self, now: Timestamp) -> Result<(), SelfSignedError> {
        let Round {
            credentials,
            renewed,
            trusted,
        } = self.prepare(now).await?;
        match &self.current {
            Some(current) if current.is_same_certificate(&credentials) => renewed.and(trusted),
            Some(current) if current.is_valid(now) => {
                trusted?;
                sleep(PROPAGATION).await;
                self.serve(credentials);
                renewed
            }
            // API servers trust none that was served before.
            _ => {
                self.serve(credentials);
                renewed.and(trusted)
            }
        }
    }

    fn serve(&mut self, credentials: CertificateCredentials) {
        self.served.set(&credentials.pair);
        self.current = Some(credentials);
    }

    async fn prepare(&mut self, now: Timestamp) -> Result<Round, SelfSignedError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let configurations = Configurations::read(self.client, self.settings).await;
            let (credentials, renewed) = self.read_or_issue(now).await?;
            let trusted = match configurations {
                Ok(configurations) => {
                    self.report_absent(&configurations);
                    let ca_bundle = &credentials.ca_bundle;
                    configurations.set_ca(self.client, self.settings, ca_bundle).await
                }
                Err(error) => Err(error),
            };
            match trusted {
                Err(error) if error.may_be_conflict() && attempts < ATTEMPTS => {}
                trusted => {
                    return Ok(Round {
                        credentials,
                        renewed,
                        trusted,
                    });
                }
            }
        }
    }

    fn report_absent(&mut self, configurations: &Configurations) {
        let absent = BTreeSet::from_iter(configurations.absent(self.settings));
        for kind in absent.difference(&self.absent) {
            let SelfSigned {
                configuration, service, ..
            } = self.settings;
            tracing::warn!(
                name = configuration,
                service,
                "no {kind} has a webhook of this Service; its CA is written once there is one"
            );
        }
        self.absent = absent;
    }

    /// Returns the credentials of the Secret. They are issued if they are missing, due or not usable.
    async fn read_or_issue(
        &self,
        now: Timestamp,
    ) -> Result<(CertificateCredentials, Result<(), SelfSignedError>), SelfSignedError> {
        let name = &self.settings.service;
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.settings.namespace);
        for _ in 0..ATTEMPTS {
            let secret = call(api.get_opt(name)).await;
            let secret = secret.map_err(|cause| self.failed("get", cause))?;
            let (reason, due) = match SecretState::of(secret.as_ref(), &self.settings.dns_name(), now) {
                SecretState::Current(credentials) => return Ok((credentials, Ok(()))),
                SecretState::Foreign(reason) => {
                    let secret = self.settings.secret();
                    return Err(SelfSignedError::Foreign { secret, reason });
                }
                SecretState::Missing => ("there is none".to_owned(), None),
                SecretState::Unusable(defect) => (defect.to_string(), None),
                SecretState::Due(credentials) => ("it is due for renewal".to_owned(), Some(credentials)),
            };
            let issued = self.issue(&api, secret, due.as_ref(), now).await;
            match (issued, due) {
                // The next read shows the result.
                (Ok(Issue::Written), _) => {
                    tracing::info!(secret = %self.settings.secret(), reason, "issued a certificate for webhooks");
                }
                (Ok(Issue::Conflict), _) => {}
                (Err(error), Some(due)) => return Ok((due, Err(error))),
                (Err(error), None) => return Err(error),
            }
        }
        Err(SelfSignedError::Contended(self.settings.secret()))
    }

    /// Writes a new certificate.
    async fn issue(
        &self,
        api: &Api<Secret>,
        existing: Option<Secret>,
        due: Option<&CertificateCredentials>,
        now: Timestamp,
    ) -> Result<Issue, SelfSignedError> {
        let issued = IssuedCertificate::new(&self.settings.dns_name(), now)?;
        // Replicas serve these until they have read the new Secret.
        let served: Vec<_> = due
            .into_iter()
            .chain(&self.current)
            .map(CertificateCredentials::ca)
            .collect();
        let served: Vec<_> = served.iter().map(String::as_str).collect();
        let is_new = existing.is_none();
        let secret = issued.into_secret(self.settings, existing, &served);
        let parameters = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let (verb, written) = if is_new {
            ("create", call(api.create(&parameters, &secret)).await)
        } else {
            (
                "update",
                call(api.replace(&self.settings.service, &parameters, &secret)).await,
            )
        };
        match written {
            Ok(_) => Ok(Issue::Written),
            // The Secret may have been deleted in between, too.
            Err(error) if error.is_conflict() || (!is_new && error.is_not_found()) => Ok(Issue::Conflict),
            Err(cause) => Err(self.failed(verb, cause)),
        }
    }

    fn failed(&self, verb: &'static str, cause: ApiError) -> SelfSignedError {
        SelfSignedError::Request {
            verb,
            object: format!("Secret {}", self.settings.secret()),
            cause,
        }
    }
}
