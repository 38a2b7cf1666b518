//! Variables in the schema: any value may also be a text that names a variable. Keys (names of fields and modules)
//! may not.

use serde_json::{Map, Value, json};

/// A text with a variable.
const VARIABLE_PATTERN: &str = "\\$\\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\\}";
/// Keywords whose value is a schema.
const ONE: [&str; 5] = ["additionalProperties", "items", "then", "else", "not"];
/// Keywords whose value is a list of schemas.
const LIST: [&str; 3] = ["anyOf", "oneOf", "allOf"];
/// Keywords whose value is a map of schemas.
const MAP: [&str; 2] = ["properties", "$defs"];
/// Keywords that restrict a plain value.
const PLAIN: [&str; 7] = [
    "type",
    "pattern",
    "enum",
    "const",
    "minimum",
    "maximum",
    "minLength",
];

/// The schema that also accepts variables. Conditions that decide between branches (`if`) stay as they are.
pub(super) fn allow(schema: Value) -> Value {
    let Value::Object(fields) = schema else {
        return schema;
    };
    let mut out: Map<String, Value> = fields
        .into_iter()
        .map(|(key, value)| {
            let value = match (key.as_str(), value) {
                (key, value) if ONE.contains(&key) => allow(value),
                (key, Value::Array(list)) if LIST.contains(&key) => {
                    list.into_iter().map(allow).collect()
                }
                (key, Value::Object(map)) if MAP.contains(&key) => {
                    let fields = map.into_iter().map(|(name, value)| (name, allow(value)));
                    Value::Object(fields.collect())
                }
                (_, value) => value,
            };
            (key, value)
        })
        .collect();
    let of = out.get("type").and_then(Value::as_str);
    let is_plain = match of {
        Some("object" | "array") => false,
        Some(_) => true,
        None => out.contains_key("enum"),
    };
    if is_plain {
        let mut plain = Map::new();
        for key in PLAIN {
            plain.extend(out.remove(key).map(|value| (key.to_owned(), value)));
        }
        let variable = json!({ "type": "string", "pattern": VARIABLE_PATTERN });
        out.insert("anyOf".to_owned(), json!([plain, variable]));
    }
    Value::Object(out)
}
