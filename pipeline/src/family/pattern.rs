//! The pattern of a family's files: `*` stands for any letters and `?` for one, in the last part of the path only.

/// A pattern in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern<'a> {
    /// The folder as written; empty for that of the pipeline file.
    pub folder: &'a str,
    /// The pattern of the names in it.
    names: &'a str,
}

/// Why a text is no pattern, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPattern(pub &'static str);

impl<'a> Pattern<'a> {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When it names a folder or one file, or a folder by pattern.
    pub fn read(text: &'a str) -> Result<Self, BadPattern> {
        let (folder, names) = match text.rfind('/') {
            Some(0) => ("/", &text[1..]),
            Some(at) => (&text[..at], &text[at + 1..]),
            None => ("", text),
        };
        let is_wild = |text: &str| text.contains(['*', '?']);
        if is_wild(folder) {
            return Err(BadPattern("* and ? may stand in its last part only"));
        }
        if names.is_empty() {
            return Err(BadPattern("it ends with a folder"));
        }
        if !is_wild(names) {
            return Err(BadPattern(
                "it has no * or ?, and one file is written as model: FILE",
            ));
        }
        Ok(Pattern { folder, names })
    }

    /// Whether a file of that name belongs to it. Hidden files do not, unless the pattern begins with a dot.
    pub fn matches(&self, name: &str) -> bool {
        if name.starts_with('.') && !self.names.starts_with('.') {
            return false;
        }
        matches(self.names, name)
    }

    /// The path of a file of its folder.
    pub fn path(&self, name: &str) -> String {
        match self.folder {
            "" => name.to_owned(),
            "/" => format!("/{name}"),
            folder => format!("{folder}/{name}"),
        }
    }
}

/// Each `*` takes as few letters as possible. Where that fails the last one takes one more: at most `pattern * name` steps.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // The place after the last star, and how far the name was when it began.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                p += 1;
                star = Some((p, n));
            }
            Some(&c) if c == '?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((after, began)) = star else {
                    return false;
                };
                star = Some((after, began + 1));
                p = after;
                n = began + 1;
            }
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pattern_is_a_folder_and_names() {
        let parts = |text| Pattern::read(text).map(|p| (p.folder, p.path("a.pt")));
        assert_eq!(parts("*.pt"), Ok(("", "a.pt".to_owned())));
        assert_eq!(parts("/*.pt"), Ok(("/", "/a.pt".to_owned())));
        assert_eq!(
            parts("../m/c/cam?.pt"),
            Ok(("../m/c", "../m/c/a.pt".to_owned()))
        );
        for wrong in ["", "m/", "m/a.pt", "m/*/a.pt", "m?/*.pt"] {
            assert!(Pattern::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn hidden_files_do_not_count() {
        assert!(!Pattern::read("*").unwrap().matches(".a.pt"));
        assert!(Pattern::read(".*").unwrap().matches(".a.pt"));
    }

    /// The obvious reference: tries each length for a star.
    fn slow(pattern: &[char], name: &[char]) -> bool {
        match (pattern.first(), name.first()) {
            (None, _) => name.is_empty(),
            (Some('*'), _) => (0..=name.len()).any(|n| slow(&pattern[1..], &name[n..])),
            (Some(_), None) => false,
            (Some(p), Some(n)) => (*p == '?' || p == n) && slow(&pattern[1..], &name[1..]),
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_slow_one(pattern in "[ab*?]{0,7}", name in "[ab]{0,8}") {
            let letters = |text: &str| text.chars().collect::<Vec<char>>();
            prop_assert_eq!(matches(&pattern, &name), slow(&letters(&pattern), &letters(&name)));
        }
    }
}
