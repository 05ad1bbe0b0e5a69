//! Every row of the table through every check.

use oracle::check::{self, Verdict};
use oracle::{Rng, rows};

/// Runs a check over rows and reports all failures at once.
fn each(what: &str, filter: impl Fn(&rows::Row) -> bool, f: impl Fn(&rows::Row, &mut Rng) -> Result<(), String>) {
    let seed = oracle::rng::run_seed();
    let mut failures = Vec::new();
    for row in rows::all().iter().filter(|r| filter(r)) {
        if let Err(e) = f(row, &mut Rng::new(seed)) {
            failures.push(format!("{}: {e}", row.name));
        }
    }
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
            check::verified(&row.graph)?;
            check::run(&row.graph, &row.inputs)?;
            check::text(&row.graph)
        },
    );
}

#[test]
fn first_derivatives_equal_finite_differences() {
    each(
        "grad",
        |r| r.smooth,
        |row, rng| match check::grads(&row.graph, &row.inputs, rng)? {
            Verdict::Inconclusive if row.inputs.iter().any(|x| x.ty().dtype == ir::DType::F64) => {
                Err("finite differences don't settle".into())
            }
            _ => Ok(()),
        },
    );
}

#[test]
fn second_derivatives_equal_finite_differences() {
    each(
        "second order",
        |r| r.smooth,
        |row, rng| check::second_order(&row.graph, &row.inputs, rng).map(|_| ()),
    );
}

#[test]
fn vmap_equals_a_loop() {
    each("vmap", |_| true, |row, rng| check::vmap(&row.graph, &row.inputs, rng));
}

#[test]
fn vmap_of_grad_equals_a_loop() {
    each(
        "vmap of vjp",
        |r| r.smooth,
        |row, rng| {
            let wrt: Vec<usize> = (0..row.inputs.len())
                .filter(|&i| row.inputs[i].ty().dtype == ir::DType::F64)
                .collect();
            let g = transform::vjp(&row.graph, &wrt).map_err(|e| e.to_string())?;
            let mut x = row.inputs.clone();
            x.extend(
                row.graph
                    .output_types()
                    .iter()
                    .filter(|t| t.dtype.is_float())
                    .map(|t| oracle::Fill::Smooth.of(t, rng)),
            );
            check::text(&g)?;
            check::vmap(&g, &x, rng)
        },
    );
}
