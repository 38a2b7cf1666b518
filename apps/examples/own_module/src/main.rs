//! `spillgate` with module types of one's own beside those of the library (docs/extending.md).

mod colours;
mod daylight;
mod spots;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut library = spillgate_modules::library();
    library.register(daylight::Daylight);
    library.register(spots::Spots);
    library.register(colours::Colours);
    spillgate::main(library)
}
