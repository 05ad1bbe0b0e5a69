//! `Comm`: a rank's place in a mesh, over a transport.

use crate::collective::Talk;
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

/// What a rank has sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Calls and bytes sent, by collective.
    pub by_kind: BTreeMap<&'static str, (usize, usize)>,
}

impl Traffic {
    /// All bytes that were sent.
    pub fn bytes(&self) -> usize {
        self.by_kind.values().map(|(_, bytes)| bytes).sum()
    }

    /// All collectives in which ranks talked.
    pub fn calls(&self) -> usize {
        self.by_kind.values().map(|(calls, _)| calls).sum()
    }
}

/// What a collective needs besides its operand, settled in the order in which a rank comes to it.
struct Call {
    op: Collective,
    ty: Type,
    /// Who takes part, in the order in which values are combined.
    group: Vec<usize>,
    /// The same ranks whatever their order: what they say to each other stays in order.
    ranks: Vec<usize>,
    me: usize,
    tag: Tag,
    out: usize,
}

/// What a rank's threads share.
struct Inner {
    transport: Arc<dyn Transport>,
    mesh: Mesh,
    /// Exchanges so far with each set of ranks.
    numbers: Mutex<BTreeMap<Vec<usize>, u32>>,
    traffic: Mutex<Traffic>,
    /// How many collectives of each set of ranks were started and have not ended.
    under_way: Mutex<BTreeMap<Vec<usize>, usize>>,
    ended: Condvar,
    over: AtomicBool,
}

/// A collective for the thread that runs those that were started.
type Job = (Call, Vec<u8>, Sender<Result<Vec<u8>>>);

/// A rank of a mesh. Dropping it says goodbye to the others.
pub struct Comm {
    inner: Arc<Inner>,
    overlaps: bool,
    /// Runs what is started, one after another; made when something is.
    worker: Mutex<Option<(Sender<Job>, JoinHandle<()>)>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn number(&self, ranks: &[usize], rounds: u32) -> u32 {
        let mut numbers = locked(&self.numbers);
        let next = numbers.entry(ranks.to_vec()).or_default();
        let number = *next;
        *next = next.wrapping_add(rounds);
        number
    }

    /// A failure ends all that ranks do together: the others are told who is to blame.
    fn failed(&self, e: Error) -> Error {
        let rank = self.transport.rank();
        let (rank, reason) = match &e {
            Error::Gone { rank, reason } => (*rank, reason.clone()),
            Error::Slow { rank, .. } | Error::Differs { rank, .. } => (*rank, e.to_string()),
            Error::Start(text) | Error::Call(text) => (rank, text.clone()),
        };
        if !self.over.swap(true, Ordering::Relaxed) {
            self.transport.abort(rank, &reason);
        }
        e
    }

    /// Checks a collective and gives it its number.
    fn call(&self, op: &Collective, ty: &Type, from: usize) -> Result<Call> {
        let fits = |p: ir::Problem| Error::Call(format!("{}: {p}", op.name()));
        self.mesh.set(&op.axes).map_err(fits)?;
        let operand = if op.kind == ir::ops::CollectiveKind::Index { &[][..] } else { std::slice::from_ref(ty) };
        let out = op.infer(operand).map_err(fits)?[0].bytes();
        if from != operand.iter().map(Type::bytes).sum::<usize>() {
            return Err(Error::Call(format!("{} of {ty}: {from} bytes in", op.name())));
        }
        let rank = self.transport.rank();
        let (group, me) = (self.mesh.group(rank, &op.axes), self.mesh.index(rank, &op.axes));
        let mut ranks = group.clone();
        ranks.sort_unstable();
        let number = if op.talks() { self.number(&ranks, 2) } else { 0 };
        let what = fingerprint(&format!("{} {ty} {:?}", op.name(), op.axes));
        let tag = Tag { group: fingerprint(&format!("{ranks:?}")), number, what };
        Ok(Call { op: op.clone(), ty: ty.clone(), group, ranks, me, tag, out })
    }

