//! Compares collectives of programs on a GPU, from device memory to device memory, with the interpreter. Needs a GPU.
//!
//! ```text
//! collectives one NCCL                 one rank, with the real NCCL (the path of the library)
//! collectives several LIBRARY COUNT    COUNT random programs on up to six ranks of one GPU, one thread each; NCCL needs one GPU
//! per
//!                                      rank, so the library is a substitute (crates/dist/tests/nccl_ranks.c, with SHIM_CUDA=1)
//! ```

use compiler::{Backend, Bindings, Options, compile};
use cpu::Cpu;
use dist::groups::NcclGroups;
use dist::nccl::Nccl;
use dist::{Comm, Error, Result, thread_transport};
use ir::ops::{Collective, CollectiveKind as Kind, ShardMap};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Mesh, Op, Type, Value};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use tensorloom_gpu::cuda::Cuda;
use testing::compare::{Tolerance, compare};
use testing::random::sharded::sharded_sample;

fn call(e: impl ToString) -> Error {
    Error::InvalidCall(e.to_string())
}

fn device(nccl: &Arc<Nccl>, comm: Arc<Comm>) -> Result<Cuda> {
    let host = Arc::new(Cpu::new(1).with_communicator(comm.clone()));
    Cuda::open_with_communicator(0, host, Arc::new(NcclGroups::new(nccl.clone(), comm))).map_err(call)
}

/// Runs a graph three times (launched, then again with the same memory); returns the results and the steps that ran on the host.
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

/// Tests every collective on a single rank, with every dtype.
fn one(nccl: &Arc<Nccl>) -> Result<usize> {
    let mesh = Mesh::new(&[("x", 1), ("y", 1)]).map_err(call)?;
    let done = thread_transport::spawn(&mesh, |comm| {
        let backend = device(nccl, comm)?;
        println!("{}", backend.name());
        let mut checks = 0;
        for axes in [&mesh.axes()[..1], mesh.axes()] {
            for dtype in DType::ALL {
                let kinds = [
                    Kind::Sum,
                    Kind::Max,
                    Kind::Min,
                    Kind::AllGather { dim: 1, same: true, turn: 0 },
                    Kind::ReduceScatter { dim: 1 },
                    Kind::AllToAll { split: 1, join: 0 },
                    Kind::Permute { pairs: vec![(0, 0)] },
                    Kind::Permute { pairs: vec![] },
                    Kind::ShardSlice { dim: 0 },
                ];
                for kind in kinds {
                    let mut b = Builder::new();
                    let x = b.input(dtype, &[3, 5]);
                    let Ok(y) = b.one(Collective::new(kind.clone(), axes).into(), &[x]) else { continue };
                    let mut rng = testing::Rng::new(7);
                    let own = testing::FillKind::Smooth.random_tensor(&Type::new(dtype, &[3, 5]), &mut rng);
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
        // Together with other steps: products before and after.
        let mut b = Builder::new();
        let (x, w) = (b.input(DType::F32, &[256, 512]), b.input(DType::F32, &[512, 512]));
        let h = b.matmul(x, w).map_err(call)?;
        let h = b.psum(h, mesh.axes()).map_err(call)?;
        let h = b.unary(ir::Unary::Tanh, h).map_err(call)?;
        let y = b.matmul(h, w).map_err(call)?;
        let graph = b.finish(&[y]);
        let mut rng = testing::Rng::new(3);
        let inputs: Vec<Literal> = graph
            .input_types()
            .iter()
            .map(|t| testing::FillKind::Uniform(-0.1, 0.1).random_tensor(t, &mut rng))
            .collect();
        let want = ir::interp::run(&graph, &inputs).map_err(call)?;
        let (got, host) = run(&backend, &graph, &inputs)?;
        compare(&got[0], &want[0], Tolerance::for_dtype(DType::F32).scaled(1e3)).map_err(|e| call(format!("{e:?}")))?;
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

/// Tests random bodies, every second one with its gradients.
fn several(nccl: &Arc<Nccl>, count: u64) -> Result<usize> {
    let seed = testing::rng::run_seed();
    let (mut checks, mut through_host) = (0, 0);
    for k in 0..count {
        let mut s = sharded_sample(seed.wrapping_add(k));
        if k % 2 == 0 {
            let map = map_of(&s.graph)?.clone();
            let wrt: Vec<usize> = (0..map.body.inputs().len()).collect();
            let back = transform::vjp(&map.body, &wrt).map_err(call)?;
            let ins = map.ins.iter().chain(&map.outs).cloned().collect();
            let outs = map.outs.iter().chain(&map.ins).cloned().collect();
            let both = ShardMap::new(map.mesh.clone(), ins, outs, back).map_err(call)?;
            let mut b = Builder::new();
            let bodies = both.body.input_types();
            let types = bodies.iter().zip(&both.ins).map(|(t, spec)| spec.global_type(&both.mesh, t).map_err(call));
            let types = types.collect::<Result<Vec<Type>>>()?;
            let args: Vec<Value> = types.iter().map(|t| b.graph.input(t.clone())).collect();
            let results = b.emit(both.into(), &args).map_err(call)?;
            let mut rng = testing::Rng::new(s.seed);
            for t in &types[s.inputs.len()..] {
                s.inputs.push(testing::FillKind::Uniform(-1.0, 1.0).random_tensor(t, &mut rng));
            }
            s.graph = b.finish(&results);
        }
        let map = map_of(&s.graph)?;
        let whole = ir::interp::run(&s.graph, &s.inputs).map_err(call)?;
        let ran = thread_transport::spawn(&map.mesh, |comm| {
            let rank = comm.rank();
            let backend = device(nccl, comm)?;
            let own = (s.inputs.iter().zip(&map.ins))
                .map(|(x, spec)| part(x, &spec.shard_range(&map.mesh, x.ty(), rank).map_err(call)?))
                .collect::<Result<Vec<_>>>()?;
            run(&backend, &map.body, &own)
        });
        let ran = ran.map_err(|e| call(format!("TENSORLOOM_SEED={}: {e}\n{}", s.seed, s.graph)))?;
        for (rank, (outs, host)) in ran.iter().enumerate() {
            through_host += host.iter().filter(|l| l.starts_with('p') || l.starts_with("all_")).count();
            for (o, got) in outs.iter().enumerate() {
                let cut = map.outs[o].shard_range(&map.mesh, whole[o].ty(), rank).map_err(call)?;
                let want = part(&whole[o], &cut)?;
                compare(got, &want, Tolerance::for_dtype(got.ty().dtype).scaled(1e4)).map_err(|e| {
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
