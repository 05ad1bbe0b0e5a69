//! Gives the shared library its SONAME.

fn main() {
    soname::set("tensorloom_vsla");
}
