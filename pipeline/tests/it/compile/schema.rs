//! The JSON Schema accepts what compiles and refuses what has a wrong shape. The validator below
//! knows the keywords that our schema uses and fails on any other; a real one has some 60 crates.

use serde_json::{Value, json};
use spillgate_pipeline::schema::json_schema;

use crate::compile::{TRAFFIC, catalog};

fn problems_of(yaml: &str) -> Vec<String> {
    let schema = json_schema(&catalog());
    let value: Value = serde_yaml::from_str(yaml).expect("YAML");
    let mut problems = Vec::new();
    validate(&schema, &schema, &value, "", &mut problems);
    problems
}

#[test]
fn the_example_of_the_design_fits() {
    assert_eq!(problems_of(TRAFFIC), [""; 0]);
}

#[test]
fn every_field_and_option_fits() {
    assert_eq!(problems_of(crate::compile::accepted::EVERY_FIELD), [""; 0]);
}

#[test]
fn a_wrong_shape_does_not_fit() {
    let changes = [
        ("slo: 400ms", "slo: 400"),
        ("slo: 400ms", "slo: 400 parsecs"),
        ("name: traffic\n", ""),
        ("name: traffic", "name: my traffic"),
        ("policy: {", "polcy: {"),
        ("drop: deadline", "drop: dedline"),
        ("op: detector", "op: detectr"),
        ("op: detector", "op: crop"),
        ("max: 8", "max: 0"),
        ("max: 8", "mix: 8"),
        ("workers: { min: 1, max: 4 }", "workers: two"),
        ("input: 192", "input: big"),
        ("model: models/plate.pt\n", "input: 3\n"),
        (
            "inputs: { image: $source.frame }",
            "inputs: { img: $source.frame }",
        ),
        ("boxes: $detect.vehicles", "boxes: detect.vehicles"),
        (", boxes: $detect.vehicles", ""),
        ("when: $detect.vehicles", "when: [1]"),
        ("when: $detect.vehicles", "device: gpu"),
        ("when: $detect.vehicles", "device: [cuda:0, cuda:0]"),
        ("when: $detect.vehicles", "queue: 0"),
        ("when: $detect.vehicles", "variants: [{ model: a.pt }]"),
        ("when: $detect.vehicles", "options: { confidence: 0.4 }"),
        ("workers: {", "options: { confidence: 1.5 }\n    workers: {"),
        ("workers: {", "options: { mean: [1, 2] }\n    workers: {"),
        ("workers: {", "options: { resize: crop }\n    workers: {"),
        (
            "workers: {",
            "options: { thresholds: { car: 1.5 } }\n    workers: {",
        ),
        (
            "workers: {",
            "options: { thresholds: [0.5] }\n    workers: {",
        ),
        (
            "workers: {",
            "options: { groups: { people: [man] } }\n    workers: {",
        ),
        (
            "workers: {",
            "options: { groups: { a b: [man] } }\n    workers: {",
        ),
        (
            "workers: {",
            "options: { groups: { men: [] } }\n    workers: {",
        ),
        (
            "workers: {",
            "options: { groups: { men: man } }\n    workers: {",
        ),
        ("  plates:", "  source:"),
        ("outputs: {", "limits: { in_flight: 0 }\noutputs: {"),
        ("outputs: {", "source: { frame: boxes }\noutputs: {"),
    ];
    for (good, wrong) in changes {
        assert!(TRAFFIC.contains(good), "{good}");
        let text = TRAFFIC.replacen(good, wrong, 1);
        assert_ne!(problems_of(&text), [""; 0], "{wrong}");
    }
}

