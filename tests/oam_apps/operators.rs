//! Operations on workflows, as `portolan vela` does them and as KubeVela's command line writes them.

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::site::Site;
use super::{APPLICATION, CONFIG_MAP, TRACKER};
use crate::support::eventually::{SOON, eventually};
use crate::support::portolan::{command, run};

pub const STEP_DEFINITION: &str = "core.oam.dev/v1beta1 WorkflowStepDefinition";

/// The program that a user operates workflows with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Portolan,
    Vela,
}

pub const BOTH: [By; 2] = [By::Portolan, By::Vela];

impl Site {
    /// Defines a type of steps in the namespace.
    pub async fn define_step(&self, name: &str, template: &str) {
        let definition = json!({ "spec": { "schematic": { "cue": { "template": template } } } });
        self.apply(STEP_DEFINITION, name, definition).await;
    }

    /// Defines the component type `gated`: a ConfigMap that is healthy once its key `open` is `yes`.
    pub async fn define_gate(&self) {
        let template = "output: {apiVersion: \"v1\", kind: \"ConfigMap\", data: kind: \"gate\"}\nparameter: {}\n";
        let health = "isHealth: context.output.data.open == \"yes\"";
        let definition = json!({ "spec": {
            "workload": { "type": "autodetects.core.oam.dev" },
            "schematic": { "cue": { "template": template } },
            "status": { "healthPolicy": health },
        } });
        self.apply(super::DEFINITION, "gated", definition).await;
    }

    pub async fn open_gate(&self, name: &str) {
        self.edit(CONFIG_MAP, name, json!({ "data": { "open": "yes" } })).await;
    }

    /// Waits until a step or sub-step has a phase, and its message these words.
    pub async fn until_step(&self, app: &str, name: &str, phase: &str, words: &str) -> Value {
        let what = format!("step {name} {phase} {words}");
        let app = self.until(APPLICATION, app, &what, |app| {
            step(app, name).is_some_and(|step| {
                step["phase"] == phase && step["message"].as_str().unwrap_or_default().contains(words)
            })
        });
        step(&app.await, name).unwrap().clone()
    }

    pub async fn until_phase(&self, app: &str, phase: &str) -> Value {
        self.until(APPLICATION, app, phase, |app| app["status"]["status"] == phase)
            .await
    }

