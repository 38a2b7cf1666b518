//! The rights of the holder of a token, and the file that grants them:
//!
//! ```yaml
//! tokens:
//!   - { name: camera-7, sha256: "…64 hex digits…", pipelines: [traffic], rate: 30, in_flight: 16 }
//!   - { name: office, weight: 2, class: 1, sha256: "…", pipelines: all }
//!   - { name: nightly, slo: none, sha256: "…", pipelines: all }
//! ```
//!
//! The file holds no tokens, only their SHA-256. No message repeats a value from it either: the value in the place of
//! a hash may be the token itself.

use std::sync::Arc;

use crate::diagnostic::{Diagnostics, Place, Sink};
use crate::document::{Content, Node};
use crate::problem::Problem;
use crate::reader;
use crate::spec::clients;

/// Most tokens of a file. Each token costs memory. For more clients a proxy must check the tokens.
pub(crate) const TOKENS_MAX: usize = 4096;
/// Highest `in_flight` that can be written: more than a server takes.
const IN_FLIGHT_MAX: u32 = 1_000_000;

const FIELDS: [&str; 8] = [
    "name",
    "sha256",
    "pipelines",
    "rate",
    "in_flight",
    "weight",
    "class",
    "slo",
];
const ENTRY: &str = "{ name: camera-7, sha256: \"...\", pipelines: [traffic] }";

/// The rights of the holder of a token.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The client's name.
    pub name: Arc<str>,
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    /// The pipelines that it may use; `None`: all.
    pub pipelines: Option<Vec<String>>,
    /// Most requests a second.
    pub rate: Option<f64>,
    /// Most requests in flight.
    pub in_flight: Option<u32>,
    /// Weight of its share among the clients of its class. `None`: as the pipeline says.
    pub weight: Option<f64>,
    /// Its priority class. `None`: as the pipeline says.
    pub class: Option<u8>,
    /// It has no SLO (`slo: none`): see [`Rights::background`](crate::clients::Rights::background).
    pub background: bool,
    /// Its line in the file.
    pub line: usize,
}

impl Grant {
    /// Whether it may use this pipeline.
    pub fn allows(&self, pipeline: &str) -> bool {
        let listed = |list: &Vec<String>| list.iter().any(|name| name == pipeline);
        self.pipelines.as_ref().is_none_or(listed)
    }
}

/// Reads the text of a file of tokens. `file` is its name in messages.
///
/// # Errors
/// All problems of the file, sorted by line.
pub fn parse_grants(text: &str, file: &str) -> Result<Vec<Grant>, Diagnostics> {
    let mut sink = Sink::new(file);
    let mut grants = Vec::new();
    // Hashes are written by a program: no variables.
    if let Some(root) = reader::root(&mut sink, text, "tokens: [...]") {
        read_grants(&mut sink, &root, &mut grants);
    }
    sink.finish()?;
    Ok(grants)
}

fn read_grants(sink: &mut Sink, root: &Node, grants: &mut Vec<Grant>) {
    let place = Place::root();
    let expected = "a map with the field tokens";
    let fields = reader::record(sink, root, &place, expected, &["tokens"]);
    let Some(tokens) = fields.get("tokens") else {
        return missing(sink, &place, "tokens", &format!("tokens: [{ENTRY}]"));
    };
    let expected = format!("a list of tokens, like [{ENTRY}]");
    let entries = reader::list(sink, tokens.node, &tokens.place, &expected).unwrap_or_default();
    if entries.len() > TOKENS_MAX {
        let (what, count, limit) = ("tokens", entries.len(), TOKENS_MAX);
        let problem = Problem::TooMany { what, count, limit };
        return sink.error(&tokens.place, problem);
    }
    let mut names = std::collections::BTreeMap::new();
    let mut hashes = std::collections::BTreeMap::new();
    for (i, entry) in entries.iter().enumerate() {
        let place = tokens.place.index(i, entry.line);
        let Some(grant) = read_grant(sink, entry, &place) else {
            continue;
        };
        if let Some(&first) = names.get(&grant.name) {
            let key = grant.name.to_string();
            sink.error(&place, Problem::DuplicateKey { key, first });
        }
        if let Some(&first) = hashes.get(&grant.hash) {
            sink.error(&place, Problem::RepeatedToken { first });
        }
        names.insert(grant.name.clone(), grant.line);
        hashes.insert(grant.hash, grant.line);
        grants.push(grant);
    }
}

