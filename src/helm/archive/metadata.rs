//! Chart.yaml as JSON, with all its fields. An index has only some of them.

use serde_json::Value;

use super::files::base_name;
use super::{ArchiveFiles, METADATA_BYTES};
use crate::helm::index::DecodeLimits;
use crate::helm::index::yaml::value;

/// Memory of parsing the largest Chart.yaml: its nodes in maps with spare capacity, its anchors, its texts and the JSON.
pub(super) const METADATA_MEMORY: u64 = 2 * 1024 * 1024;

/// Scalars, lists and maps. An umbrella chart with 100 dependencies has about 1,500.
const NODES: u64 = 4000;
const ALIASED_NODES: u64 = 1000;

/// All other fields of Chart.yaml are texts, lists or maps.
const BOOLEANS: [&str; 2] = ["deprecated", "enabled"];

/// The last Chart.yaml of an archive. A faulty one costs no other file.
#[derive(Debug, Default)]
pub(super) struct MetadataCollector(Option<Result<Vec<u8>, String>>);

impl MetadataCollector {
    /// Helm reads no other spelling.
    pub(super) fn is_metadata(name: &[u8]) -> bool {
        base_name(name) == Some(b"Chart.yaml".as_slice())
    }

    /// Returns false for a Chart.yaml that is too large to be read.
    pub(super) fn accepts(&mut self, size: u64) -> bool {
        let fits = size <= METADATA_BYTES;
        if !fits {
            self.0 = Some(Err(too_large()));
        }
        fits
    }

    pub(super) fn put(&mut self, content: Vec<u8>) {
        self.0 = Some(Ok(content));
    }

    pub(super) fn finish(self, files: &mut ArchiveFiles) {
        let Some(content) = self.0 else { return };
        match content.and_then(|content| to_json(&content)) {
            Ok(json) => files.metadata = Some(json),
            Err(reason) => files.metadata_problem = Some(reason),
        }
    }
}

fn too_large() -> String {
    format!("it is larger than {METADATA_BYTES} bytes")
}

fn limits() -> DecodeLimits {
    DecodeLimits {
        nodes: NODES,
        scalar_bytes: METADATA_BYTES,
        anchored_bytes: 4 * METADATA_BYTES,
        aliased_nodes: ALIASED_NODES,
        aliased_bytes: METADATA_BYTES,
        ..DecodeLimits::default()
    }
}

/// Reads an annotation that is a list in YAML, within the limits of Chart.yaml. Its scalars are texts as written, and null
/// counts as missing.
#[must_use]
pub fn annotation_list(yaml: &str) -> Option<Vec<Value>> {
    value::list(yaml.as_bytes(), &limits()).ok()
}

