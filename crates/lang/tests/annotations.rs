//! Tests the effects of annotations: memory, hooks, probes, asserts, precision, gradients, adapters.

use ir::{DType, GraphBuilder, Literal, Scalar, Type, interp};
use std::collections::BTreeMap;
use tensorloom_lang::diagnostic::{ColorStyle, render_all};
use tensorloom_lang::library::LibraryLoader;
use tensorloom_lang::lower::{HookRegistry, LayerIndex, LowerOptions, Lowered, ObservationKind, ParamInit, lower};
use tensorloom_lang::resolve::{MemoryLoader, ModuleProgram};

const TEXT: &str = include_str!("modules/lower/annotations.module");

fn load(text: &str) -> ModuleProgram {
    let program = ModuleProgram::load("m", &LibraryLoader(MemoryLoader::new().with("m", "v1.0.0", text)));
    let mut found = program.diagnostics.clone();
    found.extend(tensorloom_lang::check::check(&program).diagnostics);
    found.retain(tensorloom_lang::Diagnostic::is_error);
    assert!(found.is_empty(), "{}", render_all(&program.sources, &found, ColorStyle::Plain));
    program
}

fn options() -> LowerOptions {
    LowerOptions { dtype: DType::F64, ..LowerOptions::default() }
}

fn try_lower(name: &str, options: &LowerOptions) -> Result<Lowered, Box<tensorloom_lang::Diagnostic>> {
    let program = load(TEXT);
    let item = program.export(0, name).unwrap_or_else(|| panic!("{name}"));
    lower(&program, item, &BTreeMap::new(), &[Type::new(options.dtype, &[3, 4])], options)
}

fn lowered(name: &str, options: &LowerOptions) -> Lowered {
    let lowered = try_lower(name, options).unwrap_or_else(|d| panic!("{name}: {d:?}"));
    ir::verify::verify(&lowered.graph).unwrap_or_else(|e| panic!("{name}: {e}"));
    lowered
}

/// Pseudo-random numbers.
fn sample(ty: &Type, seed: usize) -> Literal {
    Literal::from_fn(ty.clone(), |i| {
        let mixed = ((i + 1) * 7919 + (seed + 3) * 104_729) % 1009;
        Scalar::from_f64(ty.dtype, mixed as f64 / 1009.0 - 0.48)
    })
}

fn samples(types: &[Type]) -> Vec<Literal> {
    types.iter().enumerate().map(|(i, t)| sample(t, i)).collect()
}

fn run(lowered: &Lowered) -> Vec<Vec<f64>> {
    let outs = interp::run(&lowered.graph, &samples(&lowered.graph.input_types())).expect("runs");
    outs.iter().map(|l| l.scalars().map(|s| s.to_f64()).collect()).collect()
}

fn run_first(lowered: &Lowered) -> Vec<f64> {
    run(lowered).swap_remove(0)
}

/// Gradients of the first output with respect to every input.
fn gradients(lowered: &Lowered) -> Vec<Vec<f64>> {
    let graph = &lowered.graph;
    let wrt: Vec<usize> = (0..graph.inputs().len()).collect();
    let back = transform::vjp(graph, &wrt).expect("differentiable");
    let outs = interp::run(&back, &samples(&back.input_types())).expect("runs");
    outs[graph.outputs().len()..].iter().map(|l| l.to_vec::<f64>()).collect()
}

#[track_caller]
fn close(a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    let worst = a.iter().zip(b).fold(0f64, |m, (x, y)| m.max((x - y).abs()));
    assert!(worst < 1e-10, "{worst}: {a:?} {b:?}");
}

#[test]
fn what_is_recomputed_has_the_same_gradients() {
    for (marked, plain) in [("Recomputed", "Chain"), ("Preserved", "Unchecked")] {
        let (marked, plain) = (lowered(marked, &options()), lowered(plain, &options()));
        assert!(marked.graph.to_string().contains("remat"));
        assert!(!plain.graph.to_string().contains("remat"));
        for (a, b) in gradients(&marked).iter().zip(&gradients(&plain)) {
            close(a, b);
            assert!(b.iter().any(|x| x.abs() > 1e-4));
        }
    }
}

