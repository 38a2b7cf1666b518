//! No text makes the reader of profile files panic; what it accepts comes back from its own rendering.

#![no_main]

use libfuzzer_sys::fuzz_target;
use spillgate_pipeline::profile_file::{parse_profiles, render_profiles};

fuzz_target!(|text: &str| {
    if let Ok(set) = parse_profiles(text, "p.yaml") {
        let rendered = render_profiles(&set, "");
        assert_eq!(parse_profiles(&rendered, "p.yaml").as_ref(), Ok(&set), "{rendered}");
    }
});
