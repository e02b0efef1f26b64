//! The functions of `vela/oam`: the component that a call applies or renders, and the parts of a spec that calls load.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::params::{cluster_name, decode, required};
use crate::api::oam::Component;
use crate::controllers::oam::placement::Place;

#[derive(Debug, PartialEq)]
pub struct ComponentCall {
    pub component: Component,
    pub place: Place,
    /// Waits until the component is healthy.
    pub waits: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params {
    value: Option<Component>,
    cluster: Option<String>,
    namespace: Option<String>,
    env: Option<String>,
    wait_healthy: Option<bool>,
    patch: Option<Value>,
}

/// Decodes the parameters of `#ApplyComponent` and `#RenderComponent`.
///
/// # Errors
/// The parameters are not valid, or name an environment or a patch.
pub fn component_call(params: &Value) -> Result<ComponentCall, String> {
    let Params {
        value,
        cluster,
        namespace,
        env,
        wait_healthy,
        patch,
    } = decode(params)?;
    let component = value.ok_or("$params.value is required")?;
    required(Some(component.name.clone()), "value.name")?;
    required(Some(component.type_.clone()), "value.type")?;
    let cluster = cluster_name(cluster)?;
    if env.is_some_and(|env| !env.is_empty()) {
        return Err("$params.env is not supported: environments are those of policy env-binding".to_owned());
    }
    if patch.is_some_and(|patch| patch.as_object().is_none_or(|patch| !patch.is_empty())) {
        return Err("$params.patch is not supported: change the properties or traits in $params.value".to_owned());
    }
    Ok(ComponentCall {
        component,
        place: Place {
            cluster,
            namespace: namespace.unwrap_or_default(),
            replica_key: String::new(),
        },
        waits: wait_healthy.unwrap_or(true),
    })
}

/// Returns a component without its inputs and outputs, which belong to its step, as KubeVela loads it.
#[must_use]
pub fn without_values(component: &Component) -> Component {
    Component {
        inputs: Vec::new(),
        outputs: Vec::new(),
        ..component.clone()
    }
}

/// Returns the parts of a spec by their names.
///
/// # Errors
/// A part can't be written as JSON.
pub fn named<'n, T: Serialize>(parts: impl Iterator<Item = (&'n str, T)>) -> Result<Value, String> {
    let entries = parts.map(|(name, part)| Ok((name.to_owned(), json(part)?)));
    entries.collect::<Result<Map<_, _>, String>>().map(Value::Object)
}

/// Returns the parts of a spec in order.
///
/// # Errors
/// A part can't be written as JSON.
pub fn listed<T: Serialize>(parts: impl Iterator<Item = T>) -> Result<Value, String> {
    parts.map(json).collect::<Result<_, _>>().map(Value::Array)
}

fn json(part: impl Serialize) -> Result<Value, String> {
    serde_json::to_value(part).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn web() -> Value {
        json!({ "name": "web", "type": "webservice", "properties": { "image": "nginx" } })
    }

    #[test]
    fn a_component_is_applied_in_the_namespace_of_the_application_and_waited_for_by_default() {
        let call = component_call(&json!({ "value": web() })).unwrap();
        let component: Component = serde_json::from_value(web()).unwrap();
        assert_eq!(call.component, component);
        assert_eq!((call.place, call.waits), (Place::default(), true));
        let params = json!({ "value": web(), "cluster": "local", "namespace": "prod", "waitHealthy": false, "env": "",
            "patch": {} });
        let call = component_call(&params).unwrap();
        let place = Place {
            cluster: "local".to_owned(),
            namespace: "prod".to_owned(),
            replica_key: String::new(),
        };
        assert_eq!((call.place, call.waits), (place, false));
        let call = component_call(&json!({ "value": web(), "cluster": "east" })).unwrap();
        assert_eq!(call.place.cluster, "east");
    }

    #[rstest]
    #[case(json!({}), "$params.value is required")]
    #[case(json!({ "value": "web" }), "$params.value has the wrong type")]
    #[case(json!({ "value": { "name": "web" } }), "$params.value.type is required")]
    #[case(json!({ "value": { "type": "webservice" } }), "$params.value.name is required")]
    #[case(json!({ "value": web(), "cluster": "East" }), "$params.cluster is not a valid name of a cluster")]
    #[case(json!({ "value": web(), "env": "prod" }), "env-binding")]
    #[case(json!({ "value": web(), "patch": { "workload": {} } }), "$params.patch is not supported")]
    #[case(json!({ "value": web(), "waitHealthy": "no" }), "$params.waitHealthy has the wrong type")]
    fn what_has_no_effect_here_is_refused_by_name(#[case] params: Value, #[case] why: &str) {
        let error = component_call(&params).unwrap_err();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn loaded_components_have_no_values_of_steps() {
        let mut component: Component = serde_json::from_value(web()).unwrap();
        let values =
            json!({ "inputs": [{ "from": "a", "parameterKey": "b" }], "outputs": [{ "name": "c", "valueFrom": "d" }] });
        let with_values: Component = {
            let mut whole = web();
            whole
                .as_object_mut()
                .unwrap()
                .extend(values.as_object().unwrap().clone());
            serde_json::from_value(whole).unwrap()
        };
        assert_eq!(without_values(&with_values), component);
        component.name = "api".to_owned();
        let both = [without_values(&with_values), component];
        assert_eq!(listed(both.iter()).unwrap()[1]["name"], "api");
        let by_name = named(both.iter().map(|one| (one.name.as_str(), one))).unwrap();
        assert_eq!(by_name["web"], web());
    }
}