    /// Runs `portolan vela …` in the namespace.
    pub async fn app(&self, arguments: &[&str]) -> String {
        let kubeconfig = self.control_plane.kubeconfig();
        let place = ["-n", &self.namespace, "--kubeconfig", kubeconfig.to_str().unwrap()];
        let output = run(command([&["vela"], arguments, &place].concat())).await;
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub async fn suspend(&self, by: By, app: &str) {
        match by {
            By::Portolan => drop(self.app(&["suspend", app]).await),
            By::Vela => {
                self.merge_status(app, |workflow| {
                    workflow["suspend"] = true.into();
                    for_each_step(workflow, |step| change_phase(step, "running", "suspending"));
                })
                .await;
            }
        }
    }

    pub async fn resume(&self, by: By, app: &str) {
        match by {
            By::Portolan => drop(self.app(&["resume", app]).await),
            By::Vela => {
                self.merge_status(app, |workflow| {
                    workflow["suspend"] = false.into();
                    for_each_step(workflow, |step| change_phase(step, "suspending", "running"));
                })
                .await;
            }
        }
    }

    pub async fn terminate(&self, by: By, app: &str) {
        match by {
            By::Portolan => drop(self.app(&["terminate", app]).await),
            By::Vela => {
                self.merge_status(app, |workflow| {
                    workflow["suspend"] = false.into();
                    workflow["terminated"] = true.into();
                    for_each_step(workflow, |step| {
                        if step["phase"] == "running" || step["phase"] == "suspending" {
                            step["phase"] = "failed".into();
                            step["reason"] = "Terminate".into();
                        }
                    });
                })
                .await;
            }
        }
    }

    pub async fn restart(&self, by: By, app: &str) {
        match by {
            By::Portolan => drop(self.app(&["restart", app]).await),
            By::Vela => self.replace_status(app, |status| drop(status["workflow"].take())).await,
        }
    }

    /// Restarts from a step; `names` are this and all later ones. KubeVela's command writes the status first, and then the
    /// values as it read them before.
    pub async fn restart_from(&self, by: By, app: &str, names: &[&str], outputs: &[&str]) {
        if by == By::Portolan {
            self.app(&["restart", app, "--step", names[0]]).await;
            return;
        }
        let context = format!("workflow-{app}-context");
        let mut values = self.get(CONFIG_MAP, &context).await.unwrap();
        self.replace_status(app, |status| {
            let workflow = &mut status["workflow"];
            for field in ["terminated", "suspend", "finished"] {
                workflow[field] = false.into();
            }
            workflow["endTime"] = Value::Null;
            let steps = workflow["steps"].as_array_mut().unwrap();
            steps.retain(|step| !names.contains(&step["name"].as_str().unwrap()));
        })
        .await;
        let lines = values["data"]["vars"].as_str().unwrap().lines();
        let kept = lines.filter(|line| !outputs.iter().any(|output| line.starts_with(&format!("{output}:"))));
        values["data"]["vars"] = Vec::from_iter(kept).join("\n").into();
        let values = serde_json::from_value(values).unwrap();
        let replaced = self
            .api(CONFIG_MAP)
            .replace(&context, &PostParams::default(), &values)
            .await;
        if let Err(error) = replaced {
            // The controller has written the values in the meantime; the command fails here.
            assert!(
                matches!(&error, kube::Error::Api(status) if status.code == 409),
                "{error}"
            );
        }
    }

    /// Returns to a published version.
    pub async fn roll_back(&self, by: By, app: &str, revision: &str, version: &str) {
        if by == By::Portolan {
            self.app(&["rollback", app, "--yes"]).await;
            return;
        }
        let revision = self.get(super::REVISION, revision).await.unwrap();
        let trackers = self.trackers(app).await;
        let of_revision = |tracker: &&Value| {
            tracker["metadata"]["labels"]["app.oam.dev/appRevision"] == revision["metadata"]["name"]
                && tracker["spec"]["type"] == "versioned"
        };
        let tracker = trackers.iter().find(of_revision).unwrap();
        let application = &revision["spec"]["application"];
        let freeze = json!({
            "app.oam.dev/controller-version-require": "Disabled",
            "app.oam.dev/publishVersion": version,
        });
        let frozen = self.replace(app, |app| {
            app["spec"] = application["spec"].clone();
            for (name, value) in freeze.as_object().unwrap() {
                app["metadata"]["annotations"][name] = value.clone();
            }
        });
        let frozen = frozen.await;
        self.replace_status(app, |status| {
            status["workflow"] = revision["status"]["workflow"].clone();
            status["services"] = json!([]);
            status["appliedResources"] = json!([]);
            status["latestRevision"] = json!({
                "name": revision["metadata"]["name"], "revision": 1,
                "revisionHash": revision["metadata"]["labels"]["app.oam.dev/app-revision-hash"],
            });
        })
        .await;
        let generation = json!({ "spec": { "applicationGeneration": frozen["metadata"]["generation"] } });
        self.edit(TRACKER, tracker["metadata"]["name"].as_str().unwrap(), generation)
            .await;
        self.replace(app, |app| {
            let annotations = app["metadata"]["annotations"].as_object_mut().unwrap();
            annotations.remove("app.oam.dev/controller-version-require");
        })
        .await;
        for outdated in self.revisions(app).await {
            if revision["metadata"]["name"] != outdated.as_str() {
                self.delete(super::REVISION, &outdated).await;
            }
        }
    }

    /// Merges the whole object with a changed workflow into the status, as KubeVela suspends, resumes and terminates.
    async fn merge_status(&self, app: &str, change: impl Fn(&mut Value)) {
        eventually(SOON, "the status to be written", async || {
            let mut object = self.get(APPLICATION, app).await.unwrap();
            change(&mut object["status"]["workflow"]);
            let (api, parameters) = (self.api(APPLICATION), PatchParams::default());
            api.patch_status(app, &parameters, &Patch::Merge(object)).await
        })
        .await;
    }

    /// Replaces the status, as KubeVela restarts and rolls back.
    async fn replace_status(&self, app: &str, change: impl Fn(&mut Value)) {
        eventually(SOON, "the status to be written", async || {
            let mut object = self.get(APPLICATION, app).await.unwrap();
            change(&mut object["status"]);
            let object = serde_json::from_value(object).unwrap();
            let (api, parameters) = (self.api(APPLICATION), PostParams::default());
            api.replace_status(app, &parameters, &object).await
        })
        .await;
    }

    async fn replace(&self, app: &str, change: impl Fn(&mut Value)) -> Value {
        let replaced = eventually(SOON, "the Application to be written", async || {
            let mut object = self.get(APPLICATION, app).await.unwrap();
            change(&mut object);
            let object = serde_json::from_value(object).unwrap();
            self.api(APPLICATION)
                .replace(app, &PostParams::default(), &object)
                .await
        });
        json!(replaced.await)
    }
}

/// Returns the status of a step or sub-step.
pub fn step<'a>(app: &'a Value, name: &str) -> Option<&'a Value> {
    let steps = app["status"]["workflow"]["steps"].as_array().into_iter().flatten();
    let mut all = steps.flat_map(|step| std::iter::once(step).chain(step["subSteps"].as_array().into_iter().flatten()));
    all.find(|step| step["name"] == name)
}

fn for_each_step(workflow: &mut Value, change: impl Fn(&mut Value)) {
    for step in workflow["steps"].as_array_mut().into_iter().flatten() {
        step["subSteps"].as_array_mut().into_iter().flatten().for_each(&change);
        change(step);
    }
}

fn change_phase(step: &mut Value, from: &str, to: &str) {
    if step["phase"] == from {
        step["phase"] = to.into();
    }
}

/// A step that deploys a component of the same name.
pub fn apply(name: &str) -> Value {
    json!({ "name": name, "type": "apply-component", "properties": { "component": name } })
}

pub fn gated(name: &str) -> Value {
    json!({ "name": name, "type": "gated", "properties": {} })
}

pub fn with_steps(components: &[Value], steps: &[Value]) -> Value {
    json!({ "components": components, "workflow": { "steps": steps } })
}