    fn run(&self, call: &Call, from: &[u8], to: &mut [u8]) -> Result<()> {
        let talk = Talk { transport: &*self.transport, group: &call.group, me: call.me, tag: call.tag };
        let sent = talk.run(&call.op.kind, &call.ty, from, to).map_err(|e| self.failed(e))?;
        self.count(&call.op, sent);
        Ok(())
    }

    fn count(&self, op: &Collective, sent: usize) {
        if op.talks() {
            let mut traffic = locked(&self.traffic);
            let (calls, bytes) = traffic.by_kind.entry(op.name()).or_default();
            *calls += 1;
            *bytes += sent;
        }
    }
}

impl Comm {
    /// A place in a mesh; the world must be as large.
    pub fn new(transport: Arc<dyn Transport>, mesh: Mesh) -> Result<Comm> {
        if mesh.ranks() != transport.world() {
            return Err(Error::Start(format!(
                "the mesh {mesh} has {} ranks, but {} were started; make the two equal",
                mesh.ranks(),
                transport.world()
            )));
        }
        let inner = Inner {
            transport,
            mesh,
            numbers: Mutex::default(),
            traffic: Mutex::default(),
            under_way: Mutex::default(),
            ended: Condvar::new(),
            over: AtomicBool::new(false),
        };
        Ok(Comm { inner: Arc::new(inner), overlaps: true, worker: Mutex::default() })
    }

    /// The same, with or without collectives that go on while the rank computes. Results are the same bits.
    pub fn overlapping(self, overlaps: bool) -> Comm {
        let mut comm = self;
        comm.overlaps = overlaps;
        comm
    }

    /// The ranks.
    pub fn mesh(&self) -> &Mesh {
        &self.inner.mesh
    }

    /// This one.
    pub fn rank(&self) -> usize {
        self.inner.transport.rank()
    }

    /// How bytes travel.
    pub fn transport(&self) -> &dyn Transport {
        &*self.inner.transport
    }

    /// What was sent so far.
    pub fn traffic(&self) -> Traffic {
        locked(&self.inner.traffic).clone()
    }

    /// Counts a collective that went another way.
    #[cfg(any(unix, windows))]
    pub(crate) fn count(&self, op: &Collective, sent: usize) {
        self.inner.count(op, sent);
    }

    /// Tells all others that this rank can't go on.
    pub fn abort(&self, reason: &str) {
        if !self.inner.over.swap(true, Ordering::Relaxed) {
            self.inner.transport.abort(self.rank(), reason);
        }
    }

    /// Runs a collective, behind those of the same ranks that were started.
    pub fn run(&self, op: &Collective, ty: &Type, from: &[u8], to: &mut [u8]) -> Result<()> {
        let call = self.inner.call(op, ty, from.len())?;
        if to.len() != call.out {
            return Err(Error::Call(format!("{} of {ty}: {} bytes out", op.name(), to.len())));
        }
        let mut under_way = locked(&self.inner.under_way);
        while under_way.get(&call.ranks).is_some_and(|n| *n > 0) {
            under_way = self.inner.ended.wait(under_way).unwrap_or_else(PoisonError::into_inner);
        }
        drop(under_way);
        self.inner.run(&call, from, to)
    }

    /// Starts a collective; its result is waited for with [`Started::finish`]. None where the transport can't do two things at
    /// once.
    pub fn start(&self, op: &Collective, ty: &Type, from: &[u8]) -> Result<Option<Started>> {
        if !self.overlaps || !op.talks() || !self.inner.transport.at_once() {
            return Ok(None);
        }
        let call = self.inner.call(op, ty, from.len())?;
        *locked(&self.inner.under_way).entry(call.ranks.clone()).or_default() += 1;
        let (tell, told) = channel();
        let mut worker = locked(&self.worker);
        let (jobs, _) = worker.get_or_insert_with(|| {
            let (send, receive) = channel::<Job>();
            let inner = self.inner.clone();
            (send, std::thread::spawn(move || work(&inner, &receive)))
        });
        // The thread takes jobs until it is dropped.
        let _ = jobs.send((call, from.to_vec(), tell));
        Ok(Some(Started(told)))
    }

