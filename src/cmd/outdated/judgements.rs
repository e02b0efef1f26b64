//! The comparison of releases with the catalog of the database, or of a server.

use std::collections::BTreeSet;

use super::Outdated;
use crate::catalog::Catalog;
use crate::cmd::Error;
use crate::cmd::server::{ServerClient, warn_of_stale_answer};
use crate::releases::{
    InstalledChart, JudgeOptions, JudgedRelease, Judgement, OutdatedRequest, OutdatedResponse, Release, judge,
};
use crate::serve::outdated::CandidateReader;

/// Charts in one request. A body of [`crate::releases::MAX_CHARTS`] with long URLs would be larger than a server accepts.
const CHARTS: usize = 250;

impl Outdated {
    /// Compares the releases that are deployed. Others get none.
    pub(super) async fn judge(
        &self,
        server: Option<&ServerClient>,
        releases: Vec<Release>,
    ) -> Result<Vec<JudgedRelease>, Error> {
        let deployed = releases.iter().filter(|release| release.is_deployed());
        let charts: Vec<InstalledChart> = deployed.map(|release| release.chart.clone()).collect();
        let judgements = match server {
            Some(server) => self.ask(server, &charts).await?,
            None => self.read(&charts).await?,
        };
        let mut judgements = judgements.into_iter();
        let judged = releases.into_iter().map(|release| {
            let judgement = if release.is_deployed() { judgements.next() } else { None };
            JudgedRelease {
                judgement: judgement.unwrap_or_else(Judgement::unknown),
                release,
            }
        });
        Ok(judged.collect())
    }

    async fn ask(&self, server: &ServerClient, charts: &[InstalledChart]) -> Result<Vec<Judgement>, Error> {
        let mut judgements = Vec::with_capacity(charts.len());
        let mut is_stale = false;
        for charts in charts.chunks(CHARTS) {
            let request = OutdatedRequest {
                charts: charts.to_vec(),
                prefer: self.prefer.clone(),
                devel: self.devel,
            };
            let response: OutdatedResponse = server.post(&["outdated"], &request).await?;
            if response.items.len() != charts.len() {
                return Err(Error::Failed(
                    "the server answered for other charts than asked".to_owned(),
                ));
            }
            judgements.extend(response.items);
            is_stale |= response.stale;
        }
        if is_stale {
            warn_of_stale_answer();
        }
        Ok(judgements)
    }

    async fn read(&self, charts: &[InstalledChart]) -> Result<Vec<Judgement>, Error> {
        let names: BTreeSet<&str> = charts.iter().map(|chart| &*chart.name).collect();
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let options = JudgeOptions {
            prefer: self.prefer.clone(),
            devel: self.devel,
        };
        let read = async |catalog: &Catalog| {
            let mut judgements = vec![Judgement::unknown(); charts.len()];
            let mut reader = CandidateReader::new(catalog, &names, None).await?;
            while let Some((name, candidates)) = reader.next().await? {
                for (chart, judgement) in charts.iter().zip(&mut judgements) {
                    if chart.name == name {
                        *judgement = judge(chart, &candidates, &options);
                    }
                }
            }
            Ok(judgements)
        };
        self.database.read(read).await
    }
}
