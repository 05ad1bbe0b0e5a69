//! The standard library: every file has no diagnostics, and its models lower to valid graphs with their explicit backward graphs.

use ir::{DType, Literal, Scalar, Type, interp};
use std::collections::BTreeMap;
use tensorloom_lang::consteval::ConstValue;
use tensorloom_lang::diagnostic::{ColorStyle, render_all};
use tensorloom_lang::library::{self, LibraryLoader};
use tensorloom_lang::lower::{LowerOptions, lower};
use tensorloom_lang::resolve::{MemoryLoader, ModuleProgram};

fn load(path: &str) -> ModuleProgram {
    let program = ModuleProgram::load(path, &LibraryLoader(MemoryLoader::new()));
    let mut findings = program.diagnostics.clone();
    findings.extend(tensorloom_lang::check::check(&program).diagnostics);
    assert!(findings.is_empty(), "{}", render_all(&program.sources, &findings, ColorStyle::Plain));
    program
}

#[test]
fn every_file_is_clean_and_formatted() {
    for path in library::files() {
        let program = load(path);
        for (_, file) in program.sources.iter() {
            let tidy = tensorloom_lang::fmt::format(file.text()).expect("no mistakes");
            if std::env::var_os("BLESS").is_some() && tidy != file.text() {
                let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file.name());
                std::fs::write(path, &tidy).expect("written");
                continue;
            }
            assert_eq!(tidy, file.text(), "{}", file.name());
        }
    }
}

fn sizes(given: &[(&str, i64)]) -> BTreeMap<String, ConstValue> {
    given.iter().map(|(n, v)| ((*n).to_string(), ConstValue::int(*v))).collect()
}

/// Small numbers that differ between positions.
fn sample(ty: &Type, seed: usize) -> Literal {
    Literal::from_fn(ty.clone(), |i| match ty.dtype.is_int() {
        true => Scalar::from_i64(ty.dtype, ((i * 7 + seed) % 11) as i64),
        false => Scalar::from_f64(ty.dtype, ((i * 31 + seed * 17) % 23) as f64 / 23.0 - 0.45),
    })
}

#[test]
fn written_and_derived_backward_agree() {
    let program = load("std/models/llama");
    let item = program.export(0, "Llama").expect("the model");
    let given =
        sizes(&[("vocab_size", 11), ("d_model", 8), ("n_layers", 2), ("heads", 2), ("kv_heads", 1), ("d_ff", 12)]);
    let ids = Type::new(DType::I32, &[2, 5]);
    let mut gradients = Vec::new();
    for written_backward in [true, false] {
        let options = LowerOptions { dtype: DType::F64, custom_backward: written_backward, ..LowerOptions::default() };
        let lowered = lower(&program, item, &given, std::slice::from_ref(&ids), &options)
            .unwrap_or_else(|d| panic!("{}", render_all(&program.sources, &[*d], ColorStyle::Plain)));
        assert_eq!(lowered.params.len(), 3 + 2 * 6);
        assert_eq!(lowered.params[1].path, "blocks[0].norm1.weight");
        ir::verify::verify(&lowered.graph).expect("a valid graph");
        let wrt: Vec<usize> = (0..lowered.params.len()).collect();
        let back = transform::vjp(&lowered.graph, &wrt).expect("differentiable");
        let types = back.input_types();
        let inputs: Vec<Literal> = types.iter().enumerate().map(|(i, t)| sample(t, i)).collect();
        let outs = interp::run(&back, &inputs).expect("runs");
        gradients.push(outs.iter().flat_map(|l| l.to_vec::<f64>()).collect::<Vec<f64>>());
    }
    let worst = (gradients[0].iter().zip(&gradients[1])).fold(0f64, |m, (a, b)| m.max((a - b).abs()));
    assert!(worst < 1e-10, "{worst}");
    assert!(gradients[0].iter().any(|g| g.abs() > 1e-3));
}

