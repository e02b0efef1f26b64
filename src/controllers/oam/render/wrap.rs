//! Wraps a template into the source that the evaluator gets.
//!
//! The evaluator compiles, validates and exports. So the template goes into a hidden field, and its wanted parts are
//! references to this field: an incomplete part is an error and never left out.

use serde_json::{Map, Value};

use super::component::Rendered;
use super::evaluate::TemplateAnswers;
use crate::controllers::oam::context::Context;
use crate::controllers::oam::source::{PARAMETER, Scan};
use crate::cue::{CueSource, TextErrors};

/// The hidden field that holds the template.
const TEMPLATE: &str = "_vela";
/// The hidden field that holds the template with marked values left open.
const UNMARKED: &str = "_velaUnmarked";
/// The hidden fields that hold a template with calls, and beside it the packages of its functions.
const TEMPLATE_ROOT: &str = "_velaRoot";
const UNMARKED_ROOT: &str = "_velaUnmarkedRoot";
const CALLING: &str = "velaTemplate";
/// The label of the workload after a patch that CUE unified.
pub const RESULT: &str = "result";
/// The labels of details that have a value, and of all details.
pub const VALUES: &str = "values";
pub const LABELS: &str = "labels";

/// Precedes the errors of values that can't be exported.
const EXPORT_ERROR: &str = "cue: marshal error: ";

/// In the error for `+` and `*` on lists, which CUE had before 0.11.
const OLD_ARITHMETIC: &str = "is superseded by list.";

/// Errors of a patch that does not fit the workload.
const CONFLICTS: [&str; 3] = ["conflicting values", "mismatched types", "incompatible list lengths"];

/// A reference to a marker of the patch itself, which a template has at its top level.
const PATCH_MARKER: &str = r#""$+patch""#;

/// Returns the source of a component, or of a policy with a template.
#[must_use]
pub fn component(
    scan: &Scan,
    properties: Option<&Value>,
    context: &str,
    answers: Option<&TemplateAnswers>,
) -> CueSource {
    let parameter = properties.map_or_else(|| "{}".to_owned(), Value::to_string);
    let mut source = CueSource::from(imports(scan, answers));
    let suffix = format!(
        "context: _\nparameter: _\n{}parameter: {parameter}\ncontext: {context}\n",
        declaration(scan)
    );
    push_hidden(&mut source, TEMPLATE, &scan.body, &suffix, answers);
    export(&mut source, scan, "output");
    export(&mut source, scan, "outputs");
    source
}

/// Returns the source of a trait.
#[must_use]
pub fn trait_source(
    scan: &Scan,
    properties: Option<&Value>,
    context: &str,
    answers: Option<&TemplateAnswers>,
    rendered: &Rendered,
) -> CueSource {
    let mut suffix = declaration(scan);
    suffix.push_str(&properties.map_or_else(String::new, |properties| format!("parameter: {properties}\n")));
    suffix.push_str(&format!("context: {context}\n"));
    let mut source = CueSource::from(imports(scan, answers));
    push_hidden(&mut source, TEMPLATE, &scan.body, &suffix, answers);
    export(&mut source, scan, "outputs");
    export(&mut source, scan, "patchOutputs");
    export_if_present(&mut source, "errs", TEMPLATE, "errs");
    if scan.has_markers {
        export(&mut source, scan, "patch");
        export_if_present(&mut source, PATCH_MARKER, TEMPLATE, PATCH_MARKER);
    } else {
        patch_in_place(&mut source, scan, &rendered.workload);
    }
    if let Some(unmarked) = &scan.unmarked {
        push_hidden(&mut source, UNMARKED, unmarked, &suffix, answers);
        unify(&mut source, scan, UNMARKED, &rendered.workload);
    }
    source
}

/// Returns the source of a health policy or a custom status, which set `field`.
#[must_use]
pub fn status(scan: &Scan, field: &str, properties: Option<&Value>, context: &Context) -> CueSource {
    let mut source = CueSource::from(scan.imports.as_str());
    push_status(&mut source, scan, properties, context);
    source.push_str(&format!("\"{field}\": {TEMPLATE}.{field}\n"));
    source
}

