//! Log lines as flat JSON objects.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use super::clean_value;

/// Writes time, level, target and message, then the fields of the event, and those of its spans. The first of equal
/// names is written.
pub(super) struct JsonLines;

impl<S> FormatEvent<S, JsonFields> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let mut line = LogLine::default();
        line.add("timestamp", timestamp.into());
        line.add("level", metadata.level().as_str().into());
        line.add(
            "target",
            fields.target.unwrap_or_else(|| metadata.target().to_owned()).into(),
        );
        line.add("message", fields.message.into());
        fields
            .others
            .into_iter()
            .for_each(|(name, value)| line.add(name, value));
        for span in context.event_scope().into_iter().flatten() {
            let extensions = span.extensions();
            let Some(formatted) = extensions.get::<FormattedFields<JsonFields>>() else {
                continue;
            };
            let fields: Map<String, Value> = serde_json::from_str(formatted).unwrap_or_default();
            for (name, value) in fields {
                let value = match value {
                    Value::String(text) => clean_value(&name, &text).into(),
                    other => other,
                };
                line.add(&name, value);
            }
        }
        writeln!(writer, "{{{}}}", line.text)
    }
}

#[derive(Default)]
struct LogLine {
    text: String,
    names: Vec<String>,
}

impl LogLine {
    fn add(&mut self, name: &str, value: Value) {
        if self.names.iter().any(|known| known == name) {
            return;
        }
        let separator = if self.names.is_empty() { "" } else { "," };
        self.text += &format!("{separator}{}:{value}", Value::from(name));
        self.names.push(name.to_owned());
    }
}

/// The fields of an event. Those of the crate `log` carry their target as a field.
#[derive(Default)]
struct EventFields {
    target: Option<String>,
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl EventFields {
    fn add_text(&mut self, field: &Field, text: &str) {
        let text = clean_value(field.name(), text);
        match field.name() {
            "message" => self.message = text,
            "log.target" => self.target = Some(text),
            "log.module_path" | "log.file" => {}
            name => self.others.push((name, text.into())),
        }
    }

    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        if field.name() != "log.line" {
            self.others.push((field.name(), value.into()));
        }
    }
}

impl Visit for EventFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add_text(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add_text(field, &format!("{value:?}"));
    }
}
