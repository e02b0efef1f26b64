//! Reviews of users, before they get objects from a cache that the controller filled with its own rights.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::identity::Identity;
use crate::controllers::oam::metrics::OamMetrics;
use crate::runtime::kube_client::{ApiError, call};

/// Time for which an answer is valid.
const LIFETIME: Duration = Duration::from_secs(60);
/// Answers of all namespaces. Beyond it, the namespace with most answers loses its oldest.
const MAX_ANSWERS: usize = 4_096;

/// An access to all objects of a resource in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourceAccess {
    pub verb: &'static str,
    pub group: String,
    /// In plural, such as `deployments`.
    pub resource: String,
    /// All namespaces, or a resource without them, if empty.
    pub namespace: String,
}

pub trait Review: Sync {
    fn review(&self, spec: SubjectAccessReviewSpec) -> impl Future<Output = Result<bool, ApiError>> + Send;
}

/// The client must not impersonate: the controller asks about the user.
impl Review for Client {
    async fn review(&self, spec: SubjectAccessReviewSpec) -> Result<bool, ApiError> {
        let review = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let reviewed = call(Api::all(self.clone()).create(&PostParams::default(), &review)).await?;
        let status = reviewed.status;
        Ok(status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}

/// The answers of the last minute. Concurrent questions share a request.
pub struct AccessReviews<R> {
    reviews: R,
    metrics: OamMetrics,
    answers: Mutex<ReviewAnswers>,
}

impl<R: Review> AccessReviews<R> {
    #[must_use]
    pub fn new(reviews: R, metrics: OamMetrics) -> Self {
        Self {
            reviews,
            metrics,
            answers: Mutex::default(),
        }
    }

    /// The caller must not take an error for a permission. Errors are not remembered.
    pub async fn allows(&self, identity: &Identity, access: &ResourceAccess) -> Result<bool, ApiError> {
        let answer = self.answers.lock().get(identity.namespace(), key(identity, access));
        if let Some(is_allowed) = answer.get() {
            self.metrics.count_review("cached");
            return Ok(*is_allowed);
        }
        let review = || async {
            let result = self.reviews.review(spec(identity, access)).await;
            self.metrics.count_review(match result {
                Ok(true) => "allowed",
                Ok(false) => "denied",
                Err(_) => "failed",
            });
            result
        };
        answer.get_or_try_init(review).await.copied()
    }
}

/// A digest, because users and groups may be long.
type Key = [u8; 32];

fn key(identity: &Identity, access: &ResourceAccess) -> Key {
    let groups = identity.groups().iter().map(String::as_str);
    let access = [access.verb, &access.group, &access.resource, &access.namespace];
    let mut hash = Sha256::new();
    for part in std::iter::once(identity.user()).chain(groups).chain(access) {
        hash.update(part);
        hash.update([0]);
    }
    hash.finalize().into()
}

/// Empty until the API server has answered.
type ReviewAnswer = Arc<OnceCell<bool>>;

#[derive(Default)]
struct ReviewAnswers {
    count: usize,
    namespaces: HashMap<String, NamespaceAnswers>,
}

#[derive(Default)]
struct NamespaceAnswers {
    answers: HashMap<Key, (ReviewAnswer, Instant)>,
    /// The oldest first.
    order: VecDeque<Key>,
}

impl ReviewAnswers {
    fn get(&mut self, namespace: &str, key: Key) -> ReviewAnswer {
        let mut answers = self.namespaces.remove(namespace).unwrap_or_default();
        self.count -= answers.remove_expired();
        if let Some((answer, _)) = answers.answers.get(&key) {
            let answer = Arc::clone(answer);
            self.namespaces.insert(namespace.to_owned(), answers);
            return answer;
        }
        let answer = ReviewAnswer::default();
        // An answer is as old as its request.
        answers.answers.insert(key, (Arc::clone(&answer), Instant::now()));
        answers.order.push_back(key);
        self.count += 1;
        self.namespaces.insert(namespace.to_owned(), answers);
        if self.count > MAX_ANSWERS {
            self.evict();
        }
        answer
    }

    /// Removes the oldest answer of the namespace with most answers.
    fn evict(&mut self) {
        let sizes = self.namespaces.iter_mut();
        let largest = sizes.max_by_key(|(_, answers)| answers.order.len());
        let Some((namespace, answers)) = largest else { return };
        answers.remove_oldest();
        self.count -= 1;
        if answers.order.is_empty() {
            let namespace = namespace.clone();
            self.namespaces.remove(&namespace);
        }
    }
}

impl NamespaceAnswers {
    /// Returns the number of answers that it has removed.
    fn remove_expired(&mut self) -> usize {
        let before = self.order.len();
        while let Some((_, at)) = self.order.front().and_then(|key| self.answers.get(key)) {
            if at.elapsed() < LIFETIME {
                break;
            }
            self.remove_oldest();
        }
        before - self.order.len()
    }

    fn remove_oldest(&mut self) {
        if let Some(key) = self.order.pop_front() {
            self.answers.remove(&key);
        }
    }
}

fn spec(identity: &Identity, access: &ResourceAccess) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: Some(identity.user().to_owned()),
        groups: Some(identity.effective_groups()),
        resource_attributes: Some(ResourceAttributes {
            verb: Some(access.verb.to_owned()),
            group: Some(access.group.clone()),
            resource: Some(access.resource.clone()),
            namespace: Some(access.namespace.clone()),
            ..ResourceAttributes::default()
        }),
        ..SubjectAccessReviewSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allows users whose name begins with `a`; fails for `error`.
    #[derive(Default)]
    struct FakeReview {
        specs: Mutex<Vec<SubjectAccessReviewSpec>>,
    }

    impl Review for FakeReview {
        async fn review(&self, spec: SubjectAccessReviewSpec) -> Result<bool, ApiError> {
            let user = spec.user.clone().unwrap();
            self.specs.lock().push(spec);
            tokio::task::yield_now().await;
            match user.as_str() {
                "error" => Err(ApiError::unavailable("no response".to_owned())),
                user => Ok(user.starts_with('a')),
            }
        }
    }

    fn reviews() -> AccessReviews<FakeReview> {
        AccessReviews::new(FakeReview::default(), OamMetrics::default())
    }

    fn user(name: &str) -> Identity {
        Identity::new(name.to_owned(), Vec::new()).unwrap()
    }

    fn get(namespace: &str) -> ResourceAccess {
        ResourceAccess {
            verb: "get",
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            namespace: namespace.to_owned(),
        }
    }

    impl AccessReviews<FakeReview> {
        fn requests(&self) -> usize {
            self.reviews.specs.lock().len()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_valid_for_a_minute_whatever_it_is() {
        for (name, expected) in [("alice", true), ("bob", false)] {
            let reviews = reviews();
            assert_eq!(reviews.allows(&user(name), &get("ns")).await, Ok(expected));
            tokio::time::advance(Duration::from_secs(59)).await;
            assert_eq!(reviews.allows(&user(name), &get("ns")).await, Ok(expected));
            assert_eq!(reviews.requests(), 1);
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(reviews.allows(&user(name), &get("ns")).await, Ok(expected));
            assert_eq!(reviews.requests(), 2);
        }
    }

    #[tokio::test]
    async fn users_groups_verbs_resources_and_namespaces_are_told_apart() {
        let reviews = reviews();
        let (alice, base) = (user("alice"), get("ns"));
        let with_group = Identity::new("alice".to_owned(), vec!["a".to_owned()]).unwrap();
        let list = ResourceAccess {
            verb: "list",
            ..base.clone()
        };
        let group = ResourceAccess {
            group: String::new(),
            ..base.clone()
        };
        let resource = ResourceAccess {
            resource: "pods".to_owned(),
            ..base.clone()
        };
        let questions = [
            (&alice, &base),
            (&with_group, &base),
            (&user("bob"), &base),
            (&alice, &list),
            (&alice, &group),
            (&alice, &resource),
            (&alice, &get("other")),
        ];
        for (identity, access) in questions {
            assert_eq!(reviews.allows(identity, access).await, Ok(identity.user() == "alice"));
        }
        assert_eq!(reviews.requests(), questions.len());
    }

    #[tokio::test]
    async fn an_error_is_no_permission_and_is_not_remembered() {
        let reviews = reviews();
        for expected in 1..=2 {
            assert!(reviews.allows(&user("error"), &get("ns")).await.is_err());
            assert_eq!(reviews.requests(), expected);
        }
    }

    #[tokio::test]
    async fn the_review_names_the_groups_that_the_api_server_would_add() {
        let reviews = reviews();
        let account = user("system:serviceaccount:ns:deployer");
        reviews.allows(&account, &get("ns")).await.unwrap();
        let spec = reviews.reviews.specs.lock().remove(0);
        assert_eq!(spec.groups, Some(account.effective_groups()));
        let attributes = spec.resource_attributes.unwrap();
        assert_eq!(attributes.namespace.as_deref(), Some("ns"));
        assert_eq!((attributes.verb.as_deref(), attributes.name), (Some("get"), None));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_answers_is_bounded_and_the_oldest_is_dropped() {
        let reviews = reviews();
        for number in 0..=MAX_ANSWERS {
            reviews
                .allows(&user("alice"), &get(&format!("ns-{number}")))
                .await
                .unwrap();
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(reviews.answers.lock().count, MAX_ANSWERS);
        let before = reviews.requests();
        reviews.allows(&user("alice"), &get("ns-1")).await.unwrap();
        assert_eq!(reviews.requests(), before);
        reviews.allows(&user("alice"), &get("ns-0")).await.unwrap();
        assert_eq!(reviews.requests(), before + 1);
    }

    #[tokio::test]
    async fn a_namespace_evicts_its_own_answers() {
        let reviews = reviews();
        let honest = user("alice").in_namespace("honest");
        let hostile = user("alice").in_namespace("hostile");
        reviews.allows(&honest, &get("ns")).await.unwrap();
        for number in 0..2 * MAX_ANSWERS {
            reviews.allows(&hostile, &get(&format!("ns-{number}"))).await.unwrap();
        }
        assert_eq!(reviews.answers.lock().count, MAX_ANSWERS);
        let before = reviews.requests();
        reviews.allows(&honest, &get("ns")).await.unwrap();
        assert_eq!(reviews.requests(), before);
        reviews.allows(&hostile, &get("ns")).await.unwrap();
        assert_eq!(reviews.requests(), before + 1, "namespaces share no answers");
    }

    #[tokio::test]
    async fn concurrent_questions_share_a_request() {
        let reviews = reviews();
        let (alice, access) = (user("alice"), get("ns"));
        let both = tokio::join!(reviews.allows(&alice, &access), reviews.allows(&alice, &access));
        assert_eq!(both, (Ok(true), Ok(true)));
        assert_eq!(reviews.requests(), 1);
        let (error, access) = (user("error"), get("ns"));
        let both = tokio::join!(reviews.allows(&error, &access), reviews.allows(&error, &access));
        assert!(both.0.is_err() && both.1.is_err());
        assert_eq!(reviews.requests(), 3, "an error is not shared");
    }
}
