//! Functions that templates of components and traits call while they are rendered.
//!
//! A workflow calls them once. Answers and renderings hold until it runs again. Without them, as after a restart of the
//! process, or with other arguments, as of a trait that sees another status, a later pass calls.

use tokio::time::Instant;

use crate::controllers::oam::functions::http::HttpPermit;
use crate::controllers::oam::functions::{self, objects};
use crate::controllers::oam::reconciler::cluster::Cluster;
use crate::controllers::oam::steps::{Answer, Call, Functions};

const NOT_GET: &str =
    "$params.method is not supported: a component may be rendered at any time; use GET, or a workflow step";

/// The functions for one template.
pub(super) struct RenderFunctions<'x, 'p> {
    cluster: &'x Cluster<'p>,
    /// The permit for requests, from the first request to the last call.
    permit: Option<HttpPermit>,
}

impl<'x, 'p> RenderFunctions<'x, 'p> {
    pub(super) fn new(cluster: &'x Cluster<'p>) -> Self {
        Self { cluster, permit: None }
    }

    /// Returns the answer of an earlier call, or that this one must wait for the next pass.
    fn known(&self, call: &Call) -> Option<Answer> {
        let env = self.cluster.env;
        let mut answers = env.render_answers.lock();
        let wait = |message: &str| Some(Answer::Waiting(message.to_owned()));
        answers.get(call).or_else(|| {
            if Instant::now() >= env.calls_end {
                wait("waiting for the next pass: the calls of this one took half of its time")
            } else if answers.has_waited && call.provider == "http" {
                wait("waiting for other HTTP requests")
            } else {
                None
            }
        })
    }

    async fn answer(&mut self, call: &Call) -> Result<Answer, String> {
        let (cluster, params) = (self.cluster, &call.params);
        let named = functions::cluster(params)?;
        if cluster.env.use_clusters([named.as_str()]).await.is_err() {
            return Ok(Answer::Waiting(format!(
                "waiting for other passes that use cluster {named}"
            )));
        }
        match (call.provider.as_str(), call.function.as_str()) {
            ("kube", "get") => {
                let id = objects::get(params, &cluster.env.name.namespace)?;
                cluster.check_read(&id).await?;
                let read = cluster.objects.read(&id).await;
                if let Ok(Some(live)) = &read {
                    cluster.check_record(&id.cluster, live)?;
                }
                Ok(objects::object_result(&id, read))
            }
            ("kube", "list") => {
                let selection = objects::list(params)?;
                let target = selection.target();
                cluster.check_read(&target).await?;
                let listed = cluster.objects.list(&target, &selection.selector()).await;
                let listed = listed.map(|listed| cluster.without_records(&target.cluster, listed));
                Ok(objects::list_result(&selection, listed))
            }
            ("http", "do") => {
                let method = params["method"].as_str().unwrap_or_default();
                if !matches!(method, "" | "GET") {
                    return Err(NOT_GET.to_owned());
                }
                let requests = &cluster.env.reconciler.http_requests;
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
        if let Some(answer) = self.known(call) {
            return answer;
        }
        let answer = self.answer(call).await.unwrap_or_else(Answer::failed);
        self.cluster.env.render_answers.lock().record(call, answer)
    }
}
