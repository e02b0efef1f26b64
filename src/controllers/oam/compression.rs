//! Checks that the CRDs keep compressed records: those of old versions of KubeVela drop the field.

use std::fmt::Debug;

use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use super::trackers::TrackerType;
use crate::api::oam::compression::Compressed;
use crate::api::oam::{ApplicationRevision, ApplicationRevisionSpec, ResourceTracker, ResourceTrackerSpec};
use crate::controllers::FIELD_MANAGER;
use crate::runtime::kube_client::call;

const PROBE: &str = "portolan-compression-check";

/// The check of the CRD of a kind. It succeeds once for the process.
#[derive(Debug, Default)]
pub struct CrdCheck(OnceCell<()>);

impl CrdCheck {
    /// Creates an object in a dry run, and fails if the API server would drop its compressed contents.
    pub async fn check<K: Compressible>(&self, api: Api<K>, compression: &Compressed) -> Result<(), String> {
        if compression.is_empty() {
            return Ok(());
        }
        let crd = format!("{}.{}", K::plural(&()), K::group(&()));
        let dry_run = async || {
            let probe = Compressed {
                type_: compression.type_.clone(),
                data: "e30=".to_owned(),
            };
            let metadata = ObjectMeta {
                name: Some(PROBE.to_owned()),
                ..ObjectMeta::default()
            };
            let parameters = PostParams {
                dry_run: true,
                field_manager: Some(FIELD_MANAGER.to_owned()),
            };
            let created = call(api.create(&parameters, &K::compressed(metadata, probe.clone())))
                .await
                .map_err(|error| format!("failed to check the CRD {crd}: {error}"))?;
            if *created.compression() == probe {
                Ok(())
            } else {
                Err(format!(
                    "the CRD {crd} does not keep spec.compression; install its current version with \
                     `portolan crds core.oam.dev --apply`"
                ))
            }
        };
        self.0.get_or_try_init(dry_run).await.copied()
    }
}

pub trait Compressible: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize {
    fn compressed(metadata: ObjectMeta, compression: Compressed) -> Self;

    fn compression(&self) -> &Compressed;
}

impl Compressible for ResourceTracker {
    fn compressed(metadata: ObjectMeta, compression: Compressed) -> Self {
        Self {
            metadata,
            spec: ResourceTrackerSpec {
                type_: TrackerType::Root.name().to_owned(),
                compression,
                ..ResourceTrackerSpec::default()
            },
            status: None,
        }
    }

    fn compression(&self) -> &Compressed {
        &self.spec.compression
    }
}

impl Compressible for ApplicationRevision {
    fn compressed(metadata: ObjectMeta, compression: Compressed) -> Self {
        Self {
            metadata,
            spec: ApplicationRevisionSpec {
                compression,
                ..ApplicationRevisionSpec::default()
            },
            status: None,
        }
    }

    fn compression(&self) -> &Compressed {
        &self.spec.compression
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use axum::http;
    use kube::Client;
    use kube::client::Body;
    use serde_json::Value;

    use super::*;
    use crate::api::oam::compression::Format;

    /// An API server that drops the field until its CRDs are updated.
    #[derive(Clone, Default)]
    struct Server {
        keeps_compression: Arc<AtomicBool>,
        dry_runs: Arc<AtomicUsize>,
    }

    impl Server {
        fn client(&self) -> Client {
            let server = self.clone();
            let service = tower::service_fn(move |request: http::Request<Body>| {
                let server = server.clone();
                async move {
                    assert!(request.uri().query().unwrap().contains("dryRun=All"));
                    server.dry_runs.fetch_add(1, Ordering::Relaxed);
                    let mut object: Value =
                        serde_json::from_slice(&request.into_body().collect_bytes().await.unwrap()).unwrap();
                    if !server.keeps_compression.load(Ordering::Relaxed) {
                        object["spec"].as_object_mut().unwrap().remove("compression");
                    }
                    Ok::<_, Infallible>(http::Response::new(Body::from(object.to_string().into_bytes())))
                }
            });
            Client::new(service, "default")
        }
    }

    async fn the_field_must_survive<K: Compressible>(api: impl Fn(Client) -> Api<K>, crd: &str) {
        let (server, checked) = (Server::default(), CrdCheck::default());
        let compression = Compressed::encode(Format::Zstd, b"[]").unwrap();
        let none = Compressed::default();
        checked.check(api(server.client()), &none).await.unwrap();
        assert_eq!(server.dry_runs.load(Ordering::Relaxed), 0, "nothing is compressed");
        let error = checked.check(api(server.client()), &compression).await.unwrap_err();
        assert!(
            error.starts_with(&format!("the CRD {crd} does not keep spec.compression")),
            "{error}"
        );
        server.keeps_compression.store(true, Ordering::Relaxed);
        for _ in 0..2 {
            checked.check(api(server.client()), &compression).await.unwrap();
        }
        assert_eq!(server.dry_runs.load(Ordering::Relaxed), 2, "it is not tried again");
    }

    #[tokio::test]
    async fn nothing_is_compressed_before_a_dry_run_has_shown_that_the_crd_keeps_it() {
        the_field_must_survive::<ResourceTracker>(Api::all, "resourcetrackers.core.oam.dev").await;
        let revisions = |client| Api::<ApplicationRevision>::namespaced(client, "team");
        the_field_must_survive(revisions, "applicationrevisions.core.oam.dev").await;
    }
}
