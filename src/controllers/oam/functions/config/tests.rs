use std::collections::BTreeMap;

use parking_lot::Mutex;
use rstest::rstest;

use super::*;
use crate::cue::{CueSource, TextErrors};

/// Configs in memory.
#[derive(Default)]
struct FakeStore {
    secrets: Mutex<BTreeMap<(String, String), Secret>>,
    templates: BTreeMap<(String, String), ConfigMap>,
    applied: Mutex<Vec<String>>,
    objects: Mutex<Vec<Value>>,
    /// The answer of each write.
    error: Option<ApiError>,
}

impl FakeStore {
    fn with_secret(secret: Value) -> Self {
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let key = (
            secret.metadata.namespace.clone().unwrap(),
            secret.metadata.name.clone().unwrap(),
        );
        Self {
            secrets: Mutex::new(BTreeMap::from([(key, secret)])),
            ..Self::default()
        }
    }

    fn with_template(namespace: &str, name: &str, template: Value) -> Self {
        let key = (namespace.to_owned(), format!("config-template-{name}"));
        Self {
            templates: BTreeMap::from([(key, serde_json::from_value(template).unwrap())]),
            ..Self::default()
        }
    }

    fn secret(&self, name: &str) -> Value {
        let secrets = self.secrets.lock();
        serde_json::to_value(&secrets[&("ns".to_owned(), name.to_owned())]).unwrap()
    }

    fn failure(&self) -> Result<(), ApiError> {
        self.error.clone().map_or(Ok(()), Err)
    }
}

impl Secrets for FakeStore {
    async fn get(&self, namespace: &str, name: &str) -> Result<Option<Secret>, ApiError> {
        Ok(self
            .secrets
            .lock()
            .get(&(namespace.to_owned(), name.to_owned()))
            .cloned())
    }
}

impl ConfigStore for FakeStore {
    async fn list(&self, namespace: &str, labels: &[(&str, &str)], next: Option<&str>) -> Result<SecretPage, ApiError> {
        let has_all = |secret: &Secret| {
            let present = secret.metadata.labels.clone().unwrap_or_default();
            labels
                .iter()
                .all(|(name, value)| present.get(*name).is_some_and(|found| found == value))
        };
        let secrets = self.secrets.lock();
        let listed = secrets
            .iter()
            .filter(|((of, _), secret)| of == namespace && has_all(secret));
        let start = next.map_or(0, |next| next.parse().unwrap());
        let mut remaining = listed.map(|(_, secret)| secret.clone()).skip(start).peekable();
        let secrets: Vec<Secret> = remaining.by_ref().take(PAGE as usize).collect();
        let next = remaining.peek().map(|_| (start + secrets.len()).to_string());
        Ok(SecretPage { secrets, next })
    }

    async fn apply(&self, secret: &Secret, objects: Vec<Value>) -> Result<(), ApiError> {
        self.failure()?;
        self.objects.lock().extend(objects);
        let (namespace, name) = (secret.metadata.namespace.clone(), secret.metadata.name.clone());
        self.applied.lock().push(name.clone().unwrap());
        let mut stored = secret.clone();
        stored.type_.get_or_insert_with(|| "Opaque".to_owned());
        let texts = stored.string_data.take().unwrap_or_default().into_iter();
        let texts = texts.map(|(key, text)| (key, k8s_openapi::ByteString(text.into_bytes())));
        stored.data.get_or_insert_default().extend(texts);
        self.secrets.lock().insert((namespace.unwrap(), name.unwrap()), stored);
        Ok(())
    }

    async fn delete(&self, namespace: &str, name: &str, secret: &Secret) -> Result<(), ApiError> {
        self.failure()?;
        let key = (namespace.to_owned(), name.to_owned());
        assert_eq!(
            self.secrets.lock().remove(&key).unwrap().metadata.uid,
            secret.metadata.uid
        );
        Ok(())
    }

    fn default_namespace(&self) -> &str {
        "vela-system"
    }

    async fn template(&self, namespace: &str, name: &str) -> Result<Option<ConfigMap>, ApiError> {
        Ok(self.templates.get(&(namespace.to_owned(), name.to_owned())).cloned())
    }
}

/// Answers each evaluation, and records the source.
struct FakeEvaluator {
    answer: Result<Value, &'static str>,
    sources: Mutex<Vec<String>>,
}

impl FakeEvaluator {
    fn new(answer: Result<Value, &'static str>) -> Self {
        Self {
            answer,
            sources: Mutex::default(),
        }
    }

    /// An evaluator that is not needed.
    fn unused() -> Self {
        Self::new(Err("not expected"))
    }
}

impl Evaluate for FakeEvaluator {
    type Error = &'static str;

