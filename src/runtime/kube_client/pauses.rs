//! Pauses that the API server asked for with a 429.
//!
//! API Priority and Fairness judges the impersonated user, which a tenant may choose. A pause of one user therefore delays
//! no other user; only a pause of this process itself delays all requests.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use axum::http::{HeaderName, Method, Request};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::request_limits::requester;

const USER: HeaderName = HeaderName::from_static("impersonate-user");
/// Users whose pauses are remembered. The refused requests of further users wait, their other requests do not.
const MAX_USERS: usize = 1_024;

/// Kinds of requests that the API server limits separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Verb {
    Get,
    List,
    Write,
}

impl Verb {
    pub(super) fn of(request: &Request<Body>) -> Self {
        if request.method() != Method::GET {
            Self::Write
        } else if requester(request.method(), request.uri()).object.is_empty() {
            Self::List
        } else {
            Self::Get
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flow {
    /// A hash of the impersonated user, whose name may be long; `None` for this process.
    user: Option<u64>,
    verb: Verb,
}

impl Flow {
    pub(super) const fn is_impersonated(self) -> bool {
        self.user.is_some()
    }
}

#[derive(Default)]
pub(super) struct Pauses {
    /// Seeded at random, so that no tenant can choose a name with the hash of another.
    hasher: RandomState,
    ends: Mutex<HashMap<Flow, Instant>>,
}

impl Pauses {
    pub(super) fn flow_of(&self, request: &Request<Body>) -> Flow {
        Flow {
            user: request.headers().get(USER).map(|user| self.hasher.hash_one(user)),
            verb: Verb::of(request),
        }
    }

    pub(super) fn add(&self, flow: Flow, end: Instant) {
        let mut ends = self.ends.lock();
        if flow.is_impersonated() && ends.len() >= MAX_USERS {
            let now = Instant::now();
            ends.retain(|_, end| *end > now);
            if ends.len() >= MAX_USERS {
                return;
            }
        }
        let latest = ends.entry(flow).or_insert(end);
        *latest = (*latest).max(end);
    }

    pub(super) fn end_of(&self, flow: Flow) -> Option<Instant> {
        let ends = self.ends.lock();
        let of_all = Flow { user: None, ..flow };
        let end = [flow, of_all].iter().filter_map(|flow| ends.get(flow)).max();
        end.copied().filter(|end| *end > Instant::now())
    }

    pub(super) async fn wait(&self, flow: Flow) {
        while let Some(end) = self.end_of(flow) {
            sleep_until(end).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn request(method: Method, user: &str) -> Request<Body> {
        let request = Request::builder().method(method).uri("/api/v1/namespaces/sea/pods/a");
        let request = if user.is_empty() {
            request
        } else {
            request.header(USER, user)
        };
        request.body(Body::empty()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_belongs_to_its_user_and_verb_and_that_of_the_process_to_all() {
        let pauses = Pauses::default();
        let is_paused = |method: Method, user| pauses.end_of(pauses.flow_of(&request(method, user))).is_some();
        let end = Instant::now() + Duration::from_secs(3);
        pauses.add(pauses.flow_of(&request(Method::PATCH, "eve")), end);
        assert!(is_paused(Method::PATCH, "eve") && is_paused(Method::DELETE, "eve"));
        for (method, user) in [(Method::GET, "eve"), (Method::PATCH, "ann"), (Method::PATCH, "")] {
            assert!(!is_paused(method.clone(), user), "{method} {user}");
        }
        pauses.add(pauses.flow_of(&request(Method::GET, "")), end);
        assert!(is_paused(Method::GET, "ann") && is_paused(Method::GET, ""));
        assert!(!is_paused(Method::PATCH, "ann"));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(!is_paused(Method::PATCH, "eve") && !is_paused(Method::GET, ""));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_users_is_bounded_and_those_whose_pause_is_over_make_room() {
        let pauses = Pauses::default();
        let flow = |user: usize| pauses.flow_of(&request(Method::PATCH, &format!("user-{user}")));
        let end = Instant::now() + Duration::from_secs(3);
        for user in 0..2 * MAX_USERS {
            pauses.add(flow(user), end);
        }
        assert_eq!(pauses.ends.lock().len(), MAX_USERS);
        pauses.add(pauses.flow_of(&request(Method::PATCH, "")), end);
        assert!(pauses.end_of(flow(2 * MAX_USERS)).is_some(), "that of the process");
        tokio::time::advance(Duration::from_secs(3)).await;
        pauses.add(flow(0), Instant::now() + Duration::from_secs(3));
        assert_eq!(pauses.ends.lock().len(), 1);
    }
}
