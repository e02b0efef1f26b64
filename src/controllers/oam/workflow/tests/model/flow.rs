//! Random workflows, with the behavior of their steps.

use serde_json::json;

use super::super::{group, step, suspend};
use crate::api::oam::{StepInput, StepOutput, WorkflowStep};
use crate::controllers::oam::workflow::{FailureReason, StepResult};

/// Longer than a run without its timeouts.
pub const TIMEOUT_HOURS: i64 = 1_000;
const MOST_STEPS: usize = 9;

/// The generator splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((value ^ (value >> 31)) % limit as u64).unwrap()
    }

    pub fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Attempt {
    Waits,
    Fails,
    Suspends { ends: bool },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    Succeeds,
    Fails(FailureReason),
    Hangs,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Group { is_dag: Option<bool> },
    Suspend { ends: bool },
    Script { attempts: Vec<Attempt>, end: End },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Condition {
    None,
    Always,
    Constant(bool),
    Error,
    /// That a step which is depended on has failed.
    Failed(usize),
}

#[derive(Clone, Debug)]
pub struct Node {
    pub group: Option<usize>,
    pub kind: Kind,
    /// Some don't exist.
    pub dependencies: Vec<usize>,
    pub input: Option<usize>,
    pub condition: Condition,
    pub has_timeout: bool,
}

#[derive(Debug)]
pub struct Flow {
    pub is_dag: bool,
    pub are_groups_dag: bool,
    /// In flat order.
    pub nodes: Vec<Node>,
}

impl Flow {
    pub fn random(random: &mut Random) -> Self {
        let mut groups = Vec::new();
        while groups.len() < 1 + random.below(MOST_STEPS) {
            groups.push(None);
            if random.one_in(3) {
                let group = Some(groups.len() - 1);
                groups.extend((0..random.below(4)).map(|_| group));
            }
        }
        let is_group = |step: usize, random: &mut Random| {
            groups.get(step + 1) == Some(&Some(step)) || (groups[step].is_none() && random.one_in(20))
        };
        let kinds: Vec<Kind> = (0..groups.len())
            .map(|step| {
                if is_group(step, random) {
                    Kind::Group {
                        is_dag: [None, Some(true), Some(false)][random.below(3)],
                    }
                } else {
                    leaf(random)
                }
            })
            .collect();
        let mut order: Vec<usize> = (0..groups.len()).collect();
        for step in 1..order.len() {
            order.swap(step, random.below(step + 1));
        }
        if random.one_in(3) {
            order.sort_unstable();
        }
        let mut flow = Self {
            is_dag: random.one_in(2),
            are_groups_dag: random.one_in(2),
            nodes: Vec::new(),
        };
        for (step, kind) in kinds.into_iter().enumerate() {
            let group = groups[step];
            flow.nodes.push(Node {
                group,
                kind,
                dependencies: (0..random.below(3))
                    .filter_map(|_| other(step, &order, random))
                    .collect(),
                input: random.one_in(4).then(|| other(step, &order, random)).flatten(),
                condition: Condition::None,
                has_timeout: random.one_in(3),
            });
        }
        for step in 0..flow.nodes.len() {
            flow.add_condition(step, random);
        }
        flow
    }

    /// Adds a condition. It doesn't depend on the time at which a group ends.
    fn add_condition(&mut self, step: usize, random: &mut Random) {
        let group = self.nodes[step].group;
        let may_time_out = group.is_some_and(|group| self.nodes[group].has_timeout);
        if may_time_out {
            let groups: Vec<Option<usize>> = self.nodes.iter().map(|node| node.group).collect();
            self.nodes[step]
                .dependencies
                .retain(|other| groups.get(*other) == Some(&group));
        }
        let node = &mut self.nodes[step];
        node.condition = match (random.below(8), node.dependencies.first()) {
            (0..3, _) => Condition::None,
            (3, _) => Condition::Always,
            (4, _) => Condition::Constant(true),
            (5, _) if random.one_in(2) => Condition::Constant(false),
            (5, _) => Condition::Error,
            (_, Some(other)) if !may_time_out => Condition::Failed(*other),
            _ => Condition::None,
        };
    }

    pub fn name(step: usize) -> String {
        format!("s{step}")
    }

    pub fn members(&self, group: Option<usize>) -> Vec<usize> {
        let steps = 0..self.nodes.len();
        steps.filter(|step| self.nodes[*step].group == group).collect()
    }

    pub fn is_dag(&self, group: Option<usize>) -> bool {
        match group.map(|group| &self.nodes[group].kind) {
            Some(Kind::Group { is_dag }) => is_dag.unwrap_or(self.are_groups_dag),
            _ => self.is_dag,
        }
    }

    pub fn mode(&self) -> String {
        let text = |is_dag| if is_dag { "DAG" } else { "StepByStep" };
        format!("{}-{}", text(self.is_dag), text(self.are_groups_dag))
    }

    pub fn steps(&self) -> Vec<WorkflowStep> {
        let steps = self.members(None).into_iter();
        steps.map(|step| self.step(step)).collect()
    }

    fn step(&self, number: usize) -> WorkflowStep {
        let node = &self.nodes[number];
        let name = Self::name(number);
        let mut new = match &node.kind {
            Kind::Group { is_dag } => {
                let members = self.members(Some(number)).into_iter();
                let mut new = group(&name, members.map(|member| self.step(member)));
                let mode = is_dag.map(|is_dag| if is_dag { "DAG" } else { "StepByStep" });
                mode.unwrap_or_default().clone_into(&mut new.mode);
                new
            }
            Kind::Suspend { ends: true } => suspend(&name, json!({"duration": "3s"})),
            Kind::Suspend { ends: false } => suspend(&name, json!({})),
            // Events start steps of one type at once, and those of the other once a second.
            Kind::Script { .. } => WorkflowStep {
                type_: ["apply-component", "request"][number % 2].to_owned(),
                ..step(&name, &[])
            },
        };
        new.depends_on = node.dependencies.iter().map(|other| Self::name(*other)).collect();
        new.inputs = Vec::from_iter(node.input.map(|other| StepInput {
            from: format!("out{other}"),
            parameter_key: String::new(),
        }));
        new.outputs = vec![StepOutput {
            name: format!("out{number}"),
            value_from: "x".to_owned(),
        }];
        new.condition = match node.condition {
            Condition::None => String::new(),
            Condition::Always => "always".to_owned(),
            Condition::Constant(value) => value.to_string(),
            Condition::Error => "error".to_owned(),
            Condition::Failed(other) => format!("status.{}.failed", Self::name(other)),
        };
        if node.has_timeout {
            new.timeout = format!("{TIMEOUT_HOURS}h");
        }
        new
    }
}

/// Returns another step: mostly one that comes before in an order without cycles, else any, or none.
fn other(step: usize, order: &[usize], random: &mut Random) -> Option<usize> {
    if random.one_in(12) {
        return Some(random.below(order.len() + 1));
    }
    let before = order.iter().position(|other| *other == step)?;
    (before > 0).then(|| order[random.below(before)])
}

fn leaf(random: &mut Random) -> Kind {
    if random.one_in(8) {
        return Kind::Suspend { ends: random.one_in(2) };
    }
    let attempts = (0..random.below(5)).map(|_| match random.below(6) {
        0 => Attempt::Suspends { ends: random.one_in(2) },
        1..4 => Attempt::Waits,
        _ => Attempt::Fails,
    });
    let attempts = attempts.collect();
    let end = match random.below(12) {
        0 => End::Fails(FailureReason::Input),
        1 => End::Fails(FailureReason::Action),
        2 => End::Hangs,
        _ => End::Succeeds,
    };
    Kind::Script { attempts, end }
}

impl Kind {
    /// The result of an attempt.
    pub fn result(&self, attempt: usize) -> StepResult {
        let Kind::Script { attempts, end } = self else {
            unreachable!("groups and suspensions run in the engine");
        };
        let failed = |reason| StepResult::Failed {
            reason,
            message: "failed".to_owned(),
        };
        let waiting = StepResult::Waiting {
            message: "wait".to_owned(),
        };
        match (attempts.get(attempt), end) {
            (Some(Attempt::Waits), _) | (None, End::Hangs) => waiting,
            (Some(Attempt::Fails), _) => failed(FailureReason::Execute),
            (Some(Attempt::Suspends { ends }), _) => StepResult::Suspended {
                message: String::new(),
                duration: ends.then(|| std::time::Duration::from_secs(3)),
            },
            (None, End::Fails(reason)) => failed(*reason),
            (None, End::Succeeds) => super::super::output(json!(1)),
        }
    }
}
