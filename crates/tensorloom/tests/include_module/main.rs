//! Tests the macro as a user sees it: generated code runs, and invalid modules are compile errors.

use ir::{DType, Literal, Type, interp};
use std::process::Command;
use tensorloom::lang::lower::LowerOptions;

tensorloom::include_module!("tests/include_module/net.module");

#[test]
fn the_model_is_a_function_with_named_parameters() {
    let net = Net { activation: "relu".into(), ..Net::new(3) };
    assert_eq!((net.classes, net.width, net.scale), (3, 4, 0.5));
    let lowered = net.lower(Type::new(DType::F32, &[2, 4]), &LowerOptions::default()).expect("lowers");
    let names: Vec<&str> = lowered.params.iter().map(|p| p.path.as_str()).collect();
    assert_eq!(names, ["first.weight", "first.bias", "last.weight", "last.bias"]);

    let mut inputs: Vec<Literal> = Vec::new();
    for ty in lowered.graph.input_types() {
        inputs.push(Literal::from_fn(ty.clone(), |i| ir::Scalar::from_f64(ty.dtype, (i % 3) as f64 - 1.0)));
    }
    let found: Vec<f32> = interp::run(&lowered.graph, &inputs).expect("runs")[0].to_vec();
    let values: Vec<Vec<f32>> = inputs.iter().map(|l| l.to_vec()).collect();
    let dense = |w: &[f32], b: &[f32], x: &[f32]| -> Vec<f32> {
        (0..b.len()).map(|o| (0..x.len()).map(|i| w[o * x.len() + i] * x[i]).sum::<f32>() + b[o]).collect()
    };
    for row in 0..2 {
        let hidden = dense(&values[0], &values[1], &values[4][row * 4..row * 4 + 4]);
        let hidden: Vec<f32> = hidden.iter().map(|x| 0.5 * x.max(0.0)).collect();
        assert_eq!(found[row * 3..row * 3 + 3], dense(&values[2], &values[3], &hidden));
    }
    let wrong = net.lower(Type::new(DType::F32, &[2, 5]), &LowerOptions::default()).expect_err("a finding");
    assert!(wrong.contains("E004") && wrong.contains("net.module"), "{wrong}");
}

/// Compiles a file that includes an invalid module: rustc reports one error per diagnostic, with its line.
#[test]
fn findings_are_errors_of_rustc() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = std::env::current_exe().expect("a path");
    let deps = library.parent().expect("a folder");
    let newest = std::fs::read_dir(deps).expect("the folder").filter_map(Result::ok).map(|entry| entry.path());
    let newest = newest.filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        name.starts_with("libtensorloom_macros-") && name.ends_with(std::env::consts::DLL_SUFFIX)
    });
    // Builds without the feature `include` leave a library without the macro.
    let has_macro = |path: &std::path::PathBuf| {
        std::fs::read(path).is_ok_and(|bytes| bytes.windows(14).any(|name| name == b"include_module"))
    };
    let newest = newest.filter(has_macro);
    let newest = newest.max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok()).expect("the macro");
    let file = std::env::temp_dir().join(format!("tensorloom-include-{}.rs", std::process::id()));
    std::fs::write(
        &file,
        "tensorloom_macros::include_module!(\"tests/include_module/wrong/wrong.module\");\nfn main() {}\n",
    )
    .expect("written");
    let output = Command::new("rustc")
        .args(["--edition", "2024", "--emit", "metadata", "--crate-type", "bin", "-o"])
        .arg(file.with_extension("out"))
        .arg("--extern")
        .arg(format!("tensorloom_macros={}", newest.display()))
        .arg(&file)
        .env("CARGO_MANIFEST_DIR", here)
        .output()
        .expect("rustc runs");
    let _ = std::fs::remove_file(&file);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(error.contains("wrong.module:9:26: ") && error.contains("E004"), "{error}");
    assert!(error.contains("wrong.module:10:13: ") && error.contains("did you mean `silu`"), "{error}");
    assert_eq!(error.matches("\nerror: ").count() + usize::from(error.starts_with("error: ")), 3, "{error}");
}
