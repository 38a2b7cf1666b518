//! Wrong profile files.

use super::Golden;

pub(super) fn profiles(golden: &mut Golden) {
    for text in [
        "[cpu]",
        "# Measured by\n",
        "entries: 3\ncpu: { a: { m: [{ batch: 1, mean: 2ms }] } }",
        "entries: 0\ncpu: { a: { m: [{ batch: 1, mean: 2ms }] } }",
        "entries: many\n",
        "gpu: {}\ncdua: {}\n",
        "cpu: { a: { m: 3 } }",
        "cpu: { a: { m: [] } }",
        "cpu: { a: { m: [3] } }",
        "cpu: { a: { m: [{ p95: 3ms }] } }",
        "cpu: { a: { m: [{ batch: 0, mean: 3 }] } }",
        "cpu: { a: { m: [{ batch: 1, mean: 2h }] } }",
        "cpu: { a: { m: [{ batch: 1, mean: 2ms, p50: 3ms, p99: 1ms }] } }",
    ] {
        golden.profile(text);
    }
    golden.profile(
        "
cpu:
  a:
    m:
      - { batch: 4, mean: 2ms }
      - { batch: 4, mean: 3ms }
      - { batch: 2, mean: 3ms }
",
    );
    golden.profile("emulated: { a: { m: { alpha: 5ms, max: 2000 } } }");
    golden.profile("cpu: { a: { m: [{ load: 3 }, { batch: 1 }] } }");
    golden.profile("cpu: { a: { m: [{ batch: 1, mean: 2ms }, { load: 3ms }] } }");
    golden.profile("cpu: { a: { m: *x } }");
    golden.profile("cpu: {a: [}");
    golden.profile("cpu: { a: { m: [], m: [] } }");
}
