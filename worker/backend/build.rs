//! Tells the linker where libtorch lies, and where programs look for ONNX Runtime when they run, for every binary and test of the package
//! that names this file as its `build`. Link arguments do not reach the packages above, so each package that depends on
//! `spillgate-backend` names it, also where it never asks for the feature `tch` itself: cargo unifies features
//! over the workspace, and then its tests are linked with libtorch, too. Without `tch` it only names folders.
//!
//! The folder comes from torch-sys to packages that depend on it directly, which the backend does; it hands
//! the folder on to those that depend on the backend (cargo's `links` metadata).

pub(crate) fn main() {
    // Cargo runs it again when this file or what torch-sys says changes. A path here would be looked up in the package
    // that names this file, be missing there, and have the package built anew each time.
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    println!("cargo::rerun-if-env-changed=ONNXRUNTIME");
    let given = |name: &str| std::env::var(name).ok();
    let lib = given("DEP_TCH_LIBTORCH_LIB").or_else(|| given("DEP_SPILLGATE_BACKEND_LIBTORCH_LIB"));
    let onnxruntime = given("ONNXRUNTIME").map(|folder| format!("{folder}/lib"));
    // Beside the program (`../lib`, as in a container image) first, then where it was built against.
    let beside = "$ORIGIN/../lib".to_owned();
    let folders = [Some(beside), lib.clone(), onnxruntime];
    for folder in folders.into_iter().flatten() {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
    }
    let Some(lib) = lib else {
        return;
    };
    if std::env::var_os("CARGO_MANIFEST_LINKS").is_some() {
        println!("cargo::metadata=LIBTORCH_LIB={lib}");
    }
    // On a CUDA libtorch only the code-free libtorch.so loads the CUDA half; nothing refers to it, so
    // the linker would leave it out.
    println!("cargo::rustc-link-arg=-Wl,--no-as-needed,-ltorch,--as-needed");
}
