//! `Comm`: the communicator of a rank in a mesh, over a transport.

use crate::collective::CollectiveContext;
use crate::error::{Error, Result};
use crate::transport::{Tag, Transport};
use compiler::Communicator;
use ir::ops::Collective;
use ir::{Mesh, Rules, Type};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Statistics of what a rank has sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of calls and the bytes sent, by collective.
    pub by_kind: BTreeMap<&'static str, (usize, usize)>,
}

impl Traffic {
    /// The total number of bytes sent.
    pub fn bytes(&self) -> usize {
        self.by_kind.values().map(|(_, bytes)| bytes).sum()
    }

    /// The number of collectives with communication.
    pub fn calls(&self) -> usize {
        self.by_kind.values().map(|(calls, _)| calls).sum()
    }
}

/// The parameters of a collective, fixed in the order in which a rank starts its collectives.
struct PreparedCollective {
    op: Collective,
    ty: Type,
    /// The participating ranks, in the order in which values are combined.
    group: Vec<usize>,
    /// The same ranks, sorted: all exchanges of one set of ranks are ordered.
    ranks: Vec<usize>,
    me: usize,
    tag: Tag,
    out: usize,
}

/// The state that a rank's threads share.
struct SharedState {
    transport: Arc<dyn Transport>,
    mesh: Mesh,
    /// The number of exchanges with each set of ranks.
    sequence_numbers: Mutex<BTreeMap<Vec<usize>, u32>>,
    traffic: Mutex<Traffic>,
    /// The number of started but unfinished collectives of each set of ranks.
    in_flight: Mutex<BTreeMap<Vec<usize>, usize>>,
    completed: Condvar,
    shut_down: AtomicBool,
}

/// A collective for the thread that runs started collectives.
type Job = (PreparedCollective, Vec<u8>, Sender<Result<Vec<u8>>>);

/// A rank of a mesh. Dropping it shuts the connections down.
pub struct Comm {
    inner: Arc<SharedState>,
    overlap_compute: bool,
    /// The thread that runs started collectives in order; created at the first start.
    worker: Mutex<Option<(Sender<Job>, JoinHandle<()>)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedState {
    fn number(&self, ranks: &[usize], rounds: u32) -> u32 {
        let mut numbers = lock(&self.sequence_numbers);
        let next = numbers.entry(ranks.to_vec()).or_default();
        let number = *next;
        *next = next.wrapping_add(rounds);
        number
    }

    /// Handles a failure: all communication ends, and the other ranks are told which rank is the cause.
    fn failed(&self, e: Error) -> Error {
        let rank = self.transport.rank();
        let (rank, reason) = match &e {
            Error::RankLost { rank, reason } => (*rank, reason.clone()),
            Error::Timeout { rank, .. } | Error::Mismatch { rank, .. } => (*rank, e.to_string()),
            Error::Rendezvous(text) | Error::InvalidCall(text) => (rank, text.clone()),
        };
        if !self.shut_down.swap(true, Ordering::Relaxed) {
            self.transport.abort(rank, &reason);
        }
        e
    }

    /// Checks a collective and assigns its sequence number.
    fn call(&self, op: &Collective, ty: &Type, from: usize) -> Result<PreparedCollective> {
        let fits = |p: ir::InferError| Error::InvalidCall(format!("{}: {p}", op.name()));
        self.mesh.set(&op.axes).map_err(fits)?;
        let operand = if op.kind == ir::ops::CollectiveKind::AxisIndex { &[][..] } else { std::slice::from_ref(ty) };
        let out = op.infer(operand).map_err(fits)?[0].bytes();
        if from != operand.iter().map(Type::bytes).sum::<usize>() {
            return Err(Error::InvalidCall(format!("{} of {ty}: {from} bytes in", op.name())));
        }
        let rank = self.transport.rank();
        let (group, me) = (self.mesh.group(rank, &op.axes), self.mesh.index(rank, &op.axes));
        let mut ranks = group.clone();
        ranks.sort_unstable();
        let number = if op.communicates() { self.number(&ranks, 2) } else { 0 };
        let what = fingerprint(&format!("{} {ty} {:?}", op.name(), op.axes));
        let tag = Tag { group: fingerprint(&format!("{ranks:?}")), sequence_number: number, fingerprint: what };
        Ok(PreparedCollective { op: op.clone(), ty: ty.clone(), group, ranks, me, tag, out })
    }

    fn run(&self, call: &PreparedCollective, from: &[u8], to: &mut [u8]) -> Result<()> {
        let talk = CollectiveContext { transport: &*self.transport, group: &call.group, rank: call.me, tag: call.tag };
        let sent = talk.run(&call.op.kind, &call.ty, from, to).map_err(|e| self.failed(e))?;
        self.count(&call.op, sent);
        Ok(())
    }

    fn count(&self, op: &Collective, sent: usize) {
        if op.communicates() {
            let mut traffic = lock(&self.traffic);
            let (calls, bytes) = traffic.by_kind.entry(op.name()).or_default();
            *calls += 1;
            *bytes += sent;
        }
    }
}

impl Comm {
    /// A communicator for a mesh; the number of ranks must equal that of the transport.
    pub fn new(transport: Arc<dyn Transport>, mesh: Mesh) -> Result<Comm> {
        if mesh.ranks() != transport.world_size() {
            return Err(Error::Rendezvous(format!(
                "the mesh {mesh} has {} ranks, but {} were started; make the two equal",
                mesh.ranks(),
                transport.world_size()
            )));
        }
        let inner = SharedState {
            transport,
            mesh,
            sequence_numbers: Mutex::default(),
            traffic: Mutex::default(),
            in_flight: Mutex::default(),
            completed: Condvar::new(),
            shut_down: AtomicBool::new(false),
        };
        Ok(Comm { inner: Arc::new(inner), overlap_compute: true, worker: Mutex::default() })
    }

