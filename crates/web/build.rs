//! Makes the table of functions from `docs/functions.json`.

#[path = "surface.rs"]
mod surface;

fn main() {
    let file = "../../docs/functions.json";
    println!("cargo:rerun-if-changed={file}");
    println!("cargo:rerun-if-changed=surface.rs");
    let json = std::fs::read_to_string(file).expect("docs/functions.json is there");
    let out = std::path::Path::new(&std::env::var_os("OUT_DIR").expect("cargo sets it")).join("table.rs");
    std::fs::write(out, surface::rust(&surface::functions(&json))).expect("the table is written");
}
