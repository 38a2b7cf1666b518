//! The compiler of pipeline files from outside: what is accepted, what every error says, and that no
//! text makes it panic.

mod accepted;
mod adaptation;
mod clients;
mod errors;
mod families;
mod pictures;

mod properties;
mod schema;
mod tokens;
mod variables;

use spillgate_pipeline::catalog::{
    Catalog, ExecutionTime, ModelNeed, ModuleType, OptionType, ValueType,
};

/// A pipeline with every kind of field: variants, a condition, a join at the outputs.
pub(crate) const TRAFFIC: &str = "\
name: traffic
slo: 400ms
modules:
  detect:
    op: detector
    variants:                      # one entry: a plain model. Several: the server may adapt
      - { model: models/road.pt, input: 192 }
      - { model: models/road.pt, input: 320 }
    inputs: { image: $source.frame }
    batch: { max: 8 }
    workers: { min: 1, max: 4 }
  plates:
    op: text_reader
    model: models/plate.pt
    inputs: { image: $source.frame, boxes: $detect.vehicles }
    when: $detect.vehicles         # skipped when there are none
  faces:
    op: face_recognizer
    model: models/face.pt
    inputs: { image: $source.frame, boxes: $detect.people }
outputs: { vehicles: $detect.vehicles, plates: $plates.text, people: $faces.id }
policy: { drop: deadline }
";

/// The types that the tests' pipelines use.
pub(crate) fn catalog() -> Catalog {
    let mut catalog = Catalog::new();
    catalog.register(
        ModuleType::new(
            "detector",
            "Finds vehicles and people.",
            ModelNeed::Required,
        )
        .input("image", ValueType::Image, "The frame.")
        .output("vehicles", ValueType::Boxes, "Vehicles.")
        .output("people", ValueType::Boxes, "People.")
        .option(
            "confidence",
            OptionType::Number(0.0, 1.0),
            "Least score; 0.4.",
        )
        .option("objects", OptionType::Integer(1, 300), "Most objects; 100.")
        .option("half", OptionType::Bool, "Half precision; false.")
        .option("labels", OptionType::File, "File of labels; none.")
        .option("mean", OptionType::Numbers(3), "Mean of each channel; 0.")
        .option("classes", OptionType::Texts, "Classes to keep; all.")
        .option(
            "thresholds",
            OptionType::NumberByText(0.0, 1.0),
            "Least scores of classes; none.",
        )
        .option(
            "groups",
            OptionType::Groups(ValueType::Boxes),
            "Further outputs by class; none.",
        )
        .option(
            "resize",
            OptionType::Choice(vec!["stretch".to_owned(), "letterbox".to_owned()]),
            "How a frame is made square; letterbox.",
        ),
    );
    catalog.register(
        ModuleType::new(
            "text_reader",
            "Reads the text in each box.",
            ModelNeed::Required,
        )
        .input("image", ValueType::Image, "The frame.")
        .input("boxes", ValueType::Boxes, "Where to read.")
        .output("text", ValueType::Texts, "A text for each box."),
    );
    catalog.register(
        ModuleType::new(
            "face_recognizer",
            "Names the face in each box.",
            ModelNeed::Required,
        )
        .input("image", ValueType::Image, "The frame.")
        .optional_input("boxes", ValueType::Boxes, "Where to look; the whole frame.")
        .output("id", ValueType::Labels, "A label for each box.")
        .time(ExecutionTime::VariesWith("boxes".to_owned())),
    );
    catalog.register(
        ModuleType::new("crop", "Narrows boxes.", ModelNeed::None)
            .input("boxes", ValueType::Boxes, "Boxes.")
            .output("boxes", ValueType::Boxes, "Narrower boxes.")
            .required_option(
                "margin",
                OptionType::Number(-1.0, 1.0),
                "Added on each side.",
            )
            .option("note", OptionType::Text, "Shown in traces; none."),
    );
    catalog.register(
        ModuleType::new("noop", "Passes bytes on.", ModelNeed::None)
            .optional_input("payload", ValueType::Bytes, "Bytes.")
            .optional_input("more", ValueType::Bytes, "More bytes.")
            .output("payload", ValueType::Bytes, "The same bytes."),
    );
    catalog
}
