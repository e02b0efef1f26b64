//! Schemas of fields that hold free-form JSON.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Any object.
pub fn object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A list of any objects.
pub fn objects(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": object(generator) })
}

/// An integer without bounds. A format would only be informational.
pub fn integer(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int64" })
}