    /// Enables or disables collectives that run while the rank computes. The results have the same bits.
    pub fn with_overlap(self, overlaps: bool) -> Comm {
        let mut comm = self;
        comm.overlap_compute = overlaps;
        comm
    }

    /// The mesh of all ranks.
    pub fn mesh(&self) -> &Mesh {
        &self.inner.mesh
    }

    /// The number of this rank.
    pub fn rank(&self) -> usize {
        self.inner.transport.rank()
    }

    /// The transport.
    pub fn transport(&self) -> &dyn Transport {
        &*self.inner.transport
    }

    /// The statistics of what was sent so far.
    pub fn traffic(&self) -> Traffic {
        lock(&self.inner.traffic).clone()
    }

    /// Counts a collective that did not use the transport.
    #[cfg(any(unix, windows))]
    pub(crate) fn count(&self, op: &Collective, sent: usize) {
        self.inner.count(op, sent);
    }

    /// Tells all other ranks that this rank cannot continue.
    pub fn abort(&self, reason: &str) {
        if !self.inner.shut_down.swap(true, Ordering::Relaxed) {
            self.inner.transport.abort(self.rank(), reason);
        }
    }

    /// Runs a collective, after started ones of the same ranks.
    pub fn run(&self, op: &Collective, ty: &Type, from: &[u8], to: &mut [u8]) -> Result<()> {
        let call = self.inner.call(op, ty, from.len())?;
        if to.len() != call.out {
            return Err(Error::InvalidCall(format!("{} of {ty}: {} bytes out", op.name(), to.len())));
        }
        let mut under_way = lock(&self.inner.in_flight);
        while under_way.get(&call.ranks).is_some_and(|n| *n > 0) {
            under_way = self.inner.completed.wait(under_way).unwrap_or_else(PoisonError::into_inner);
        }
        drop(under_way);
        self.inner.run(&call, from, to)
    }

    /// Starts a collective; [`StartedCollective::finish`] waits for its result. None if the transport does not support
    /// concurrent exchanges.
    pub fn start(&self, op: &Collective, ty: &Type, from: &[u8]) -> Result<Option<StartedCollective>> {
        if !self.overlap_compute || !op.communicates() || !self.inner.transport.supports_concurrent() {
            return Ok(None);
        }
        let call = self.inner.call(op, ty, from.len())?;
        *lock(&self.inner.in_flight).entry(call.ranks.clone()).or_default() += 1;
        let (tell, told) = channel();
        let mut worker = lock(&self.worker);
        let (jobs, _) = worker.get_or_insert_with(|| {
            let (send, receive) = channel::<Job>();
            let inner = self.inner.clone();
            (send, std::thread::spawn(move || work(&inner, &receive)))
        });
        // The thread accepts jobs until it is dropped.
        let _ = jobs.send((call, from.to_vec(), tell));
        Ok(Some(StartedCollective(told)))
    }

