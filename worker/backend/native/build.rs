//! Builds what tch does not bind (the files here), with the headers of the libtorch that torch-sys found, and then tells the linker
//! where libtorch lies, as for other packages.

#[path = "../build.rs"]
mod link;

fn main() {
    #[cfg(feature = "tch")]
    native();
    link::main();
}

#[cfg(feature = "tch")]
fn native() {
    let given = |name: &str| std::env::var_os(name).map(std::path::PathBuf::from);
    println!("cargo::rerun-if-changed=native/cuda.cpp");
    println!("cargo::rerun-if-changed=native/memory.cpp");
    println!("cargo::rerun-if-changed=native/network.cpp");
    println!("cargo::rerun-if-changed=native/operators.cpp");
    println!("cargo::rerun-if-changed=native/operators.h");
    println!("cargo::rerun-if-changed=native/operators.inc");
    println!("cargo::rerun-if-changed=native/told.h");
    println!("cargo::rerun-if-env-changed=LIBTORCH_INCLUDE");
    let lib = given("DEP_TCH_LIBTORCH_LIB").expect("torch-sys says where libtorch lies");
    let beside = lib.parent().map(std::path::Path::to_path_buf);
    let root = given("LIBTORCH_INCLUDE").or(beside);
    let include = root.expect("libtorch has headers").join("include");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .include(include)
        .flag("-Wno-unused-parameter")
        .file("native/cuda.cpp")
        .file("native/memory.cpp")
        .file("native/network.cpp")
        .file("native/operators.cpp")
        .compile("spillgate_native");
}
