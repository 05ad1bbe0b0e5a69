//! Low precision in modules (§7.4), rule by rule, compared with numbers rounded by hand.

use ir::{DType, Literal, Scalar, Type, interp};
use std::collections::BTreeMap;
use tensorloom_lang::Code;
use tensorloom_lang::diagnostic::{ColorStyle, render_all};
use tensorloom_lang::library::LibraryLoader;
use tensorloom_lang::lower::{LowerOptions, Lowered, PrecisionRecipe, lower};
use tensorloom_lang::resolve::{MemoryLoader, ModuleProgram};

fn load(text: &str) -> (ModuleProgram, Vec<tensorloom_lang::Diagnostic>) {
    let program = ModuleProgram::load("m", &LibraryLoader(MemoryLoader::new().with("m", "v1.0.0", text)));
    let mut found = program.diagnostics.clone();
    found.extend(tensorloom_lang::check::check(&program).diagnostics);
    (program, found)
}

/// The lowered module, or the error.
fn lowered_with(text: &str, options: &LowerOptions) -> Result<Lowered, String> {
    let (program, found) = load(text);
    let errors: Vec<tensorloom_lang::Diagnostic> =
        found.into_iter().filter(tensorloom_lang::Diagnostic::is_error).collect();
    if !errors.is_empty() {
        return Err(render_all(&program.sources, &errors, ColorStyle::Plain));
    }
    let item = program.export(0, "M").expect("there");
    let count = text.matches("in: (x: [B, 32], z").count();
    let inputs = vec![Type::new(options.dtype, &[4, 32]); 1 + count];
    lower(&program, item, &BTreeMap::new(), &inputs, options)
        .map_err(|found| render_all(&program.sources, &[*found], ColorStyle::Plain))
}

fn lowered(text: &str) -> Lowered {
    lowered_with(text, &LowerOptions::default()).unwrap_or_else(|why| panic!("{text}\n{why}"))
}

fn refused(text: &str) -> String {
    match lowered_with(text, &LowerOptions::default()) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(why) => why,
    }
}

/// A module with a matrix, statements, and annotations of its parts.
fn module(weight: &str, statements: &str) -> String {
    format!(
        "module M(n: int = 32):\n  params:\n    w: [48, n] {weight}\n\n  forward:\n    in: x: [B, n]\n    out: y: [B, 48]\n    \
         graph:\n      {}\n",
        statements.replace('\n', "\n      ")
    )
}

fn values(ty: &Type, seed: u64) -> Literal {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    Literal::from_fn(ty.clone(), |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        Scalar::from_f64(ty.dtype, (state >> 33) as f64 / (1u64 << 30) as f64 - 1.0)
    })
}

fn inputs(l: &Lowered) -> Vec<Literal> {
    l.graph.input_types().iter().enumerate().map(|(i, ty)| values(ty, 3 + i as u64)).collect()
}

fn floats(x: &Literal) -> Vec<f32> {
    x.scalars().map(|s| s.to_f64() as f32).collect()
}

fn run(l: &Lowered) -> Vec<f32> {
    ir::verify::verify(&l.graph).expect("sound");
    floats(&interp::run(&l.graph, &inputs(l)).expect("runs")[0])
}

/// The nearest number of a format, by exhaustive search; ties to the even code.
fn nearest(format: &str, x: f32) -> f32 {
    let grid: Vec<f32> = match format {
        "fp8_e4m3" => (0..127).map(|c| Scalar::from_bits(DType::F8E4M3, c).to_f64() as f32).collect(),
        "fp8_e5m2" => (0..124).map(|c| Scalar::from_bits(DType::F8E5M2, c).to_f64() as f32).collect(),
        "fp4_e2m1" => vec![0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0],
        "int8" => (0..128).map(|i| i as f32).collect(),
        _ => (0..8).map(|i| i as f32).collect(),
    };
    let mut best = 0;
    for (i, g) in grid.iter().enumerate() {
        let (far, old) = ((g - x.abs()).abs(), (grid[best] - x.abs()).abs());
        if far < old || far == old && i % 2 == 0 {
            best = i;
        }
    }
    if x < 0.0 { -grid[best] } else { grid[best] }
}

fn most(format: &str) -> f64 {
    match format {
        "fp8_e4m3" => 448.0,
        "fp8_e5m2" => 57344.0,
        "fp4_e2m1" => 6.0,
        "int8" => 127.0,
        _ => 7.0,
    }
}

/// Rounds blocks of a matrix with rows of 32, each with a scale from its largest element.
fn rounded(x: &[f32], format: &str, (rows, columns): (usize, usize), margin: f64) -> Vec<f32> {
    let width = 32;
    let block = |i: usize| (i / width / rows, i % width / columns);
    let largest =
        |b: (usize, usize)| x.iter().enumerate().filter(|(i, _)| block(*i) == b).fold(0f32, |m, (_, v)| m.max(v.abs()));
    let scale = |i: usize| largest(block(i)) * ((1.0 + margin) / most(format)) as f32;
    x.iter().enumerate().map(|(i, v)| nearest(format, v / scale(i)) * scale(i)).collect()
}

