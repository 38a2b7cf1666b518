//! Rust source with everything blanked out that is not the program itself.
//!
//! Not a parser: enough of the lexical grammar (comments, strings, characters, lifetimes) to tell code
//! from text, and brace matching to find test modules. Blanked characters become spaces and line ends
//! stay, so that line numbers hold.

/// The source with comments and the contents of literals blanked out.
pub(super) fn code(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => line_comment(&chars, at),
            '/' if chars.get(at + 1) == Some(&'*') => block_comment(&chars, at),
            '"' => quoted(&chars, at + 1, '"'),
            'r' if !follows_a_word(&chars, at) => raw_string(&chars, at).unwrap_or(at),
            // `b"…"`, `c"…"`, `br"…"`: the prefix is code, what follows is met next.
            'b' | 'c' if !follows_a_word(&chars, at) && chars.get(at + 1) == Some(&'r') => {
                raw_string(&chars, at + 1).unwrap_or(at)
            }
            '\'' => character(&chars, at).unwrap_or(at),
            _ => at,
        };
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(
                chars[at..end]
                    .iter()
                    .map(|&c| if c == '\n' { '\n' } else { ' ' }),
            );
            at = end;
        }
    }
    out
}

/// What [`code`] keeps, without items marked `#[cfg(test)]`.
pub(super) fn shipped_code(source: &str) -> String {
    let code = code(source);
    let marker = "#[cfg(test)]";
    let mut out = String::with_capacity(code.len());
    let mut rest = code.as_str();
    while let Some(at) = rest.find(marker) {
        let (before, item) = rest.split_at(at);
        let (item, after) = item.split_at(item_length(item));
        out.push_str(before);
        out.extend(item.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = after;
    }
    out.push_str(rest);
    out
}

/// The length of the item at the start: to its closing brace, or to a semicolon before any brace.
fn item_length(code: &str) -> usize {
    let mut depth = 0_usize;
    // Brackets count too: `[u8; 4]` holds a semicolon that ends nothing.
    for (at, c) in code.char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth = depth.saturating_sub(1);
                if c == '}' && depth == 0 {
                    return at + 1;
                }
            }
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn follows_a_word(chars: &[char], at: usize) -> bool {
    at > 0 && is_word(chars[at - 1])
}

fn line_comment(chars: &[char], at: usize) -> usize {
    chars[at..]
        .iter()
        .position(|&c| c == '\n')
        .map_or(chars.len(), |n| at + n)
}

fn block_comment(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    chars.len()
}

/// The end of a literal whose contents begin at `at`, with backslash escapes.
fn quoted(chars: &[char], mut at: usize, quote: char) -> usize {
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// The end of `r"…"` or `r#"…"#` at `at`; none if that is a raw identifier or a plain word.
fn raw_string(chars: &[char], at: usize) -> Option<usize> {
    let n_hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    let open = at + 1 + n_hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let mut end = open + 1;
    while end < chars.len() {
        let close = chars[end] == '"'
            && chars[end + 1..]
                .iter()
                .take(n_hashes)
                .filter(|&&c| c == '#')
                .count()
                == n_hashes;
        if close {
            return Some(end + 1 + n_hashes);
        }
        end += 1;
    }
    Some(chars.len())
}

/// The end of `'c'` at `at`; none if that is a lifetime.
fn character(chars: &[char], at: usize) -> Option<usize> {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), _) => Some(quoted(chars, at + 1, '\'')),
        (Some(_), Some('\'')) => Some(at + 3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_blanked_and_lines_stay() {
        let source = "a(); // one\n/* two /* nested */ still */ b(\"three \\\" \\\\\");\nc('\"', 'x', '\\'');";
        let code = code(source);
        assert_eq!(code.lines().count(), 3);
        assert_eq!(code.len(), source.len());
        for word in ["one", "two", "nested", "still", "three", "x"] {
            assert!(!code.contains(word), "{word} in {code}");
        }
        for word in ["a();", "b(", "c("] {
            assert!(code.contains(word), "{word} not in {code}");
        }
    }

    #[test]
    fn raw_strings_and_lifetimes_are_told_apart_from_code() {
        let source = r####"fn f<'a>(r: &'a str, bar: u8) { g(r#"in "text" here"#, br"more", r); r#type(); }"####;
        let code = code(source);
        assert!(!code.contains("text") && !code.contains("more"), "{code}");
        assert!(
            code.contains("fn f<'a>(r: &'a str, bar: u8) { g("),
            "{code}"
        );
        assert!(code.contains(", r); r#type(); }"), "{code}");
    }

    #[test]
    fn test_items_are_left_out_and_what_follows_is_not() {
        let source = "fn a() {}\n#[cfg(test)]\nfn b(x: [u8; 2]) { if x { y } }\n#[cfg(test)]\nmod tests;\n\
                      fn c() {}\n#[cfg(test)]\nmod inner {\n fn d() { \"}\" }\n}\nfn e() {}";
        let code = shipped_code(source);
        assert_eq!(code.lines().count(), source.lines().count());
        let kept: Vec<&str> = code
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        assert_eq!(kept, ["fn a() {}", "fn c() {}", "fn e() {}"]);
    }
}