/// Returns the source of details: the labels of all details, and the values of details that have one.
#[must_use]
pub fn details(scan: &Scan, properties: Option<&Value>, context: &Context) -> CueSource {
    let mut source = CueSource::from(scan.imports.as_str());
    source.push_str("import velaJSON \"encoding/json\"\n");
    push_status(&mut source, scan, properties, context);
    source.push_str(&format!(
        "\"{LABELS}\": [for k, v in {TEMPLATE} {{k}}]\n\
         \"{VALUES}\": {{for k, v in {TEMPLATE} if k != \"context\" && k != \"parameter\" \
         if velaJSON.Marshal(v) != _|_ {{\"\\(k)\": v}}}}\n"
    ));
    source
}

/// Removes what wrapping and export added to an error.
#[must_use]
fn clean_error(text: &str) -> String {
    let text = text.strip_prefix(EXPORT_ERROR).unwrap_or(text);
    let text = text
        .replace(&format!("{TEMPLATE_ROOT}.{CALLING}."), &format!("{TEMPLATE}."))
        .replace(&format!("{UNMARKED_ROOT}.{CALLING}."), &format!("{UNMARKED}."));
    let patched = text.strip_prefix(&format!("{TEMPLATE}.patch."));
    let text = patched
        .filter(|text| CONFLICTS.iter().any(|conflict| text.contains(conflict)))
        .unwrap_or(&text);
    let text = text
        .replace(&format!("{UNMARKED}."), "")
        .replace(&format!("{TEMPLATE}."), "");
    let result = format!("{RESULT}.");
    text.strip_prefix(&result).unwrap_or(&text).to_owned()
}

/// Removes what wrapping and export added to errors, and explains the first error about operators on lists.
#[must_use]
pub fn clean_errors(errors: &TextErrors) -> TextErrors {
    let mut is_explained = false;
    errors.map(|text| {
        let mut text = clean_error(text);
        if text.contains(OLD_ARITHMETIC) && !is_explained {
            is_explained = true;
            text.push_str(" (a template for CUE before 0.11 needs changes where an operand is not known to be a list)");
        }
        text
    })
}

/// Returns the reference to the definition of `parameter` in a strict template.
fn declaration(scan: &Scan) -> String {
    if scan.closes_parameter {
        format!("parameter: {PARAMETER}\n")
    } else {
        String::new()
    }
}

fn push_status(source: &mut CueSource, scan: &Scan, properties: Option<&Value>, context: &Context) {
    let parameter = properties.map_or_else(|| "{}".to_owned(), Value::to_string);
    let context = self::context(scan, context, None);
    let suffix = format!("parameter: {parameter}\ncontext: {context}\n");
    push_hidden(source, TEMPLATE, &scan.body, &suffix, None);
}

/// Returns the imports of a template without packages that CUE does not have.
fn imports<'a>(scan: &'a Scan, answers: Option<&'a TemplateAnswers>) -> &'a str {
    answers.map_or(&scan.imports, |answers| &answers.imports)
}

/// Returns the parts of the context that the template names as CUE, with what is rendered so far for a trait, and the
/// status of its live workload.
#[must_use]
pub fn context(scan: &Scan, context: &Context, rendered: Option<(&Rendered, Option<&Value>)>) -> String {
    let named = context.iter().filter(|(name, _)| scan.context.contains(name));
    let mut fields: Vec<String> = named.map(|(name, value)| field(name, value)).collect();
    if let Some((rendered, status)) = rendered {
        let is_needed = |name: &str| scan.context.contains(name) && context.get(name).is_none();
        if is_needed("output") {
            let mut output = format!("output: {}", json_object(&rendered.workload));
            if let Some(status) = status.filter(|_| !rendered.workload.contains_key("status")) {
                output.push_str(&format!(" & {{status: {status}}}"));
            }
            fields.push(output);
        }
        if is_needed("outputs") && !rendered.outputs.is_empty() {
            let outputs = rendered.outputs_by_key();
            let outputs: Vec<String> = outputs
                .into_iter()
                .map(|(key, object)| format!("{}: {}", Value::from(key), json_object(object)))
                .collect();
            fields.push(format!("outputs: {{{}}}", outputs.join(", ")));
        }
    }
    format!("{{{}}}", fields.join(", "))
}

