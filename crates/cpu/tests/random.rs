//! Random graphs and the op table, compiled and compared with the interpreter.

use compiler::Options;
use tensorloom_cpu::Cpu;
use tensorloom_cpu::codegen::Target;
use testing::backend::{CompareOutcome, matches_bitwise, matches_interpreter};
use testing::random::{Sample, SampleOptions as Shape, exact_expressions, integer_expressions, sample, shrink};
use testing::{Coverage, rng::run_seed};

fn backends() -> Vec<Cpu> {
    let lesser = Target::available().into_iter().filter(|&t| Some(t) != Target::detect());
    std::iter::once(Cpu::new(2)).chain(lesser.map(|t| Cpu::with_target(1, Some(t)))).collect()
}

fn each(count: u64, shape: Shape) {
    let cpus = backends();
    let seed = run_seed();
    let mut coverage = Coverage::default();
    let rounds: u64 = std::env::var("TENSORLOOM_ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(1);
    let mut judged = 0;
    for k in 0..count * rounds {
        let s = sample(seed.wrapping_add(k), &shape);
        coverage.add(&s.graph);
        let cpu = &cpus[k as usize % cpus.len()];
        let fails = |s: &Sample| matches_interpreter(cpu, &s.graph, &s.inputs).err();
        let verdict = matches_interpreter(cpu, &s.graph, &s.inputs);
        judged += (verdict == Ok(CompareOutcome::Compared)) as u64;
        if verdict.is_err() {
            let small = shrink(&s, |c| fails(c).is_some());
            let program = compiler::compile(&small.graph, cpu, &Options::default());
            let program = program.map_or_else(|e| e.to_string(), |p| p.to_string());
            panic!("TENSORLOOM_SEED={} fails first: {}\n{small}\n{program}", s.seed, fails(&small).unwrap_or_default());
        }
    }
    println!("{judged} of {} judged\n{coverage}", count * rounds);
    // Factorizations and transforms have separate tests, but the cases must not consist only of them.
    assert!(judged >= count * rounds * 8 / 10, "only {judged} judged");
}

#[test]
fn random_graphs_equal_the_interpreter() {
    each(10_000, Shape::ANY);
}

#[test]
fn the_table_of_ops_equals_the_interpreter() {
    let cpus = backends();
    let mut wrong = Vec::new();
    for row in testing::samples::all_samples() {
        for cpu in &cpus {
            if let Err(e) = matches_interpreter(cpu, &row.graph, &row.inputs) {
                wrong.push(format!("{}: {e}", row.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Expressions of special floats and of integers at the limits of their types, compared bit by bit.
#[test]
fn expressions_equal_the_interpreter_to_the_bit() {
    let (cpus, seed) = (backends(), run_seed());
    for k in 0..200u64 {
        let cpu = &cpus[k as usize / 2 % cpus.len()];
        let seed = seed.wrapping_add(k);
        let s = if k % 2 == 0 { exact_expressions(seed) } else { integer_expressions(seed) };
        if let Err(e) = matches_bitwise(cpu, &s.graph, &s.inputs) {
            panic!("TENSORLOOM_SEED={seed} fails first: {e}\n{s}");
        }
    }
}
