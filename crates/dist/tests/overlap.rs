//! Collectives that run while a rank computes.

use compiler::{Backend, Bindings, Options, compile};
use cpu::Cpu;
use ir::{Builder, DType, Graph, GraphBuilder, Mesh, Unary};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tensorloom_dist::{Comm, Result, Tag, Transport, thread_transport};

/// The state that the ranks of a test share besides their messages.
#[derive(Default)]
struct Gate {
    /// The groups that have communicated, on all ranks together.
    seen: Mutex<Vec<(usize, u32)>>,
    changed: Condvar,
}

/// A transport that delays the first group until the rank has communicated in another: only overlapping ranks ever do.
struct Holding {
    inner: thread_transport::ThreadTransport,
    gate: Arc<Gate>,
    held: Mutex<Option<u32>>,
    wait: Duration,
}

impl Transport for Holding {
    fn name(&self) -> &'static str {
        "held"
    }
    fn rank(&self) -> usize {
        self.inner.rank()
    }
    fn world_size(&self) -> usize {
        self.inner.world_size()
    }
    fn send_recv(&self, tag: Tag, sends: &[(usize, &[u8])], receives: &mut [(usize, &mut [u8])]) -> Result<()> {
        let first = *self.held.lock().unwrap().get_or_insert(tag.group);
        if tag.group == first {
            let seen = self.gate.seen.lock().unwrap();
            let other = |seen: &Vec<(usize, u32)>| seen.iter().any(|(r, g)| *r == self.rank() && *g != first);
            let (seen, late) = self.gate.changed.wait_timeout_while(seen, self.wait, |seen| !other(seen)).unwrap();
            drop(seen);
            if late.timed_out() {
                return Err(tensorloom_dist::Error::InvalidCall("the rank waits instead of going on".into()));
            }
        } else {
            self.gate.seen.lock().unwrap().push((self.rank(), tag.group));
            self.gate.changed.notify_all();
        }
        self.inner.send_recv(tag, sends, receives)
    }
    fn abort(&self, rank: usize, reason: &str) {
        self.inner.abort(rank, reason)
    }
    fn shutdown(&self) {
        self.inner.shutdown()
    }
}

/// A sum over `a` whose result is needed last, and one over `b` that does not depend on it.
fn graph(mesh: &Mesh) -> Graph {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[64]);
    let slow = b.psum(x, &mesh.axes()[..1]).unwrap();
    let y = b.unary(Unary::Sin, x).unwrap();
    let quick = b.psum(y, &mesh.axes()[1..]).unwrap();
    let z = b.unary(Unary::Exp, quick).unwrap();
    let all = b.add(z, slow).unwrap();
    b.finish(&[all, slow])
}

fn run(graph: &Graph, comm: Arc<Comm>) -> std::result::Result<Vec<u8>, String> {
    let rank = comm.rank();
    let backend = Cpu::new(1).with_communicator(comm);
    let exe = compile(graph, &backend, &Options::default()).and_then(|p| backend.load(p)).map_err(|e| e.to_string())?;
    let mut bindings = Bindings::for_program(exe.program(), &backend).map_err(|e| e.to_string())?;
    let own: Vec<u8> = (0..64).flat_map(|i| ((i * 7 + rank * 3) as f32 * 0.1).sin().to_le_bytes()).collect();
    bindings.inputs[0].write(0, &own).map_err(|e| e.to_string())?;
    // Twice, the second time with measured steps.
    exe.run(&mut bindings).map_err(|e| e.to_string())?;
    let timings = exe.run_timed(&mut bindings).map_err(|e| e.to_string())?;
    assert_eq!(timings.iter().filter(|t| t.label == "psum").map(|t| t.calls).sum::<usize>(), 2);
    let mut all = Vec::new();
    for (ty, buffer) in exe.program().outputs.iter().zip(&bindings.outputs) {
        let mut bytes = vec![0; ty.bytes()];
        buffer.read(0, &mut bytes).map_err(|e| e.to_string())?;
        all.extend(bytes);
    }
    Ok(all)
}

