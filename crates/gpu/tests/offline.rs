//! The source of kernels, compiled by NVRTC for Hopper. Skipped if NVRTC is not installed; no GPU is needed.

#![cfg(feature = "cuda")]

use compiler::Options;
use ir::ops::Dot;
use ir::{Builder, DType, Graph, GraphBuilder};
use tensorloom_gpu::cuda::AotTarget;
use testing::random::{SampleOptions as Shape, sample};
use testing::rng::run_seed;

fn compiler() -> Option<AotTarget> {
    match AotTarget::new((9, 0)) {
        Ok(o) => Some(o),
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    }
}

fn check(offline: &AotTarget, name: &str, graph: &Graph) {
    let program = compiler::compile(graph, offline, &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
    offline.compile(&program).unwrap_or_else(|e| panic!("{name}: {e}\n{graph}\n{program}"));
}

#[test]
fn one_row_of_each_op_compiles() {
    let Some(offline) = compiler() else { return };
    let mut seen = std::collections::BTreeSet::new();
    for row in testing::samples::all_samples() {
        if seen.insert(row.op().to_string()) {
            check(&offline, &row.name, &row.graph);
        }
    }
}

#[test]
fn random_graphs_compile() {
    let Some(offline) = compiler() else { return };
    let seed = run_seed();
    for k in 0..20 {
        let s = sample(seed.wrapping_add(k), &Shape::ANY);
        check(&offline, &format!("TENSORLOOM_SEED={}", s.seed), &s.graph);
    }
}

#[test]
fn products_that_the_library_refuses_compile() {
    let Some(offline) = compiler() else { return };
    for d in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for out in [d, d.accumulator()] {
            let mut b = Builder::new();
            let (x, y) = (b.input(d, &[3, 4]), b.input(d, &[4, 5]));
            let z = b.one(Dot { out, ..Dot::matmul(d) }.into(), &[x, y]).expect("it type-checks");
            check(&offline, &format!("{d} to {out}"), &b.finish(&[z]));
        }
    }
}

#[test]
fn a_gpu_that_is_too_old_is_refused() {
    if compiler().is_some() {
        let said = AotTarget::new((2, 0)).err().expect("no compiler knows Fermi any more").to_string();
        assert!(said.contains("sm_20") && said.contains("toolkit"), "{said}");
    }
}
