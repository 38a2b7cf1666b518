//! `spillgate` with the module types that come with it.

fn main() -> std::process::ExitCode {
    spillgate::main(spillgate_modules::library())
}
