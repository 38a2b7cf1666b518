//! What a server takes in anew while it runs, when it is told to (SIGHUP): tokens, certificates.

/// Reads something anew: what it found, or why it keeps what it had.
type Reading = Box<dyn Fn() -> Result<String, String> + Send + Sync>;

/// A named thing that can be reloaded, and what came of it.
pub type Reloaded = (String, Result<String, String>);

/// All that can be reloaded, in the order in which it was added.
#[derive(Default)]
pub struct Reload {
    parts: Vec<(String, Reading)>,
}

impl Reload {
    /// Adds a part. `read` is called outside of the async threads: it may read files. Where it fails, it keeps what it
    /// had and says why.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        read: impl Fn() -> Result<String, String> + Send + Sync + 'static,
    ) {
        self.parts.push((name.into(), Box::new(read)));
    }

    /// Reloads every part, also after one that failed.
    pub fn run(&self) -> Vec<Reloaded> {
        let one = |(name, read): &(String, Reading)| (name.clone(), read());
        self.parts.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_reloaded_and_a_failure_stops_no_other() {
        let mut reload = Reload::default();
        assert!(reload.run().is_empty());
        reload.add("tokens", || Err("gone".to_owned()));
        reload.add("certificates", || Ok("two".to_owned()));
        let expected = [
            ("tokens".to_owned(), Err("gone".to_owned())),
            ("certificates".to_owned(), Ok("two".to_owned())),
        ];
        assert_eq!(reload.run(), expected);
    }
}
