//! Text for a terminal. What comes from another process, such as the name of a pipeline, may hold escape sequences that move the
//! cursor, hide text or make the terminal type: everything that this program prints passes through [`printable`].

use std::borrow::Cow;

/// Takes the place of a character that a terminal would obey.
const INSTEAD: char = '\u{fffd}';

/// The text with its lines and tabs, and without other control characters.
pub fn printable(text: &str) -> Cow<'_, str> {
    without(text, |c| is_obeyed(c) && !matches!(c, '\n' | '\t'))
}

/// The text in one line.
pub fn printable_line(text: &str) -> Cow<'_, str> {
    without(text, is_obeyed)
}

fn without(text: &str, obeyed: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&obeyed) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().map(|c| match c {
        '\n' | '\t' if obeyed(c) => ' ',
        c if obeyed(c) => INSTEAD,
        c => c,
    });
    Cow::Owned(shown.collect())
}

/// Control characters of both sets, line and paragraph separators, and marks that turn the direction of what follows.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_nothing_of_it() {
        let hostile = "a\x1b[2Jb\x07c\u{9b}31md\re\x7ff\u{202e}g\nh\ti";
        assert_eq!(
            printable(hostile),
            "a\u{fffd}[2Jb\u{fffd}c\u{fffd}31md\u{fffd}e\u{fffd}f\u{fffd}g\nh\ti"
        );
        assert_eq!(
            printable_line("a\nb\x1bc\u{2028}d"),
            "a b\u{fffd}c\u{fffd}d"
        );
        for plain in ["", "détecté 12 µs → 7", "a\n\tb"] {
            assert!(matches!(printable(plain), Cow::Borrowed(text) if text == plain));
        }
    }
}
