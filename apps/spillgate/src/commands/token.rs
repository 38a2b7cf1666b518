//! `spillgate token`: a new token, and its entry for the file of tokens.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use sha2::{Digest, Sha256};
use spillgate_pipeline::grant::{Grant, parse_grants};
use spillgate_telemetry::logging::say;

use super::print;

/// The beginning of every token, so that people and programs recognise it. A hash has no such letters.
const PREFIX: &str = "sgt_";
/// Random bytes of a token: too many to guess.
const TOKEN_BYTES: usize = 32;

/// Whose token.
#[derive(Args)]
pub(crate) struct TokenArgs {
    /// Name of the client that is to have it
    name: String,
}

/// Prints the token on standard output and its entry on standard error.
pub(crate) fn run(args: &TokenArgs) -> anyhow::Result<ExitCode> {
    let token = format!("{PREFIX}{}", hex(&rand::random::<[u8; TOKEN_BYTES]>()));
    let entry = entry(&args.name, &token);
    match read(&entry) {
        Ok(grants) if *grants[0].name == *args.name => {}
        Ok(_) => bail!("a name is one word of letters, digits, _ and -, like camera-7"),
        Err(wrong) => bail!("{}", wrong.list[0].problem),
    }
    print(&format!("{token}\n"))?;
    say(&format!(
        "this is shown once; give it to {} and keep its entry, under tokens: in the file of --tokens:",
        args.name
    ));
    say(&entry);
    say(
        "instead of all name its pipelines, like [traffic]; rate: 30 and in_flight: 16 bound what it asks",
    );
    Ok(ExitCode::SUCCESS)
}

fn entry(name: &str, token: &str) -> String {
    let hash = hex(&Sha256::digest(token.as_bytes()));
    format!("- {{ name: {name}, sha256: \"{hash}\", pipelines: all }}")
}

fn read(entry: &str) -> Result<Vec<Grant>, spillgate_pipeline::Diagnostics> {
    parse_grants(&format!("tokens:\n{entry}\n"), "")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_is_one_of_a_file_and_holds_the_hash_alone() {
        let entry = entry("camera-7", "abc");
        let grants = read(&entry).unwrap();
        assert_eq!(&*grants[0].name, "camera-7");
        // SHA-256 of "abc", from FIPS 180-2.
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(&grants[0].hash), known);
        assert!(!entry.contains("abc"));
    }
}
