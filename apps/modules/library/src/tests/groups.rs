//! Groups of a detector's classes that the user names: each is an output.

use super::{Fake, Folder, build, build_in, compiled, found, in_the_middle, one, picture};

fn detector(options: &str) -> String {
    format!(
        "
op: detector
variants: [{{ model: net.pt, input: 64 }}]
inputs: {{ image: $source.frame }}
options: {{ {options} }}
"
    )
}

#[test]
fn each_group_is_an_output_behind_those_of_the_type() {
    // The first picture of a batch has class 0, the second one class 1.
    let folder = Folder::new(&["car", "person"]);
    let options = "groups: { cars: [car, car], all: [person, car], men: [person] }";
    let mut detector =
        build(&Fake::new(in_the_middle), &folder, &detector(options)).expect("builds");
    let batch = vec![vec![Some(picture(64, 64))]; 2];
    let results = detector.run(0, &batch).into_iter();
    let labels: Vec<Vec<Vec<String>>> = results
        .map(|outputs| {
            let outputs = outputs.expect("runs");
            assert_eq!(outputs.len(), 8);
            let boxes = [0, 1, 2, 5, 6, 7].map(|port| found(&outputs[port]));
            let names = |boxes: &Vec<(&str, _)>| boxes.iter().map(|b| b.0.to_owned()).collect();
            boxes.iter().map(names).collect()
        })
        .collect();
    let (car, person, none) = (["car"].as_slice(), ["person"].as_slice(), [].as_slice());
    assert_eq!(labels[0], [car, car, none, car, car, none]);
    assert_eq!(labels[1], [person, none, person, none, person, person]);
}

#[test]
fn outputs_of_the_pipeline_and_values_of_the_module_agree() {
    let text = "
name: test
slo: 1s
modules:
  m:
    op: detector
    variants: [{ model: net.pt, input: 64 }]
    inputs: { image: $source.frame }
    options: { groups: { cars: [car], men: [person] } }
outputs: { men: $m.men, cars: $m.cars }
";
    let pipeline = compiled(text);
    let folder = Folder::new(&["car", "person"]);
    let mut detector = build_in(&Fake::new(in_the_middle), &folder, &pipeline).expect("builds");
    let outputs = one(detector.run(0, &[vec![Some(picture(64, 64))]])).expect("runs");
    assert!(spillgate_process::job::are_outputs_of(
        &pipeline.modules[1],
        &outputs
    ));
    let of = |at: usize| found(&outputs[usize::from(pipeline.outputs[at].from.port)]).len();
    assert_eq!((of(0), of(1)), (0, 1));
}

#[test]
fn classes_that_the_model_does_not_have_are_refused() {
    let said = |labels: &[&str], options: &str| {
        let folder = Folder::new(labels);
        let built = build(&Fake::new(in_the_middle), &folder, &detector(options));
        built.map(|_| ()).map_err(|error| error.to_string())
    };
    let few = ["car", "person"];
    assert_eq!(
        said(&few, "groups: { cars: [car], ships: [car, boat] }"),
        Err(
            "modules.m: options.groups.ships: net.pt has no class \"boat\"; its classes are car, person"
                .to_owned()
        )
    );
    assert_eq!(
        said(&few, "people: [persn]"),
        Err(
            "modules.m: options.people: net.pt has no class \"persn\"; its classes are car, person"
                .to_owned()
        )
    );
    let many: Vec<String> = (0..9).map(|i| format!("c{i}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(
        said(&many, "groups: { ships: [boat] }"),
        Err(
            "modules.m: options.groups.ships: net.pt has no class \"boat\"; its classes are \
             c0, c1, c2, c3, c4, c5, c6, c7, ... (9 in all)"
                .to_owned()
        )
    );
    // The default lists are for models in general.
    assert_eq!(
        said(&["boat", "ferry"], "groups: { ships: [boat] }"),
        Ok(())
    );
}