/// NVFP4 in groups of 16, whose largest element becomes 6 or 4, whichever has the smaller error: E4M3 scales under a global one.
fn fours(x: &[f32]) -> Vec<f32> {
    let all = x.iter().fold(0f32, |m, v| m.max(v.abs())) * (1.0 / (256.0 * 6.0)) as f32;
    let group = |x: &[f32], top: f32| -> Vec<f32> {
        let most = x.iter().fold(0f32, |m, v| m.max(v.abs()));
        let scale = nearest("fp8_e4m3", most / top / all) * all;
        x.iter().map(|v| nearest("fp4_e2m1", v / scale) * scale).collect()
    };
    let lost = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(a, b)| f64::from(b - a).powi(2)).sum::<f64>();
    x.chunks_exact(16)
        .flat_map(|x| {
            let (six, four) = (group(x, 6.0), group(x, 4.0));
            if lost(x, &four) < lost(x, &six) { four } else { six }
        })
        .collect()
}

const WHOLE: (usize, usize) = (1 << 20, 1 << 20);
const ROWS: (usize, usize) = (1, 1 << 20);

/// `x · wᵀ` with rows of 32.
fn product(x: &[f32], w: &[f32]) -> Vec<f32> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32;
    x.chunks_exact(32).flat_map(|a| w.chunks_exact(32).map(move |b| dot(a, b))).collect()
}

fn close(found: &[f32], want: &[f32], bound: f32, what: &str) {
    assert_eq!(found.len(), want.len(), "{what}");
    let size = want.iter().fold(1e-6f32, |m, v| m.max(v.abs()));
    for (a, b) in found.iter().zip(want) {
        assert!((a - b).abs() <= bound * size, "{what}: {a} {b}");
    }
}

fn operands(l: &Lowered) -> (Vec<f32>, Vec<f32>) {
    let all = inputs(l);
    (floats(&all[1]), floats(&all[0]))
}

/// §7.4.2: the compute dtype and the result dtype of each policy.
#[test]
fn policies_compute_and_give_what_the_table_says() {
    for (policy, format, output) in [
        ("fp32", None, DType::F32),
        ("bf16", None, DType::BF16),
        ("fp16", None, DType::F16),
        ("fp8_hybrid", Some("fp8_e4m3"), DType::BF16),
        ("fp8_pure", Some("fp8_e4m3"), DType::F32),
        ("fp4", Some("fp4_e2m1"), DType::BF16),
    ] {
        for word in [format!("@precision({policy})"), format!("@precision(policy={policy})")] {
            let l = lowered(&module("", &format!("x -> matmul(w, transpose=NT) -> y {word}")));
            assert_eq!(l.graph.output_types()[0].dtype, output, "{policy}");
            assert_eq!(l.emulated.is_empty(), format.is_none(), "{policy}: {:?}", l.emulated);
            let (x, w) = operands(&l);
            let (x, w, bound) = match format {
                Some("fp4_e2m1") => (fours(&x), fours(&w), 4e-3),
                Some(format) => (rounded(&x, format, WHOLE, 0.0), rounded(&w, format, WHOLE, 0.0), 4e-3),
                None => (x, w, 8e-3),
            };
            let mut want = product(&x, &w);
            let mut bound = bound;
            if policy == "fp8_pure" {
                // The result is low precision too: its largest element determines the scale.
                let scale = want.iter().fold(0f32, |m, v| m.max(v.abs())) * (1.0 / 448.0) as f32;
                want.iter_mut().for_each(|v| *v = nearest("fp8_e4m3", *v / scale) * scale);
                bound = 1e-6;
            }
            close(&run(&l), &want, bound, policy);
        }
    }
}

/// §7.4.2: compute and output formats are independent.
#[test]
fn computation_and_output_are_independent() {
    for format in ["fp8_e4m3", "fp8_e5m2", "int8", "int4"] {
        for (output, dtype) in
            [("", DType::F32), (", output=bf16", DType::BF16), (", accumulate=fp32, output=fp16", DType::F16)]
        {
            let l = lowered(&module(
                "",
                &format!("x -> matmul(w, transpose=NT) -> y @precision(compute={format}{output})"),
            ));
            assert_eq!(l.graph.output_types()[0].dtype, dtype);
            let (x, w) = operands(&l);
            let want = product(&rounded(&x, format, WHOLE, 0.0), &rounded(&w, format, WHOLE, 0.0));
            close(&run(&l), &want, 5e-3, format);
            let plain = product(&x, &w);
            assert!(run(&l).iter().zip(&plain).any(|(a, b)| (a - b).abs() > 1e-4), "{format} rounds");
        }
    }
    // A low-precision result is dequantized by its uses.
    let l = lowered(&module(
        "",
        "x -> matmul(w, transpose=NT) -> h @precision(compute=bf16, output=fp8_e5m2)\nh -> scale(factor=2.0) -> y",
    ));
    assert_eq!(l.graph.output_types()[0].dtype, DType::F32);
    for accumulate in ["bf16", "fp16"] {
        let why =
            refused(&module("", &format!("x -> matmul(w, transpose=NT) -> y @precision(accumulate={accumulate})")));
        assert!(why.contains("fp32"), "{why}");
    }
}