fn to_json(content: &[u8]) -> Result<String, String> {
    const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
    let content = content.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(content);
    let json = Value::Object(value::map(content, &BOOLEANS, &limits())?).to_string();
    if json.len() as u64 > METADATA_BYTES {
        return Err(too_large());
    }
    Ok(json)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn parsed(yaml: &str) -> Value {
        serde_json::from_str(&to_json(yaml.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn texts_are_kept_as_written_and_known_booleans_are_booleans() {
        let yaml = "\u{feff}
apiVersion: v2
name: app
version: 1.10
appVersion: 007
kubeVersion: '>=1.25.0-0'
type: application
deprecated: yes
home: ~
keywords: [on, 1e3, null]
maintainers:
- name: jane
  email:
dependencies:
- name: db
  version: 1.x
  repository: oci://registry.example/charts
  enabled: false
  tags: []
  import-values: [{child: a.b, parent: c}]
annotations:
  artifacthub.io/prerelease: true
  artifacthub.io/changes: |
    - kind: added
";
        let expected = json!({
            "apiVersion": "v2", "name": "app", "version": "1.10", "appVersion": "007", "kubeVersion": ">=1.25.0-0",
            "type": "application", "deprecated": true, "keywords": ["on", "1e3"], "maintainers": [{"name": "jane"}],
            "dependencies": [{
                "name": "db", "version": "1.x", "repository": "oci://registry.example/charts", "enabled": false,
                "tags": [], "import-values": [{"child": "a.b", "parent": "c"}],
            }],
            "annotations": {"artifacthub.io/prerelease": "true", "artifacthub.io/changes": "- kind: added\n"},
        });
        assert_eq!(parsed(yaml), expected);
    }

    #[test]
    fn aliases_and_merge_keys_are_expanded() {
        let yaml = "base: &base {name: a, version: 1}\nname: x\nname: y\nlist: [*base]\n<<: *base\n? [odd]\n: z\n";
        let base = json!({"name": "a", "version": "1"});
        let expected = json!({"base": base, "name": "y", "version": "1", "list": [base]});
        assert_eq!(parsed(yaml), expected);
    }

    #[test]
    fn an_annotation_may_be_a_list() {
        let list = annotation_list("- &a {kind: added, links: ~}\n- 1.10\n- *a\n").unwrap();
        assert_eq!(
            Value::Array(list),
            json!([{"kind": "added"}, "1.10", {"kind": "added"}])
        );
        let bomb: String = bomb().lines().map(|line| format!("- {}\n", &line[4..])).collect();
        for yaml in ["", "a: b", "text", "- a\n--- b", "- [1", "&a [*a]", &bomb] {
            assert_eq!(annotation_list(yaml), None, "{yaml:.40}");
        }
    }

    #[test]
    fn nul_is_removed() {
        assert_eq!(parsed("\"na\\0me\": \"a\\0b\"\n"), json!({"name": "ab"}));
    }

    fn bomb() -> String {
        let levels = (1..9).map(|level| {
            let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
            format!("b{level}: &a{level} [{aliases}]\n")
        });
        format!("b0: &a0 [x, x, x]\n{}", levels.collect::<String>())
    }

    #[test]
    fn a_hostile_document_is_refused_with_the_reason() {
        let owned = |text: &str| text.to_owned();
        for (yaml, expected) in [
            (String::new(), "it is empty"),
            (owned("# nothing\n"), "it is empty"),
            (owned("- a\n"), "it is not a map"),
            (owned("Not found"), "it is not a map"),
            (owned("a: [1\n"), "invalid YAML at line"),
            (owned("a: 1\n---\nb: 1\n"), "a second document"),
            (owned("a: &a [*a]\n"), "an alias refers to the node that contains it"),
            (bomb(), "its aliases expand to more than 1000 nodes"),
            (
                format!("a: {}{}", "[".repeat(60), "]".repeat(60)),
                "nested more than 32 levels",
            ),
            (format!("a: [{}]", "1,".repeat(5000)), "more than 4000 nodes"),
            (
                format!("a: \"{}\"", "\\x01".repeat(15_000)),
                "it is larger than 65536 bytes",
            ),
        ] {
            let reason = to_json(yaml.as_bytes()).unwrap_err();
            assert!(reason.contains(expected), "{reason}, not {expected}");
        }
    }

    #[test]
    fn other_encodings_are_refused() {
        let reason = to_json(b"name: \xff\xfe\n").unwrap_err();
        assert!(reason.contains("not valid UTF-8"), "{reason}");
        let reason = to_json(b"name: a\0b\n").unwrap_err();
        assert!(reason.contains("NUL"), "{reason}");
    }

    #[rstest]
    #[case("chart/Chart.yaml", true)]
    #[case("./chart/Chart.yaml", true)]
    #[case("Chart.yaml", true)]
    #[case("chart/chart.yaml", false)]
    #[case("chart/charts/sub/Chart.yaml", false)]
    #[case("/Chart.yaml", false)]
    #[case("../Chart.yaml", false)]
    fn chart_yaml_is_found_by_its_exact_name(#[case] name: &str, #[case] is_metadata: bool) {
        assert_eq!(MetadataCollector::is_metadata(name.as_bytes()), is_metadata);
    }
}
