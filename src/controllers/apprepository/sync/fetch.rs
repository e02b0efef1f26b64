//! Fetches the index of a Helm repository, unless it is the same as at the last sync.

use super::download_cache::{Download, DownloadRequest};
use super::location::{Location, locate};
use super::{Prepared, SyncerRun, refuse};
use crate::catalog::Refused;
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::helm::index::SharedSplit;
use crate::http::{Body, FetchError, Fetched, Fetcher, Validators};

/// Fails with the result of the sync if there is nothing to decode.
pub(super) async fn fetch_index(run: &SyncerRun<'_>, session: &Fetcher) -> Result<(Body, SharedSplit), Prepared> {
    let refused = run.last_refusal();
    let (fetched, split, is_initiator) = fetch(run, session, refused.as_ref()).await?;
    let Fetched::Body(body) = fetched else {
        if is_initiator {
            run.syncer.metrics.not_modified();
        }
        return Err(refused.map_or(Prepared::Unchanged(None), Prepared::Refused));
    };
    if is_initiator {
        run.syncer.metrics.index_bytes(body.bytes);
    }
    if let Some(refused) = refused.filter(|refused| refused.digest == body.sha256) {
        return Err(Prepared::Refused(Refused {
            etag: body.validators.etag,
            last_modified: body.validators.last_modified,
            ..refused
        }));
    }
    if run.is_same_as_last(&body.sha256) {
        return Err(Prepared::Unchanged(Some(body.validators)));
    }
    Ok((body, split))
}

/// Fetches the index. The boolean is true if this sync sent the request.
async fn fetch(
    run: &SyncerRun<'_>,
    session: &Fetcher,
    refused: Option<&Refused>,
) -> Result<(Fetched, SharedSplit, bool), Prepared> {
    let (spec, limits) = (&run.request.spec, run.fetch_limits());
    let location = locate(&spec.url, spec.manifest.as_deref(), &run.syncer.context.files);
    match location.map_err(Prepared::Failed)? {
        Location::File(path) => {
            let body = session.read_file(&path, &limits).await;
            let body = body.map_err(|error| fetch_failed(spec, &error))?;
            Ok((Fetched::Body(body), SharedSplit::default(), true))
        }
        Location::Web(url) => {
            let stored = match (refused, run.last_success()) {
                (Some(refused), _) => Some((&refused.etag, &refused.last_modified)),
                (None, Some(last)) => Some((&last.etag, &last.last_modified)),
                (None, None) => None,
            };
            let validators = stored.map(|(etag, last_modified)| Validators {
                etag: etag.clone(),
                last_modified: last_modified.clone(),
            });
            let request = DownloadRequest {
                requester: &spec.name,
                session,
                url: &url,
                validators,
                limits,
                fresh_since: run.request.fresh_since,
            };
            let Download { result, is_initiator } = run.syncer.downloads.get(request).await;
            match &result.fetched {
                Ok(fetched) => Ok((fetched.clone(), result.split.clone(), is_initiator)),
                Err(error) => Err(fetch_failed(spec, error)),
            }
        }
    }
}

fn fetch_failed(spec: &RepositorySpec, error: &FetchError) -> Prepared {
    let Some(validators) = error.validators().cloned() else {
        return Prepared::Failed(error.into());
    };
    Prepared::Refused(refuse(spec, validators, String::new(), error.reason(), error))
}
