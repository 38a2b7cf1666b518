//! Variables in the values of a pipeline file: `${NAME}`, `${NAME:-default}`; `$$` stands for a `$`. Keys have no
//! variables. References (`$module.output`) are not variables: they have no braces.
//!
//! The caller supplies the values of the variables: this crate reads no environment.

use crate::problem::Problem;

/// The value of a variable; `None` when it is not set.
pub type Variables<'v> = &'v dyn Fn(&str) -> Option<String>;

/// Longest value that a variable may bring: a path or a list of devices is far shorter.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 10;

/// The text with its variables replaced; `None` when it has none.
///
/// # Errors
/// The first variable that is not set or not written right.
pub(crate) fn expand(text: &str, variables: Variables<'_>) -> Result<Option<String>, Problem> {
    if !text.contains("${") && !text.contains("$$") {
        return Ok(None);
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some(inside) = after.strip_prefix('{') {
            let bad = || Problem::BadVariable {
                text: rest[at..].to_owned(),
            };
            let end = inside.find('}').ok_or_else(bad)?;
            out.push_str(&value(&inside[..end], variables)?.ok_or_else(bad)?);
            rest = &inside[end + 1..];
        } else {
            out.push('$');
            rest = after;
        }
        if out.len() > VALUE_BYTES_MAX {
            return Err(Problem::LongVariable {
                limit: VALUE_BYTES_MAX,
            });
        }
    }
    out.push_str(rest);
    Ok(Some(out))
}

/// The value of `NAME` or `NAME:-default`; `None` when it is neither.
fn value(inside: &str, variables: Variables<'_>) -> Result<Option<String>, Problem> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_name = name.starts_with(|c: char| is_word(c) && !c.is_ascii_digit());
    // A default holds no variable: its closing brace would end here.
    if !is_name || !name.chars().all(is_word) || default.is_some_and(|d| d.contains("${")) {
        return Ok(None);
    }
    let set = variables(name);
    match (set, default) {
        // As in a shell: with a default, an empty variable counts as none.
        (Some(set), None) => Ok(Some(set)),
        (Some(set), Some(_)) if !set.is_empty() => Ok(Some(set)),
        (_, Some(default)) => Ok(Some(default.to_owned())),
        (None, None) => Err(Problem::UnsetVariable {
            name: name.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> Result<Option<String>, Problem> {
        let known = |name: &str| match name {
            "A" => Some("one".to_owned()),
            "_b2" => Some("two".to_owned()),
            "EMPTY" => Some(String::new()),
            "HUGE" => Some("x".repeat(VALUE_BYTES_MAX + 1)),
            "DOLLAR" => Some("${A}$$".to_owned()),
            _ => None,
        };
        expand(text, &known)
    }

    #[test]
    fn variables_defaults_and_escapes() {
        for (text, expected) in [
            ("${A}", "one"),
            ("a ${A} and ${_b2}.", "a one and two."),
            ("${A:-x}${NONE:-x y:-z}", "onex y:-z"),
            ("${NONE:-}", ""),
            ("${EMPTY:-x}${EMPTY}", "x"),
            ("$$", "$"),
            ("$${A}", "${A}"),
            ("$$$source.frame", "$$source.frame"),
            ("$a.b ${A}", "$a.b one"),
            // The value of a variable is not searched for variables.
            ("${DOLLAR}", "${A}$$"),
        ] {
            assert_eq!(given(text), Ok(Some(expected.to_owned())), "{text}");
        }
    }

    #[test]
    fn references_and_plain_texts_stay_as_they_are() {
        for text in ["$source.frame", "$", "a$b", "{A}", ""] {
            assert_eq!(given(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn what_is_no_variable_is_an_error() {
        for text in [
            "${",
            "${}",
            "${A",
            "${1A}",
            "${A B}",
            "${:-x}",
            "${A-b}",
            "${A:-${B}}",
            "${ A }",
        ] {
            let error = given(text).unwrap_err();
            assert!(
                matches!(error, Problem::BadVariable { .. }),
                "{text}: {error}"
            );
        }
        let unset = Problem::UnsetVariable {
            name: "NONE".to_owned(),
        };
        assert_eq!(given("${NONE}"), Err(unset));
        let huge = given("${HUGE}").unwrap_err();
        assert!(matches!(huge, Problem::LongVariable { .. }), "{huge}");
    }
}
