//! The decisions of a pass about one object, as text.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::clusters::ComparedCluster;
use super::lines::changed_paths;
use super::target::DiffTarget;
use crate::cmd::vela::{manifests, objects};
use crate::controllers::oam::dispatch::admission::{check_control, check_release};
use crate::controllers::oam::dispatch::bookkeeping::remove_record;
use crate::controllers::oam::dispatch::decide::{
    DispatchDecision, DispatchRefusal, DispatchRequest, DispatchSettings, ObjectIdentity, ObjectPolicy, Occasion,
    decide,
};
use crate::controllers::oam::objects::ObjectId;
use crate::controllers::oam::policies::{ApplyOnceStage, PolicyTarget};
use crate::controllers::oam::render::identity::render_hash::render_hash;
use crate::runtime::three_way;
use crate::text::sanitize;

/// Maximum number of lines for one object.
const MAX_LINES: usize = 200;

#[derive(Debug, PartialEq)]
pub enum DiffOutcome {
    Create,
    Unchanged,
    /// A policy keeps the object as it is.
    ReadOnly,
    /// Lines with the changed paths.
    Change(Vec<String>),
    Recreate(Vec<String>),
    /// The object is not applied, nor are the others of its component.
    Blocked(String),
}

impl DiffTarget {
    /// Decides about an object as a run of the workflow does, and state-keep after it. An error is the text of a refusal.
    pub async fn outcome(
        &self,
        cluster: &ComparedCluster,
        id: &ObjectId,
        manifest: &Value,
    ) -> Result<DiffOutcome, String> {
        let live = cluster.objects.read(id).await.map_err(|error| error.to_string())?;
        // A user may have other rights; the API server decides about them.
        if !objects::names_user(&self.application) && !self.inventory.records(&id.key()) {
            let forbidden = check_control(&self.name.namespace, &ObjectIdentity::of(manifest));
            forbidden.map_err(|error| error.to_string())?;
        }
        check_release(&ObjectIdentity::of(manifest)).map_err(|error| error.to_string())?;
        let recorded = id.recorded_in(&self.inventory);
        let manifest = match recorded.last() {
            _ if self.runs => manifest,
            // State-keep knows only what was applied.
            Some(applied) => applied,
            None => return Ok(DiffOutcome::Unchanged),
        };
        let mut becomes = live.clone();
        let mut is_recreated = false;
        for occasion in self.occasions() {
            let decision = self.decision(cluster, id, manifest, &recorded, becomes.as_ref(), occasion);
            match (decision.await?, &mut becomes) {
                (DispatchDecision::Create(_), _)
                    if occasion == Occasion::StateKeep && self.is_applied_once(manifest) => {}
                (DispatchDecision::Create(_), _) => return Ok(DiffOutcome::Create),
                (
                    DispatchDecision::Patch(patch) | DispatchDecision::Share(patch) | DispatchDecision::Record(patch),
                    Some(live),
                ) => json_patch::merge(live, &patch),
                (DispatchDecision::Replace(object), Some(live)) => merge(&recorded, &object, live)?,
                (DispatchDecision::Recreate { object, .. }, Some(live)) => {
                    is_recreated = true;
                    merge(&recorded, &object, live)?;
                }
                _ => {}
            }
        }
        let is_read_only = self.parsed.rules.read_only.contains(&PolicyTarget::of(manifest));
        let lines = changed_paths(&fields(live), &fields(becomes), !manifests::is_secret(manifest));
        Ok(if is_recreated {
            DiffOutcome::Recreate(lines)
        } else if !lines.is_empty() {
            DiffOutcome::Change(lines)
        } else if is_read_only {
            DiffOutcome::ReadOnly
        } else {
            DiffOutcome::Unchanged
        })
    }

    fn occasions(&self) -> impl Iterator<Item = Occasion> {
        let is_kept = !self.parsed.rules.apply_once.omits_manifests();
        let run = self.runs.then_some(Occasion::Dispatch);
        run.into_iter().chain(is_kept.then_some(Occasion::StateKeep))
    }

    /// Returns true if an object that is gone is not created again.
    fn is_applied_once(&self, manifest: &Value) -> bool {
        let strategy = self.parsed.rules.apply_once.strategy(&PolicyTarget::of(manifest));
        strategy.is_some_and(|strategy| strategy.affects(ApplyOnceStage::StateKeep))
    }

    async fn decision(
        &self,
        cluster: &ComparedCluster,
        id: &ObjectId,
        manifest: &Value,
        recorded: &[Value],
        live: Option<&Value>,
        occasion: Occasion,
    ) -> Result<DispatchDecision, String> {
        // Each object of a new revision has another hash, because of its labels.
        let hash = if self.is_new_revision {
            String::new()
        } else {
            render_hash(manifest)
        };
        let decide_if = |is_autoscaled| {
            let decision = decide(&DispatchRequest {
                application: (&self.name.namespace, &self.name.name),
                manifest,
                render_hash: &hash,
                live,
                recorded,
                occasion,
                policy: ObjectPolicy::of(&self.parsed.rules, manifest, occasion),
                is_autoscaled,
                settings: DispatchSettings::default(),
                now: Timestamp::now(),
            });
            decision.map_err(|refusal| match refusal {
                DispatchRefusal::Unmanaged { .. } => format!("{refusal}; a take-over policy adopts it"),
                refusal => refusal.to_string(),
            })
        };
        let decision = decide_if(false)?;
        if !decision.changes_replicas() {
            return Ok(decision);
        }
        let targets = cluster
            .autoscalers
            .targets(&cluster.client, id)
            .await
            .map_err(|error| error.to_string())?;
        if targets.contains(&(id.kind.clone(), id.name.clone())) {
            return decide_if(true);
        }
        Ok(decision)
    }
}

/// Merges an object that replaces another one: fields that the API server sets stay.
fn merge(recorded: &[Value], object: &Value, live: &mut Value) -> Result<(), String> {
    let applied: Vec<&Value> = recorded.iter().collect();
    let patch = three_way::patch(&applied, object, live).map_err(|error| error.to_string())?;
    if let Some(patch) = patch {
        json_patch::merge(live, &patch.into_body(live));
    }
    Ok(())
}

/// Returns the fields of an object without the record of its last write.
fn fields(object: Option<Value>) -> Map<String, Value> {
    let mut object = object.unwrap_or_default();
    remove_record(&mut object);
    match object {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

impl DiffOutcome {
    pub fn text(&self, display: &str) -> String {
        let (word, details) = match self {
            Self::Create => ("create", String::new()),
            Self::Unchanged => ("unchanged", String::new()),
            Self::ReadOnly => ("read-only", String::new()),
            Self::Change(_) => ("change", String::new()),
            Self::Recreate(_) => ("recreate", String::new()),
            Self::Blocked(reason) => ("blocked", format!(": {reason}")),
        };
        let mut text = sanitize(&format!("{word:<9} {display}{details}")) + "\n";
        if let Self::Change(lines) | Self::Recreate(lines) = self {
            for line in lines.iter().take(MAX_LINES) {
                text.push_str(&format!("  {}\n", sanitize(line)));
            }
            if lines.len() > MAX_LINES {
                text.push_str(&format!("  … and {} more\n", lines.len() - MAX_LINES));
            }
        }
        text
    }
}