/// Hooks that add the layer index, after a multiplication: the order is that of their priorities.
fn hooks() -> HookRegistry {
    let number = |b: &mut ir::Builder, layer: Option<LayerIndex>, like: ir::Value| match layer {
        Some(LayerIndex::Number(n)) => b.full_like(like, n as f64 + 1.0),
        Some(LayerIndex::Traced(n)) => {
            let ty = b.ty(like);
            let n = b.cast(n, ty.dtype)?;
            let n = b.offset(n, 1.0)?;
            b.splat(n, &ty.shape)
        }
        None => b.full_like(like, 100.0),
    };
    HookRegistry::new()
        .rewrite("AfterProjection", 2, move |b, x, site| {
            let n = number(b, site.layer, x)?;
            b.add(x, n)
        })
        .rewrite("AfterProjection", 1, |b, x, _| b.scale(x, 2.0))
        .observe("AfterActivation")
}

#[test]
fn hooks_change_and_watch_each_layer() {
    let plain = lowered("Tower", &options());
    assert_eq!(plain.graph.outputs().len(), 1);
    assert_eq!(plain.hook_points, ["AfterActivation", "AfterProjection"]);
    assert!(
        plain.trace.iter().any(|line| line.starts_with("layers[2].out: add: f64[3,4], f64[3,4]")),
        "{:?}",
        plain.trace
    );

    let hooked = lowered("Tower", &LowerOptions { hooks: hooks(), ..options() });
    let found = run(&hooked);
    assert_eq!(found.len(), 1 + 3);
    let seen: Vec<_> = hooked.observations.iter().map(|o| (o.path.as_str(), o.layer)).collect();
    assert_eq!(seen, [("layers[0].z", Some(0)), ("layers[1].z", Some(1)), ("layers[2].z", Some(2))]);
    assert_eq!(hooked.observations[0].kind, ObservationKind::Hook("AfterActivation".into()));

    // Computed by hand: y = 2·W·x + layer, z = silu(y), x + z.
    let inputs = samples(&hooked.graph.input_types());
    let weights: Vec<Vec<f64>> = inputs[..4].iter().map(|l| l.to_vec()).collect();
    let mut x: Vec<f64> = inputs[4].to_vec();
    let product =
        |w: &[f64], x: &[f64], row: usize, o: usize| (0..4).map(|i| w[o * 4 + i] * x[row * 4 + i]).sum::<f64>();
    for (layer, weight) in weights[..3].iter().enumerate() {
        let cells = (0..3).flat_map(|row| (0..4).map(move |o| (row, o)));
        let z: Vec<f64> = cells
            .map(|(row, o)| 2.0 * product(weight, &x, row, o) + layer as f64 + 1.0)
            .map(|y| y / (1.0 + (-y).exp()))
            .collect();
        close(&found[1 + layer], &z);
        x.iter_mut().zip(&z).for_each(|(x, z)| *x += z);
    }
    let out: Vec<f64> =
        (0..3).flat_map(|row| (0..4).map(move |o| (row, o))).map(|(r, o)| product(&weights[3], &x, r, o)).collect();
    close(&found[0], &out);

    // The explicit backward graph of Linear is still used, and the hook is differentiated.
    assert!(gradients(&hooked)[0].iter().any(|g| g.abs() > 1e-4));
}