    /// Sends bytes to some ranks and receives from some; all participating ranks call it together.
    pub fn send_recv(&self, what: &str, sends: &[(usize, &[u8])], receives: &mut [(usize, &mut [u8])]) -> Result<()> {
        let tag = Tag { group: 0, sequence_number: 0, fingerprint: fingerprint(what) };
        self.inner.transport.send_recv(tag, sends, receives).map_err(|e| self.inner.failed(e))?;
        let mut traffic = lock(&self.inner.traffic);
        let (calls, bytes) = traffic.by_kind.entry("exchange").or_default();
        *calls += 1;
        *bytes += sends.iter().map(|(_, b)| b.len()).sum::<usize>();
        Ok(())
    }

    /// The logical or over all ranks.
    pub fn all_reduce_any(&self, own: bool) -> Result<bool> {
        let op = Collective::new(ir::ops::CollectiveKind::Max, self.mesh().axes());
        let mut out = [0; 4];
        self.run(&op, &Type::scalar(ir::DType::I32), &i32::from(own).to_le_bytes(), &mut out)?;
        Ok(out != [0; 4])
    }

    /// Waits until all ranks have called it, and checks that `what` is equal on all of them.
    pub fn assert_same_on_all_ranks(&self, what: &str) -> Result<()> {
        let (own, n) = (fnv(what).to_le_bytes(), self.inner.transport.world_size());
        let mut came = vec![[0; 8]; n];
        let sends: Vec<(usize, &[u8])> = (0..n).filter(|r| *r != self.rank()).map(|r| (r, &own[..])).collect();
        let others = came.iter_mut().enumerate().filter(|(r, _)| *r != self.rank());
        let mut receives: Vec<(usize, &mut [u8])> = others.map(|(r, b)| (r, &mut b[..])).collect();
        self.send_recv("agree", &sends, &mut receives)?;
        match (0..n).find(|&r| r != self.rank() && came[r] != own) {
            Some(rank) => {
                Err(self.inner.failed(Error::Mismatch { rank, reason: "its settings, data or model differ".into() }))
            }
            None => Ok(()),
        }
    }
}

/// Runs started collectives in order.
fn work(inner: &SharedState, jobs: &Receiver<Job>) {
    for (call, from, tell) in jobs {
        let mut to = vec![0; call.out];
        let result = inner.run(&call, &from, &mut to).map(|()| to);
        if let Some(n) = lock(&inner.in_flight).get_mut(&call.ranks) {
            *n -= 1;
        }
        inner.completed.notify_all();
        // The receiver may have been dropped.
        let _ = tell.send(result);
    }
}

/// A collective that was started.
pub struct StartedCollective(Receiver<Result<Vec<u8>>>);

impl StartedCollective {
    /// Waits for the result.
    pub fn finish(self, to: &mut [u8]) -> Result<()> {
        let lost = |_| Error::InvalidCall("a collective did not complete".into());
        to.copy_from_slice(&self.0.recv().map_err(lost)??);
        Ok(())
    }
}

impl compiler::PendingCollective for StartedCollective {
    fn wait(self: Box<Self>, to: &mut [u8]) -> compiler::Result<()> {
        StartedCollective::finish(*self, to).map_err(compiler::Error::from)
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort("it panicked");
        }
        if let Some((jobs, thread)) = lock(&self.worker).take() {
            drop(jobs);
            let _ = thread.join();
        }
        if !self.inner.shut_down.load(Ordering::Relaxed) {
            self.inner.transport.shutdown();
        }
    }
}

impl Communicator for Comm {
    fn mesh(&self) -> &Mesh {
        &self.inner.mesh
    }

    fn rank(&self) -> usize {
        self.inner.transport.rank()
    }

    fn run(&self, op: &Collective, ty: &Type, from: &[u8], to: &mut [u8]) -> compiler::Result<()> {
        Comm::run(self, op, ty, from, to).map_err(compiler::Error::from)
    }

    fn start(
        &self,
        op: &Collective,
        ty: &Type,
        from: &[u8],
    ) -> compiler::Result<Option<Box<dyn compiler::PendingCollective>>> {
        let started = Comm::start(self, op, ty, from).map_err(compiler::Error::from)?;
        Ok(started.map(|s| Box::new(s) as Box<dyn compiler::PendingCollective>))
    }
}

/// The FNV-1a hash, which is the same in every process.
pub(crate) fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

fn fingerprint(text: &str) -> u32 {
    let all = fnv(text);
    (all ^ (all >> 32)) as u32
}