    async fn evaluate(&self, source: CueSource) -> Result<Value, &'static str> {
        self.sources.lock().push(source.text().to_owned());
        self.answer.clone()
    }

    fn is_stopped(_: &&'static str) -> bool {
        false
    }

    fn text_errors(error: &&'static str) -> Option<TextErrors> {
        Some(TextErrors::from_text(*error))
    }
}

fn message(answer: Answer) -> String {
    match answer {
        Answer::Failed { message, .. } => message,
        other => panic!("{other:?}"),
    }
}

fn done() -> Answer {
    Answer::Returned(json!({}))
}

fn params(name: &str) -> Value {
    json!({"name": name, "namespace": "ns", "config": {"password": "hunter2"}})
}

fn with_template(template: &str) -> Value {
    let mut params = params("db");
    params["template"] = json!(template);
    params
}

fn config(name: &str, properties: &str, annotations: Value) -> Value {
    let data = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, properties);
    json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": "uid-1", "annotations": annotations,
            "labels": {"config.oam.dev/catalog": "velacore-config", "config.oam.dev/type": "mysql"},
        },
        "type": "/mysql",
        "data": {"input-properties": data},
    })
}

fn template(text: &str) -> Value {
    json!({
        "metadata": {
            "labels": {"config.oam.dev/catalog": "velacore-config", "config.oam.dev/scope": "project"},
            "annotations": {"config.oam.dev/sensitive": "true"},
        },
        "data": {"template": text, "expanded-writer": "{}\n"},
    })
}

#[tokio::test]
async fn a_config_without_a_template_is_a_secret_as_kubevela_writes_it() {
    let store = FakeStore::default();
    let evaluator = FakeEvaluator::unused();
    assert_eq!(create(&params("db"), &store, &evaluator).await, done());
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": "ns", "name": "db",
            "labels": {"config.oam.dev/catalog": "velacore-config", "config.oam.dev/type": ""},
            "annotations": {"config.oam.dev/alias": "", "config.oam.dev/description": ""},
        },
        "type": "Opaque",
        // {"password":"hunter2"}
        "data": {"input-properties": "eyJwYXNzd29yZCI6Imh1bnRlcjIifQ=="},
    });
    assert_eq!(store.secret("db"), expected);
    let mut changed = params("db");
    changed["config"]["password"] = json!("other");
    assert_eq!(create(&changed, &store, &evaluator).await, done());
    assert_eq!(
        read(&params("db"), &store).await,
        Answer::Returned(json!({"config": {"password": "other"}}))
    );
}

