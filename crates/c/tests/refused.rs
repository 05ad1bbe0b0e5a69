//! A saved program whose accesses can't be shown to be inside its buffers is a file that is refused.

use compiler::program::Step;
use compiler::{Options, Program, UncheckedProgram};
use ir::{Builder, DType, GraphBuilder};
use std::ffi::CStr;
use tensorloom_c::{Status, loom_last_error, loom_program_free, loom_program_load};

fn load(program: &Program) -> (Status, String) {
    let bytes = program.to_bytes().unwrap();
    let mut out = std::ptr::null_mut();
    // SAFETY: the bytes and the place for the program live through the calls, and it is freed once.
    unsafe {
        let status = loom_program_load(bytes.as_ptr().cast(), bytes.len(), 1, &mut out);
        let text = if status == Status::Ok {
            String::new()
        } else {
            CStr::from_ptr(loom_last_error()).to_string_lossy().into()
        };
        loom_program_free(out);
        (status, text)
    }
}

#[test]
fn a_program_that_leaves_its_buffers_is_refused() {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[8, 8]);
    let sort = ir::ops::Sort { axis: 1, num_keys: 1, descending: false };
    let y = b.one(sort.into(), &[x]).unwrap();
    let program = compiler::compile(&b.finish(&[y]), &cpu::Cpu::new(1), &Options::default()).unwrap();
    assert_eq!(load(&program), (Status::Ok, String::new()));
    let mut parts = program.into_parts();
    let Some(Step::Library { outs, .. }) = parts.steps.iter_mut().find(|s| matches!(s, Step::Library { .. })) else {
        panic!("a sort is a library step");
    };
    outs[0].0.offset += 64;
    // SAFETY: it is not, and no device gets it: it is what somebody could write to a file.
    let bad = unsafe { UncheckedProgram::new(parts).assume_verified() };
    let (status, text) = load(&bad);
    assert_eq!(status, Status::File);
    assert!(text.contains("step 0 (sort)") && text.contains("has 256"), "{text}");
}
