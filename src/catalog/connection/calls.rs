//! Runs the calls of the catalog on connections, each with a deadline.

use std::time::Duration;

use super::{Connection, Transaction, Usage};
use crate::catalog::{COMMIT_DEADLINE, Catalog, Error, ErrorKind, SHORT_DEADLINE};

impl Catalog {
    /// If a table is missing, recreates all tables and fails, because earlier reads are out of date.
    pub(in crate::catalog) async fn handle_missing_table<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        match result {
            Err(error) if error.is_missing_table() && self.0.writable => {
                tracing::warn!("catalog tables are missing, recreating them and resyncing all repositories");
                self.create_tables().await?;
                // Also if another process recreated them first: they are just as empty.
                self.notify_rebuilt();
                Err(ErrorKind::TablesRebuilt.into())
            }
            result => result,
        }
    }

    pub(in crate::catalog) async fn write<T>(
        &self,
        operation: &'static str,
        namespace: &str,
        work: impl AsyncFnOnce(&mut Transaction) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.write_with(operation, Usage::Call, namespace, SHORT_DEADLINE, work)
            .await
    }

    /// Runs `work` like the commit of a sync, in a transaction that takes as long as its statements complete.
    pub(in crate::catalog) async fn write_long<T>(
        &self,
        operation: &'static str,
        namespace: &str,
        work: impl AsyncFnOnce(&mut Transaction) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.write_with(operation, Usage::Commit, namespace, COMMIT_DEADLINE, work)
            .await
    }

    pub(in crate::catalog) async fn write_with<T>(
        &self,
        operation: &'static str,
        usage: Usage,
        namespace: &str,
        deadline: Duration,
        work: impl AsyncFnOnce(&mut Transaction) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.ensure_writable()?;
        self.0.fences.ensure_open()?;
        let result = async {
            let connection = self.0.pools.writer(usage, namespace).await?;
            let progress = connection.progress();
            let transaction = async {
                let mut tx = Transaction::begin(connection).await?;
                let result = match work(&mut tx).await {
                    Ok(result) => self.0.fences.check(&mut tx).await.map(|()| result),
                    error => error,
                };
                match result {
                    Ok(result) => tx.commit().await.map(|()| result),
                    Err(error) => Err(tx.fail(error).await),
                }
            };
            progress.within(operation, deadline, transaction).await
        };
        let result = result.await.map_err(|error| self.classify(operation, error));
        if result.is_ok() {
            self.0.pools.generation().record_write();
            self.0.writes.record_success();
        }
        self.handle_missing_table(result).await
    }

    /// Runs read-only work. In a read-only catalog a missing table counts as empty.
    pub(in crate::catalog) async fn read<T: Default>(
        &self,
        operation: &'static str,
        namespace: &str,
        work: impl AsyncFnOnce(&mut Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.read_with(operation, namespace, SHORT_DEADLINE, work).await
    }

    pub(in crate::catalog) async fn read_with<T: Default>(
        &self,
        operation: &'static str,
        namespace: &str,
        deadline: Duration,
        work: impl AsyncFnOnce(&mut Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let result = self.on_connection(operation, false, namespace, deadline, work).await;
        match self.handle_missing_table(result).await {
            Err(error) if error.is_missing_table() => Ok(T::default()),
            result => result,
        }
    }

    /// Runs `work` outside of a transaction.
    pub(in crate::catalog) async fn on_connection<T>(
        &self,
        operation: &'static str,
        writes: bool,
        namespace: &str,
        deadline: Duration,
        work: impl AsyncFnOnce(&mut Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let result = async {
            let mut connection = if writes {
                self.0.pools.writer(Usage::Call, namespace).await?
            } else {
                self.0.pools.reader(Usage::Call, namespace).await?
            };
            let progress = connection.progress();
            let result = progress.within(operation, deadline, work(&mut connection)).await;
            if result.as_ref().err().is_none_or(Error::leaves_connection_usable) {
                connection.release();
            }
            result
        };
        let result = result.await.map_err(|error| self.classify(operation, error))?;
        if writes {
            self.0.writes.record_success();
        }
        Ok(result)
    }

    /// Adds the operation, and acts on errors that concern all connections.
    pub(in crate::catalog) fn classify(&self, operation: &'static str, error: Error) -> Error {
        if error.is_outage() {
            self.0.writes.record_failure();
        }
        if error.is_refused_login() {
            self.0.refused_logins.send_modify(|count| *count += 1);
        }
        // A read-only handle may be meant to use a standby, and has nothing to write elsewhere.
        if error.is_read_only_server() && self.0.writable {
            let generation = self.0.pools.generation();
            generation.retire_all();
            if generation.is_futile() {
                return Error::from(ErrorKind::ReadOnlyServer).context(operation);
            }
        }
        error.context(operation)
    }
}