#[tokio::test]
async fn a_config_with_a_template_is_what_the_template_renders_and_its_labels() {
    let text = "import \"strings\"\nmetadata: name: \"mysql\"\ntemplate: {output: {}, parameter: {password: string}}";
    let store = FakeStore::with_template("vela-system", "mysql", template(text));
    let output = json!({"metadata": {"labels": {"a": "b"}}, "stringData": {"pw": "hunter2"}});
    let evaluator = FakeEvaluator::new(Ok(json!({"output": output})));
    // The second time, it is an update.
    for _ in 0..2 {
        assert_eq!(create(&with_template("mysql"), &store, &evaluator).await, done());
    }
    let secret = store.secret("db");
    let labels = json!({
        "a": "b",
        "config.oam.dev/catalog": "velacore-config",
        "config.oam.dev/type": "mysql",
        "config.oam.dev/scope": "project",
    });
    assert_eq!(secret["metadata"]["labels"], labels);
    let annotations = json!({
        "config.oam.dev/alias": "",
        "config.oam.dev/description": "",
        "config.oam.dev/sensitive": "true",
        "config.oam.dev/template-namespace": "vela-system",
    });
    assert_eq!(secret["metadata"]["annotations"], annotations);
    assert_eq!(
        (secret["type"].as_str(), secret["data"]["pw"].as_str()),
        (Some("/mysql"), Some("aHVudGVyMg=="))
    );
    let source = evaluator.sources.lock()[0].clone();
    assert!(source.starts_with("import \"strings\""), "{source}");
    assert!(
        source.contains(r#"_vela: context: {"name":"db","namespace":"ns"}"#),
        "{source}"
    );
    assert!(
        source.contains(r#"_vela: template: parameter: {"password":"hunter2"}"#),
        "{source}"
    );
}

#[tokio::test]
async fn objects_beside_the_secret_are_applied_with_it_and_recorded_as_kubevela_does() {
    let store = FakeStore::with_template("vela-system", "mysql", template(""));
    let object = |name: &str, namespace: Value| json!({"apiVersion": "a/v1", "kind": "Provider", "metadata": {"name": name, "namespace": namespace}});
    let outputs = json!({"one": object("one", json!("default")), "two": object("two", json!(null))});
    let evaluator = FakeEvaluator::new(Ok(json!({"output": {}, "outputs": outputs})));
    assert_eq!(create(&with_template("mysql"), &store, &evaluator).await, done());
    let expected = [object("one", json!("default")), object("two", json!("ns"))];
    assert_eq!(*store.objects.lock(), expected);
    let secret = store.secret("db");
    let recorded = secret["data"]["objects-reference"].as_str().unwrap();
    let recorded = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, recorded).unwrap();
    let references: Value = serde_json::from_slice(&recorded).unwrap();
    assert_eq!(
        references[1],
        json!({"apiVersion": "a/v1", "kind": "Provider", "name": "two", "namespace": "ns"})
    );
    let refused = message(delete(&params("db"), &store).await);
    assert!(refused.contains("has further objects"), "{refused}");
}

#[rstest]
#[case::missing("ns/other", json!({}), Ok(json!({})), "does not exist")]
#[case::function("ns/mysql", template("import \"vela/http\"\ntemplate: {}"), Ok(json!({})), "calls functions")]
#[case::syntax("ns/mysql", template("template: {"), Ok(json!({})), "is invalid")]
#[case::writer("ns/mysql", json!({"data": {"expanded-writer": "nacos: {a: b}"}}), Ok(json!({})), "other destinations")]
#[case::hostile_secret(
    "ns/mysql",
    template(""),
    Ok(json!({"output": {"metadata": {"name": "../../kube-system/secrets/hunter2"}}})),
    "the name of the Secret"
)]
#[case::outputs("ns/mysql", template(""), Ok(json!({"outputs": true})), "are not up to 10 objects")]
#[case::output("ns/mysql", template(""), Ok(json!({"outputs": {"a": {"kind": "hunter2"}}})), "are not up to 10 objects")]
#[case::no_secret("ns/mysql", template(""), Ok(json!({"output": {"data": {"a": "hunter2!"}}})), "is not a Secret")]
#[case::validation("ns/mysql", template(""), Ok(json!({"message": "hunter2 is weak"})), "[redacted] is weak")]
#[case::invalid(
    "ns/mysql",
    template(""),
    Err("template.parameter.password: conflicting values \"hunter2\" and int"),
    "template.parameter.password"
)]
#[case::invalid_without_path(
    "ns/mysql",
    template(""),
    Err("conflicting values \"hunter2\" and int"),
    "refuses the config"
)]
#[case::hostile_name("ns/../kube-system", json!({}), Ok(json!({})), "$params.template")]
#[tokio::test]
async fn a_template_that_cannot_be_used_is_an_error_without_values(
    #[case] reference: &str,
    #[case] template: Value,
    #[case] answer: Result<Value, &'static str>,
    #[case] why: &str,
) {
    let store = FakeStore::with_template("ns", "mysql", template);
    let answer = create(&with_template(reference), &store, &FakeEvaluator::new(answer)).await;
    let message = message(answer);
    assert!(message.contains(why) && !message.contains("hunter2"), "{message}");
    assert!(store.applied.lock().is_empty());
}

#[rstest]
#[case(json!({"metadata": {"namespace": "ns", "name": "db"}}), "exists and is not a config")]
#[case(config("db", "{}", json!({})), "the template of the config can not be changed")]
#[case(json!({"metadata": {"namespace": "ns", "name": "db", "labels": {"config.oam.dev/catalog": "velacore-config"}}, "type": "other"}), "secret type")]
#[tokio::test]
async fn another_secret_is_not_overwritten(#[case] existing: Value, #[case] why: &str) {
    let store = FakeStore::with_secret(existing);
    let message = message(create(&params("db"), &store, &FakeEvaluator::unused()).await);
    assert!(message.contains(why), "{message}");
    assert!(store.applied.lock().is_empty());
}

#[tokio::test]
async fn all_pages_of_configs_are_listed_up_to_a_limit() {
    let store = FakeStore::default();
    let add = |number: usize| {
        let secret = config(&format!("db-{number:04}"), "{}", json!({}));
        let secret = FakeStore::with_secret(secret).secrets.into_inner();
        store.secrets.lock().extend(secret);
    };
    let most = MAX_PAGES * PAGE as usize;
    (0..most).for_each(add);
    let params = json!({"namespace": "ns", "template": "mysql"});
    let Answer::Returned(value) = list(&params, &store).await else {
        panic!("not listed");
    };
    let configs = value["configs"].as_array().unwrap();
    assert_eq!((configs.len(), &configs[most - 1]["name"]), (most, &json!("db-0999")));
    add(most);
    let message = message(list(&params, &store).await);
    assert!(message.contains("more than 1000 configs"), "{message}");
}