/// §7.4.2: products, reductions and norms support low precision; a statement without one is an error.
#[test]
fn sums_and_norms_round_their_operand() {
    for call in ["reduce_sum(dims=[-1], keepdim=true)", "softmax()", "rmsnorm(g)", "layernorm(g)"] {
        let text = |note: &str| {
            format!(
                "module M(n: int = 32):\n  params:\n    g: [n]\n\n  forward:\n    in: x: [B, n]\n    out: y\n    graph:\n      x -> {call} -> y {note}\n"
            )
        };
        let l = lowered(&text("@precision(compute=fp8_e5m2)"));
        let all = inputs(&l);
        let plain = lowered(&text(""));
        let x = rounded(&floats(&all[1]), "fp8_e5m2", WHOLE, 0.0);
        let given = Literal::from_fn(all[1].ty().clone(), |i| Scalar::from_f64(DType::F32, f64::from(x[i])));
        let want = floats(&interp::run(&plain.graph, &[all[0].clone(), given]).expect("runs")[0]);
        close(&run(&l), &want, 1e-6, call);
    }
    for statement in ["x -> silu() -> h @precision(fp8_hybrid)", "x -> silu() -> h @scaling(per_tensor)"] {
        let why = refused(&module("", &format!("{statement}\nh -> matmul(w, transpose=NT) -> y")));
        assert!(why.contains("products, sums and norms"), "{why}");
    }
}

/// §7.4.3: every strategy with its arguments, computed by hand.
#[test]
fn every_strategy_scales_as_it_says() {
    let table = [
        ("per_tensor", WHOLE, WHOLE, 0.0),
        ("per_tensor, margin=0.5", WHOLE, WHOLE, 0.5),
        ("dynamic", WHOLE, WHOLE, 0.0),
        ("dynamic, margin=0.1", WHOLE, WHOLE, 0.1),
        ("per_channel", WHOLE, ROWS, 0.0),
        ("per_token", ROWS, WHOLE, 0.0),
        ("per_block", (32, 32), (32, 32), 0.0),
        ("per_block, block_size=(2, 8)", (2, 8), (2, 8), 0.0),
        ("per_block, block_size=[1, 16]", (1, 16), (1, 16), 0.0),
        // Without training there is no history: the current tensor determines the scale.
        ("delayed", WHOLE, WHOLE, 0.0),
        ("delayed, history_len=4, update_interval=2, margin=0.25", WHOLE, WHOLE, 0.25),
    ];
    for (words, left, right, margin) in table {
        let l = lowered(&module("", &format!("x -> matmul(w, transpose=NT) -> y @scaling({words})")));
        assert_eq!(l.graph.output_types()[0].dtype, DType::F32);
        let (x, w) = operands(&l);
        let want = product(&rounded(&x, "fp8_e4m3", left, margin), &rounded(&w, "fp8_e4m3", right, margin));
        close(&run(&l), &want, 1e-6, words);
        // Also after an operation in the middle of a statement, and combined with a policy.
        let l = lowered(&module("", &format!("x -> matmul(w, transpose=NT) @scaling({words}) -> y")));
        close(&run(&l), &want, 1e-6, words);
        let l = lowered(&module(
            "",
            &format!("x -> matmul(w, transpose=NT) -> y @precision(compute=int8) @scaling({words})"),
        ));
        let want = product(&rounded(&x, "int8", left, margin), &rounded(&w, "int8", right, margin));
        close(&run(&l), &want, 1e-6, words);
    }
}

