//! Whether collectives of programs on a GPU, from device memory to device memory, give what the interpreter gives. Needs a GPU.
//!
//! ```text
//! collectives one NCCL                 a rank alone, with NCCL itself (the file of the library)
//! collectives several LIBRARY COUNT    so many random programs on up to six ranks of one GPU, each a thread; NCCL wants a GPU for
//!                                      each rank, so the library is a stand-in (crates/dist/tests/nccl_ranks.c, with SHIM_CUDA=1)
//! ```

use compiler::{Backend, Bindings, Options, compile};
use cpu::Cpu;
use dist::groups::Groups;
use dist::nccl::Nccl;
use dist::{Comm, Error, Result, local};
use ir::ops::{Collective, CollectiveKind as Kind, ShardMap};
use ir::{Build, Builder, DType, Graph, Literal, Mesh, Op, Type, Value};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use tensorloom_gpu::cuda::Cuda;
use testing::compare::{Tolerance, compare};
use testing::random::sharded::sharded;

fn call(e: impl ToString) -> Error {
    Error::Call(e.to_string())
}

fn device(nccl: &Arc<Nccl>, comm: Arc<Comm>) -> Result<Cuda> {
    let host = Arc::new(Cpu::new(1).with_communicator(comm.clone()));
    Cuda::talking(0, host, Arc::new(Groups::new(nccl.clone(), comm))).map_err(call)
}

/// Runs a graph three times (launched, and again over the same memory); gives the results and the steps that the host took.
fn run(backend: &Cuda, graph: &Graph, inputs: &[Literal]) -> Result<(Vec<Literal>, Vec<String>)> {
    let exe = backend.load(compile(graph, backend, &Options::default()).map_err(call)?).map_err(call)?;
    let mut bindings = Bindings::for_program(exe.program(), backend).map_err(call)?;
    for (x, buffer) in inputs.iter().zip(&bindings.inputs) {
        buffer.write(0, x.bytes()).map_err(call)?;
    }
    exe.run(&mut bindings).map_err(call)?;
    exe.run(&mut bindings).map_err(call)?;
    let timings = exe.run_timed(&mut bindings).map_err(call)?;
    let host = timings.into_iter().map(|t| t.label).filter(|l| l.contains("(host)")).collect();
    let read = |(ty, buffer): (&Type, &Arc<dyn compiler::DeviceBuffer>)| {
        let mut bytes = vec![0; ty.bytes()];
        buffer.read(0, &mut bytes).map_err(call)?;
        Literal::from_bytes(ty.clone(), &bytes).ok_or_else(|| call("bytes of another length"))
    };
    let outs = exe.program().outputs.iter().zip(&bindings.outputs).map(read).collect::<Result<_>>()?;
    Ok((outs, host))
}

/// Every collective on a rank alone, over every dtype.
fn one(nccl: &Arc<Nccl>) -> Result<usize> {
    let mesh = Mesh::new(&[("x", 1), ("y", 1)]).map_err(call)?;
    let done = local::spawn(&mesh, |comm| {
        let backend = device(nccl, comm)?;
        println!("{}", backend.name());
        let mut checks = 0;
        for axes in [&mesh.axes()[..1], mesh.axes()] {
            for dtype in DType::ALL {
                let kinds = [
                    Kind::Sum,
                    Kind::Max,
                    Kind::Min,
                    Kind::Gather { dim: 1, same: true, turn: 0 },
                    Kind::SumScatter { dim: 1 },
                    Kind::AllToAll { split: 1, join: 0 },
                    Kind::Permute { pairs: vec![(0, 0)] },
                    Kind::Permute { pairs: vec![] },
                    Kind::Part { dim: 0 },
                ];
                for kind in kinds {
                    let mut b = Builder::new();
                    let x = b.input(dtype, &[3, 5]);
                    let Ok(y) = b.one(Collective::new(kind.clone(), axes).into(), &[x]) else { continue };
                    let mut rng = testing::Rng::new(7);
                    let own = testing::Fill::Smooth.of(&Type::new(dtype, &[3, 5]), &mut rng);
                    let graph = b.finish(&[y]);
                    let want = ir::interp::run(&graph, std::slice::from_ref(&own)).map_err(call)?;
                    let (got, host) = run(&backend, &graph, &[own])?;
                    if got[0].bytes() != want[0].bytes() {
                        return Err(call(format!("{kind:?} of {dtype}: {:?} instead of {:?}", got[0], want[0])));
                    }
                    let alone = matches!(dtype, DType::Bool | DType::I16 | DType::U16 | DType::F8E4M3 | DType::F8E5M2);
                    if !host.is_empty() && !alone {
                        return Err(call(format!("{kind:?} of {dtype} goes through the host: {host:?}")));
                    }
                    checks += 1;
                }
            }
        }
        // Among other steps, with products before and behind.
        let mut b = Builder::new();
        let (x, w) = (b.input(DType::F32, &[256, 512]), b.input(DType::F32, &[512, 512]));
        let h = b.matmul(x, w).map_err(call)?;
        let h = b.psum(h, mesh.axes()).map_err(call)?;
        let h = b.unary(ir::Unary::Tanh, h).map_err(call)?;
        let y = b.matmul(h, w).map_err(call)?;
        let graph = b.finish(&[y]);
        let mut rng = testing::Rng::new(3);
        let inputs: Vec<Literal> =
            graph.input_types().iter().map(|t| testing::Fill::Between(-0.1, 0.1).of(t, &mut rng)).collect();
        let want = ir::interp::run(&graph, &inputs).map_err(call)?;
        let (got, host) = run(&backend, &graph, &inputs)?;
        compare(&got[0], &want[0], Tolerance::of(DType::F32).times(1e3)).map_err(|e| call(format!("{e:?}")))?;
        if !host.is_empty() {
            return Err(call(format!("{host:?}")));
        }
        Ok(checks + 1)
    })?;
    Ok(done[0])
}

