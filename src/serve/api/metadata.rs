//! Chart.yaml of a version, as it stands in its archive.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

use super::address::{NamesAndVersion, address_of_version};
use crate::serve::problem::Problem;
use crate::serve::respond::{Content, JSON, negotiate, send};
use crate::serve::site::Site;

pub(super) async fn show(
    State(site): State<Site>,
    headers: HeaderMap,
    names: NamesAndVersion,
) -> Result<Response, Problem> {
    let (address, version) = address_of_version(names)?;
    let media_type = negotiate(&headers, &[JSON])?;
    let version = address.read_version(&site, &headers, &version).await?;
    let (repository, chart_id, version) = (&address.repository, address.chart_id(), version.row.version());
    let stored = site.rows().metadata(repository, &chart_id, version).await?;
    let metadata = stored.ok_or_else(|| {
        Problem::not_found(format!(
            "Chart.yaml of version {version:?} of the chart {:?} is not imported, or is not valid",
            address.chart
        ))
    })?;
    send(&headers, Content::new(media_type, metadata.json.into_bytes())).await
}