#[test]
fn what_scaling_cannot_be_is_said_with_a_remedy() {
    for (note, says) in [
        ("@scaling(per_tenser)", "`per_tensor`"),
        ("@scaling(per_tensor, history_len=4)", "delayed"),
        ("@scaling(dynamic, block_size=(32, 32))", "per_block"),
        ("@scaling(delayed, history_len=0)", "at least 1"),
        ("@scaling(per_block, block_size=(0, 32))", "pair of sizes"),
        ("@scaling(per_tensor, margin=-1.0)", "at least 0"),
        ("@precision(bf16) @scaling(per_tensor)", "not quantized"),
        ("@precision(fp4) @scaling(per_tensor)", "per_block"),
        ("@precision(fp4) @scaling(delayed)", "per_block"),
        ("@precision(fp4) @scaling(per_block, block_size=(8, 8))", "(32, 32)"),
        ("@precision(fp8_hybird)", "`fp8_hybrid`"),
        ("@precision(compute=fp8_e4m33)", "`fp8_e4m3`"),
        ("@precision(compute=int32)", "low-precision format with scales"),
        ("@dtype(fp8_e5m3)", "`fp8_e5m2`"),
        ("@dtype(fp4_e2m1) @scaling(per_channel)", "per_block"),
    ] {
        let why = refused(&module("", &format!("x -> matmul(w, transpose=NT) -> y {note}")));
        assert!(why.contains(says), "{note}: {why}");
    }
    for (weight, says) in [
        ("@scaling(per_tensor)", "not quantized"),
        ("@dtype(bf16) @scaling(per_tensor)", "not quantized"),
        ("@dtype(fp8_e4m3) @scaling(delayed)", "per_channel"),
        ("@dtype(fp4_e2m1) @scaling(per_tensor)", "per_block"),
        ("@dtype(int32)", "int32"),
        ("@precision(storage=fp9)", "expected one of"),
    ] {
        let why = refused(&module(weight, "x -> matmul(w, transpose=NT) -> y"));
        assert!(why.contains(says), "{weight}: {why}");
    }
}

/// §7.4.1: a low-precision weight has one scale per row, or those of `@scaling`, and is dequantized where it is read.
#[test]
fn weights_are_stored_in_few_bits() {
    for (note, format, blocks) in [
        ("@dtype(fp8_e4m3)", "fp8_e4m3", ROWS),
        ("@dtype(fp8_e5m2)", "fp8_e5m2", ROWS),
        ("@dtype(int8)", "int8", ROWS),
        ("@dtype(int4)", "int4", (1, 32)),
        ("@precision(storage=fp8_e4m3)", "fp8_e4m3", ROWS),
        ("@dtype(fp8_e4m3) @scaling(per_tensor)", "fp8_e4m3", WHOLE),
        ("@dtype(fp8_e4m3) @scaling(per_channel)", "fp8_e4m3", ROWS),
        ("@dtype(fp8_e4m3) @scaling(per_block, block_size=(16, 8))", "fp8_e4m3", (16, 8)),
        ("@dtype(int4) @scaling(per_block, block_size=(1, 8))", "int4", (1, 8)),
    ] {
        let l = lowered(&module(note, "x -> matmul(w, transpose=NT) -> y"));
        assert_eq!(l.params[0].rounding.map(|few| few.format.name()), Some(format), "{note}");
        assert_eq!((l.params[0].ty.dtype, l.params[0].trainable), (DType::F32, true));
        assert_eq!(l.emulated.len(), 1, "{:?}", l.emulated);
        let (x, w) = operands(&l);
        close(&run(&l), &product(&x, &rounded(&w, format, blocks, 0.0)), 1e-6, note);
    }
    // 4-bit formats in their native blocks: the error is nonzero and small.
    for note in ["@dtype(fp4_e2m1)", "@dtype(fp4_e2m1) @scaling(per_block, block_size=(32, 32))"] {
        let l = lowered(&module(note, "x -> matmul(w, transpose=NT) -> y"));
        let (x, w) = operands(&l);
        let (found, want) = (run(&l), product(&x, &w));
        close(&found, &want, 0.25, note);
        assert!(found.iter().zip(&want).any(|(a, b)| (a - b).abs() > 1e-3));
    }
    // It is trained with the straight-through estimator, and a product in the same format does not round it twice.
    let l = lowered(&module("@dtype(fp8_e4m3)", "x -> matmul(w, transpose=NT) -> y @precision(compute=fp8_e4m3)"));
    let (x, w) = operands(&l);
    let want = product(&rounded(&x, "fp8_e4m3", WHOLE, 0.0), &rounded(&w, "fp8_e4m3", ROWS, 0.0));
    close(&run(&l), &want, 1e-6, "stored and computed");
    let back = transform::vjp(&l.graph, &[0]).expect("differentiates");
    let ct = values(&Type::new(DType::F32, &[4, 48]), 77);
    let found = interp::run(&back, &[inputs(&l), vec![ct.clone()]].concat()).expect("runs");
    let (c, xq) = (floats(&ct), rounded(&x, "fp8_e4m3", WHOLE, 0.0));
    let dw: Vec<f32> = (0..48 * 32)
        .map(|i| (0..4).map(|b| f64::from(c[b * 48 + i / 32]) * f64::from(xq[b * 32 + i % 32])).sum::<f64>() as f32)
        .collect();
    close(&floats(&found[1]), &dw, 1e-6, "straight through");
}