fn read_grant(sink: &mut Sink, node: &Node, place: &Place) -> Option<Grant> {
    let fields = reader::record(
        sink,
        node,
        place,
        &format!("a token, like {ENTRY}"),
        &FIELDS,
    );
    if matches!(node.content, Content::Mapping(_)) {
        for (field, example) in [
            ("name", "name: camera-7"),
            ("sha256", "sha256: \"...\", as `spillgate token` prints it"),
            ("pipelines", "pipelines: [traffic], or pipelines: all"),
        ] {
            if fields.get(field).is_none() {
                missing(sink, place, field, example);
            }
        }
    }
    let name = fields.get("name").and_then(|f| {
        let name = reader::text(sink, f.node, &f.place, "a name, like camera-7")?;
        reader::check_name(sink, name, &f.place);
        Some(Arc::from(name))
    });
    let hash = fields.get("sha256").and_then(|f| {
        let hash = read_hash(f.node);
        if hash.is_none() {
            sink.error(&f.place, Problem::BadHash);
        }
        hash
    });
    let pipelines = fields
        .get("pipelines")
        .and_then(|f| read_pipelines(sink, f.node, &f.place));
    let rate = fields.get("rate").map(|f| {
        let (low, high) = clients::RATE;
        reader::number(sink, f.node, &f.place, low, high)
    });
    let in_flight = fields
        .get("in_flight")
        .map(|f| reader::count(sink, f.node, &f.place, 1, IN_FLIGHT_MAX));
    let weight = clients::read_weight(sink, &fields);
    let class = clients::read_class(sink, &fields);
    let background = clients::read_background(sink, &fields);
    Some(Grant {
        name: name?,
        hash: hash?,
        pipelines: pipelines?,
        rate: match rate {
            Some(rate) => Some(rate?),
            None => None,
        },
        in_flight: match in_flight {
            Some(most) => Some(most?),
            None => None,
        },
        weight,
        class,
        background,
        line: node.line,
    })
}

/// A list of names, or `all`: `Some(None)`.
fn read_pipelines(sink: &mut Sink, node: &Node, place: &Place) -> Option<Option<Vec<String>>> {
    let expected = "a list of pipelines, like [traffic], or all";
    if matches!(&node.content, Content::Scalar(text, _) if text == "all") {
        return Some(None);
    }
    if matches!(node.content, Content::Scalar(..)) {
        return reader::wrong_value(sink, node, place, expected);
    }
    let mut names = Vec::new();
    for (i, entry) in reader::list(sink, node, place, expected)?
        .iter()
        .enumerate()
    {
        let place = place.index(i, entry.line);
        let name = reader::text(sink, entry, &place, "the name of a pipeline")?;
        names.push(name.to_owned());
    }
    Some(Some(names))
}

fn read_hash(node: &Node) -> Option<[u8; 32]> {
    // YAML reads digits alone as a number.
    let Content::Scalar(text, _) = &node.content else {
        return None;
    };
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).ok()?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(hash)
}

