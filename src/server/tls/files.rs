use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep};

use super::{CertificateError, CertificatePair, ServedCertificate};

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const MAX_FILE_SIZE: u64 = 1 << 20;
/// Volumes of Secrets may be mounted after the start.
const WAIT: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(1);
/// The kubelet writes a changed Secret within a minute.
const PERIOD: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
#[error(
    "no certificate in {} after {}s: {problem}; provide {CERTIFICATE} and {KEY} there, for example by mounting a Secret of \
     type kubernetes.io/tls, or choose another directory",
    .directory.display(),
    WAIT.as_secs()
)]
pub struct CertificateFilesError {
    directory: PathBuf,
    problem: CertificateFileError,
}

/// A certificate and its key in the files `tls.crt` and `tls.key` of a directory.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    directory: PathBuf,
}

#[derive(Debug, thiserror::Error)]
enum CertificateFileError {
    #[error("failed to read {file}: {cause}")]
    Read { file: &'static str, cause: io::Error },
    #[error("{file} is larger than {} KiB", MAX_FILE_SIZE >> 10)]
    Size { file: &'static str },
    #[error(transparent)]
    Invalid(#[from] CertificateError),
}

#[derive(PartialEq, Eq)]
struct CertificateContents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl CertificateFiles {
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    /// Waits for the files, and serves their certificate. Serves others once they change.
    ///
    /// # Errors
    /// There is no usable certificate after a minute. Later, the last one is kept instead.
    pub async fn keep(&self, served: &ServedCertificate) -> Result<Infallible, CertificateFilesError> {
        let (pair, contents) = self.wait().await?;
        served.set(&pair);
        let (mut last, mut problem) = (Some(contents), None);
        loop {
            sleep(PERIOD).await;
            let loaded = match self.read().await {
                Ok(contents) if last.as_ref() == Some(&contents) => continue,
                Ok(contents) => last.insert(contents).parse(),
                Err(error) => {
                    last = None;
                    Err(error)
                }
            };
            served.set_outdated(loaded.is_err());
            match loaded {
                Ok(pair) => {
                    problem = None;
                    served.set(&pair);
                }
                Err(error) => self.report(error, &mut problem),
            }
        }
    }

    async fn wait(&self) -> Result<(CertificatePair, CertificateContents), CertificateFilesError> {
        let (start, mut problem) = (Instant::now(), None);
        loop {
            let loaded = self.read().await;
            let loaded = loaded.and_then(|contents| Ok((contents.parse()?, contents)));
            match loaded {
                Ok(loaded) => return Ok(loaded),
                Err(error) if start.elapsed() >= WAIT => {
                    return Err(CertificateFilesError {
                        directory: self.directory.clone(),
                        problem: error,
                    });
                }
                Err(error) => self.report(error, &mut problem),
            }
            sleep(RETRY).await;
        }
    }

    /// Logs each problem once.
    fn report(&self, error: CertificateFileError, last: &mut Option<String>) {
        let text = error.to_string();
        if last.as_ref() != Some(&text) {
            tracing::warn!(directory = %self.directory.display(), %error, "failed to load the certificate of webhooks");
            *last = Some(text);
        }
    }

    async fn read(&self) -> Result<CertificateContents, CertificateFileError> {
        Ok(CertificateContents {
            certificate: read(&self.directory, CERTIFICATE).await?,
            key: read(&self.directory, KEY).await?,
        })
    }
}

impl CertificateContents {
    fn parse(&self) -> Result<CertificatePair, CertificateFileError> {
        Ok(CertificatePair::from_pem(&self.certificate, &self.key)?)
    }
}

async fn read(directory: &Path, file: &'static str) -> Result<Vec<u8>, CertificateFileError> {
    let failed = |cause| CertificateFileError::Read { file, cause };
    let reader = File::open(directory.join(file)).await.map_err(failed)?;
    let mut bytes = Vec::new();
    let mut reader = reader.take(MAX_FILE_SIZE + 1);
    reader.read_to_end(&mut bytes).await.map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_SIZE {
        return Err(CertificateFileError::Size { file });
    }
    Ok(bytes)
}
