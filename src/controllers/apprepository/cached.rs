//! AppRepositories in memory: text that is not used is dropped, and what is large counts toward a share.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use kube::core::error_boundary::InvalidObject;
use kube::core::{DeserializeGuard, ObjectMeta};
use parking_lot::Mutex;
use serde_json::value::RawValue;

use crate::api::{AppRepository, AppRepositoryStatus, NamespacedName, PodTemplate, Raw, impl_resource};
use crate::budget::{Budget, Reservation, parsed_bytes};
use crate::runtime::watch::{Cached, MAX_DECODED_BYTES, Store, too_large};

/// Memory of a usual repository, with about 2 KiB of text. It counts toward no share, or namespaces with many usual
/// repositories would have too little; what one takes above it counts.
const USUAL_BYTES: u64 = 8 << 10;

/// An AppRepository with the memory that it takes beyond [`USUAL_BYTES`].
#[derive(Clone, Debug)]
pub struct CachedRepository {
    object: AppRepository,
    memory: Option<ObjectMemory>,
}

/// Memory of an object. Its versions share it: while one replaces another, the object does not count twice.
type ObjectMemory = Arc<Mutex<Reservation>>;

impl_resource!([] CachedRepository, as AppRepository, metadata_only: false, |this| &this.object.metadata,
    &mut this.object.metadata);

impl Deref for CachedRepository {
    type Target = AppRepository;

    fn deref(&self) -> &AppRepository {
        &self.object
    }
}

/// Of an operator, whose manifests count toward no share.
impl From<AppRepository> for CachedRepository {
    fn from(object: AppRepository) -> Self {
        Self { object, memory: None }
    }
}

impl CachedRepository {
    /// Returns the repository after a write of its status.
    #[must_use]
    pub fn with_written(&self, metadata: ObjectMeta, status: AppRepositoryStatus) -> Self {
        Self {
            object: AppRepository {
                metadata,
                spec: self.object.spec.clone(),
                status: Some(status),
            },
            memory: self.memory.clone(),
        }
    }
}

/// Converts AppRepositories of tenants.
#[derive(Clone, Debug)]
pub struct RepositoryCache {
    pub store: Store<Cached<CachedRepository>>,
    pub budget: Budget,
    /// Maximum size of a pod template that is kept as text.
    pub template_limit: usize,
}

impl RepositoryCache {
    /// Converts an object. It is invalid if it takes more memory than its namespace has left.
    #[must_use]
    pub fn convert(&self, raw: Raw<AppRepository>) -> Cached<CachedRepository> {
        self.try_convert(raw).into()
    }

    fn try_convert(&self, raw: Raw<AppRepository>) -> DeserializeGuard<CachedRepository> {
        let bytes = decoded_bytes(&raw);
        if bytes > MAX_DECODED_BYTES {
            return DeserializeGuard(Err(raw.invalid(too_large(bytes, MAX_DECODED_BYTES))));
        }
        let mut object = match raw.decode().0 {
            Ok(object) => object,
            Err(invalid) => return DeserializeGuard(Err(invalid)),
        };
        let template = object
            .spec
            .sync_job_pod_template
            .take()
            .map(|template| template.within(self.template_limit));
        let of_template = template.as_ref().map_or(0, PodTemplate::kept_bytes) as u64;
        object.spec.sync_job_pod_template = template;
        let metadata = serde_json::to_string(&object.metadata).unwrap_or_default();
        let bytes = bytes + of_template + parsed_bytes(&metadata);
        let counted = bytes.saturating_sub(USUAL_BYTES);
        if counted == 0 {
            return DeserializeGuard(Ok(object.into()));
        }
        DeserializeGuard(match self.memory(&object.metadata, counted) {
            Some(memory) => Ok(CachedRepository {
                object,
                memory: Some(memory),
            }),
            None => Err(InvalidObject {
                error: over_share(bytes),
                metadata: object.metadata,
            }),
        })
    }