/// An editor that finds no definition checks nothing there.
#[test]
fn every_reference_leads_somewhere() {
    fn references<'s>(value: &'s Value, found: &mut Vec<&'s str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|field| references(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let schema = json_schema(&catalog());
    let mut found = Vec::new();
    references(&schema, &mut found);
    assert!(found.len() > 10);
    for reference in found {
        resolve(&schema, reference);
    }
    for (good, wrong) in [("20s", "twenty"), ("500ms", "5 parsecs")] {
        let with = |window: &str| {
            let policy = format!("policy: {{ window: {window}, ");
            problems_of(&TRAFFIC.replacen("policy: {", &policy, 1))
        };
        assert_eq!(with(good), [""; 0]);
        assert_ne!(with(wrong), [""; 0]);
    }
}

/// Editors show them as they are.
#[test]
fn descriptions_are_sentences() {
    fn descriptions<'s>(value: &'s Value, found: &mut Vec<&'s str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("description").and_then(Value::as_str));
                fields.values().for_each(|field| descriptions(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| descriptions(item, found)),
            _ => {}
        }
    }
    let schema = json_schema(&catalog());
    let mut found = Vec::new();
    descriptions(&schema, &mut found);
    for text in found {
        let begins = text.starts_with(|c: char| c.is_uppercase() || !c.is_alphabetic());
        let list = text.contains("\n- ");
        assert!(begins && (list || text.ends_with(['.', ')'])), "{text}");
    }
}

#[test]
fn values_may_be_variables_and_keys_may_not() {
    let changes = [
        ("slo: 400ms", "slo: \"${SLO:-400ms}\""),
        ("name: traffic", "name: a-${NAME}"),
        ("drop: deadline", "drop: \"${DROP}\""),
        ("max: 8", "max: \"${MAX:-8}\""),
        ("workers: { min: 1, max: 4 }", "workers: ${WORKERS}"),
        ("input: 192", "input: \"${SIDE}\""),
        ("models/plate.pt", "${MODELS}/plate.pt"),
        ("when: $detect.vehicles", "device: ${DEVICE}"),
        ("boxes: $detect.vehicles", "boxes: \"${BOXES}\""),
    ];
    for (good, variable) in changes {
        assert!(TRAFFIC.contains(good), "{good}");
        let text = TRAFFIC.replacen(good, variable, 1);
        assert_eq!(problems_of(&text), [""; 0], "{variable}");
    }
    for (good, wrong) in [("slo:", "\"${SLO}\":"), ("  plates:", "  \"${A}\":")] {
        let text = TRAFFIC.replacen(good, wrong, 1);
        assert_ne!(problems_of(&text), [""; 0], "{wrong}");
    }
}

#[test]
fn every_field_has_a_description() {
    let schema = json_schema(&catalog());
    let mut missing = Vec::new();
    let module = &schema["$defs"]["module"];
    for (place, fields) in [
        ("", &schema["properties"]),
        ("modules.", &module["properties"]),
    ] {
        for (name, field) in fields.as_object().expect("an object") {
            let target = field
                .get("$ref")
                .and_then(Value::as_str)
                .map(|r| resolve(&schema, r));
            if [Some(field), target]
                .iter()
                .flatten()
                .all(|f| f.get("description").is_none())
            {
                missing.push(format!("{place}{name}"));
            }
        }
    }
    assert_eq!(missing, [""; 0]);
}

fn resolve<'s>(root: &'s Value, reference: &str) -> &'s Value {
    let pointer = reference
        .strip_prefix('#')
        .expect("a reference into the schema");
    root.pointer(pointer).expect("a definition")
}

