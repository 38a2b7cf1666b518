use super::*;

fn said(models: &str, arrivals: &str, clients: &str) -> String {
    let read = Scenario::parse(system(), models, arrivals, clients);
    read.expect_err("it is wrong").to_string()
}

#[track_caller]
fn assert_arrivals(rows: &str, expected: &str) {
    assert_eq!(
        said(MODELS, &format!("{ARRIVALS}{rows}"), CLIENTS),
        expected
    );
}

#[track_caller]
fn assert_system(change: impl FnOnce(&mut System), expected: &str) {
    let mut system = system();
    change(&mut system);
    let read = Scenario::parse(system, MODELS, ARRIVALS, CLIENTS);
    assert_eq!(read.expect_err("it is wrong").to_string(), expected);
}

#[test]
fn errors_in_arrivals_name_the_line_and_what_would_be_right() {
    assert_eq!(
        said(MODELS, "time,model\n", CLIENTS),
        "arrivals.csv:1: the header is \"time,model\"; write time_s,model,slo_ms"
    );
    assert_arrivals(
        "0.1,0\n",
        "arrivals.csv:2: \"0.1,0\" has 2 columns; write 3",
    );
    assert_arrivals(
        "0.1,0,30\n-1,0,30\n",
        "arrivals.csv:3: time_s is \"-1\"; write a number from 0",
    );
    assert_arrivals(
        "0.1,2,30\n",
        "arrivals.csv:2: there is no model 2; there are 2",
    );
    assert_arrivals(
        "0.1,first,30\n",
        "arrivals.csv:2: model is \"first\"; write a whole number below 65536",
    );
    assert_arrivals(
        "0.1,0,NaN\n",
        "arrivals.csv:2: slo_ms is \"NaN\"; write a number from 0",
    );
    assert_arrivals(
        "0.2,0,30\n0.1,0,30\n",
        "arrivals.csv:3: the time is before that of the line above; sort the rows",
    );
}

#[test]
fn errors_in_models_name_the_line_and_what_would_be_right() {
    let header = "id,name,weights_mb,pages,load_ms,input_kb,output_kb,exec_ms_b1";
    let of = |rows: &str| said(&format!("{header}\n{rows}"), ARRIVALS, CLIENTS);
    let without_one = header.replace("exec_ms_b1", "exec_ms_b2");
    assert_eq!(
        said(&without_one, ARRIVALS, CLIENTS),
        format!(
            "models.csv:1: the header is {without_one:?}; write {header} and a column exec_ms_bN for each larger size"
        )
    );
    assert_eq!(of(""), "models.csv:2: there are no models");
    assert_eq!(
        of("1,a,100,7,8,0,0,4\n"),
        "models.csv:2: the id is not 0; number the models from 0"
    );
    assert_eq!(
        of("0,a,100,many,8,0,0,4\n"),
        "models.csv:2: pages is \"many\"; write a whole number below 65536"
    );
    assert_eq!(
        of("0,a,100,7,8,0,0,0\n"),
        "models.csv:2: an execution time is 0; write more"
    );
    assert_eq!(
        of("0,a,100,7,8,0,0,1e13\n"),
        "models.csv:2: exec_ms_b1 is \"1e13\"; write a number from 0"
    );
}

#[test]
fn errors_in_clients_name_the_line_and_what_would_be_right() {
    let of = |rows: &str| said(MODELS, ARRIVALS, &format!("{CLIENTS}{rows}"));
    assert_eq!(
        of("0,-1,30\n"),
        "clients.csv:2: concurrency is \"-1\"; write a whole number below 65536"
    );
    assert_eq!(
        of("7,1,30\n"),
        "clients.csv:2: there is no model 7; there are 2"
    );
}

#[test]
fn errors_in_the_system_name_the_field_and_what_would_be_right() {
    assert_system(
        |s| s.net_ms = -1.0,
        "system.json:1: net_ms is -1; write a number from 0",
    );
    assert_system(
        |s| s.link_mb_per_ms = 0.0,
        "system.json:1: link_mb_per_ms is 0; write a number above 0",
    );
    assert_system(|s| s.gpus = 0, "system.json:1: gpus is 0; write at least 1");
    assert_system(
        |s| s.gpus = 2,
        "system.json:1: initial has 1 entries for 2 gpus; write one for each",
    );
    assert_system(
        |s| s.initial = vec!["0 5".to_owned()],
        "system.json:1: initial[0] is \"0 5\"; write ids of models below 2, parted by blanks",
    );
}