/// §7.4.4: the implicit conversions.
#[test]
fn conversions_follow_the_matrix() {
    // fp8 → wider: implicit, to the dtype of the other operand.
    let l = lowered(&module("@dtype(bf16)", "x -> quantize() -> q\n(q, w) -> matmul(transpose=NT) -> y"));
    let (x, w) = operands(&l);
    close(&run(&l), &product(&rounded(&x, "fp8_e4m3", WHOLE, 0.0), &w), 1e-6, "fp8 in a product");
    for (a, b) in [("q", "x"), ("x", "q")] {
        let l = lowered(&module(
            "",
            &format!("x -> quantize(dtype=fp8_e5m2) -> q\n({a}, {b}) -> add() -> s\ns -> matmul(w, transpose=NT) -> y"),
        ));
        let (x, w) = operands(&l);
        let sum: Vec<f32> = rounded(&x, "fp8_e5m2", WHOLE, 0.0).iter().zip(&x).map(|(a, b)| a + b).collect();
        close(&run(&l), &product(&sum, &w), 1e-6, "fp8 in a sum");
    }
    // Two low-precision operands: the model's dtype.
    let options = LowerOptions { dtype: DType::BF16, ..LowerOptions::default() };
    let l = lowered_with(
        &module("", "x -> quantize() -> q\n(q, q) -> add() -> s\ns -> matmul(w, transpose=NT) -> y"),
        &options,
    );
    assert_eq!(l.expect("lowers").graph.output_types()[0].dtype, DType::BF16);
    // int8 → wider: explicit.
    let why = refused(&module("", "x -> quantize(dtype=int8) -> q\n(q, w) -> matmul(transpose=NT) -> y"));
    assert!(why.contains("dequantize"), "{why}");
    let l = lowered(&module(
        "",
        "x -> quantize(dtype=int8) -> q\nq -> dequantize(dtype=fp32) -> d\n(d, w) -> matmul(transpose=NT) -> y",
    ));
    let (x, w) = operands(&l);
    close(&run(&l), &product(&rounded(&x, "int8", WHOLE, 0.0), &w), 1e-6, "int8");
    // Native → low precision at the boundary of a module: explicit.
    let inner = |io: &str| {
        format!(
            "module Inner(n: int = 32):\n  forward:\n    in: {io}\n    out: [B, n]\n    graph:\n      in -> scale(factor=1.0) -> out\n\n{}",
            module("", "x -> Inner() -> h\nh -> matmul(w, transpose=NT) -> y")
        )
    };
    for format in ["fp8_e4m3", "fp4_e2m1"] {
        let why = refused(&inner(&format!("[B, n, {format}]")));
        assert!(why.contains("E015") && why.contains("@scaling"), "{why}");
    }
    let l = lowered(&inner("[B, n, fp8_e4m3] @scaling(per_token)"));
    let (x, w) = operands(&l);
    close(&run(&l), &product(&rounded(&x, "fp8_e4m3", ROWS, 0.0), &w), 1e-6, "an input in few bits");
    let quantised =
        inner("[B, n, fp8_e4m3]").replace("x -> Inner() -> h", "x -> quantize() -> q\n      q -> Inner() -> h");
    let l = lowered(&quantised);
    close(&run(&l), &product(&rounded(&x, "fp8_e4m3", WHOLE, 0.0), &w), 1e-6, "a quantised tensor given on");
}

/// §7.4.3: `quantize` uses the scaling of its statement.
#[test]
fn quantize_takes_the_scaling_of_its_statement() {
    for (note, blocks) in [
        ("@scaling(per_token)", ROWS),
        ("@scaling(per_block, block_size=(2, 16))", (2, 16)),
        ("@scaling(delayed, history_len=16)", WHOLE),
    ] {
        for statement in [
            format!("x -> quantize() -> q {note}"),
            format!("x -> quantize() {note} -> q"),
            format!("x -> scale(factor=1.0) -> q @dtype(fp8_e4m3) {note}"),
        ] {
            let l = lowered(&module("", &format!("{statement}\n(q, w) -> matmul(transpose=NT) -> y")));
            let (x, w) = operands(&l);
            close(&run(&l), &product(&rounded(&x, "fp8_e4m3", blocks, 0.0), &w), 1e-6, &statement);
        }
    }
}

/// §7.4.4: casts are nodes of the graph.
#[test]
fn casts_are_nodes_of_the_graph() {
    let l = lowered(&module("", "x -> matmul(w, transpose=NT) -> y @precision(compute=fp8_e4m3, output=bf16)"));
    let text = l.graph.to_string();
    assert_eq!(text.matches("name=rounded").count(), 2, "{text}");
    assert!(text.contains("fp8_e4m3") && text.contains("cast"), "{text}");
}