fn validate(root: &Value, schema: &Value, value: &Value, place: &str, problems: &mut Vec<String>) {
    let rules = match schema {
        Value::Bool(true) => return,
        Value::Bool(false) => return problems.push(format!("{place}: not allowed")),
        Value::Object(rules) => rules,
        other => panic!("no schema: {other}"),
    };
    let fits = |schema: &Value| {
        let mut inner = Vec::new();
        validate(root, schema, value, place, &mut inner);
        inner.is_empty()
    };
    let len = |v: &Value| {
        v.as_array()
            .map(Vec::len)
            .or(v.as_object().map(|o| o.len()))
    };
    let number = |v: &Value| v.as_f64().unwrap_or(f64::NAN);
    for (keyword, rule) in rules {
        let holds = match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "default" | "then" => true,
            "type" => match rule.as_str().expect("a type") {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "number" => value.is_number(),
                "integer" => value.is_i64() || value.is_u64(),
                other => panic!("no type: {other}"),
            },
            "$ref" => fits(resolve(root, rule.as_str().expect("a text"))),
            "const" => value == rule,
            "enum" => rule.as_array().expect("a list").contains(value),
            "not" => !fits(rule),
            "anyOf" => rule.as_array().expect("a list").iter().any(fits),
            "allOf" => rule.as_array().expect("a list").iter().all(fits),
            "if" => !fits(rule) || fits(&rules["then"]),
            "minimum" => !value.is_number() || number(value) >= number(rule),
            "maximum" => !value.is_number() || number(value) <= number(rule),
            "minLength" => value
                .as_str()
                .is_none_or(|t| t.len() as f64 >= number(rule)),
            "minItems" | "minProperties" => len(value).is_none_or(|n| n as f64 >= number(rule)),
            "maxItems" | "maxProperties" => len(value).is_none_or(|n| n as f64 <= number(rule)),
            "uniqueItems" => value
                .as_array()
                .is_none_or(|list| list.iter().enumerate().all(|(i, v)| !list[..i].contains(v))),
            "pattern" => value
                .as_str()
                .is_none_or(|text| matches_pattern(rule, text)),
            "items" => value.as_array().is_none_or(|list| {
                list.iter().enumerate().for_each(|(i, v)| {
                    validate(root, rule, v, &format!("{place}[{i}]"), problems);
                });
                true
            }),
            "required" => value.as_object().is_none_or(|object| {
                let names = rule.as_array().expect("a list").iter();
                names
                    .filter_map(Value::as_str)
                    .all(|name| object.contains_key(name))
            }),
            "properties" | "additionalProperties" | "propertyNames" | "dependentSchemas" => {
                let empty = json!({});
                let known = rules.get("properties").unwrap_or(&empty);
                for (name, field) in value.as_object().into_iter().flatten() {
                    let place = format!("{place}.{name}");
                    match (keyword.as_str(), rule.get(name), known.get(name)) {
                        ("properties", Some(schema), _) => {
                            validate(root, schema, field, &place, problems);
                        }
                        ("additionalProperties", _, None) => {
                            validate(root, rule, field, &place, problems);
                        }
                        ("propertyNames", ..) => {
                            validate(root, rule, &json!(name), &place, problems);
                        }
                        ("dependentSchemas", Some(schema), _) => {
                            validate(root, schema, value, &place, problems);
                        }
                        _ => {}
                    }
                }
                true
            }
            other => panic!("the test knows no keyword {other}"),
        };
        if !holds {
            problems.push(format!("{place}: {keyword}"));
        }
    }
}

/// The patterns of our schema in other words: there is no engine for them here.
fn matches_pattern(pattern: &Value, text: &str) -> bool {
    let is_name = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    match pattern.as_str().expect("a text") {
        "^[A-Za-z][A-Za-z0-9_-]{0,63}$" => is_name(text),
        p if p.starts_with("^\\$") => text
            .strip_prefix('$')
            .and_then(|t| t.split_once('.'))
            .is_some_and(|(module, output)| is_name(module) && is_name(output)),
        p if p.starts_with("^[0-9]") => spillgate_pipeline::time::parse_duration(text).is_ok(),
        p if p.starts_with("^(auto") => {
            let kind = text.split(':').next().unwrap_or(text);
            ["auto", "cpu", "cuda", "emulated"].contains(&kind)
        }
        p if p.starts_with("\\$\\{") => text.contains("${") && text.contains('}'),
        other => panic!("the test knows no pattern {other}"),
    }
}
