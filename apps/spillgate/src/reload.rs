//! The parts that a running server reads again on SIGHUP: tokens, certificates.

/// Reads something anew. Returns a line about the result, or the reason why the earlier content stays.
type Reading = Box<dyn Fn() -> Result<String, String> + Send + Sync>;

/// The name of a part that was reloaded, and the result.
pub type Reloaded = (String, Result<String, String>);

/// All that can be reloaded, in the order in which it was added.
#[derive(Default)]
pub struct Reload {
    parts: Vec<(String, Reading)>,
}

impl Reload {
    /// Adds a part. `read` is called outside of the async threads: it may read files. If it fails, the earlier content
    /// stays, and it returns the reason.
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
