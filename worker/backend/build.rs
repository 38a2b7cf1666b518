//! Tells the linker where libtorch lies, for every binary and test of the package that names this
//! file as its `build`: torch-sys hands the folder only to packages that depend on it directly, and
//! link arguments do not reach the packages above. Without torch-sys it does nothing.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let Some(lib) = std::env::var_os("DEP_TCH_LIBTORCH_LIB") else {
        return;
    };
    let lib = lib.to_string_lossy();
    // Beside the program (`../lib`, as in a container image) first, then where it was built against.
    println!("cargo::rustc-link-arg=-Wl,-rpath,$ORIGIN/../lib");
    println!("cargo::rustc-link-arg=-Wl,-rpath,{lib}");
    // On a CUDA libtorch only the code-free libtorch.so loads the CUDA half; nothing refers to it, so
    // the linker would leave it out.
    println!("cargo::rustc-link-arg=-Wl,--no-as-needed,-ltorch,--as-needed");
}