/// Derivatives of the policies: cotangents in E5M2 (hybrid), in E4M3 (pure), unrounded (fp4); operands as they were rounded.
#[test]
fn gradients_are_rounded_as_the_policy_says() {
    for (policy, forward, backward) in [
        ("fp8_hybrid", "fp8_e4m3", Some("fp8_e5m2")),
        ("fp8_pure", "fp8_e4m3", Some("fp8_e4m3")),
        ("compute=fp8_e4m3", "fp8_e4m3", None),
    ] {
        let l = lowered(&module("", &format!("x -> matmul(w, transpose=NT) -> y @precision({policy})")));
        let (x, w) = operands(&l);
        let out = l.graph.output_types()[0].clone();
        let back = transform::vjp(&l.graph, &[0, 1]).expect("differentiates");
        let ct = values(&out, 99);
        let found = interp::run(&back, &[inputs(&l), vec![ct.clone()]].concat()).expect("runs");
        let c = floats(&ct);
        let scale = |format: &str| c.iter().fold(0f32, |m, v| m.max(v.abs())) * (1.0 / most(format)) as f32;
        let c = match backward {
            Some(format) => c.iter().map(|v| nearest(format, v / scale(format)) * scale(format)).collect(),
            None => c,
        };
        let (xq, wq) = (rounded(&x, forward, WHOLE, 0.0), rounded(&w, forward, WHOLE, 0.0));
        let dw: Vec<f32> = (0..48 * 32)
            .map(|i| (0..4).map(|b| f64::from(c[b * 48 + i / 32]) * f64::from(xq[b * 32 + i % 32])).sum::<f64>() as f32)
            .collect();
        let dx: Vec<f32> = (0..4 * 32)
            .map(|i| {
                (0..48).map(|o| f64::from(c[i / 32 * 48 + o]) * f64::from(wq[o * 32 + i % 32])).sum::<f64>() as f32
            })
            .collect();
        close(&floats(&found[1]), &dw, 2e-6, policy);
        close(&floats(&found[2]), &dx, 2e-6, policy);
    }
}

/// §7.4.2: an explicit backward graph has its own precisions.
#[test]
fn written_backwards_have_their_own_precision() {
    let text = "module M(n: int = 32):\n  params:\n    w: [48, n]\n\n  forward:\n    in: x: [B, n]\n    out: y: [B, 48]\n    graph:\n      \
                x -> matmul(w, transpose=NT) -> y @precision(compute=fp8_e4m3)\n    save: [x]\n\n  backward:\n    d_y: [B, 48]\n    d_x: [B, n]\n    \
                graph:\n      d_y -> matmul(w) -> d_x @precision(compute=fp8_e5m2)\n      (d_y, saved.x) -> matmul(transpose=TN) -> d_w @precision(compute=fp8_e5m2)\n";
    let l = lowered(text);
    let (x, w) = operands(&l);
    close(
        &run(&l),
        &product(&rounded(&x, "fp8_e4m3", WHOLE, 0.0), &rounded(&w, "fp8_e4m3", WHOLE, 0.0)),
        1e-6,
        "forward",
    );
    let back = transform::vjp(&l.graph, &[0, 1]).expect("differentiates");
    let ct = values(&Type::new(DType::F32, &[4, 48]), 5);
    let found = interp::run(&back, &[inputs(&l), vec![ct.clone()]].concat()).expect("runs");
    let c = floats(&ct);
    let scale = c.iter().fold(0f32, |m, v| m.max(v.abs())) * (1.0 / 57344.0) as f32;
    let c: Vec<f32> = c.iter().map(|v| nearest("fp8_e5m2", v / scale) * scale).collect();
    let (xq, wq) = (rounded(&x, "fp8_e5m2", WHOLE, 0.0), rounded(&w, "fp8_e5m2", WHOLE, 0.0));
    let dx: Vec<f32> = (0..4 * 32)
        .map(|i| (0..48).map(|o| f64::from(c[i / 32 * 48 + o]) * f64::from(wq[o * 32 + i % 32])).sum::<f64>() as f32)
        .collect();
    let dw: Vec<f32> = (0..48 * 32)
        .map(|i| (0..4).map(|b| f64::from(c[b * 48 + i / 32]) * f64::from(xq[b * 32 + i % 32])).sum::<f64>() as f32)
        .collect();
    close(&floats(&found[1]), &dw, 2e-6, "d_w");
    close(&floats(&found[2]), &dx, 2e-6, "d_x");
    let why = refused(&text.replace("d_x @precision(compute=fp8_e5m2)", "d_x @scaling(delayed)"));
    assert!(why.contains("dynamic"), "{why}");
}

/// §7.4.3: in training, delayed scaling has an amax history per tensor, an input whose gradient is its next value.
#[test]
fn histories_are_explicit_state() {
    let text = module("", "x -> matmul(w, transpose=NT) -> y @precision(fp8_hybrid) @scaling(delayed, history_len=3)");
    assert!(lowered(&text).amax_histories.is_empty());
    let l = lowered_with(&text, &LowerOptions { training: true, ..LowerOptions::default() }).expect("lowers");
    // Both operands and the cotangent.
    assert_eq!(l.amax_histories, vec![Type::new(DType::F32, &[5]); 3]);
    assert!(!l.needs_rng);
    let n = l.graph.inputs().len();
    let back = transform::vjp(&l.graph, &(0..n).collect::<Vec<_>>()).expect("differentiates");
    let zero = Literal::from_fn(Type::new(DType::F32, &[5]), |_| Scalar::from_f64(DType::F32, 0.0));
    let (x, w) = (values(&Type::new(DType::F32, &[4, 32]), 4), values(&Type::new(DType::F32, &[48, 32]), 3));
    let ct = values(&l.graph.output_types()[0], 9);
    let given = [w.clone(), x.clone(), zero.clone(), zero.clone(), zero, ct.clone()];
    let found = interp::run(&back, &given).expect("runs");
    for (state, (tensor, most)) in found[3..].iter().zip([(&x, 448.0), (&w, 448.0), (&ct, 57344.0)]) {
        let largest = floats(tensor).iter().fold(0f32, |m, v| m.max(v.abs()));
        let state = floats(state);
        assert_eq!(state[2..], [0.0, 0.0, largest]);
        assert_eq!(state[..2], [largest * (1.0 / most) as f32, 0.0]);
    }
}