    /// Sends bytes to some ranks and receives from some; all that take part are in it at once.
    pub fn exchange(&self, what: &str, sends: &[(usize, &[u8])], receives: &mut [(usize, &mut [u8])]) -> Result<()> {
        let tag = Tag { group: 0, number: 0, what: fingerprint(what) };
        self.inner.transport.exchange(tag, sends, receives).map_err(|e| self.inner.failed(e))?;
        let mut traffic = locked(&self.inner.traffic);
        let (calls, bytes) = traffic.by_kind.entry("exchange").or_default();
        *calls += 1;
        *bytes += sends.iter().map(|(_, b)| b.len()).sum::<usize>();
        Ok(())
    }

    /// Whether some rank says so.
    pub fn any(&self, own: bool) -> Result<bool> {
        let op = Collective::new(ir::ops::CollectiveKind::Max, self.mesh().axes());
        let mut out = [0; 4];
        self.run(&op, &Type::scalar(ir::DType::I32), &i32::from(own).to_le_bytes(), &mut out)?;
        Ok(out != [0; 4])
    }

    /// Waits until all ranks are here, and finds out whether they agree about `what`.
    pub fn agree(&self, what: &str) -> Result<()> {
        let (own, n) = (fnv(what).to_le_bytes(), self.inner.transport.world());
        let mut came = vec![[0; 8]; n];
        let sends: Vec<(usize, &[u8])> = (0..n).filter(|r| *r != self.rank()).map(|r| (r, &own[..])).collect();
        let others = came.iter_mut().enumerate().filter(|(r, _)| *r != self.rank());
        let mut receives: Vec<(usize, &mut [u8])> = others.map(|(r, b)| (r, &mut b[..])).collect();
        self.exchange("agree", &sends, &mut receives)?;
        match (0..n).find(|&r| r != self.rank() && came[r] != own) {
            Some(rank) => {
                Err(self.inner.failed(Error::Differs { rank, reason: "its settings, data or model differ".into() }))
            }
            None => Ok(()),
        }
    }
}

/// Runs what was started, one after another.
fn work(inner: &Inner, jobs: &Receiver<Job>) {
    for (call, from, tell) in jobs {
        let mut to = vec![0; call.out];
        let result = inner.run(&call, &from, &mut to).map(|()| to);
        if let Some(n) = locked(&inner.under_way).get_mut(&call.ranks) {
            *n -= 1;
        }
        inner.ended.notify_all();
        // Who started it may have given up.
        let _ = tell.send(result);
    }
}

/// A collective that was started.
pub struct Started(Receiver<Result<Vec<u8>>>);

impl Started {
    /// Waits for its result.
    pub fn finish(self, to: &mut [u8]) -> Result<()> {
        let lost = |_| Error::Call("a collective did not complete".into());
        to.copy_from_slice(&self.0.recv().map_err(lost)??);
        Ok(())
    }
}

impl compiler::Talking for Started {
    fn finish(self: Box<Self>, to: &mut [u8]) -> compiler::Result<()> {
        Started::finish(*self, to).map_err(compiler::Error::from)
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort("it panicked");
        }
        if let Some((jobs, thread)) = locked(&self.worker).take() {
            drop(jobs);
            let _ = thread.join();
        }
        if !self.inner.over.load(Ordering::Relaxed) {
            self.inner.transport.finish();
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

    fn start(&self, op: &Collective, ty: &Type, from: &[u8]) -> compiler::Result<Option<Box<dyn compiler::Talking>>> {
        let started = Comm::start(self, op, ty, from).map_err(compiler::Error::from)?;
        Ok(started.map(|s| Box::new(s) as Box<dyn compiler::Talking>))
    }
}

/// FNV-1a: the same in every process.
pub(crate) fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

fn fingerprint(text: &str) -> u32 {
    let all = fnv(text);
    (all ^ (all >> 32)) as u32
}