#[test]
fn a_scan_over_stacked_parameters_is_the_same_model() {
    let each = LowerOptions { hooks: hooks(), probes: true, asserts: true, ..options() };
    let (unrolled, scanned) = (lowered("Tower", &each), lowered("Tower", &LowerOptions { scan: true, ..each.clone() }));
    assert!(scanned.graph.to_string().contains("scan") && !unrolled.graph.to_string().contains("scan"));
    assert_eq!(scanned.params[0].path, "layers[*].weight");
    assert_eq!(scanned.params[0].ty.shape[..], [3, 4, 4]);

    // The same numbers, stacked.
    let inputs = samples(&unrolled.graph.input_types());
    let stacked: Vec<f64> = inputs[..3].iter().flat_map(|l| l.to_vec::<f64>()).collect();
    let stacked = vec![Literal::new(&[3, 4, 4], &stacked), inputs[3].clone(), inputs[4].clone()];
    let values = |graph: &ir::Graph, inputs: &[Literal]| -> Vec<Vec<f64>> {
        let outs = interp::run(graph, inputs).expect("runs");
        outs.iter().map(|l| l.scalars().map(|s| s.to_f64()).collect()).collect()
    };
    let (a, b) = (values(&unrolled.graph, &inputs), values(&scanned.graph, &stacked));
    close(&a[0], &b[0]);
    // Per layer z, y's statistics and an assert; stacked, three outputs in total.
    assert_eq!((a.len(), b.len()), (1 + 9, 1 + 3));
    for (i, observation) in scanned.observations.iter().enumerate() {
        assert_eq!((observation.ty.shape[0], observation.layer), (3, None));
        let same = unrolled.observations.iter().enumerate().filter(|(_, o)| o.kind == observation.kind);
        let parts: Vec<f64> = same.flat_map(|(j, _)| a[1 + j].clone()).collect();
        close(&parts, &b[1 + i]);
    }
}