fn part(whole: &Literal, part: &[(usize, usize)]) -> Result<Literal> {
    let mut b = Builder::new();
    let x = b.graph.input(whole.ty().clone());
    let start: Vec<usize> = part.iter().map(|p| p.0).collect();
    let limit: Vec<usize> = part.iter().map(|p| p.0 + p.1).collect();
    let y = b.slice(x, &start, &limit, &vec![1; part.len()]).map_err(call)?;
    Ok(ir::interp::run(&b.finish(&[y]), std::slice::from_ref(whole)).map_err(call)?.remove(0))
}

fn map_of(graph: &Graph) -> Result<&ShardMap> {
    match graph.nodes().first().map(|n| &n.op) {
        Some(Op::ShardMap(map)) => Ok(map),
        _ => Err(call("a sample is one shard_map")),
    }
}

/// Random bodies, and every other one with its gradients.
fn several(nccl: &Arc<Nccl>, count: u64) -> Result<usize> {
    let seed = testing::rng::run_seed();
    let (mut checks, mut through_host) = (0, 0);
    for k in 0..count {
        let mut s = sharded(seed.wrapping_add(k));
        if k % 2 == 0 {
            let map = map_of(&s.graph)?.clone();
            let wrt: Vec<usize> = (0..map.body.inputs().len()).collect();
            let back = transform::vjp(&map.body, &wrt).map_err(call)?;
            let ins = map.ins.iter().chain(&map.outs).cloned().collect();
            let outs = map.outs.iter().chain(&map.ins).cloned().collect();
            let both = ShardMap::new(map.mesh.clone(), ins, outs, back).map_err(call)?;
            let mut b = Builder::new();
            let bodies = both.body.input_types();
            let types = bodies.iter().zip(&both.ins).map(|(t, spec)| spec.global(&both.mesh, t).map_err(call));
            let types = types.collect::<Result<Vec<Type>>>()?;
            let args: Vec<Value> = types.iter().map(|t| b.graph.input(t.clone())).collect();
            let results = b.emit(both.into(), &args).map_err(call)?;
            let mut rng = testing::Rng::new(s.seed);
            for t in &types[s.inputs.len()..] {
                s.inputs.push(testing::Fill::Between(-1.0, 1.0).of(t, &mut rng));
            }
            s.graph = b.finish(&results);
        }
        let map = map_of(&s.graph)?;
        let whole = ir::interp::run(&s.graph, &s.inputs).map_err(call)?;
        let ran = local::spawn(&map.mesh, |comm| {
            let rank = comm.rank();
            let backend = device(nccl, comm)?;
            let own = (s.inputs.iter().zip(&map.ins))
                .map(|(x, spec)| part(x, &spec.part(&map.mesh, x.ty(), rank).map_err(call)?))
                .collect::<Result<Vec<_>>>()?;
            run(&backend, &map.body, &own)
        });
        let ran = ran.map_err(|e| call(format!("TENSORLOOM_SEED={}: {e}\n{}", s.seed, s.graph)))?;
        for (rank, (outs, host)) in ran.iter().enumerate() {
            through_host += host.iter().filter(|l| l.starts_with('p') || l.starts_with("all_")).count();
            for (o, got) in outs.iter().enumerate() {
                let cut = map.outs[o].part(&map.mesh, whole[o].ty(), rank).map_err(call)?;
                let want = part(&whole[o], &cut)?;
                compare(got, &want, Tolerance::of(got.ty().dtype).times(1e4)).map_err(|e| {
                    call(format!("TENSORLOOM_SEED={} rank {rank} output {o}: {e:?}\n{}", s.seed, s.graph))
                })?;
                checks += 1;
            }
        }
    }
    if through_host > 0 {
        return Err(call(format!("{through_host} collectives went through the host")));
    }
    Ok(checks)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let begun = Instant::now();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["one", library] => Nccl::load(library).and_then(|nccl| one(&nccl)),
        ["several", library, count] => match count.parse() {
            Ok(count) => Nccl::load(library).and_then(|nccl| several(&nccl, count)),
            Err(e) => Err(call(format!("{count}: {e}"))),
        },
        _ => Err(call("collectives one NCCL | collectives several LIBRARY COUNT")),
    };
    match done {
        Ok(checks) => {
            println!("{checks} results equal, {:.1} s", begun.elapsed().as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(e) => {
            println!("{e}");
            ExitCode::FAILURE
        }
    }
}
