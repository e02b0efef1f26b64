//! The comparison of releases with the catalog of the database, or of a server.

use std::collections::{BTreeSet, HashMap};

use super::Outdated;
use crate::catalog::Catalog;
use crate::cmd::Error;
use crate::cmd::server::{ServerClient, warn_of_stale_answer};
use crate::releases::{
    Candidate, InstalledChart, JudgeOptions, JudgedRelease, Judgement, MAX_CHARTS, OutdatedRequest, OutdatedResponse,
    Release, judge,
};

impl Outdated {
    /// Compares the releases that are deployed. Others keep no judgement.
    pub(super) async fn judge(
        &self,
        server: Option<&ServerClient>,
        releases: Vec<Release>,
    ) -> Result<Vec<JudgedRelease>, Error> {
        let deployed = releases.iter().filter(|release| release.is_deployed());
        let charts: Vec<InstalledChart> = deployed.map(|release| release.chart.clone()).collect();
        let judgements = match server {
            Some(server) => self.ask(server, charts).await?,
            None => self.read(charts).await?,
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

    async fn ask(&self, server: &ServerClient, charts: Vec<InstalledChart>) -> Result<Vec<Judgement>, Error> {
        let mut judgements = Vec::with_capacity(charts.len());
        let mut is_stale = false;
        for charts in charts.chunks(MAX_CHARTS) {
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

    async fn read(&self, charts: Vec<InstalledChart>) -> Result<Vec<Judgement>, Error> {
        let names: BTreeSet<&str> = charts.iter().map(|chart| &*chart.name).collect();
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let read = async |catalog: &Catalog| Ok(catalog.candidates(&names).await?);
        let mut candidates: HashMap<String, Vec<Candidate>> = HashMap::new();
        for candidate in self.database.read(read).await? {
            candidates.entry(candidate.chart.clone()).or_default().push(candidate);
        }
        let options = JudgeOptions {
            prefer: self.prefer.clone(),
            devel: self.devel,
        };
        let judgements = charts.iter().map(|chart| {
            let candidates = candidates.get(&chart.name);
            judge(chart, candidates.map_or(&[][..], Vec::as_slice), &options)
        });
        Ok(judgements.collect())
    }
}
