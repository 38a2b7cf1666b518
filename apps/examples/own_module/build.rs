//! Tells the linker where libtorch lies: Spillgate's backend hands its folder on.

fn main() {
    let Ok(lib) = std::env::var("DEP_SPILLGATE_BACKEND_LIBTORCH_LIB") else {
        return;
    };
    // Beside the program first, then where it was built against.
    println!("cargo::rustc-link-arg=-Wl,-rpath,$ORIGIN/../lib");
    println!("cargo::rustc-link-arg=-Wl,-rpath,{lib}");
    // With CUDA: nothing refers to the library that loads the other half.
    println!("cargo::rustc-link-arg=-Wl,--no-as-needed,-ltorch,--as-needed");
}
