//! How large a model becomes: ONNX Runtime puts a copy of a function in the place of each call, and functions may call functions.

use std::collections::HashMap;

use super::text;

/// How deep functions may call each other; exporters make a few levels, one a module of the network.
const CALLS_MAX: usize = 64;

/// Domain, name and overload of an operator.
pub(super) type Operator = (String, String, String);

/// A graph or a function.
#[derive(Default)]
pub(super) struct Body {
    pub(super) nodes: u64,
    /// How often it calls each operator.
    pub(super) calls: HashMap<Operator, u64>,
    /// Nodes once its calls are written out, where that is known. Of one that calls itself there is no end.
    expanded: Option<u64>,
}

/// A domain of operators. ONNX's own has two names.
pub(super) fn domain_of(domain: &[u8]) -> Result<String, String> {
    let domain = text(domain)?;
    match &*domain {
        "ai.onnx" => Ok(String::new()),
        _ => Ok(domain),
    }
}

/// The nodes of a graph or function once its calls are written out.
pub(super) fn expanded(
    body: &Body,
    functions: &mut HashMap<Operator, Body>,
    depth: usize,
) -> Result<u64, String> {
    if depth > CALLS_MAX {
        return Err(format!(
            "its functions call each other more than {CALLS_MAX} deep"
        ));
    }
    let mut all = body.nodes;
    for (called, times) in &body.calls {
        let Some(of) = functions.get_mut(called) else {
            continue;
        };
        let each = match of.expanded {
            Some(known) => known,
            None => {
                let without_end = Body {
                    expanded: Some(u64::MAX),
                    ..Body::default()
                };
                let body = std::mem::replace(of, without_end);
                let each = expanded(&body, functions, depth + 1)?;
                let known = Body {
                    expanded: Some(each),
                    ..body
                };
                functions.insert(called.clone(), known);
                each
            }
        };
        all = all.saturating_add(each.saturating_mul(*times));
    }
    Ok(all)
}
