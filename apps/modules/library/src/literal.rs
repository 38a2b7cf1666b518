//! Values as Python and JSON write them: what exporters put into metadata (`{0: 'person'}`, `{"0": "person"}`, `(640, 640)`, `None`).
//!
//! The two are close enough to be read by one grammar, which neither's own reader takes. Nothing in it refers to anything else, so a value
//! takes as much memory as its text, times a constant.

/// How deep values may lie in one another: exporters' lie two deep.
const DEPTH_MAX: usize = 8;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    /// `None`, `null`
    Nothing,
    Truth(bool),
    Number(f64),
    Text(String),
    /// A list or a tuple.
    List(Vec<Literal>),
    Map(Vec<(Literal, Literal)>),
}

impl Literal {
    /// The value that a text is; `None` where it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut reader = Reader { rest: text.trim() };
        let value = reader.value(0)?;
        reader.rest.is_empty().then_some(value)
    }

    pub(crate) fn as_number(&self) -> Option<f64> {
        match self {
            Literal::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// A whole number of at least 0.
    pub(crate) fn as_count(&self) -> Option<u64> {
        let number = self.as_number()?;
        // Beyond 2^53 numbers are not exact.
        let is_count = number.fract() == 0.0 && (0.0..=9e15).contains(&number);
        is_count.then_some(number as u64)
    }

    pub(crate) fn as_list(&self) -> Option<&[Literal]> {
        match self {
            Literal::List(items) => Some(items),
            _ => None,
        }
    }

    /// The value of a key that is a text.
    pub(crate) fn get(&self, key: &str) -> Option<&Literal> {
        let Literal::Map(entries) = self else {
            return None;
        };
        let mut entries = entries.iter();
        let found = entries.find(|(name, _)| matches!(name, Literal::Text(name) if name == key));
        found.map(|(_, value)| value)
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Whether the next character is that one, which is passed then.
    fn next_is(&mut self, expected: char) -> bool {
        self.skip();
        match self.rest.strip_prefix(expected) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self, depth: usize) -> Option<Literal> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.skip();
        match self.rest.chars().next()? {
            '{' => self.map(depth),
            '[' => self.list(']', depth),
            '(' => self.list(')', depth),
            quote @ ('\'' | '"') => self.text(quote).map(Literal::Text),
            _ => self.plain(),
        }
    }

    fn list(&mut self, end: char, depth: usize) -> Option<Literal> {
        self.rest = &self.rest[1..];
        let mut items = Vec::new();
        while !self.next_is(end) {
            items.push(self.value(depth + 1)?);
            if !self.next_is(',') {
                return self.next_is(end).then_some(Literal::List(items));
            }
        }
        Some(Literal::List(items))
    }

    fn map(&mut self, depth: usize) -> Option<Literal> {
        self.rest = &self.rest[1..];
        let mut entries = Vec::new();
        while !self.next_is('}') {
            let key = self.value(depth + 1)?;
            if !self.next_is(':') {
                return None;
            }
            entries.push((key, self.value(depth + 1)?));
            if !self.next_is(',') {
                return self.next_is('}').then_some(Literal::Map(entries));
            }
        }
        Some(Literal::Map(entries))
    }

    /// A text between quotes, with the escapes of Python and JSON.
    fn text(&mut self, quote: char) -> Option<String> {
        let mut text = String::new();
        let mut all = self.rest[1..].chars();
        loop {
            match all.next()? {
                c if c == quote => break,
                '\\' => text.push(match all.next()? {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    'x' => coded(&mut all, 2)?,
                    'u' => match unit(&mut all, 4)? {
                        // JSON writes characters beyond 16 bits as two.
                        high @ 0xd800..=0xdbff => {
                            let is_pair = all.next()? == '\\' && all.next()? == 'u';
                            let low = unit(&mut all, 4)
                                .filter(|low| is_pair && (0xdc00..=0xdfff).contains(low))?;
                            char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))?
                        }
                        code => char::from_u32(code)?,
                    },
                    'U' => coded(&mut all, 8)?,
                    c @ ('\\' | '\'' | '"' | '/') => c,
                    _ => return None,
                }),
                c => text.push(c),
            }
        }
        self.rest = all.as_str();
        Some(text)
    }

    fn plain(&mut self) -> Option<Literal> {
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c)));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        Some(match word {
            "None" | "null" => Literal::Nothing,
            "True" | "true" => Literal::Truth(true),
            "False" | "false" => Literal::Truth(false),
            number => Literal::Number(number.parse::<f64>().ok().filter(|n| n.is_finite())?),
        })
    }
}

