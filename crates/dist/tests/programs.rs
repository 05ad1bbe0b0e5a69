//! Programs with collectives on the CPU, one rank per thread: compared with the interpreter, which runs all ranks itself, and
//! between transports.

use compiler::{Backend, Bindings, Options, compile};
use cpu::Cpu;
use ir::ops::ShardMap;
use ir::{Literal, Mesh, Op, Type, Value};
use std::sync::Arc;
use tensorloom_dist::launch::{ProcessInfo, Secret};
use tensorloom_dist::{Comm, Error, Result, tcp::TcpTransport, thread_transport};
use testing::random::sharded::{ShardedSample, sharded_sample};
use testing::rng::run_seed;

fn call(e: impl ToString) -> Error {
    Error::InvalidCall(e.to_string())
}

/// Runs `f` on every rank of a mesh, over TCP on this machine.
fn over_tcp<T: Send>(mesh: &Mesh, f: impl Fn(Arc<Comm>) -> Result<T> + Sync) -> Result<Vec<T>> {
    let world = mesh.ranks();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    std::thread::scope(|scope| {
        let join = |rank| {
            let (f, mesh) = (&f, mesh.clone());
            scope.spawn(move || {
                let place = ProcessInfo {
                    rank,
                    world_size: world,
                    master_addr: free.to_string(),
                    secret: Secret::Text("the ranks of this test".into()),
                };
                f(Arc::new(Comm::new(Arc::new(TcpTransport::join(&place, &mesh.to_string())?), mesh)?))
            })
        };
        let all: Vec<_> = (0..world).map(join).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

fn map_of(s: &ShardedSample) -> &ShardMap {
    match &s.graph.nodes()[0].op {
        Op::ShardMap(map) => map,
        _ => panic!("a sample is one shard_map"),
    }
}

fn part(whole: &Literal, part: &[(usize, usize)]) -> Literal {
    let shape: Vec<usize> = part.iter().map(|p| p.1).collect();
    let mut b = ir::Builder::new();
    use ir::GraphBuilder;
    let x: Value = b.graph.input(whole.ty().clone());
    let start: Vec<usize> = part.iter().map(|p| p.0).collect();
    let limit: Vec<usize> = part.iter().map(|p| p.0 + p.1).collect();
    let y = b.slice(x, &start, &limit, &vec![1; shape.len()]).unwrap();
    ir::interp::run(&b.finish(&[y]), &[whole.clone()]).unwrap().remove(0)
}

/// Compiles and runs one rank's part of a sample.
fn run_rank(s: &ShardedSample, comm: Arc<Comm>) -> Result<Vec<Literal>> {
    let map = map_of(s);
    let rank = comm.rank();
    let backend = Cpu::new(1).with_communicator(comm);
    let exe = backend.load(compile(&map.body, &backend, &Options::default()).map_err(call)?).map_err(call)?;
    let mut bindings = Bindings::for_program(exe.program(), &backend).map_err(call)?;
    for ((x, spec), buffer) in s.inputs.iter().zip(&map.ins).zip(&bindings.inputs) {
        let own = part(x, &spec.shard_range(&map.mesh, x.ty(), rank).map_err(call)?);
        buffer.write(0, own.bytes()).map_err(call)?;
    }
    // Twice, because a program may run again.
    exe.run(&mut bindings).map_err(call)?;
    exe.run(&mut bindings).map_err(call)?;
    let types: Vec<Type> = exe.program().outputs.clone();
    let read = |(ty, buffer): (&Type, &Arc<dyn compiler::DeviceBuffer>)| {
        let mut bytes = vec![0; ty.bytes()];
        buffer.read(0, &mut bytes).map_err(call)?;
        Ok(Literal::from_bytes(ty.clone(), &bytes).unwrap())
    };
    types.iter().zip(&bindings.outputs).map(read).collect()
}

#[test]
fn compiled_ranks_agree_with_the_interpreter_and_transports_with_each_other() {
    let seed = run_seed();
    let count = std::env::var("TENSORLOOM_SHARDED").ok().and_then(|n| n.parse().ok()).unwrap_or(25);
    for k in 0..count {
        // Values, and values with gradients.
        let mut s = sharded_sample(seed.wrapping_add(k));
        if k % 2 == 0 {
            let map = map_of(&s).clone();
            let wrt: Vec<usize> = (0..map.body.inputs().len()).collect();
            let back = transform::vjp(&map.body, &wrt).unwrap();
            let ins = map.ins.iter().chain(&map.outs).cloned().collect();
            let outs = map.outs.iter().chain(&map.ins).cloned().collect();
            let both =
                ShardMap::new(map.mesh.clone(), ins, outs, back).unwrap_or_else(|e| panic!("seed {}: {e}", s.seed));
            let mut b = ir::Builder::new();
            use ir::GraphBuilder;
            let types: Vec<Type> = (both.body.input_types().iter().zip(&both.ins))
                .map(|(t, spec)| spec.global_type(&both.mesh, t).unwrap())
                .collect();
            let args: Vec<Value> = types.iter().map(|t| b.graph.input(t.clone())).collect();
            let results = b.emit(both.into(), &args).unwrap();
            let mut rng = testing::Rng::new(s.seed);
            for t in &types[s.inputs.len()..] {
                s.inputs.push(testing::FillKind::Uniform(-1.0, 1.0).random_tensor(t, &mut rng));
            }
            s.graph = b.finish(&results);
        }
        let map = map_of(&s);
        let whole = ir::interp::run(&s.graph, &s.inputs).unwrap();
        let threads = thread_transport::spawn(&map.mesh, |comm| run_rank(&s, comm))
            .unwrap_or_else(|e| panic!("seed {}: {e}", s.seed));
        for (rank, outs) in threads.iter().enumerate() {
            for (o, got) in outs.iter().enumerate() {
                let want = part(&whole[o], &map.outs[o].shard_range(&map.mesh, whole[o].ty(), rank).unwrap());
                testing::compare::compare(
                    got,
                    &want,
                    testing::compare::Tolerance::for_dtype(got.ty().dtype).scaled(1e4),
                )
                .unwrap_or_else(|e| panic!("TENSORLOOM_SEED={} rank {rank} output {o}: {e:?}\n{}", s.seed, s.graph));
            }
        }
        if k % 3 == 0 {
            let tcp = over_tcp(&map.mesh, |comm| run_rank(&s, comm)).unwrap();
            assert_eq!(threads, tcp, "TENSORLOOM_SEED={}", s.seed);
        }
    }
}

#[test]
fn bytes_sent_are_those_of_the_best_ring() {
    use ir::ops::{Collective, CollectiveKind as Kind};
    let mesh = Mesh::new(&[("a", 2), ("b", 2)]).unwrap();
    let ty = Type::new(ir::DType::F32, &[8, 16]);
    let kinds = [
        Kind::Sum,
        Kind::Max,
        Kind::AllGather { dim: 1, same: true, turn: 0 },
        Kind::ReduceScatter { dim: 0 },
        Kind::AllToAll { split: 0, join: 1 },
        Kind::Permute { pairs: vec![(0, 1), (1, 0)] },
        Kind::ShardSlice { dim: 0 },
    ];
    for kind in kinds {
        for axes in [&mesh.axes()[..1], mesh.axes()] {
            let op = Collective::new(kind.clone(), axes);
            let out = ir::Rules::infer(&op, std::slice::from_ref(&ty)).unwrap()[0].bytes();
            let sent = thread_transport::spawn(&mesh, |comm| {
                comm.run(&op, &ty, &vec![1; ty.bytes()], &mut vec![0; out])?;
                Ok(comm.traffic().bytes())
            });
            let sent = sent.unwrap();
            let theory = op.sent_bytes(ty.bytes());
            // A rank in no pair sends nothing; the expected number is the average.
            assert_eq!(sent.iter().sum::<usize>() / sent.len(), theory, "{kind:?} {sent:?}");
        }
    }
}

/// Rows of zeros are not sent, and are received as zeros.
#[test]
fn all_to_all_leaves_out_zeros() {
    use ir::ops::{Collective, CollectiveKind as Kind};
    let mesh = Mesh::new(&[("a", 4)]).unwrap();
    // For each rank 8 rows of 128 bytes; in those for rank r, rows r.. are nonzero.
    let ty = Type::new(ir::DType::F32, &[4, 8, 32]);
    let op = Collective::new(Kind::AllToAll { split: 0, join: 0 }, mesh.axes());
    let ran = thread_transport::spawn(&mesh, |comm| {
        let mut own = vec![0; ty.bytes()];
        for (to, part) in own.chunks_mut(1024).enumerate() {
            part[to * 256..].fill(1 + comm.rank() as u8);
        }
        let mut got = vec![9; ty.bytes()];
        comm.run(&op, &ty, &own, &mut got)?;
        for (from, part) in got.chunks(1024).enumerate() {
            let first = comm.rank() * 256;
            assert!(part[..first].iter().all(|b| *b == 0) && part[first..].iter().all(|b| *b == 1 + from as u8));
        }
        Ok(comm.traffic().bytes())
    });
    // To rank 0 all of 1,024 bytes, to others 2 bytes of bit mask and the nonzero rows.
    let to = [1024, 2 + 768, 2 + 512, 2 + 256];
    let want: Vec<usize> = (0..4).map(|r| to.iter().sum::<usize>() - to[r]).collect();
    assert_eq!(ran.unwrap(), want);
}

#[test]
fn sums_of_every_dtype_have_the_interpreter_s_bits() {
    use ir::ops::{Collective, CollectiveKind as Kind};
    let mesh = Mesh::new(&[("a", 3)]).unwrap();
    let mut rng = testing::Rng::new(run_seed());
    for dtype in ir::DType::ALL.into_iter().filter(|d| *d != ir::DType::Bool) {
        for kind in [Kind::Sum, Kind::Max, Kind::Min] {
            let ty = Type::new(dtype, &[11]);
            let values: Vec<Literal> = (0..3)
                .map(|i| {
                    if i == 0 { testing::FillKind::Special } else { testing::FillKind::Smooth }
                        .random_tensor(&ty, &mut rng)
                })
                .collect();
            let op = Collective::new(kind.clone(), mesh.axes());
            let got = thread_transport::spawn(&mesh, |comm| {
                let mut out = vec![0; ty.bytes()];
                comm.run(&op, &ty, values[comm.rank()].bytes(), &mut out)?;
                Ok(out)
            });
            let mut b = ir::Builder::new();
            use ir::GraphBuilder;
            let x = b.input(dtype, &[11]);
            let y = b.one(op.into(), &[x]).unwrap();
            let map = ShardMap::new(
                mesh.clone(),
                vec![ir::Spec::shard_dim(0, "a")],
                vec![ir::Spec::replicated()],
                b.finish(&[y]),
            );
            let mut b = ir::Builder::new();
            let x = b.input(dtype, &[33]);
            let y = b.one(map.unwrap().into(), &[x]).unwrap();
            let all: Vec<u8> = values.iter().flat_map(|v| v.bytes().to_vec()).collect();
            let all = Literal::from_bytes(Type::new(dtype, &[33]), &all).unwrap();
            let want = ir::interp::run(&b.finish(&[y]), &[all]).unwrap().remove(0);
            for own in got.unwrap() {
                let own = Literal::from_bytes(ty.clone(), &own).unwrap();
                for i in 0..11 {
                    let (a, b) = (own.get(i), want.get(i));
                    assert!(a == b || (a.to_f64().is_nan() && b.to_f64().is_nan()), "{dtype} {kind:?} {i}: {a} {b}");
                }
            }
        }
    }
}

#[test]
fn a_program_without_a_communicator_is_refused_when_it_is_loaded() {
    use ir::GraphBuilder;
    let mesh = Mesh::new(&[("dp", 2)]).unwrap();
    let mut b = ir::Builder::new();
    let x = b.input(ir::DType::F32, &[4]);
    let y = b.psum(x, mesh.axes()).unwrap();
    let g = b.finish(&[y]);
    let backend = Cpu::new(1);
    let program = compile(&g, &backend, &Options::default()).unwrap();
    let e = backend.load(program).err().unwrap().to_string();
    assert!(e.contains("psum over 2 ranks") && e.contains("with_communicator"), "{e}");
}