const MODEL: &str = "recipe Hybrid:\n  forward_activation_dtype: fp8_e4m3\n  backward_gradient_dtype: fp8_e5m2\n  accumulation_dtype: fp32\n  scaling_strategy: {scaling}\n\n\
                     model M(n: int = 32):\n  {recipe}\n\n  params:\n    w: [32, n]\n    v: [48, 32]\n\n  forward:\n    in: x: [B, n]\n    out: y: [B, 48]\n    \
                     graph:\n      x -> matmul(w, transpose=NT) -> h {note}\n      h -> matmul(v, transpose=NT) -> y\n";

fn model(recipe: &str, scaling: &str, note: &str) -> String {
    MODEL.replace("{recipe}", recipe).replace("{scaling}", scaling).replace("{note}", note)
}

/// §7.4.4: a recipe applies to all products but the output projection; annotations of operations take precedence over it, and a
/// recipe passed as an option takes precedence over the model's own.
#[test]
fn recipes_hold_where_nothing_else_is_said() {
    let given = |name: &str| LowerOptions { recipe: PrecisionRecipe::model_policy(name), ..LowerOptions::default() };
    let check = |l: &Lowered, format: Option<&str>, what: &str| {
        let all = inputs(l);
        let (w, v, x) = (floats(&all[0]), floats(&all[1]), floats(&all[2]));
        let h = match format {
            Some(format) => product(&rounded(&x, format, WHOLE, 0.0), &rounded(&w, format, WHOLE, 0.0)),
            None => product(&x, &w),
        };
        close(&run(l), &product(&h, &v), 2e-6, what);
    };
    check(&lowered(&model("@recipe(Hybrid)", "dynamic", "")), Some("fp8_e4m3"), "of the model");
    check(&lowered(&model("@recipe(Hybrid)", "dynamic", "@precision(fp32)")), None, "overridden");
    check(
        &lowered(&model("@recipe(Hybrid)", "dynamic", "@precision(compute=fp8_e5m2)")),
        Some("fp8_e5m2"),
        "overridden",
    );
    check(&lowered(&model("@recipe(Hybrid)", "dynamic", "@precision(compute=int8)")), Some("int8"), "overridden");
    let by = |text: &str, name: &str| lowered_with(text, &given(name)).unwrap_or_else(|why| panic!("{why}"));
    check(&by(&model("", "dynamic", ""), "fp8_hybrid"), Some("fp8_e4m3"), "given");
    check(&by(&model("@recipe(Hybrid)", "dynamic", ""), "fp32"), None, "another one given");
    check(&by(&model("@recipe(Hybrid)", "dynamic", "@precision(compute=int8)"), "fp8_hybrid"), Some("int8"), "beaten");
    let l = by(&model("", "dynamic", ""), "fp8_hybrid");
    assert!(l.emulated.iter().any(|line| line.contains("fp8_e4m3") && line.contains("fp8_e5m2")), "{:?}", l.emulated);
    // Delayed scaling, as in the specification's recipe: histories of the product, forward and backward.
    let text = model("@recipe(Hybrid)", "delayed\n  amax_history_len: 16", "");
    let l = lowered_with(&text, &LowerOptions { training: true, ..LowerOptions::default() }).expect("lowers");
    assert_eq!(l.amax_histories, vec![Type::new(DType::F32, &[18]); 3]);
    // Stochastic rounding uses a random key.
    let text = model("@recipe(Hybrid)", "dynamic\n  stochastic_rounding: true", "");
    let l = lowered_with(&text, &LowerOptions { training: true, ..LowerOptions::default() }).expect("lowers");
    assert!(l.needs_rng && l.graph.input_types().last() == Some(&Type::new(DType::U32, &[2])));
}