/// Each rank's result or error.
fn held(mesh: &Mesh, graph: &Graph, overlaps: bool) -> Vec<std::result::Result<Vec<u8>, String>> {
    let gate = Arc::new(Gate::default());
    let wait = Duration::from_millis(if overlaps { 20_000 } else { 200 });
    std::thread::scope(|scope| {
        let all: Vec<_> = thread_transport::transports(mesh.ranks())
            .into_iter()
            .map(|inner| {
                let holding = Holding { inner, gate: gate.clone(), held: Mutex::default(), wait };
                let comm = Comm::new(Arc::new(holding), mesh.clone()).unwrap().with_overlap(overlaps);
                scope.spawn(move || run(graph, Arc::new(comm)))
            })
            .collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn a_rank_goes_on_while_a_sum_is_under_way() {
    let mesh = Mesh::new(&[("a", 2), ("b", 2)]).unwrap();
    let graph = graph(&mesh);
    let plain =
        thread_transport::spawn(&mesh, |comm| run(&graph, comm).map_err(tensorloom_dist::Error::InvalidCall)).unwrap();
    let held = held(&mesh, &graph, true);
    for (want, got) in plain.iter().zip(held) {
        assert_eq!(got.as_ref(), Ok(want));
    }
    // Without overlap the delay is detected as an error.
    for got in self::held(&mesh, &graph, false) {
        assert!(got.is_err());
    }
}

/// A started sum precedes later ones of the same ranks, in whatever order their results are awaited.
#[test]
fn what_the_same_ranks_say_stays_in_order() {
    use ir::ops::{Collective, CollectiveKind as Kind};
    let mesh = Mesh::new(&[("dp", 3)]).unwrap();
    let ty = ir::Type::new(DType::F32, &[1]);
    let found = thread_transport::spawn(&mesh, |comm| {
        let (sum, max) = (Collective::new(Kind::Sum, mesh.axes()), Collective::new(Kind::Max, mesh.axes()));
        let own = |x: f32| (x + comm.rank() as f32).to_le_bytes();
        let mut outs = [[0; 4]; 3];
        // Ranks may differ in which collectives they start.
        let first = if comm.rank() == 1 { None } else { comm.start(&sum, &ty, &own(1.0))? };
        if first.is_none() {
            comm.run(&sum, &ty, &own(1.0), &mut outs[0])?;
        }
        let second = comm.start(&max, &ty, &own(5.0))?.expect("threads can");
        comm.run(&sum, &ty, &own(10.0), &mut outs[2])?;
        second.finish(&mut outs[1])?;
        if let Some(first) = first {
            first.finish(&mut outs[0])?;
        }
        Ok(outs.map(f32::from_le_bytes))
    });
    assert_eq!(found.unwrap(), [[6.0, 7.0, 33.0]; 3]);
}

/// The same ranks along axes in another order are the same group.
#[test]
fn axes_in_another_order_wait_for_each_other() {
    use ir::ops::{Collective, CollectiveKind as Kind};
    let mesh = Mesh::new(&[("a", 2), ("b", 2)]).unwrap();
    let turned: Vec<ir::MeshAxis> = mesh.axes().iter().rev().cloned().collect();
    let (long, short) = (ir::Type::new(DType::F32, &[1 << 18]), ir::Type::new(DType::F32, &[1]));
    for _ in 0..20 {
        let found = thread_transport::spawn(&mesh, |comm| {
            let (first, second) = (Collective::new(Kind::Sum, mesh.axes()), Collective::new(Kind::Sum, &turned));
            let started = comm.start(&first, &long, &vec![0; long.bytes()])?.expect("threads can");
            let mut sum = [0; 4];
            comm.run(&second, &short, &1f32.to_le_bytes(), &mut sum)?;
            started.finish(&mut vec![0; long.bytes()])?;
            Ok(f32::from_le_bytes(sum))
        });
        assert_eq!(found.unwrap(), [4.0; 4]);
    }
}

/// If a rank is lost while a sum is in progress, waiting for the result returns an error that names the rank.
#[test]
fn who_is_gone_meanwhile_is_named() {
    use ir::ops::{Collective, CollectiveKind as Kind};
    let mesh = Mesh::new(&[("dp", 2)]).unwrap();
    let started = Instant::now();
    let e = thread_transport::spawn(&mesh, |comm| {
        let op = Collective::new(Kind::Sum, mesh.axes());
        if comm.rank() == 1 {
            return Err(tensorloom_dist::Error::InvalidCall("no data left".into()));
        }
        let sum = comm.start(&op, &ir::Type::scalar(DType::F32), &[0; 4])?.expect("threads can");
        let e = sum.finish(&mut [0; 4]).unwrap_err();
        assert_eq!(e.to_string(), "lost the connection to rank 1: no data left");
        Ok(())
    });
    assert_eq!(e.unwrap_err().to_string(), "no data left");
    assert!(started.elapsed() < Duration::from_secs(5));
}