    /// Returns the memory of an object, if its namespace has that much left besides the stored version.
    fn memory(&self, meta: &ObjectMeta, bytes: u64) -> Option<ObjectMemory> {
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let Some(memory) = self.stored_memory(meta) else {
            let memory = self.budget.try_share(namespace, bytes)?;
            return Some(Arc::new(Mutex::new(memory)));
        };
        {
            let mut held = memory.lock();
            match bytes.checked_sub(held.amount()) {
                Some(more) => held.absorb(self.budget.try_share(namespace, more)?),
                None => held.shrink(bytes),
            }
        }
        Some(memory)
    }

    fn stored_memory(&self, meta: &ObjectMeta) -> Option<ObjectMemory> {
        let cached = self.store.get(&NamespacedName::of(meta)?)?;
        let stored = cached
            .object()
            .filter(|stored| stored.object.metadata.uid == meta.uid)?;
        stored.memory.clone()
    }
}

fn over_share(bytes: u64) -> String {
    let kib = bytes.div_ceil(1024);
    format!(
        "takes {kib} KiB of memory, more than its namespace has left of the share for large AppRepositories; make it \
         smaller, or delete others and change it then"
    )
}

/// Returns the memory that spec and status take when they are decoded. The template stays text.
fn decoded_bytes(raw: &Raw<AppRepository>) -> u64 {
    let bytes = |text: &RawValue| parsed_bytes(text.get());
    let of_spec = |spec: &RawValue| match serde_json::from_str::<BTreeMap<String, &RawValue>>(spec.get()) {
        Ok(fields) => {
            let fields = fields.iter().filter(|(name, _)| *name != "syncJobPodTemplate");
            fields.map(|(name, value)| name.len() as u64 + bytes(value)).sum()
        }
        Err(_) => bytes(spec),
    };
    let fields = raw.fields();
    let sizes = fields.iter().map(|(name, value)| match name.as_str() {
        "spec" => of_spec(value),
        _ => bytes(value),
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;

    fn cache(limit: u64, template_limit: usize) -> RepositoryCache {
        RepositoryCache {
            store: Store::default(),
            budget: Budget::new("test", limit),
            template_limit,
        }
    }

    fn raw(namespace: &str, spec: Value) -> Raw<AppRepository> {
        let mut object = json!({
            "metadata": { "name": "a", "namespace": namespace, "uid": "u", "resourceVersion": "1" },
            "spec": { "type": "helm", "url": "https://charts.example.com" },
        });
        object["spec"]
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().cloned().unwrap());
        serde_json::from_str(&object.to_string()).unwrap()
    }

    fn error(cached: &Cached<CachedRepository>) -> &str {
        match cached {
            Cached::Invalid { error, .. } => error,
            Cached::Object(_) => "",
        }
    }

    /// A template of 1.3 MB that takes 115 MB when it is parsed.
    fn hostile() -> Value {
        json!({ "list": vec![json!({ "a": 0 }); 165_000] })
    }

    #[test]
    fn a_template_that_is_not_used_is_not_kept_and_counts_for_nothing() {
        let cache = cache(1 << 20, 0);
        let cached = cache.convert(raw("team", json!({ "syncJobPodTemplate": hostile() })));
        let object = cached.object().unwrap();
        assert!(object.spec.sync_job_pod_template.as_ref().unwrap().is_reduced());
        assert_eq!(cache.budget.used(), 0);
    }

    #[test]
    fn a_template_that_jobs_use_is_kept_within_the_limit_and_counts() {
        let template =
            |bytes: usize| json!({ "syncJobPodTemplate": { "metadata": { "labels": { "a": "x".repeat(bytes) } } } });
        let cache = cache(1 << 20, 64 << 10);
        let kept = cache.convert(raw("team", template(60 << 10)));
        assert!(
            !kept
                .object()
                .unwrap()
                .spec
                .sync_job_pod_template
                .as_ref()
                .unwrap()
                .is_reduced()
        );
        assert!((50 << 10..100 << 10).contains(&cache.budget.used()));
        let reduced = cache.convert(raw("team", template(70 << 10)));
        assert!(
            reduced
                .object()
                .unwrap()
                .spec
                .sync_job_pod_template
                .as_ref()
                .unwrap()
                .is_reduced()
        );
        drop(kept);
        assert_eq!(cache.budget.used(), 0);
    }

    #[test]
    fn an_object_beyond_the_share_of_its_namespace_is_invalid_and_others_have_theirs() {
        let cache = cache(256 << 10, 0);
        let large = || json!({ "ociRepositories": vec!["x".repeat(100); 300] });
        let held: Vec<_> = (0..4).map(|_| cache.convert(raw("greedy", large()))).collect();
        assert_eq!(held.iter().filter(|cached| cached.object().is_some()).count(), 2);
        assert!(
            error(&held[3]).contains("share for large AppRepositories"),
            "{}",
            error(&held[3])
        );
        assert!(
            cache.convert(raw("greedy", json!({}))).object().is_some(),
            "usual objects always fit"
        );
        assert!(cache.convert(raw("other", large())).object().is_some());
    }

    #[test]
    fn a_new_version_of_an_object_near_the_share_counts_in_place_of_the_one_before() {
        const LIMIT: u64 = 256 << 10;
        let cache = cache(LIMIT, 0);
        let version = |bytes: u64| {
            let text = "x".repeat(usize::try_from(bytes).unwrap());
            let converted = cache.convert(raw("team", json!({ "description": text })));
            // The new version is converted while the version before is stored.
            cache.store.apply(Event::Apply(converted.clone()));
            (converted.object().is_some(), cache.budget.used())
        };
        let (is_object, first) = version(LIMIT * 2 / 5);
        assert!(is_object && (LIMIT / 3..LIMIT / 2).contains(&first), "{first}");
        assert_eq!(version(LIMIT * 2 / 5), (true, first));
        assert_eq!(version(LIMIT * 2 / 5 + 1024), (true, first + 1024));
        assert_eq!(version(LIMIT / 5), (true, first - LIMIT / 5 - 1));
        assert!(!version(LIMIT).0, "it is beyond the share alone");
        assert_eq!(cache.budget.used(), 0);
    }

    #[test]
    fn what_many_objects_take_counts_beyond_that_of_usual_ones() {
        let conditions = ["Ready", "Reconciling", "Stalled"].map(|name| {
            json!({
                "type": name, "status": "True", "reason": "Synced", "message": "120 charts with 2400 versions",
                "lastTransitionTime": "2026-05-01T12:00:00Z", "observedGeneration": 3,
            })
        });
        let usual = json!({
            "metadata": {
                "name": "bitnami", "namespace": "team", "uid": "0ac3c0f6-9d7d-4b3e-8f0e-2d7a5b8a2f11",
                "resourceVersion": "123456", "generation": 3, "creationTimestamp": "2026-05-01T12:00:00Z",
                "labels": { "app.kubernetes.io/managed-by": "Helm" }, "finalizers": [crate::api::FINALIZER],
            },
            "spec": {
                "type": "helm", "url": "https://charts.example.com/bitnami", "description": "Charts of the platform team",
                "auth": { "header": { "secretKeyRef": { "name": "apprepo-bitnami", "key": "authorizationHeader" } } },
            },
            "status": { "observedGeneration": 3, "charts": 120, "versions": 2400, "conditions": conditions },
        });
        let cache = cache(1 << 20, 0);
        let is_kept = |object: &Value| cache.convert(serde_json::from_str(&object.to_string()).unwrap());
        assert!(is_kept(&usual).object().is_some());
        assert_eq!(cache.budget.used(), 0, "usual ones are free");
        let mut larger = usual;
        larger["metadata"]["annotations"] = json!({ "a": "x".repeat(10 << 10) });
        let held: Vec<_> = (0..3).map(|_| is_kept(&larger)).collect();
        assert!(held.iter().all(|cached| cached.object().is_some()));
        assert!(cache.budget.used() > 3 * (8 << 10), "{}", cache.budget.used());
    }

    #[test]
    fn an_object_that_would_take_too_much_is_not_decoded() {
        let variables: serde_json::Map<_, _> = (0..100_000).map(|number| (format!("$v{number}"), json!(""))).collect();
        let rule = json!({ "filterRule": { "jq": "true", "variables": variables } });
        let cached = cache(1 << 30, 0).convert(raw("team", rule));
        assert!(
            error(&cached).contains("MiB of memory when it is decoded"),
            "{}",
            error(&cached)
        );
    }
}