#[test]
fn probes_and_asserts_are_outputs_when_asked_for() {
    let watched = lowered("Tower", &LowerOptions { probes: true, asserts: true, ..options() });
    let found = run(&watched);
    for (observation, values) in watched.observations.iter().zip(&found[1..]) {
        match &observation.kind {
            ObservationKind::Probe { name, capture, .. } => {
                assert_eq!((name.as_str(), capture.as_str(), values.len()), ("y", "stats", 5));
                assert!(values[2] <= values[0] && values[0] <= values[3] && values[1] >= 0.0 && values[4] > 0.0);
            }
            ObservationKind::Assert { message } => assert_eq!((message.as_str(), values[0]), ("z is wild", 1.0)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(watched.observations.len(), 6);
}

#[test]
fn a_hook_must_fit_its_point() {
    let cases = [
        (HookRegistry::new().observe("AfterActivatoin"), tensorloom_lang::Code::E002),
        (HookRegistry::new().rewrite("AfterActivation", 0, |_, x, _| Ok(x)), tensorloom_lang::Code::E008),
        (
            HookRegistry::new().rewrite("AfterProjection", 0, |b, x, _| b.cast(x, DType::F32)),
            tensorloom_lang::Code::E004,
        ),
    ];
    for (hooks, code) in cases {
        let found = try_lower("Tower", &LowerOptions { hooks, ..options() }).expect_err("a finding");
        assert_eq!(found.code, code);
    }
}

#[test]
fn precision_converts_and_converts_back() {
    let f32s = LowerOptions::default();
    let precise = lowered("Precise", &f32s);
    assert_eq!(precise.params[0].ty.dtype, DType::BF16);
    assert_eq!(precise.graph.output_types()[0].dtype, DType::F32);
    assert!(precise.graph.to_string().contains("bf16[3,4]"), "{}", precise.graph);
}

#[test]
fn gradients_are_skipped_scaled_and_clipped() {
    let found = gradients(&lowered("Gradients", &options()));
    // out = in · still · half · kept, with cotangent c.
    let types: Vec<Type> = [&[4][..], &[4], &[4], &[3, 4], &[3, 4]].map(|s| Type::new(DType::F64, s)).to_vec();
    let v: Vec<Vec<f64>> = samples(&types).iter().map(|l| l.to_vec()).collect();
    let sum =
        |f: &dyn Fn(usize, usize) -> f64| (0..4).map(|i| (0..3).map(|r| f(r, i)).sum::<f64>()).collect::<Vec<_>>();
    assert!(found[0].iter().all(|g| *g == 0.0));
    close(&found[1], &sum(&|r, i| 0.5 * v[3][r * 4 + i] * v[0][i] * v[2][i] * v[4][r * 4 + i]));
    let clipped: Vec<f64> = sum(&|r, i| v[3][r * 4 + i] * v[0][i] * v[1][i] * v[4][r * 4 + i])
        .iter()
        .map(|x| x.clamp(-0.25, 0.25))
        .collect();
    close(&found[2], &clipped);
}

#[test]
fn adapters_bring_parameters_of_their_own() {
    let adapted = lowered("Adapted", &options());
    let params: Vec<_> =
        adapted.params.iter().map(|p| (p.path.as_str(), p.ty.shape.to_vec(), p.trainable, p.init)).collect();
    let expected = [
        ("weight", vec![12, 4], false, ParamInit::Default),
        ("out_weight", vec![4, 4], false, ParamInit::Default),
        ("qkv.q.lora_A", vec![2, 4], true, ParamInit::Default),
        ("qkv.q.lora_B", vec![4, 2], true, ParamInit::Zeros),
        ("qkv.v.lora_A", vec![2, 4], true, ParamInit::Default),
        ("qkv.v.lora_B", vec![4, 2], true, ParamInit::Zeros),
        ("out.ia3", vec![4], true, ParamInit::Ones),
    ];
    assert_eq!(params, expected);

    // Merged by hand into the weights, without adapters.
    let inputs = samples(&adapted.graph.input_types());
    let v: Vec<Vec<f64>> = inputs.iter().map(|l| l.to_vec()).collect();
    let mut qkv = v[0].clone();
    for (start, a, b) in [(0, 2, 3), (8, 4, 5)] {
        for o in 0..4 {
            for i in 0..4 {
                let update: f64 = (0..2).map(|r| v[b][o * 2 + r] * v[a][r * 4 + i]).sum();
                qkv[(start + o) * 4 + i] += 4.0 / 2.0 * update;
            }
        }
    }
    let product =
        |w: &[f64], x: &[f64], row: usize, o: usize| (0..4).map(|i| w[o * 4 + i] * x[row * 4 + i]).sum::<f64>();
    let mut out = Vec::new();
    for row in 0..3 {
        let part = |start: usize, i: usize| product(&qkv, &v[7], row, start + i);
        let s: Vec<f64> = (0..4).map(|i| part(0, i) * part(4, i) + part(8, i)).collect();
        out.extend((0..4).map(|o| product(&v[1], &s, 0, o) * v[6][o]));
    }
    close(&run(&adapted)[0], &out);
    let grads = gradients(&adapted);
    assert!(grads[2..7].iter().all(|g| g.iter().any(|x| x.abs() > 1e-5)));
}

#[test]
fn traits_of_parameters_reach_inside() {
    let found = lowered("Frozen", &options());
    let traits: Vec<_> =
        found.params.iter().map(|p| (p.path.as_str(), p.trainable, p.lr_scale, p.wd_scale, p.grad_clip)).collect();
    let expected =
        [("inner.w1", false, 1.0, 1.0, None), ("inner.w2", false, 1.0, 1.0, None), ("tail", true, 0.1, 0.0, Some(2.0))];
    assert_eq!(traits, expected);
}

#[test]
fn fusion_and_profiles_are_noted() {
    let found = lowered("Fused", &options());
    assert_eq!(found.profiled, ["gate"]);
    assert!(found.fusions.len() == 1 && found.fusions[0].required);
    let text = found.graph.to_string();
    assert_eq!(text.matches("\"nofuse\"").count(), 2, "{text}");
    assert!(found.graph.nodes().iter().any(|n| n.loc.to_string().starts_with("[gate] ")));
}

/// out = a · silu(a): the gradient of `b` is that of the product alone, the gradient of `a` has both terms.
#[test]
fn gradients_are_probed_by_inputs_that_are_zero() {
    let plain = lowered("Looked", &options());
    assert!(plain.gradient_probes.is_empty() && plain.graph.inputs().len() == 2);
    let looked = lowered("Looked", &LowerOptions { probes: true, ..options() });
    let shown: Vec<_> = looked.gradient_probes.iter().map(|tap| (tap.path.as_str(), tap.kind.clone())).collect();
    let probe = |name: &str, capture: &str, frequency| ObservationKind::Probe {
        name: name.to_string(),
        capture: capture.to_string(),
        frequency,
        conditional: false,
    };
    assert_eq!(shown, [("a", probe("a", "grad_full", 1)), ("b", probe("b", "grad_stats", 10))]);
    assert_eq!((looked.graph.inputs().len(), looked.graph.outputs().len(), looked.params.len()), (4, 1, 1));

    let mut b = ir::Builder::new();
    let back = transform::vjp(&looked.graph, &[2, 3]).expect("differentiable");
    let inputs: Vec<ir::Value> = back.input_types().into_iter().map(|ty| b.graph.input(ty)).collect();
    let outs = b.inline(&back, &inputs).expect("fits");
    let captured: Vec<ir::Value> = (looked.gradient_probes.iter().zip(&outs[1..]))
        .map(|(tap, gradient)| tap.capture_gradient(&mut b, *gradient).expect("captured"))
        .collect();
    let graph = b.finish(&captured);
    let mut given = samples(&graph.input_types());
    for zero in &mut given[2..4] {
        *zero = Literal::from_fn(zero.ty().clone(), |_| Scalar::from_f64(DType::F64, 0.0));
    }
    let found = interp::run(&graph, &given).expect("runs");
    let (w, x, ct): (Vec<f64>, Vec<f64>, Vec<f64>) = (given[0].to_vec(), given[1].to_vec(), given[4].to_vec());
    let cells = || (0..3).flat_map(|row| (0..4).map(move |o| (row, o)));
    let a: Vec<f64> = cells().map(|(row, o)| (0..4).map(|i| w[o * 4 + i] * x[row * 4 + i]).sum()).collect();
    let sigmoid = |a: f64| 1.0 / (1.0 + (-a).exp());
    let gradient: Vec<f64> = (a.iter().zip(&ct))
        .map(|(&a, ct)| ct * (a * sigmoid(a) + a * sigmoid(a) * (1.0 + a * (1.0 - sigmoid(a)))))
        .collect();
    close(&found[0].to_vec::<f64>(), &gradient);
    let of_b: Vec<f64> = a.iter().zip(&ct).map(|(a, ct)| ct * a).collect();
    let stats: Vec<f64> = found[1].scalars().map(|s| s.to_f64()).collect();
    let mean = of_b.iter().sum::<f64>() / 12.0;
    let norm = of_b.iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!((stats[0] - mean).abs() < 1e-6 && (stats[4] - norm).abs() < 1e-6, "{stats:?} {mean} {norm}");
}

#[test]
fn dropout_in_an_adapter_follows_its_key_and_only_in_training() {
    let plain = lowered("Dropping", &options());
    assert!(!plain.needs_rng);
    let training = LowerOptions { training: true, ..options() };
    for scan in [false, true] {
        let dropping = lowered("Dropping", &LowerOptions { scan, ..training.clone() });
        assert!(dropping.needs_rng);
        let types = dropping.graph.input_types();
        let last = types.last().expect("a key");
        assert_eq!((last.dtype, &last.shape[..]), (DType::U32, &[2][..]));
        assert_eq!(dropping.params.len(), if scan { 3 } else { 6 });
        if scan {
            assert_eq!(dropping.params[1].ty.shape[..], [2, 2, 4], "adapters are stacked like the rest");
        }
        let run = |key: [u32; 2]| -> Vec<f64> {
            let mut given = samples(&types);
            *given.last_mut().expect("a key") = Literal::new(&[2], &key);
            interp::run(&dropping.graph, &given).expect("runs")[0].to_vec()
        };
        assert_eq!(run([1, 2]), run([1, 2]));
        assert_ne!(run([1, 2]), run([1, 3]));
    }
    let wrong = load(&TEXT.replace("share: float = 0.25", "share: float = 1.0"));
    let item = wrong.export(0, "Dropping").expect("there");
    let found = lower(&wrong, item, &BTreeMap::new(), &[Type::new(DType::F64, &[3, 4])], &training);
    assert_eq!(found.expect_err("a share of 1").code, tensorloom_lang::Code::E008);
}

/// Gradient probes inside a scan: one input with a row for each layer.
#[test]
fn a_scan_has_one_tap_for_all_layers() {
    let each = LowerOptions { probes: true, ..options() };
    let (unrolled, scanned) =
        (lowered("Dropping", &each), lowered("Dropping", &LowerOptions { scan: true, ..each.clone() }));
    assert_eq!((unrolled.gradient_probes.len(), scanned.gradient_probes.len()), (2, 1));
    assert_eq!(scanned.gradient_probes[0].ty.shape[..], [2, 3, 4]);
    assert_eq!(
        (unrolled.gradient_probes[1].layer, unrolled.gradient_probes[1].path.as_str()),
        (Some(1), "layers[1].out")
    );
}

#[test]
fn what_a_declaration_says_holds_for_all_of_it() {
    let found = lowered("Followed", &LowerOptions::default());
    assert_eq!(found.profiled, ["whole"]);
    assert!(found.graph.nodes().iter().any(|n| n.loc.to_string().starts_with("[whole] ")));
    assert_eq!(found.trace.len(), 3);
    assert!(found.trace[0].contains("f32[3,4]"), "{:?}", found.trace);
    // The recipe: products in bf16, results in fp32.
    let text = found.graph.to_string();
    assert!(text.contains("bf16[3,4]") && found.graph.output_types()[0].dtype == DType::F32, "{text}");
    // Unsupported annotations are reported once.
    assert_eq!(found.ignored.len(), 2, "{:?}", found.ignored);
    assert!(found.ignored[0].contains("@memory(offload)") && found.ignored[1].contains("@kernel(\"fast\")"));
}

/// A quoted condition becomes an output just before its probe.
#[test]
fn probes_may_have_conditions() {
    let watched = lowered("Followed", &LowerOptions { probes: true, ..LowerOptions::default() });
    let shown: Vec<&ObservationKind> = watched.observations.iter().map(|o| &o.kind).collect();
    let probe = |name: &str, conditional| ObservationKind::Probe {
        name: name.to_string(),
        capture: "stats".to_string(),
        frequency: 1,
        conditional,
    };
    // One condition is computed, one is always true, and one is never true.
    assert_eq!(shown, [&ObservationKind::Condition, &probe("wild", true), &probe("always", false)]);
    let holds = |x: f32| -> f64 {
        let mut given = samples(&watched.graph.input_types());
        let last = given.len() - 1;
        given[last] = Literal::from_fn(given[last].ty().clone(), |_| Scalar::from_f64(DType::F32, x.into()));
        interp::run(&watched.graph, &given).expect("runs")[1].scalars().next().expect("a truth").to_f64()
    };
    assert_eq!((holds(0.5), holds(f32::NAN)), (0.0, 1.0));
    let wrong = TEXT.replace("has_nan_or_inf(a)", "has_nan_or_inf(");
    let wrong = ModuleProgram::load("m", &LibraryLoader(MemoryLoader::new().with("m", "v1.0.0", &wrong)));
    let found = tensorloom_lang::check::check(&wrong).diagnostics;
    let codes: Vec<tensorloom_lang::Code> = found.iter().filter(|d| d.is_error()).map(|d| d.code).collect();
    assert_eq!(codes, [tensorloom_lang::Code::E008], "half a condition is found by checking");
    let item = wrong.export(0, "Followed").expect("there");
    let options = LowerOptions { probes: true, ..LowerOptions::default() };
    let found = lower(&wrong, item, &BTreeMap::new(), &[Type::new(DType::F32, &[3, 4])], &options);
    assert_eq!(found.expect_err("half a condition").code, tensorloom_lang::Code::E008);
}

/// Of two hook points on one tensor, the one with the lower priority number comes first.
#[test]
fn points_run_by_their_priority() {
    let text = |first: i64, second: i64| {
        format!(
            "module M():\n  forward:\n    in: [B, 4]\n    out: [B, 4]\n    graph:\n      in -> silu() -> out \
             @hook(Twice, mode=modify, priority={first}) @hook(More, mode=modify, priority={second})\n"
        )
    };
    let run = |text: &str| {
        let program = load(text);
        let hooks = HookRegistry::new()
            .rewrite("Twice", 0, |b, x, _| b.scale(x, 2.0))
            .rewrite("More", 0, |b, x, _| b.offset(x, 1.0));
        let options = LowerOptions { hooks, ..options() };
        let item = program.export(0, "M").expect("there");
        let lowered = lower(&program, item, &BTreeMap::new(), &[Type::new(DType::F64, &[3, 4])], &options);
        run_first(&lowered.expect("lowers"))
    };
    let (doubled_first, added_first) = (run(&text(1, 2)), run(&text(2, 1)));
    let worst = doubled_first.iter().zip(&added_first).fold(0f64, |m, (a, b)| m.max((a + 1.0 - b).abs()));
    assert!(worst < 1e-12, "2x + 1 against 2 (x + 1): {doubled_first:?} {added_first:?}");
}

const PATHS: &str = "\
block Layer(width: int):
  params:
    w: [width, width]
    u: [width] @frozen

  forward:
    in: [B, width]
    out: [B, width]
    graph:
      in -> matmul(w, transpose=NT) -> mul(u) -> out

module Half(width: int):
  params:
    layers: [2] x Layer(width)
    layers[1].u: [...] @trainable(lr_scale=0.5)

  forward:
    in: [B, width]
    out: [B, width]
    graph:
      in -> StackedBlocks(layers, 2) -> out

model M(width: int = 4, still: bool = true):
  params:
    half: Half(width)
    blocks: [3] x Layer(width) @frozen
    blocks[{i}].u: [width] @trainable(lr_scale=0.1, wd_scale=0.0)
    blocks[2].w: [width, width] @trainable @dtype(bf16)
    half.layers[{i}].w: [...] @frozen if_STILL
    half.layers[1].u: [...] @gradient(scale=2.0)

  forward:
    in: [B, width]
    out: [B, width]
    graph:
      in -> half -> x
      x -> StackedBlocks(blocks, 3) -> out
";

/// §7.8: entries of `params:` with a path annotate parameters of contained modules.
#[test]
fn paths_reach_parameters_of_modules_inside() {
    let text = PATHS.replace(": [...] @frozen if_STILL", ": [...] if still @frozen");
    let program = load(&text);
    let item = program.export(0, "M").expect("there");
    let given = |still| BTreeMap::from([("still".to_string(), tensorloom_lang::consteval::ConstValue::bool(still))]);
    let lower = |still, options: &LowerOptions| {
        lower(&program, item, &given(still), &[Type::new(options.dtype, &[3, 4])], options).expect("lowers")
    };
    for still in [true, false] {
        let found = lower(still, &options());
        let traits: Vec<_> =
            found.params.iter().map(|p| (p.path.as_str(), p.trainable, p.lr_scale, p.wd_scale, p.ty.dtype)).collect();
        let f64s = DType::F64;
        let expected = [
            ("half.layers[0].w", !still, 1.0, 1.0, f64s),
            ("half.layers[0].u", false, 1.0, 1.0, f64s),
            ("half.layers[1].w", !still, 1.0, 1.0, f64s),
            ("half.layers[1].u", true, 0.5, 1.0, f64s),
            ("blocks[0].w", false, 1.0, 1.0, f64s),
            ("blocks[0].u", true, 0.1, 0.0, f64s),
            ("blocks[1].w", false, 1.0, 1.0, f64s),
            ("blocks[1].u", true, 0.1, 0.0, f64s),
            ("blocks[2].w", true, 1.0, 1.0, DType::BF16),
            ("blocks[2].u", true, 0.1, 0.0, f64s),
        ];
        assert_eq!(traits, expected);
    }
    // A single layer cannot be annotated if all are stacked.
    let stacked = LowerOptions { scan: true, ..options() };
    let found =
        tensorloom_lang::lower::lower(&program, item, &given(true), &[Type::new(DType::F64, &[3, 4])], &stacked);
    assert_eq!(found.expect_err("a finding").code, tensorloom_lang::Code::L001);
    let same = PATHS
        .replace(": [...] @frozen if_STILL", ": [...] @frozen")
        .replace("layers[1]", "layers[{i}]")
        .replace("    blocks[2].w: [width, width] @trainable @dtype(bf16)\n", "");
    let program = load(&same);
    let item = program.export(0, "M").expect("there");
    let found =
        tensorloom_lang::lower::lower(&program, item, &given(true), &[Type::new(DType::F64, &[3, 4])], &stacked);
    let found = found.expect("lowers");
    let trained: Vec<_> = found.params.iter().map(|p| (p.path.as_str(), p.trainable)).collect();
    let expected =
        [("half.layers[*].w", false), ("half.layers[*].u", true), ("blocks[*].w", false), ("blocks[*].u", true)];
    assert_eq!(trained, expected);
}

/// Invalid paths, and entries without effect, are reported by the checker.
#[test]
fn paths_that_lead_nowhere_are_findings() {
    use tensorloom_lang::Code::{E002, E004, E008};
    let line = "    blocks[{i}].u: [width] @trainable(lr_scale=0.1, wd_scale=0.0)\n";
    for (wrong, code) in [
        ("blocks[{i}].nosuch: [...] @frozen", E002),
        ("nosuch[{i}].u: [...] @frozen", E002),
        ("blocks.u: [...] @frozen", E002),
        ("half[{i}].layers[{j}].u: [...] @frozen", E002),
        ("blocks[{i}].u.v: [...] @frozen", E002),
        ("blocks[{i}].lora.A: [4, width] @trainable", E002),
        ("blocks[{i}].u: [width, width] @frozen", E004),
        ("half.layers: [...] @frozen", E002),
        ("blocks[{i}]: [...] @frozen", E008),
        ("blocks[{i}].u: [...]", E008),
        ("+blocks[{i}].u: [...] @frozen", E008),
        ("blocks[{i}].u: [...] @frozzen", E008),
        ("blocks[{i}].u: [...] @memory(recompute)", E008),
        ("blocks[{i}].u: [...] @hook(P)", E008),
    ] {
        let text = PATHS.replace(" if_STILL", "").replace(line, &format!("    {wrong}\n"));
        let program = ModuleProgram::load("m", &LibraryLoader(MemoryLoader::new().with("m", "v1.0.0", &text)));
        let mut found = program.diagnostics.clone();
        found.extend(tensorloom_lang::check::check(&program).diagnostics);
        let codes: Vec<tensorloom_lang::Code> = found.iter().map(|d| d.code).collect();
        assert_eq!(codes, [code], "{wrong}: {}", render_all(&program.sources, &found, ColorStyle::Plain));
    }
}

/// Inherited parts keep their parent's annotations, and storage formats apply to contained modules.
#[test]
fn annotations_are_inherited_and_formats_reach_inside() {
    let text = "\
recipe Stored:
  forward_activation_dtype: bf16
  weight_storage_dtype: fp16

module Base(width: int = 4):
  @checkpoint
  @recipe(Stored)

  params:
    w: [width, width]

  forward:
    in: [B, width]
    out: [B, width]
    graph:
      in -> matmul(w, transpose=NT) -> silu() -> out

module Child(width: int = 4) extends Base:
  _

module Outer(width: int = 4):
  params:
    one: Base(width) @dtype(bf16)
    two: Base(width)

  forward:
    in: [B, width]
    out: [B, width]
    graph:
      in -> one -> two -> out
";
    let program = load(text);
    let lower = |name: &str| {
        let item = program.export(0, name).expect("there");
        lower(&program, item, &BTreeMap::new(), &[Type::new(DType::F32, &[3, 4])], &LowerOptions::default())
            .expect("lowers")
    };
    for name in ["Base", "Child"] {
        let found = lower(name);
        assert!(found.graph.to_string().contains("remat"), "{name}");
        assert!(found.graph.to_string().contains("bf16[3,4]"), "{name}");
        assert_eq!(found.params[0].ty.dtype, DType::F16, "{name}");
    }
    let formats: Vec<DType> = lower("Outer").params.iter().map(|p| p.ty.dtype).collect();
    assert_eq!(formats, [DType::BF16, DType::F16]);
}
