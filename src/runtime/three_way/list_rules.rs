//! Rules of the API for merging and comparing fields: keys of lists, unions, quantities.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

/// The groups of the API server itself. Other groups are custom resources, whose lists are replaced as a whole.
pub const BUILT_IN_GROUPS: [&str; 22] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// The rules, by type. A test compares them with the OpenAPI document of an API server.
pub const TABLE: &str = include_str!("list_rules.txt");
const OBJECT_META: &str = "meta.v1.ObjectMeta";
const QUANTITIES: &str = "quantities";

static TYPES: LazyLock<HashMap<&str, HashMap<&str, RuleField>>> = LazyLock::new(|| parse(TABLE));

#[derive(Clone, Copy)]
pub(super) struct Kind {
    fields: RuleFields,
    is_secret: bool,
}

impl Kind {
    pub fn of(object: &Value) -> Self {
        let text = |name| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let is_built_in = BUILT_IN_GROUPS.contains(&group);
        let name = type_name(group, version, kind);
        let entry = TYPES.get_key_value(name.as_str()).filter(|_| is_built_in);
        Self {
            fields: RuleFields {
                name: entry.map(|(name, _)| *name),
                is_root: true,
                is_built_in,
            },
            is_secret: api_version == "v1" && kind == "Secret",
        }
    }

    pub fn fields(self) -> RuleFields {
        self.fields
    }

    pub fn is_built_in(self) -> bool {
        self.fields.is_built_in
    }

    pub fn is_secret(self) -> bool {
        self.is_secret
    }
}

/// Returns the name of a kind in the table: the first label of its group, version and kind.
#[must_use]
pub fn type_name(group: &str, version: &str, kind: &str) -> String {
    let group = match group.split('.').next() {
        None | Some("") => "core",
        Some(label) => label,
    };
    format!("{group}.{version}.{kind}")
}

/// The fields of a type that have rules, or lead to fields that do.
#[derive(Clone, Copy)]
pub(super) struct RuleFields {
    name: Option<&'static str>,
    is_root: bool,
    is_built_in: bool,
}

impl RuleFields {
    pub fn rule(self, field: &str) -> Rule {
        let child = |name| Self {
            name,
            is_root: false,
            ..self
        };
        if self.is_root && field == "metadata" {
            return Rule {
                fields: child(Some(OBJECT_META)),
                ..Rule::default(self)
            };
        }
        if self.name == Some(QUANTITIES) {
            return Rule {
                is_quantity: true,
                ..Rule::default(child(None))
            };
        }
        let entry = self
            .name
            .and_then(|name| TYPES.get(name))
            .and_then(|fields| fields.get(field));
        entry.map_or(Rule::default(child(None)), |field| field.rule(child(field.value_type)))
    }
}

#[derive(Clone, Copy)]
pub(super) struct Rule {
    pub list: ListRule,
    /// Unnamed members are removed when a member changes (`retainKeys`): they belong to another variant.
    pub is_union: bool,
    pub is_quantity: bool,
    pub is_built_in: bool,
    /// The fields of the object, or of the elements of the list.
    pub fields: RuleFields,
}

impl Rule {
    fn default(fields: RuleFields) -> Self {
        let is_built_in = fields.is_built_in;
        Self {
            list: ListRule::Atomic,
            is_union: false,
            is_quantity: false,
            is_built_in,
            fields,
        }
    }

    pub fn of_elements(self) -> Self {
        Self {
            list: ListRule::Atomic,
            ..self
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum ListRule {
    /// Replaced as a whole.
    Atomic,
    /// Elements are values, each once.
    Set,
    /// Elements are objects with these keys.
    Map(&'static [RuleKey]),
}

pub(super) struct RuleKey {
    pub name: &'static str,
    /// The value that the API server sets if the key is absent.
    pub default: Option<&'static str>,
}

struct RuleField {
    is_set: bool,
    is_union: bool,
    is_quantity: bool,
    keys: Vec<RuleKey>,
    value_type: Option<&'static str>,
}

impl RuleField {
    fn rule(&'static self, fields: RuleFields) -> Rule {
        Rule {
            list: match (self.keys.as_slice(), self.is_set) {
                ([], false) => ListRule::Atomic,
                ([], true) => ListRule::Set,
                (keys, _) => ListRule::Map(keys),
            },
            is_union: self.is_union,
            is_quantity: self.is_quantity,
            ..Rule::default(fields)
        }
    }
}

/// Parses lines with a type, each followed by indented lines `field [set] [union] [quantity] [keys=a,b] [type]`.
fn parse(table: &'static str) -> HashMap<&'static str, HashMap<&'static str, RuleField>> {
    let mut types: HashMap<&str, HashMap<&str, RuleField>> = HashMap::new();
    let mut current = "";
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        if line.starts_with(' ') {
            types.entry(current).or_default().insert(name, parse_field(words));
        } else {
            current = name;
        }
    }
    types
}

fn parse_field(words: impl Iterator<Item = &'static str>) -> RuleField {
    let mut field = RuleField {
        is_set: false,
        is_union: false,
        is_quantity: false,
        keys: Vec::new(),
        value_type: None,
    };
    for word in words {
        match (word, word.strip_prefix("keys=")) {
            ("set", _) => field.is_set = true,
            ("union", _) => field.is_union = true,
            ("quantity", _) => {
                field.is_quantity = true;
                field.value_type = Some(QUANTITIES);
            }
            (_, Some(keys)) => field.keys = keys.split(',').map(parse_key).collect(),
            (name, None) => field.value_type = Some(name),
        }
    }
    field
}

/// The API server sets the protocol of a port that has none.
fn parse_key(name: &'static str) -> RuleKey {
    RuleKey {
        name,
        default: (name == "protocol").then_some("TCP"),
    }
}
