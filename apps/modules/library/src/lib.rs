//! The module library: the module types that a pipeline's `op:` can name without writing code.
//!
//! docs/modules.md lists them, with inputs, outputs and options; [`mod@reference`] makes it.
//!
//! Every module runs a whole batch as one forward: all frames, or all objects of all frames. The two types whose work
//! differs from input to input (`early_exit_classifier`, `text_generator`) run a series of forwards, each of the
//! members that have not ended. A request that cannot be computed (a broken picture, say) fails alone. An output of an
//! unexpected shape is an error that names the model, the shape expected and the one got.
//!
//! [`resample`] and [`letterbox`], which turn pictures into network inputs, are public: training must
//! prepare pictures exactly as serving does, and modules of your own can use them.
//!
//! The modules know models only through [`spillgate_backend::Backend`]: nothing here links libtorch,
//! decodes a picture file, or decides when a batch runs.

mod batch;
pub mod bounds;
mod boxes;
mod broken_boxes;
mod classifier;
mod detector;
mod early_exit;
mod face_recognizer;
mod facts;
mod heads;
mod input;
mod labels;
pub mod letterbox;
mod literal;
mod model;
mod models;
mod noop;
mod one_pass;
mod options;
mod picture;
pub mod reference;
pub mod resample;
mod rows;
mod scores;
pub mod suggest;
mod text_generator;
mod text_reader;

#[cfg(test)]
mod tests;

use spillgate_backend::operator::Library;

/// All module types above, ready for `pipeline::compile` (through [`Library::catalog`]) and for the
/// workers. Add your own types with [`Library::register`].
pub fn library() -> Library {
    let mut library = Library::new();
    library.register(detector::Detector);
    library.register(text_reader::TextReader);
    library.register(face_recognizer::FaceRecognizer);
    library.register(classifier::Classifier);
    library.register(early_exit::EarlyExitClassifier);
    library.register(text_generator::TextGenerator);
    library.register(model::Embedder);
    library.register(model::AnyModel);
    library.register(noop::Noop);
    library
}