/// Hook points of the library, and the same model as a scan over stacked parameters, with checkpoints.
#[test]
fn llama_has_hook_points_and_may_be_a_scan() {
    let program = load("std/models/llama");
    let item = program.export(0, "Llama").expect("the model");
    let mut given =
        sizes(&[("vocab_size", 11), ("d_model", 8), ("n_layers", 3), ("heads", 2), ("kv_heads", 1), ("d_ff", 12)]);
    let ids = Type::new(DType::I32, &[2, 5]);
    let mut all = Vec::new();
    for (scan, checkpoint) in [(false, false), (true, false), (true, true)] {
        given.insert("checkpoint".into(), ConstValue::bool(checkpoint));
        let hooks = tensorloom_lang::lower::HookRegistry::new().observe("AfterQKVProjection").rewrite(
            "AfterEmbedding",
            0,
            |b, x, _| ir::GraphBuilder::scale(b, x, 1.5),
        );
        let options = LowerOptions { dtype: DType::F64, scan, hooks, ..LowerOptions::default() };
        let lowered = lower(&program, item, &given, std::slice::from_ref(&ids), &options)
            .unwrap_or_else(|d| panic!("{}", render_all(&program.sources, &[*d], ColorStyle::Plain)));
        let points = ["AfterAttnOutProjection", "AfterEmbedding", "AfterMLPDownProjection", "AfterMLPUpProjection"];
        assert_eq!(lowered.hook_points[..4], points);
        // The same numbers in every layer, so that stacked and separate parameters agree.
        let inputs: Vec<Literal> = lowered
            .graph
            .input_types()
            .iter()
            .enumerate()
            .map(|(i, ty)| {
                let stacked = lowered.params.get(i).is_some_and(|p| p.path.contains("[*]"));
                let path = lowered.params.get(i).map_or("", |p| &p.path);
                let seed = path.rsplit('.').next().unwrap_or("").len() + 3 * path.matches("mlp").count();
                let rows = if stacked { ty.numel() / ty.shape[0] } else { ty.numel().max(1) };
                Literal::from_fn(ty.clone(), |j| match ty.dtype.is_int() {
                    true => Scalar::from_i64(ty.dtype, ((j * 7) % 11) as i64),
                    false => Scalar::from_f64(ty.dtype, (((j % rows) * 31 + seed * 17) % 23) as f64 / 23.0 - 0.45),
                })
            })
            .collect();
        let wrt: Vec<usize> =
            (0..lowered.params.len()).filter(|&i| !lowered.params[i].path.contains("blocks")).collect();
        let back = transform::vjp(&lowered.graph, &wrt).expect("differentiable");
        let mut inputs = inputs;
        for (k, ty) in back.input_types()[inputs.len()..].iter().enumerate() {
            // Only the logits are compared; layers are observed together or separately.
            inputs.push(if k == 0 {
                sample(ty, 5)
            } else {
                Literal::from_fn(ty.clone(), |_| Scalar::from_f64(ty.dtype, 0.0))
            });
        }
        let outs = interp::run(&back, &inputs).expect("runs");
        let seen: Vec<f64> = outs[1..lowered.graph.outputs().len()].iter().flat_map(|l| l.to_vec::<f64>()).collect();
        assert_eq!(seen.len(), 3 * 2 * 5 * 16);
        let rest: Vec<f64> = outs[lowered.graph.outputs().len()..].iter().flat_map(|l| l.to_vec::<f64>()).collect();
        all.push([outs[0].to_vec::<f64>(), seen, rest].concat());
    }
    for other in &all[1..] {
        assert_eq!(other.len(), all[0].len());
        let worst = (all[0].iter().zip(other)).fold(0f64, |m, (a, b)| m.max((a - b).abs()));
        assert!(worst < 1e-9, "{worst}");
    }
    assert!(all[0].iter().any(|x| x.abs() > 1e-3));
}