#[tokio::test]
async fn configs_of_a_template_are_listed_by_name_without_sensitive_properties() {
    let store = FakeStore::default();
    let annotated = json!({"config.oam.dev/alias": "A", "config.oam.dev/description": "D"});
    for secret in [
        config("b", r#"{"x": 1}"#, annotated),
        config("a", r#"{"x": "hunter2"}"#, json!({"config.oam.dev/sensitive": "true"})),
        config("broken", "hunter2", json!({})),
    ] {
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let key = ("ns".to_owned(), secret.metadata.name.clone().unwrap());
        store.secrets.lock().insert(key, secret);
    }
    for template in ["mysql", "vela-system/mysql"] {
        let expected = json!({"configs": [
            {"name": "a", "alias": "", "description": "", "config": null},
            {"name": "b", "alias": "A", "description": "D", "config": {"x": 1}},
        ]});
        let listed = list(&json!({"namespace": "ns", "template": template}), &store).await;
        assert_eq!(listed, Answer::Returned(expected));
    }
    let other = list(&json!({"namespace": "ns", "template": "other"}), &store).await;
    assert_eq!(other, Answer::Returned(json!({"configs": []})));
}

#[tokio::test]
async fn a_list_larger_than_the_limit_is_an_error() {
    let store = FakeStore::default();
    for number in 0..=1_000 {
        let secret: Secret = serde_json::from_value(config(&format!("c{number}"), "{}", json!({}))).unwrap();
        let key = ("ns".to_owned(), format!("c{number}"));
        store.secrets.lock().insert(key, secret);
    }
    let listed = list(&json!({"namespace": "ns", "template": "mysql"}), &store).await;
    assert!(message(listed).contains("more than 1000"));
}

#[rstest]
#[case(json!({"metadata": {"namespace": "ns", "name": "db"}, "data": {"input-properties": "aHVudGVyMg=="}}), "is not a config")]
#[case(config("db", "hunter2", json!({})), "no valid properties")]
#[case(config("db", r#"{"a": "hunter2"}"#, json!({"config.oam.dev/sensitive": "true"})), "is sensitive")]
#[case(config("other", "{}", json!({})), "not found")]
#[tokio::test]
async fn a_config_that_cannot_be_read_is_an_error_without_values(#[case] existing: Value, #[case] why: &str) {
    let message = message(read(&params("db"), &FakeStore::with_secret(existing)).await);
    assert!(message.contains(why) && !message.contains("hunter2"), "{message}");
}

#[tokio::test]
async fn only_configs_without_further_objects_are_deleted() {
    let mut with_objects = config("db", "{}", json!({}));
    // [{"kind":"ConfigMap"}]
    with_objects["data"]["objects-reference"] = json!("W3sia2luZCI6IkNvbmZpZ01hcCJ9XQ==");
    let other = json!({"metadata": {"namespace": "ns", "name": "db"}});
    for (existing, why) in [(with_objects, "further objects"), (other, "is not a config")] {
        let store = FakeStore::with_secret(existing);
        let message = message(delete(&params("db"), &store).await);
        assert!(message.contains(why) && store.secrets.lock().len() == 1, "{message}");
    }
    let store = FakeStore::with_secret(config("db", "{}", json!({})));
    assert_eq!(delete(&params("db"), &store).await, done());
    assert!(message(delete(&params("db"), &store).await).contains("not found"));
}

#[tokio::test]
async fn what_the_api_server_quotes_of_an_invalid_secret_is_not_repeated() {
    let store = FakeStore {
        error: Some(ApiError::bad_request("data[a]: Invalid value: hunter2".to_owned())),
        ..FakeStore::default()
    };
    let message = message(create(&params("db"), &store, &FakeEvaluator::unused()).await);
    assert!(
        message.contains("refuses it as invalid (400)") && !message.contains("hunter2"),
        "{message}"
    );
}

#[rstest]
#[case(json!(["hunter2"]), "$params is not a struct")]
#[case(json!({"namespace": "ns"}), "$params.name is required")]
#[case(json!({"name": "db"}), "$params.namespace is required")]
#[case(json!({"name": "../hunter2", "namespace": "ns"}), "not a valid name")]
#[case(json!({"name": "db", "namespace": "a/b"}), "not a valid name")]
#[case(json!({"name": {"hunter2": 1}, "namespace": "ns"}), "$params.name has the wrong type")]
#[tokio::test]
async fn hostile_params_are_refused(#[case] params: Value, #[case] why: &str) {
    let store = FakeStore::default();
    for answer in [
        create(&params, &store, &FakeEvaluator::unused()).await,
        read(&params, &store).await,
        delete(&params, &store).await,
    ] {
        let message = message(answer);
        assert!(message.contains(why) && !message.contains("hunter2"), "{message}");
    }
}

#[tokio::test]
async fn huge_properties_are_refused() {
    let mut params = params("db");
    params["config"]["x"] = json!("x".repeat(MAX_PROPERTIES));
    let message = message(create(&params, &FakeStore::default(), &FakeEvaluator::unused()).await);
    assert!(message.contains("larger than"), "{message}");
}
