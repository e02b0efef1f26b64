//! Pages for people: the catalog, charts, a difference of two versions, a long README.

use serde_json::Value;

use super::site::{Callers, Serve, Site};
use super::{Bench, STATIC, at_rate, measured, row};
use crate::report::{Cpu, Peak, Row, Wall};
use crate::rig::load::Requests;
use crate::support::archives::{Chart, index};

const VALUES_LINES: usize = 3000;
/// Less than the changed keys of a difference take.
const CHANGED_BYTES: usize = 10_000;
const README_BYTES: usize = 200 * 1024;
const SHOWN: &str = "shown";
const CHART: &str = "/charts/shown/shown/galleon";

/// A version with values of 3,000 lines, of which each twentieth depends on the version, and a README of 200 KiB.
fn chart(version: &str) -> Chart {
    let mut values = String::new();
    for number in 0..VALUES_LINES / 3 {
        let tag = if number % 7 == 0 { version } else { "1" };
        values += &format!("# -- Number of pods of part {number}\npart{number}:\n  replicas: \"{tag}\"\n");
    }
    let mut readme = String::from("# Galleon\n");
    while readme.len() < README_BYTES {
        readme += "\n## Install\n\nSet `image.tag`, see [values](#values), or *keep* the **default**.\n\n\
                   | key | default |\n|---|---|\n| `replicas` | 1 |\n\n- first\n- second\n\n```yaml\nreplicas: 2\n```\n";
    }
    Chart::new("galleon", version)
        .file("README.md", readme)
        .file("values.yaml", values)
}

impl Bench<'_> {
    pub async fn pages(&self) -> Vec<Row> {
        let paths = |path: &str| self.callers.requests(0..256, &[path.to_owned()], "");
        let charts = self.callers.charts(&self.serve.address).await;
        let (first, charts) = (paths("/"), self.callers.requests(0..256, &charts, ""));
        let difference = paths(&format!("{CHART}/diff?from=1.0.0&to=1.1.0"));
        let readme = paths(&format!("{CHART}/1.1.0?tab=readme"));
        let bytes = self.client().await.get(&first[0]).await.length;
        let baseline = Serve::of_static_bytes(bytes).await;
        let alone = at_rate(&baseline, &first, 0.0).await;
        let rate = async |case: &str, requests: &Requests| {
            let sample = at_rate(&self.serve, requests, alone.cpu).await;
            row(case, sample, &[Wall(0.02), Peak(80.0)])
        };
        let mut rows = vec![
            Row::baseline(&format!("{STATIC}, {} KB, 200/s, p99", bytes / 1000), &[alone]),
            rate("Page of the catalog, 200/s, p99", &first).await,
            rate("Pages of charts, 200/s, p99", &charts).await,
        ];
        for (case, requests, limit, least) in [
            (
                "Difference of 3,000 lines of values, p99",
                &difference,
                Wall(0.02),
                CHANGED_BYTES,
            ),
            ("README of 200 KiB, p99", &readme, Cpu(0.01), README_BYTES),
        ] {
            let page = self.client().await.get(&requests[0]).await;
            assert!(page.length > least, "{case}: the page has {} bytes", page.length);
            rows.push(row(
                case,
                measured(&self.serve, 1, requests, 0.0).await,
                &[limit, Peak(80.0)],
            ));
        }
        rows
    }
}

impl Site {
    /// Syncs the chart of the pages in two versions.
    pub async fn sync_pages(&self) {
        let archives = ["1.1.0", "1.0.0"].map(|version| chart(version).pack());
        self.charts.serve_archives(SHOWN, &archives);
        let entries = archives
            .iter()
            .map(|archive| archive.index_entry(&[&archive.file_name()]));
        self.sync(SHOWN, index(entries), "all").await;
    }
}

impl Callers {
    /// Returns the paths of the pages of some charts.
    async fn charts(&self, address: &str) -> Vec<String> {
        let request = reqwest::Client::new().get(format!("http://{address}/api/v1/charts?limit=100"));
        let response = request
            .bearer_auth(self.token())
            .send()
            .await
            .expect("the server answers");
        let body = response.bytes().await.expect("a body");
        let list: Value = serde_json::from_slice(&body).expect("a list of charts");
        let path = |chart: &Value| {
            let [namespace, repository, name] = ["namespace", "repository", "name"].map(|key| chart[key].as_str());
            let [namespace, repository, name] = [namespace, repository, name].map(|part| part.expect("a name"));
            format!("/charts/{namespace}/{repository}/{name}")
        };
        list["items"].as_array().expect("items").iter().map(path).collect()
    }
}
