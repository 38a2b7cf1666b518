//! Errors of files of tokens.

use spillgate_pipeline::grant::parse_grants;

use crate::compile::errors::Golden;

pub(crate) fn errors(golden: &mut Golden) {
    let hash = "ab".repeat(32);
    let twice = format!(
        "tokens:\n- {{ name: a, sha256: \"{hash}\", pipelines: all }}\n- {{ name: b, sha256: \"{hash}\", pipelines: all }}"
    );
    for text in [
        "tokens: [{ name: a, sha256: sgt_0123, pipelines: all }]",
        &twice,
    ] {
        let errors = parse_grants(text, "tokens.yaml").unwrap_err();
        golden.case(text, &errors.list);
    }
}
