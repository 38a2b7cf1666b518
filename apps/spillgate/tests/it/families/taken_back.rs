//! A revision whose model fails its requests is taken back by itself.

use super::*;

/// Answers of the default member, asked one after the other.
fn asked(served: &Served, n: usize) -> Vec<Result<(), Code>> {
    let ask = |_| served.ask_of("p", "").map_err(|status| status.code());
    (0..n).map(ask).collect()
}

#[test]
fn a_revision_whose_model_fails_is_taken_back_and_the_former_one_serves_at_once() {
    let folder = Folder::new("taken-back", "default_model: a");
    folder.member("a", &model("", 0));
    folder.member("broken", b"junk");
    let served = folder.serve();
    assert_eq!(asked(&served, 20), [Ok(()); 20]);
    let file = folder.0.join("p.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let broken = text.replace("default_model: a", "default_model: broken");
    std::fs::write(&file, &broken).unwrap();
    served.read_again();
    // It is taken back within a second of its tenth failure, and every later request succeeds.
    let began = Instant::now();
    let mut n_failed = 0;
    while let [Err(code)] = asked(&served, 1)[..] {
        assert_eq!(code, Code::Internal);
        n_failed += 1;
        assert!(began.elapsed() < PATIENCE, "it is not taken back");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(n_failed >= 10, "{n_failed}");
    let line = served.line_with("taken back: ");
    assert!(
        line.contains("WARN")
            && line.contains("requests failed; of the one before it 0 of 20 in its last minute"),
        "{line}"
    );
    assert_eq!(asked(&served, 20), [Ok(()); 20]);
    // The same file once more is another attempt.
    served.read_again();
}
