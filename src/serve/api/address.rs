//! The chart that a path names, and its row.

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::HeaderMap;

use super::chart::{ChartRow, ChartVersion};
use crate::api::NamespacedName;
use crate::serve::links::segment;
use crate::serve::problem::Problem;
use crate::serve::rows::Decoded;
use crate::serve::site::{Site, Visit};

/// Namespace, repository and chart of a path; the `/` in a name is `%2F` there.
#[derive(Clone)]
pub(in crate::serve) struct Address {
    pub(in crate::serve) repository: NamespacedName,
    pub(in crate::serve) chart: String,
}

impl Address {
    pub(super) fn new(namespace: String, repository: String, chart: &str) -> Self {
        Self {
            chart: chart.replace('/', "%2F"),
            repository: NamespacedName::new(namespace, repository),
        }
    }

    pub(in crate::serve) fn chart_id(&self) -> String {
        format!("{}/{}", self.repository.name, self.chart)
    }

    /// Returns the path of the chart.
    pub(in crate::serve) fn path(&self, site: &Site) -> String {
        let NamespacedName { namespace, name } = &self.repository;
        let chart = self.chart.replace("%2F", "/");
        let [namespace, name, chart] = [namespace, name, &chart].map(|name| segment(name));
        format!("{}/api/v1/charts/{namespace}/{name}/{chart}", site.prefix())
    }

    fn not_found(&self) -> Problem {
        Problem::not_found(format!(
            "the repository {} has no readable chart {:?}; see /api/v1/charts",
            self.repository, self.chart
        ))
    }

    pub(super) async fn read(&self, site: &Site, headers: &HeaderMap) -> Result<Decoded<ChartRow>, Problem> {
        let chart_id = self.chart_id();
        self.decode(site, headers, move |info| ChartRow::decode(&chart_id, info))
            .await
    }

    /// Reads one version, and keeps nothing else of the row: a request that holds memory must not wait for more.
    pub(super) async fn read_version(
        &self,
        site: &Site,
        headers: &HeaderMap,
        version: &str,
    ) -> Result<ChartVersion, Problem> {
        let (chart_id, wanted) = (self.chart_id(), version.to_owned());
        let decode = move |info: &str| {
            let chart = ChartRow::decode(&chart_id, info)?;
            Some(chart.into_version(&wanted))
        };
        let decoded = self.decode(site, headers, decode).await?;
        decoded.value.ok_or_else(|| {
            Problem::not_found(format!(
                "the chart {:?} of {} has no version {version:?}",
                self.chart, self.repository
            ))
        })
    }

    /// Checks the caller, then passes `info` of the chart to `decode`.
    pub(super) async fn decode<T: Send + 'static>(
        &self,
        site: &Site,
        headers: &HeaderMap,
        decode: impl FnOnce(&str) -> Option<T> + Send + 'static,
    ) -> Result<Decoded<T>, Problem> {
        let visit = site.enter(headers, Some(&self.repository.namespace)).await?;
        self.decode_in(site, &visit, decode).await
    }

    /// Same as [`Self::decode`] for a caller who was checked.
    pub(in crate::serve) async fn decode_in<T: Send + 'static>(
        &self,
        site: &Site,
        visit: &Visit,
        decode: impl FnOnce(&str) -> Option<T> + Send + 'static,
    ) -> Result<Decoded<T>, Problem> {
        visit.repository(&self.repository)?;
        let decoded = site.rows().chart(&self.repository, &self.chart_id(), decode).await?;
        let Decoded { value, memory } = decoded.ok_or_else(|| self.not_found())?;
        let value = value.ok_or_else(|| self.not_found())?;
        Ok(Decoded { value, memory })
    }
}

pub(in crate::serve) type Names = Result<Path<(String, String, String)>, PathRejection>;

pub(in crate::serve) fn address(names: Names) -> Result<Address, Problem> {
    let Path((namespace, repository, chart)) = names.map_err(|_| Problem::unknown_path())?;
    Ok(Address::new(namespace, repository, &chart))
}

pub(in crate::serve) type NamesAndVersion = Result<Path<(String, String, String, String)>, PathRejection>;

pub(in crate::serve) fn address_of_version(names: NamesAndVersion) -> Result<(Address, String), Problem> {
    let Path((namespace, repository, chart, version)) = names.map_err(|_| Problem::unknown_path())?;
    Ok((Address::new(namespace, repository, &chart), version))
}
