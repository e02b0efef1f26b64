//! Components as they are watched: each kind with its rule, of each object the judgement alone.

use std::fmt;
use std::marker::PhantomData;

use kube::Client;
use serde_json::value::RawValue;

use super::readiness::{Readiness, Rule, Visitor, with_rule};
use crate::runtime::watch::{Events, GroupKind, Project, Reads, Resource, Scope, events};

/// Begins the watch of a kind, whose objects are judged while they are decoded.
#[must_use]
pub fn open(client: Client, kind: &GroupKind, resource: &Resource, scope: &Scope) -> Events<Readiness> {
    let opening = Opening {
        client,
        resource,
        scope,
    };
    with_rule(&kind.group, &kind.kind, opening)
}

struct Opening<'a> {
    client: Client,
    resource: &'a Resource,
    scope: &'a Scope,
}

impl Visitor for Opening<'_> {
    type Output = Events<Readiness>;

    fn visit<R: Rule>(self) -> Events<Readiness> {
        events::<Judged<R>, _>(self.client, self.resource, self.scope, |judged| judged.0)
    }
}

/// What is kept of an object: what its rule says of it.
struct Judged<R>(Readiness, PhantomData<R>);

impl<R: Rule> Project for Judged<R> {
    const READS: Reads = R::READS;

    fn keep(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Self {
        Self(R::judge(generation, spec, status), PhantomData)
    }
}

impl<R> Clone for Judged<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<R> fmt::Debug for Judged<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
