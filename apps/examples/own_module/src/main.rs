//! `spillgate` with a module type of one's own beside those of the library (docs/extending.md).

mod daylight;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut library = spillgate_modules::library();
    library.register(daylight::Daylight);
    spillgate::main(library)
}
