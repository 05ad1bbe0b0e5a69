//! Runs every check on every sample of the table.

use tensorloom_testing::check::{self, GradOutcome};
use tensorloom_testing::{Rng, samples};

/// Runs a check over samples, reports all failures together, and counts the comparisons.
fn each(
    what: &str,
    filter: impl Fn(&samples::OpSample) -> bool,
    f: impl Fn(&samples::OpSample, &mut Rng) -> Result<GradOutcome, String>,
) {
    let seed = tensorloom_testing::rng::run_seed();
    let (mut judged, mut undecided) = (0, Vec::new());
    let mut failures = Vec::new();
    for (k, row) in samples::all_samples().iter().enumerate().filter(|(_, r)| filter(r)) {
        // Each sample has its own random axes and directions.
        match f(row, &mut Rng::new(seed.wrapping_add(k as u64))) {
            Ok(GradOutcome::Agrees) => judged += 1,
            Ok(GradOutcome::Inconclusive) => undecided.push(row.name.as_str().to_string()),
            Err(e) => failures.push(format!("{}: {e}", row.name)),
        }
    }
    println!("{what}: {judged} rows judged, {} undecided: {undecided:?}", undecided.len());
    assert!(undecided.len() * 20 <= judged, "{what}: {} of {judged} rows undecided: {undecided:?}", undecided.len());
    if let Some(first) = failures.first() {
        let names: Vec<&str> = failures.iter().filter_map(|f| f.split(':').next()).collect();
        panic!("{what}, seed {seed}: {} rows fail: {names:?}\n{first}", failures.len());
    }
}

#[test]
fn rows_verify_run_and_round_trip() {
    each(
        "forward",
        |_| true,
        |row, _| {
            check::check_verifier(&row.graph)?;
            check::run(&row.graph, &row.inputs)?;
            check::check_text_roundtrip(&row.graph).map(|()| GradOutcome::Agrees)
        },
    );
}

#[test]
fn first_derivatives_equal_finite_differences() {
    each(
        "grad",
        |r| r.smooth,
        |row, rng| match if row.forward_only { check::check_jvp } else { check::check_grads }(
            &row.graph,
            &row.inputs,
            rng,
        )? {
            GradOutcome::Inconclusive if row.inputs.iter().any(|x| x.ty().dtype == ir::DType::F64) => {
                Err("finite differences don't settle".into())
            }
            verdict => Ok(verdict),
        },
    );
}

#[test]
fn second_derivatives_equal_finite_differences() {
    each(
        "second order",
        |r| r.smooth && !r.forward_only,
        |row, rng| check::check_second_order(&row.graph, &row.inputs, rng),
    );
}

#[test]
fn vmap_equals_a_loop() {
    each("vmap", |_| true, |row, rng| check::check_vmap(&row.graph, &row.inputs, rng).map(|()| GradOutcome::Agrees));
}

#[test]
fn grad_of_vmap_equals_finite_differences() {
    each(
        "grad of vmap",
        |r| r.smooth && !r.forward_only,
        |row, rng| {
            let (wide, inputs) = check::batched(&row.graph, &row.inputs, rng)?;
            check::check_grads(&wide, &inputs, rng)
        },
    );
}

#[test]
fn vmap_of_grad_equals_a_loop() {
    each(
        "vmap of vjp",
        |r| r.smooth && !r.forward_only,
        |row, rng| {
            let wrt: Vec<usize> =
                (0..row.inputs.len()).filter(|&i| row.inputs[i].ty().dtype == ir::DType::F64).collect();
            let g = transform::vjp(&row.graph, &wrt).map_err(|e| e.to_string())?;
            let mut x = row.inputs.clone();
            x.extend(
                row.graph
                    .output_types()
                    .iter()
                    .filter(|t| t.dtype.is_float())
                    .map(|t| tensorloom_testing::FillKind::Smooth.random_tensor(t, rng)),
            );
            check::check_text_roundtrip(&g)?;
            check::check_vmap(&g, &x, rng).map(|()| GradOutcome::Agrees)
        },
    );
}

/// The variants of `Op`, from its declaration.
fn variants() -> Vec<&'static str> {
    let source = include_str!("../../ir/src/ops/mod.rs");
    let list = source.split("\nops! {\n").nth(1).and_then(|rest| rest.split("\n}").next());
    let lines = list.expect("the list is there").lines().map(str::trim).filter(|line| !line.starts_with("//"));
    lines.filter_map(|line| line.split('(').next()).collect()
}

/// The variant of an op.
fn variant(op: &ir::Op) -> String {
    let text = format!("{op:?}");
    text.split(['(', ' ']).next().unwrap_or_default().to_string()
}

#[test]
fn every_op_and_composite_has_rows() {
    use std::collections::BTreeSet;
    let rows = samples::all_samples();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut names: BTreeSet<String> = rows.iter().map(|r| r.op().to_string()).collect();
    for node in rows.iter().flat_map(|r| r.graph.nodes()) {
        seen.insert(variant(&node.op));
        names.insert(node.op.name().to_string());
    }
    let all = variants();
    assert!(all.len() > 50 && seen.iter().all(|v| all.contains(&v.as_str())), "{all:?} are not all of {seen:?}");
    let missing: Vec<_> = all.iter().filter(|v| !seen.contains(**v)).collect();
    assert!(missing.is_empty(), "no rows for {missing:?}");
    let kinds = ir::Unary::ALL.iter().map(|k| k.name());
    let kinds = kinds.chain(ir::Binary::ALL.iter().map(|k| k.name()));
    let kinds = kinds.chain(ir::Compare::ALL.iter().map(|k| k.name()));
    let kinds = kinds.chain(ir::ops::ReduceKind::ALL.iter().map(|k| k.name()));
    let kinds = kinds.chain(ir::ops::ScatterKind::ALL.iter().map(|k| k.name()));
    let kinds = kinds.chain(ir::composites::COMPOSITES.iter().map(|f| f.name));
    let missing: Vec<&str> = kinds.filter(|k| !names.contains(*k)).collect();
    assert!(missing.is_empty(), "no rows for {missing:?}");
    let mut unique = BTreeSet::new();
    let twice: Vec<&str> = rows.iter().map(|r| r.name.as_str()).filter(|n| !unique.insert(*n)).collect();
    assert!(twice.is_empty(), "named twice: {twice:?}");
    println!("{} rows, {} of them smooth", rows.len(), rows.iter().filter(|r| r.smooth).count());
}