/// A recipe of a contained module applies to all its products, including the last.
#[test]
fn recipes_of_modules_hold_inside() {
    let text = "recipe Few:\n  forward_activation_dtype: fp8_e5m2\n\nmodule Inner(n: int):\n  @recipe(Few)\n\n  params:\n    w: [48, n]\n\n  forward:\n    in: [B, n]\n    out: [B, 48]\n    graph:\n      in -> matmul(w, transpose=NT) -> out\n\n\
                module M(n: int = 32):\n  params:\n    inner: Inner(n)\n\n  forward:\n    in: x: [B, n]\n    out: y: [B, 48]\n    graph:\n      x -> inner() -> y\n";
    let l = lowered(text);
    let (x, w) = operands(&l);
    let want = product(&rounded(&x, "fp8_e5m2", WHOLE, 0.0), &rounded(&w, "fp8_e5m2", WHOLE, 0.0));
    close(&run(&l), &want, 1e-6, "inside");
}

/// A recipe's storage format applies to matrices; annotations of a parameter take precedence.
#[test]
fn recipes_store_matrices() {
    let text = "recipe Stored:\n  weight_storage_dtype: int8\n\nmodel M(n: int = 32):\n  @recipe(Stored)\n\n  params:\n    w: [48, n] {own}\n    b: [48]\n\n  forward:\n    in: x: [B, n]\n    out: y: [B, 48]\n    graph:\n      x -> matmul(w, transpose=NT) -> h\n      (h, b) -> add() -> y\n";
    let formats = |own: &str| -> Vec<Option<&str>> {
        lowered(&text.replace("{own}", own)).params.iter().map(|p| p.rounding.map(|few| few.format.name())).collect()
    };
    assert_eq!(formats(""), [Some("int8"), None]);
    assert_eq!(formats("@dtype(fp8_e4m3)"), [Some("fp8_e4m3"), None]);
    assert_eq!(formats("@dtype(fp32)"), [None, None]);
}

/// An error in a recipe is reported once, at its line, with the closest known name.
#[test]
fn wrong_recipes_are_findings() {
    for (line, code, says) in [
        ("forward_activation_dtype: fp8_e4m4", Code::E008, "`fp8_e4m3`"),
        ("forward_activation_type: fp8_e4m3", Code::E008, "`forward_activation_dtype`"),
        ("forward_activation_dtype: fp8_e4m3\n  scaling_strategy: delayd", Code::E008, "`delayed`"),
        ("forward_activation_dtype: fp8_e4m3\n  amax_history_len: 16", Code::E008, "delayed"),
        (
            "forward_activation_dtype: fp8_e4m3\n  scaling_strategy: delayed\n  amax_history_len: many",
            Code::E002,
            "many",
        ),
        ("backward_gradient_dtype: fp8_e5m2", Code::E008, "activations"),
        ("output_dtype: fp8_e4m3", Code::E008, "forward_activation_dtype"),
        ("scaling_strategy: dynamic", Code::E008, "low precision"),
        ("accumulation_dtype: fp16", Code::L001, "fp32"),
        ("optimizer_bits: 16", Code::E008, "8 or 32"),
    ] {
        let (program, found) = load(&format!("recipe Mine:\n  {line}\n"));
        assert_eq!(found.len(), 1, "{line}: {}", render_all(&program.sources, &found, ColorStyle::Plain));
        let drawn = render_all(&program.sources, &found, ColorStyle::Plain);
        assert!(found[0].code == code && drawn.contains(says), "{line}: {drawn}");
    }
}

/// Every library model can be lowered with every policy, forward and backward.
#[test]
fn every_policy_goes_through_a_block() {
    let program = ModuleProgram::load("std/blocks/dense", &LibraryLoader(MemoryLoader::new()));
    let item = program.export(0, "DenseTransformerBlock").expect("there");
    for policy in tensorloom_lang::lower::POLICIES {
        let options =
            LowerOptions { recipe: PrecisionRecipe::model_policy(policy), training: true, ..LowerOptions::default() };
        let view = tensorloom_lang::resolve::ModuleView::new(&program, item).expect("a block");
        let given: BTreeMap<String, tensorloom_lang::consteval::ConstValue> = view
            .header
            .iter()
            .filter_map(|param| match param {
                tensorloom_lang::ast::Param::Named { name, default: None, .. } => {
                    let n = match name.name.as_str() {
                        "d_model" => 32,
                        "num_q_heads" | "num_kv_heads" | "heads" | "num_heads" | "kv_heads" => 2,
                        "d_ff" => 48,
                        _ => 16,
                    };
                    Some((name.name.clone(), tensorloom_lang::consteval::ConstValue::int(n)))
                }
                _ => None,
            })
            .collect();
        let free = |name: &str, _: Option<&str>| Some(if name == "B" { 2 } else { 4 });
        let types =
            tensorloom_lang::lower::input_types(&program, item, &given, &free, &[2, 4], DType::F32).expect("sizes");
        let l = lower(&program, item, &given, &types, &options)
            .unwrap_or_else(|d| panic!("{policy}: {}", render_all(&program.sources, &[*d], ColorStyle::Plain)));
        ir::verify::verify(&l.graph).expect("sound");
        assert_eq!(l.emulated.is_empty(), matches!(*policy, "fp32" | "bf16" | "fp16"), "{policy}");
    }
}
