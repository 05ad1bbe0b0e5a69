//! MPI gives the same bits as threads and TCP. Needs `mpirun`; only built with the feature `mpi`.
#![cfg(feature = "mpi")]

use compiler::{Backend, Bindings, Options, compile};
use cpu::Cpu;
use ir::ops::{Collective, CollectiveKind as Kind};
use ir::{DType, Mesh, Type};
use std::process::Command;
use std::sync::Arc;
use tensorloom_dist::launch::{ProcessInfo, Secret};
use tensorloom_dist::{Comm, Error, Result, thread_transport};
use testing::random::sharded::sharded_sample;

/// A hash of a rank's results of many collectives: every kind, sizes that are not divisible, long messages, one-way messages,
/// and a random program.
fn digest(comm: &Arc<Comm>) -> Result<u64> {
    let mut all = 0xcbf2_9ce4_8422_2325u64;
    let mut add = |bytes: &[u8]| bytes.iter().for_each(|b| all = (all ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    let n = comm.mesh().ranks();
    let axes = comm.mesh().axes().to_vec();
    for (dtype, shape) in [(DType::F32, vec![n, 3 * n]), (DType::F64, vec![n, n]), (DType::F32, vec![n, 70_000])] {
        let ty = Type::new(dtype, &shape);
        let value = |i: usize| ((i * 37 + comm.rank() * 101) as f64 * 0.1).sin() * 10f64.powi((i % 9) as i32 - 4);
        let own: Vec<u8> = (0..ty.numel())
            .flat_map(|i| match dtype {
                DType::F64 => value(i).to_le_bytes().to_vec(),
                _ => (value(i) as f32).to_le_bytes().to_vec(),
            })
            .collect();
        let kinds = [
            Kind::Sum,
            Kind::Max,
            Kind::Min,
            Kind::Gather { dim: 1, same: false, turn: 0 },
            Kind::SumScatter { dim: 0 },
            Kind::AllToAll { split: 0, join: 1 },
            Kind::Permute { pairs: (0..n).map(|i| (i, (i + 1) % n)).collect() },
        ];
        for kind in kinds {
            let op = Collective::new(kind, &axes);
            let out =
                ir::Rules::infer(&op, std::slice::from_ref(&ty)).map_err(|p| Error::InvalidCall(p.to_string()))?;
            let mut to = vec![0; out[0].bytes()];
            comm.run(&op, &ty, &own, &mut to)?;
            add(&to);
        }
    }
    // Every rank sends before any receives, like the stages of a pipeline.
    let (next, before) = ((comm.rank() + 1) % n, (comm.rank() + n - 1) % n);
    let long = vec![comm.rank() as u8 + 1; 3 << 20];
    comm.send_recv("there", &[(next, &long)], &mut [])?;
    let mut came = vec![0; long.len()];
    comm.send_recv("there", &[], &mut [(before, &mut came[..])])?;
    add(&came[..9]);
    for seed in 1..40 {
        let s = sharded_sample(seed);
        let ir::Op::ShardMap(map) = &s.graph.nodes()[0].op else { continue };
        if map.mesh.ranks() != n || map.mesh.axes().len() != 1 {
            continue;
        }
        let comm_mesh = comm.mesh().axes()[0].name.clone();
        if map.mesh.axes()[0].name != comm_mesh {
            continue;
        }
        let call = |e: &dyn std::fmt::Display| Error::InvalidCall(e.to_string());
        let backend = Cpu::new(1).with_communicator(comm.clone());
        let program = compile(&map.body, &backend, &Options::default()).map_err(|e| call(&e))?;
        let exe = backend.load(program).map_err(|e| call(&e))?;
        let mut bindings = Bindings::for_program(exe.program(), &backend).map_err(|e| call(&e))?;
        for (i, ty) in exe.program().inputs.clone().iter().enumerate() {
            let own: Vec<u8> =
                (0..ty.numel()).flat_map(|k| ((k + i + comm.rank()) as f64 * 0.3).cos().to_le_bytes()).collect();
            bindings.inputs[i].write(0, &own).map_err(|e| call(&e))?;
        }
        exe.run(&mut bindings).map_err(|e| call(&e))?;
        for (ty, buffer) in exe.program().outputs.clone().iter().zip(&bindings.outputs) {
            let mut bytes = vec![0; ty.bytes()];
            buffer.read(0, &mut bytes).map_err(|e| call(&e))?;
            add(&bytes);
        }
    }
    Ok(all)
}

/// The body of one rank under mpirun.
#[test]
fn child() {
    if std::env::var("DIST_MPI_CHILD").is_err() {
        return;
    }
    let place = Place::from_env().unwrap().expect("mpirun says who we are");
    let comm = place.join(&Mesh::new(&[("x", place.world)]).unwrap()).unwrap();
    assert_eq!(comm.transport().name(), "mpi");
    println!("digest {} {:x}", comm.rank(), digest(&comm).unwrap());
}

/// The results of ranks over TCP.
fn over_tcp(mesh: &Mesh) -> Vec<u64> {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    std::thread::scope(|scope| {
        let one = |rank| {
            scope.spawn(move || {
                let place = Place {
                    rank,
                    world: mesh.ranks(),
                    address: free.to_string(),
                    secret: Secret::Text("the ranks of this test".into()),
                };
                let transport = tensorloom_dist::tcp::TcpTransport::join(&place, &mesh.to_string()).unwrap();
                digest(&Arc::new(Comm::new(Arc::new(transport), mesh.clone()).unwrap())).unwrap()
            })
        };
        let all: Vec<_> = (0..mesh.ranks()).map(one).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn mpi_gives_the_bits_of_threads_and_of_tcp() {
    for n in [2, 3, 4] {
        let mesh = Mesh::new(&[("x", n)]).unwrap();
        let want = thread_transport::spawn(&mesh, |comm| digest(&comm)).unwrap();
        assert_eq!(want, over_tcp(&mesh), "TCP gives other bits than threads");
        let output = Command::new("mpirun")
            .args(["--allow-run-as-root", "--oversubscribe", "-n", &n.to_string()])
            .arg(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env("DIST_MPI_CHILD", "1")
            .output()
            .expect("mpirun is there");
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{said}");
        for (rank, digest) in want.iter().enumerate() {
            assert!(said.contains(&format!("digest {rank} {digest:x}")), "{n} ranks, {rank} {digest:x}: {said}");
        }
    }
}