fn field(name: &str, value: &Value) -> String {
    format!("{}: {value}", Value::from(name))
}

fn json_object(fields: &Map<String, Value>) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| field(name, value)).collect();
    format!("{{{}}}", fields.join(", "))
}

fn push_hidden(source: &mut CueSource, field: &str, body: &str, suffix: &str, answers: Option<&TemplateAnswers>) {
    let root = if field == TEMPLATE {
        TEMPLATE_ROOT
    } else {
        UNMARKED_ROOT
    };
    match answers {
        None => source.push_str(&format!("{field}: {{\n")),
        Some(TemplateAnswers { packages, .. }) => source.push_str(&format!("{root}: {{\n{packages}{CALLING}: {{\n")),
    }
    if field == TEMPLATE {
        source.push_template(body);
    } else {
        source.push_str(body);
    }
    source.push_str(&format!("\n{suffix}"));
    match answers {
        None => source.push_str("}\n"),
        Some(TemplateAnswers { fields, .. }) => {
            source.push_str(&format!("{fields}}}\n}}\n{field}: {root}.{CALLING}\n"))
        }
    }
}

/// Exports a field of the template. A field that the template always has is an error if it is incomplete.
fn export(source: &mut CueSource, scan: &Scan, field: &str) {
    if scan.has_field(field) {
        source.push_str(&format!("\"{field}\": {TEMPLATE}.{field}\n"));
    } else {
        export_if_present(source, &format!("\"{field}\""), TEMPLATE, field);
    }
}

fn export_if_present(source: &mut CueSource, label: &str, template: &str, field: &str) {
    let label = if label.starts_with('"') {
        label.to_owned()
    } else {
        format!("\"{label}\"")
    };
    source.push_str(&format!(
        "if {template}.{field} != _|_ {{{label}: {template}.{field}}}\n"
    ));
}

/// Exports the workload unified with the patch, within the template if that reads its patch nowhere: CUE orders the fields
/// of a struct differently if it evaluates the struct at another place, and `json.Marshal` shows the order.
fn patch_in_place(source: &mut CueSource, scan: &Scan, workload: &Map<String, Value>) {
    if !scan.only_sets_patch {
        unify(source, scan, TEMPLATE, workload);
        return;
    }
    let mut base = String::new();
    open_fields(workload, &mut base);
    source.push_str(&format!("{TEMPLATE}: patch: {base}\n\"{RESULT}\": {TEMPLATE}.patch\n"));
}

/// Exports the workload unified with the patch.
fn unify(source: &mut CueSource, scan: &Scan, template: &str, workload: &Map<String, Value>) {
    let mut base = String::new();
    open_fields(workload, &mut base);
    let field = format!("\"{RESULT}\": {base} & {template}.patch");
    if scan.has_field("patch") {
        source.push_str(&format!("{field}\n"));
    } else {
        source.push_str(&format!("if {template}.patch != _|_ {{{field}}}\n"));
    }
}

/// Writes a value as CUE with open lists, since a patch may append to each.
fn open_lists(value: &Value, text: &mut String) {
    match value {
        Value::Array(items) => {
            text.push('[');
            for item in items {
                open_lists(item, text);
                text.push_str(", ");
            }
            text.push_str("...]");
        }
        Value::Object(fields) => open_fields(fields, text),
        scalar => text.push_str(&scalar.to_string()),
    }
}

fn open_fields(fields: &Map<String, Value>, text: &mut String) {
    text.push('{');
    for (name, value) in fields {
        text.push_str(&format!("{}: ", Value::from(name.as_str())));
        open_lists(value, text);
        text.push_str(", ");
    }
    text.push('}');
}
