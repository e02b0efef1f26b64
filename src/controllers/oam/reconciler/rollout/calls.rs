//! Functions that templates of components and traits call while they are rendered.
//!
//! A pass that runs steps calls them once. Afterwards, renderings are remembered, and nothing is called.

use crate::controllers::oam::functions::http::StepPermit;
use crate::controllers::oam::functions::objects;
use crate::controllers::oam::reconciler::cluster::Cluster;
use crate::controllers::oam::steps::{Answer, Call, Functions};

const NOT_GET: &str =
    "$params.method is not supported: a component may be rendered at any time; use GET, or a workflow step";

/// The functions for one template.
pub(super) struct RenderFunctions<'x, 'p> {
    cluster: &'x Cluster<'p>,
    /// The permit for requests, from the first request to the last call.
    permit: Option<StepPermit>,
}

impl<'x, 'p> RenderFunctions<'x, 'p> {
    pub(super) fn new(cluster: &'x Cluster<'p>) -> Self {
        Self { cluster, permit: None }
    }

    async fn answer(&mut self, call: &Call) -> Result<Answer, String> {
        let (cluster, params) = (self.cluster, &call.params);
        match (call.provider.as_str(), call.function.as_str()) {
            ("kube", "get") => {
                let id = objects::get(params, &cluster.env.name.namespace)?;
                cluster.check_read(&id).await?;
                let read = cluster.objects.read(&id).await;
                if let Ok(Some(live)) = &read {
                    cluster.check_record(live)?;
                }
                Ok(objects::object_result(&id, read))
            }
            ("kube", "list") => {
                let selection = objects::list(params)?;
                let target = selection.target();
                cluster.check_read(&target).await?;
                let listed = cluster.objects.list(&target, &selection.selector()).await;
                let listed = listed.map(|listed| cluster.without_records(listed));
                Ok(objects::list_result(&selection, listed))
            }
            ("http", "do") => {
                let method = params["method"].as_str().unwrap_or_default();
                if !matches!(method, "" | "GET") {
                    return Err(NOT_GET.to_owned());
                }
                let requests = &cluster.env.reconciler.step_requests;
                let secrets = cluster.secrets();
                Ok(requests
                    .send(cluster.env.name, params, &secrets, &mut self.permit)
                    .await)
            }
            (provider, function) => Err(format!("function {provider}.{function} is not supported")),
        }
    }
}

impl Functions for RenderFunctions<'_, '_> {
    async fn call(&mut self, call: &Call) -> Answer {
        let cluster = self.cluster;
        let answers = &cluster.env.render_answers;
        if let Some(answer) = answers.lock().get(call) {
            return answer;
        }
        let answer = self.answer(call).await.unwrap_or_else(Answer::failed);
        answers.lock().record(call, answer)
    }
}
