//! ONNX's own node tests. A sample is in the repository; `ONNX_NODES=FILE` runs all cases of `golden/onnx/nodes.py`, prints the
//! failures and (`ONNX_REPORT=FILE`) writes the list.

use super::support;
use cpu::Cpu;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn node_tests_give_what_onnx_expects() {
    let all = std::env::var_os("ONNX_NODES");
    let path = all.as_ref().map_or_else(|| support::golden("nodes.bin.zz"), Into::into);
    let cases = support::read(&path);
    let cpu = Cpu::new(2);
    let filter = std::env::var("ONNX_FILTER").unwrap_or_default();
    let (mut failed, mut shapes, mut bound, mut whole) = (Vec::new(), 0, 0, 0);
    for case in cases.iter().filter(|c| c.name.contains(&filter)) {
        let result = catch_unwind(AssertUnwindSafe(|| support::check(case, &cpu)));
        match result.unwrap_or_else(|_| Err("PANIC".into())) {
            Ok((0, _)) => shapes += 1,
            Ok((n, of)) if n < of => bound += 1,
            Ok(_) => whole += 1,
            Err(e) => failed.push(format!("{}: {e}", case.name)),
        }
    }
    let passed = shapes + bound + whole;
    println!(
        "{passed} of {} pass: {shapes} from shapes alone, {bound} with some inputs known when importing, {whole} with all",
        passed + failed.len()
    );
    failed.iter().for_each(|f| println!("{f}"));
    if let Some(path) = std::env::var_os("ONNX_REPORT") {
        std::fs::write(path, failed.join("\n")).expect("a file that can be written");
    }
    assert!(passed > 0, "nothing ran");
    match all {
        None => assert!(failed.is_empty(), "{} fail", failed.len()),
        Some(_) => assert!(passed * 100 >= 92 * (passed + failed.len()), "fewer than 92 % pass"),
    }
}

/// Cases that ONNX's own tests do not cover: `golden/onnx/runtime.py`.
#[test]
fn samples_and_reductions_give_what_onnx_runtime_and_f64_give() {
    let cpu = Cpu::new(2);
    let cases = support::read(&support::golden("runtime.bin.zz"));
    let failed: Vec<String> =
        cases.iter().filter_map(|c| support::check(c, &cpu).err().map(|e| format!("{}: {e}", c.name))).collect();
    assert!(cases.len() > 30 && failed.is_empty(), "{} of {} fail:\n{}", failed.len(), cases.len(), failed.join("\n"));
}
