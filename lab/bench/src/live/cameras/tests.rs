use super::*;

fn parse(words: &[&str]) -> Result<Options> {
    Options::parse(words.iter().map(Into::into).collect())
}

#[test]
fn options_are_read_and_shown() {
    let options = parse(&[]).unwrap();
    assert_eq!(
        options.shown(),
        "cargo xtask live-cameras --seconds 60 --clients 4,8 --traces synthetic --adapt greedy,spillgate --fps 10 \
         --slo 400ms --link-rtt 20ms --seed 1"
    );
    let options = parse(&[
        "--network",
        "x/net",
        "--clients",
        "2",
        "--adapt",
        "jellyfish",
    ]);
    let options = options.unwrap();
    assert_eq!(options.traces, ["synthetic", "wifi", "lte"]);
    let shown = options.shown();
    assert!(
        shown.contains("--network FOLDER") && !shown.contains("x/net"),
        "{shown}"
    );
    let one = parse(&["--network", "net", "--traces", "lte", "--slo", "1s"]).unwrap();
    assert_eq!(
        (one.traces, one.slo.as_str()),
        (vec!["lte".to_owned()], "1s")
    );
}

#[test]
fn times_are_read_in_both_units() {
    for (text, ms) in [("400ms", 400.0), ("1.5s", 1500.0)] {
        assert_eq!(milliseconds(text).unwrap(), ms);
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let said = |words: &[&str]| parse(words).err().unwrap().to_string();
    assert!(said(&["--traces", "wifi"]).contains("--network"));
    assert!(said(&["--clients", "4,0"]).contains("\"0\""));
    assert!(said(&["--seconds", "1"]).contains("--seconds"));
    assert!(said(&["--fps", "0"]).contains("--fps"));
    assert!(said(&["--slo", "400"]).contains("--slo"));
    assert!(said(&["--loads", "1"]).contains("--loads"));
}