fn missing(sink: &mut Sink, place: &Place, field: &str, example: &str) {
    let (field, example) = (field.to_owned(), example.to_owned());
    sink.error(place, Problem::MissingField { field, example });
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_file_of_tokens() {
        let text = format!(
            "tokens:\n  - {{ name: camera-7, sha256: \"{}\", pipelines: [traffic], rate: 0.5, in_flight: 16 }}\n  \
             - name: office\n    sha256: {}\n    pipelines: all\n    weight: 2.5\n    class: 7\n    slo: none\n",
            "0aF1".repeat(16),
            "12".repeat(32)
        );
        let grants = parse_grants(&text, "tokens.yaml").unwrap();
        let expected = [
            Grant {
                name: "camera-7".into(),
                hash: std::array::from_fn(|i| [0x0a, 0xf1][i % 2]),
                pipelines: Some(vec!["traffic".to_owned()]),
                rate: Some(0.5),
                in_flight: Some(16),
                weight: None,
                class: None,
                background: false,
                line: 2,
            },
            Grant {
                name: "office".into(),
                hash: [0x12; 32],
                pipelines: None,
                rate: None,
                in_flight: None,
                weight: Some(2.5),
                class: Some(7),
                background: true,
                line: 3,
            },
        ];
        assert_eq!(grants, expected);
        assert!(grants[0].allows("traffic") && !grants[0].allows("other"));
        assert!(grants[1].allows("other"));
        assert_eq!(parse_grants("tokens: []", "x").unwrap(), []);
    }

    #[test]
    fn each_problem_has_its_line_and_no_token_is_said_back() {
        let secret = "sgt_0123456789";
        let hash = "ab".repeat(32);
        let text = format!(
            "tokens:\n\
             - {{ name: a, sha256: {secret}, pipelines: all }}\n\
             - {{ name: 7, sha256: \"{hash}\", rate: 0, in_flight: -1, weight: .nan, class: 8 }}\n\
             - {{ name: a b, sha256: \"{hash}\", pipelines: some }}\n\
             - {{ name: c, sha256: \"{hash}\", pipelines: [x], token: {secret} }}\n\
             - {{ name: c, sha256: \"{hash}\", pipelines: [] }}\n\
             - {secret}\n"
        );
        let errors = parse_grants(&text, "t.yaml").unwrap_err().to_string();
        assert!(!errors.contains(secret), "{errors}");
        expect![[r#"
            error: t.yaml:2: tokens[0].sha256: it is no SHA-256; write the 64 hex digits that `spillgate token` prints
            error: t.yaml:3: tokens[1]: pipelines is missing; write pipelines: [traffic], or pipelines: all
            error: t.yaml:3: tokens[1].name: expected a name, like camera-7, found 7; quotes make it a text: "7"
            error: t.yaml:3: tokens[1].rate: 0 is out of range; use 0.01 to 1000000
            error: t.yaml:3: tokens[1].in_flight: -1 is out of range; use 1 to 1000000
            error: t.yaml:3: tokens[1].weight: .nan is out of range; use 0.001 to 1000
            error: t.yaml:3: tokens[1].class: 8 is out of range; use 0 to 7
            error: t.yaml:4: tokens[2].name: "a b" is no name; use letters, digits, _ and -, a letter first, 64 characters at most
            error: t.yaml:4: tokens[2].pipelines: expected a list of pipelines, like [traffic], or all, found "some"
            error: t.yaml:5: tokens[3].token: no field named "token"; fields are name, sha256, pipelines, rate, in_flight, weight, class, slo
            error: t.yaml:6: tokens[4]: "c" stands on line 5 already; remove one of the two
            error: t.yaml:6: tokens[4]: the token of line 5 again; each has one entry
            error: t.yaml:7: tokens[5]: expected a token, like { name: camera-7, sha256: "...", pipelines: [traffic] }, found a text"#]].assert_eq(&errors);
        for (text, says) in [
            ("", "the file is empty; write tokens: [...]"),
            (
                "token: []",
                "no field named \"token\"; did you mean \"tokens\"?",
            ),
            ("tokens: all", "expected a list of tokens"),
        ] {
            let errors = parse_grants(text, "t.yaml").unwrap_err().to_string();
            assert!(errors.contains(says), "{errors}");
        }
        let many = format!("tokens: [{}]", "{},".repeat(TOKENS_MAX + 1));
        let errors = parse_grants(&many, "t.yaml").unwrap_err().to_string();
        assert_eq!(
            errors,
            "error: t.yaml:1: tokens: 4097 tokens are more than the 4096 possible; use fewer"
        );
    }
}
