//! Settings of Jobs that come from other flags of `portolan run`.

use url::Url;

use super::Run;
use crate::api::SecretKeyRef;
use crate::cmd::Error;
use crate::cmd::flags::cluster::kubeapps_namespace;
use crate::cmd::flags::jobs::JobContext;
use crate::controllers::apprepository::jobs::{DatabaseAccess, JobSettings};

impl Run {
    /// Returns the settings of Jobs. They need a cluster, and a process that stays.
    pub(super) fn jobs(&self) -> Result<Option<JobSettings>, Error> {
        if self.manifests.is_some() || self.syncing.once {
            return Ok(None);
        }
        let database = self.database()?;
        let namespace = kubeapps_namespace(self.namespace.as_deref());
        let secret = self.password_secret();
        let url = self.database.database_url.reveal();
        let has_password = |url: Url| url.password().is_some() || url.query_pairs().any(|(key, _)| key == "password");
        let is_url_with_password = Url::parse(url).is_ok_and(has_password);
        let context = JobContext {
            namespace: &namespace,
            has_own_password: is_url_with_password || (database.login.password.is_some() && secret.is_none()),
            is_sqlite: database.is_sqlite(),
            database: DatabaseAccess {
                url: url.to_owned(),
                user: self.database.database_user.clone(),
                name: self.database.database_name.clone(),
                secret: secret.map(|secret| SecretKeyRef {
                    name: secret.name.name,
                    key: secret.key,
                }),
            },
            index_max_bytes: self.fetch.index_max_bytes,
            fetch_timeout: self.fetch.fetch_timeout,
        };
        let mut settings = self.jobs.settings(context)?;
        if self.content.icons.is_none() && self.serves_catalog() {
            settings.sync_flags.push(("icons".to_owned(), "true".to_owned()));
        }
        Ok(Some(settings))
    }
}