/// A number of so many hexadecimal digits.
fn unit(all: &mut std::str::Chars<'_>, digits: usize) -> Option<u32> {
    (0..digits).try_fold(0u32, |code, _| {
        let digit = all.next()?.to_digit(16)?;
        code.checked_mul(16)?.checked_add(digit)
    })
}

fn coded(all: &mut std::str::Chars<'_>, digits: usize) -> Option<char> {
    char::from_u32(unit(all, digits)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(text: &str) -> Literal {
        Literal::Text(text.to_owned())
    }

    #[test]
    fn both_languages_are_read() {
        let number = Literal::Number;
        let python = r#"{0: 'person', 1: "driver's", 2: 'say "it\'s"', 3: 'a\\b\t\u00e4\x41'}"#;
        let names = ["person", "driver's", "say \"it's\"", "a\\b\tä A"]
            .map(|name| name.replace("ä A", "äA"));
        let entries = (0..)
            .zip(&names)
            .map(|(i, name)| (number(f64::from(i)), text(name)));
        assert_eq!(
            Literal::parse(python),
            Some(Literal::Map(entries.collect()))
        );
        let json = r#" { "0" : "\ud83d\ude00\/" , "nms": null } "#;
        let entries = vec![(text("0"), text("😀/")), (text("nms"), Literal::Nothing)];
        assert_eq!(Literal::parse(json), Some(Literal::Map(entries)));
        let sides = Literal::List(vec![number(640.0), number(480.0)]);
        for list in ["[640, 480]", "(640, 480)", "[640, 480,]", "(640,480)"] {
            assert_eq!(Literal::parse(list), Some(sides.clone()), "{list}");
        }
        assert_eq!(Literal::parse("True"), Some(Literal::Truth(true)));
        assert_eq!(Literal::parse("-1.5e2"), Some(number(-150.0)));
        assert_eq!(Literal::parse("[]"), Some(Literal::List(vec![])));
    }

    #[test]
    fn what_is_no_value_is_none() {
        for wrong in [
            "",
            "{",
            "[1",
            "[1 2]",
            "{1}",
            "{1: }",
            "'a",
            "person",
            "person,car",
            "1 2",
            "[&a 1, *a]",
            "'\\q'",
            "'\\ud800'",
            "'\\U00110000'",
            "nan",
            "1e999",
            "{1: 2]",
        ] {
            assert_eq!(Literal::parse(wrong), None, "{wrong}");
        }
        let deep = "[".repeat(4_000_000);
        assert_eq!(Literal::parse(&deep), None);
        assert!(Literal::parse("[[[[[[[[1]]]]]]]]").is_some());
        assert!(Literal::parse("[[[[[[[[[1]]]]]]]]]").is_none());
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(serde_json::Value::from),
            (-1e9..1e9f64).prop_map(serde_json::Value::from),
            any::<String>().prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
                proptest::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn of(json: &serde_json::Value) -> Literal {
        match json {
            serde_json::Value::Null => Literal::Nothing,
            serde_json::Value::Bool(truth) => Literal::Truth(*truth),
            serde_json::Value::Number(number) => Literal::Number(number.as_f64().unwrap()),
            serde_json::Value::String(text) => Literal::Text(text.clone()),
            serde_json::Value::Array(items) => Literal::List(items.iter().map(of).collect()),
            serde_json::Value::Object(map) => Literal::Map(
                map.iter()
                    .map(|(key, value)| (text(key), of(value)))
                    .collect(),
            ),
        }
    }

    proptest! {
        #[test]
        fn json_is_read_as_its_own_reader_does(value in json()) {
            prop_assert_eq!(Literal::parse(&value.to_string()), Some(of(&value)));
        }

        #[test]
        fn any_text_is_a_value_or_none(text in "[\\[\\]{}(),:'\"\\\\a0 ]{0,40}") {
            let _ = Literal::parse(&text);
        }
    }
}
