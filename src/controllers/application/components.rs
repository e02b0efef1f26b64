//! Watches of components that keep the readiness of each object instead of its spec and status.

use std::fmt;
use std::marker::PhantomData;

use kube::Client;
use serde_json::value::RawValue;

use super::readiness::{Readiness, ReadinessRule, Visitor, with_rule};
use crate::runtime::watch::{FieldSet, GroupKind, ObjectEvents, Project, Resource, Scope, events};

/// Starts the watch of a kind. Readiness is evaluated while objects are decoded.
#[must_use]
pub fn open(client: Client, kind: &GroupKind, resource: &Resource, scope: &Scope) -> ObjectEvents<Readiness> {
    let opener = WatchOpener {
        client,
        resource,
        scope,
    };
    with_rule(&kind.group, &kind.kind, opener)
}

struct WatchOpener<'a> {
    client: Client,
    resource: &'a Resource,
    scope: &'a Scope,
}

impl Visitor for WatchOpener<'_> {
    type Output = ObjectEvents<Readiness>;

    fn visit<R: ReadinessRule>(self) -> ObjectEvents<Readiness> {
        events::<Projected<R>, _>(self.client, self.resource, self.scope, |projected| projected.0)
    }
}

struct Projected<R>(Readiness, PhantomData<R>);

impl<R: ReadinessRule> Project for Projected<R> {
    const FIELDS: FieldSet = R::FIELDS;

    fn project(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Self {
        Self(R::readiness(generation, spec, status), PhantomData)
    }
}

impl<R> Clone for Projected<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<R> fmt::Debug for Projected<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
