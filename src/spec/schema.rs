//! JSON Schema of the sweep file: completion and checks in editors.

use schemars::generate::SchemaSettings;

use serde_json::Value;

use super::raw::RawSweep;

/// The schema of sweep files (JSON Schema 2020-12), with the comments of the raw types as descriptions.
#[must_use]
pub fn json_schema() -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<RawSweep>();
    schema.insert("title".into(), "servescape sweep".into());
    let mut schema = schema.to_value();
    drop_null(&mut schema);
    schema
}

/// TOML has no null: an optional key is left out, so "or null" would only mislead.
fn drop_null(schema: &mut Value) {
    match schema {
        Value::Array(elements) => elements.iter_mut().for_each(drop_null),
        Value::Object(object) => {
            object.values_mut().for_each(drop_null);
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    object["type"] = only.clone();
                }
            }
            if let Some(Value::Array(forms)) = object.get_mut("anyOf") {
                forms.retain(|form| form["type"] != "null");
                if let [Value::Object(only)] = forms.as_slice() {
                    let only = only.clone();
                    object.remove("anyOf");
                    object.extend(only);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prettily printed with a final line break, as committed.
    fn text() -> String {
        let mut text = serde_json::to_string_pretty(&json_schema()).expect("a schema is valid JSON");
        text.push('\n');
        text
    }

    #[test]
    fn the_committed_schema_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/sweep.schema.json");
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(path, text()).expect("the schema can be written");
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == text(),
            "schemas/sweep.schema.json is out of date; regenerate it with `UPDATE_SCHEMA=1 cargo test schema`"
        );
    }

    #[test]
    fn keys_are_described_and_unknown_ones_refused() {
        let schema = json_schema();
        let header = &schema["$defs"]["RawHeader"];
        assert_eq!(header["additionalProperties"], false);
        assert!(header["properties"]["gpus"]["description"].as_str().is_some_and(|text| text.contains("budget")));
        assert_eq!(schema["$defs"]["Axis_uint32"]["oneOf"].as_array().map(Vec::len), Some(4));
        assert!(!schema.to_string().contains("null"));
        assert!(schema["properties"].get("pdd").is_none(), "what is not supported is not suggested");
    }
}
