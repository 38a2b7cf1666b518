//! What an exporter wrote beside a model: keys and their values.

use std::collections::BTreeMap;

use super::super::wire::{Fields, Value};
use super::text;
use crate::description::METADATA_BYTES_MAX;

/// What was read of it so far.
#[derive(Default)]
pub(super) struct Metadata {
    pub(super) entries: BTreeMap<String, String>,
    bytes: usize,
}

impl Metadata {
    /// A key and its value. One that is there twice is damage: its readers would take one each.
    pub(super) fn add(&mut self, entry: &[u8]) -> Result<(), String> {
        self.bytes += entry.len();
        if self.bytes > METADATA_BYTES_MAX {
            return Err(format!(
                "its metadata has more than the {METADATA_BYTES_MAX} bytes that are read; take out what is no name of a class"
            ));
        }
        let (mut key, mut value) = (String::new(), String::new());
        for field in Fields::of(entry) {
            match field? {
                (1, Value::Bytes(bytes)) => key = text(bytes)?,
                (2, Value::Bytes(bytes)) => value = text(bytes)?,
                _ => {}
            }
        }
        match self.entries.insert(key, value) {
            None => Ok(()),
            Some(_) => Err("it is damaged: a key of its metadata is there twice".to_owned()),
        }
    }
}
