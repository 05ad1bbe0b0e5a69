//! Random graphs and the table of ops, compiled, against the interpreter.

use compiler::{Backend, Bindings, Options};
use cpu::Cpu;
use cpu::codegen::Target;
use ir::{Graph, Literal, interp};
use oracle::random::{Options as Shape, Sample, sample, shrink};
use oracle::{Coverage, Rng, rng::run_seed};

fn run(
    cpu: &Cpu,
    graph: &Graph,
    inputs: &[Literal],
    donate: Option<Vec<(usize, usize)>>,
) -> Result<Vec<Literal>, String> {
    // These graphs are small; what is done for large products is done for them too.
    let changed = donate.is_some();
    let computed_operands = if changed { 1 } else { Options::default().computed_operands };
    let donate = donate.unwrap_or_default();
    let options = Options { donate, computed_operands, ..Options::default() };
    let program = compiler::compile(graph, cpu, &options).map_err(|e| e.to_string())?;
    // And kernels take their sizes as arguments.
    let exe = if changed { cpu.load_general(program) } else { cpu.load(program) };
    let exe = exe.map_err(|e| e.to_string())?;
    let mut b = Bindings::for_program(exe.program(), cpu).map_err(|e| e.to_string())?;
    for (buffer, x) in b.inputs.iter().zip(inputs) {
        buffer.write(0, x.bytes()).map_err(|e| e.to_string())?;
    }
    exe.run(&mut b).map_err(|e| e.to_string())?;
    let mut outs = Vec::new();
    for (buffer, ty) in b.outputs.iter().zip(&exe.program().outputs) {
        let mut bytes = vec![0; ty.bytes()];
        buffer.read(0, &mut bytes).map_err(|e| e.to_string())?;
        outs.push(Literal::from_bytes(ty.clone(), &bytes).expect("sizes fit"));
    }
    Ok(outs)
}

fn agrees(cpu: &Cpu, graph: &Graph, inputs: &[Literal]) -> Result<(), String> {
    interp::run(graph, inputs).map_err(|e| e.to_string())?;
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(cpu, graph, inputs, None)));
    let got = caught.map_err(|_| "it panicked".to_string())??;
    let again = run(cpu, graph, inputs, Some(donations(graph)))?;
    // Vectors of factorisations are determined up to their sign, and where a transform's infinities go depends on its
    // butterflies; the tests of these routines compare them as far as they are determined.
    let text = graph.to_string();
    if ["eigh(", "svd(", "qr(", "fft("].iter().any(|op| text.contains(op)) {
        return Ok(());
    }
    oracle::noise::agrees(graph, inputs, &got, &mut Rng::new(1))?;
    // Results written over inputs, sizes as arguments, and operands computed while they are packed, change no more than the
    // order of sums.
    if got.iter().zip(&again).all(|(a, b)| a.bytes() == b.bytes()) {
        return Ok(());
    }
    let donated = "with donated inputs, sizes as arguments and computed operands";
    oracle::noise::agrees(graph, inputs, &again, &mut Rng::new(1)).map_err(|e| format!("{donated}: {e}"))
}

/// Each input with the first free output of its type.
fn donations(graph: &Graph) -> Vec<(usize, usize)> {
    let (inputs, outputs) = (graph.input_types(), graph.output_types());
    let mut taken = vec![false; outputs.len()];
    let mut pairs = Vec::new();
    for (i, t) in inputs.iter().enumerate() {
        if let Some(o) = (0..outputs.len()).find(|&o| !taken[o] && outputs[o] == *t) {
            taken[o] = true;
            pairs.push((i, o));
        }
    }
    pairs
}

fn backends() -> Vec<Cpu> {
    let mut all = vec![Cpu::new(2)];
    if Target::detect() == Some(Target::Avx512) {
        all.push(Cpu::with_target(1, Some(Target::Avx2)));
    }
    #[cfg(feature = "cranelift")]
    all.push(Cpu::with_target(1, Some(Target::Portable)));
    all
}

fn each(count: u64, shape: Shape) {
    let cpus = backends();
    let seed = run_seed();
    let mut coverage = Coverage::default();
    let rounds: u64 = std::env::var("TENSORLOOM_ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(1);
    for k in 0..count * rounds {
        let s = sample(seed.wrapping_add(k), &shape);
        coverage.add(&s.graph);
        let cpu = &cpus[k as usize % cpus.len()];
        let fails = |s: &Sample| agrees(cpu, &s.graph, &s.inputs).err();
        if fails(&s).is_some() {
            let small = shrink(&s, |c| fails(c).is_some());
            let program = compiler::compile(&small.graph, cpu, &Options::default());
            let program = program.map_or_else(|e| e.to_string(), |p| p.to_string());
            panic!("TENSORLOOM_SEED={} fails first: {}\n{small}\n{program}", s.seed, fails(&small).unwrap_or_default());
        }
    }
    println!("{coverage}");
}

#[test]
fn random_graphs_equal_the_interpreter() {
    each(10_000, Shape::ANY);
}

#[test]
fn the_table_of_ops_equals_the_interpreter() {
    let cpus = backends();
    let mut wrong = Vec::new();
    for row in oracle::rows::all() {
        for cpu in &cpus {
            if let Err(e) = agrees(cpu, &row.graph, &row.inputs) {
                wrong.push(format!("{}: {e}", row.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
