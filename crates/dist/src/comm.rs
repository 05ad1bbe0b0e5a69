//! `Comm`: a rank's place in a mesh, over a transport.

use crate::collective::Talk;
use crate::error::{Error, Result};
use crate::transport::{Tag, Transport};
use compiler::Communicator;
use ir::ops::Collective;
use ir::{Mesh, Rules, Type};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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

/// A rank of a mesh. Dropping it says goodbye to the others.
pub struct Comm {
    transport: Arc<dyn Transport>,
    mesh: Mesh,
    /// Exchanges so far with each set of ranks.
    numbers: Mutex<BTreeMap<Vec<usize>, u32>>,
    traffic: Mutex<Traffic>,
    over: AtomicBool,
}

impl Comm {
    /// A place in a mesh; the world must be as large.
    pub fn new(transport: Arc<dyn Transport>, mesh: Mesh) -> Result<Comm> {
        if mesh.ranks() != transport.world() {
            return Err(Error::Start(format!(
                "the mesh {mesh} has {} ranks, and {} were started; start as many as the mesh has",
                mesh.ranks(),
                transport.world()
            )));
        }
        let (numbers, traffic) = (Mutex::default(), Mutex::default());
        Ok(Comm { transport, mesh, numbers, traffic, over: AtomicBool::new(false) })
    }

    /// The ranks.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// This one.
    pub fn rank(&self) -> usize {
        self.transport.rank()
    }

    /// How bytes travel.
    pub fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    /// What was sent so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells all others that this rank can't go on.
    pub fn abort(&self, reason: &str) {
        if !self.over.swap(true, Ordering::Relaxed) {
            self.transport.abort(self.rank(), reason);
        }
    }

    fn number(&self, group: &[usize], rounds: u32) -> u32 {
        let mut sorted = group.to_vec();
        sorted.sort_unstable();
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = numbers.entry(sorted).or_default();
        let number = *next;
        *next = next.wrapping_add(rounds);
        number
    }

    /// A failure ends all that ranks do together: the others are told who is to blame.
    fn failed(&self, e: Error) -> Error {
        let (rank, reason) = match &e {
            Error::Gone { rank, reason } => (*rank, reason.clone()),
            Error::Slow { rank, .. } | Error::Differs { rank, .. } => (*rank, e.to_string()),
            Error::Start(text) | Error::Call(text) => (self.rank(), text.clone()),
        };
        if !self.over.swap(true, Ordering::Relaxed) {
            self.transport.abort(rank, &reason);
        }
        e
    }

    /// Runs a collective.
    pub fn run(&self, op: &Collective, ty: &Type, from: &[u8], to: &mut [u8]) -> Result<()> {
        let fits = |p: ir::Problem| Error::Call(format!("{}: {p}", op.name()));
        self.mesh.set(&op.axes).map_err(fits)?;
        let operand = if op.kind == ir::ops::CollectiveKind::Index { &[][..] } else { std::slice::from_ref(ty) };
        let out = op.infer(operand).map_err(fits)?;
        if from.len() != operand.iter().map(Type::bytes).sum::<usize>() || to.len() != out[0].bytes() {
            return Err(Error::Call(format!("{} of {ty}: {} bytes in, {} out", op.name(), from.len(), to.len())));
        }
        let group = self.mesh.group(self.rank(), &op.axes);
        let me = self.mesh.index(self.rank(), &op.axes);
        let number = if op.talks() { self.number(&group, 2) } else { 0 };
        let what = fingerprint(&format!("{} {ty} {:?}", op.name(), op.axes));
        let tag = Tag { number, what };
        let talk = Talk { transport: &*self.transport, group: &group, me, tag };
        let sent = talk.run(&op.kind, ty, from, to).map_err(|e| self.failed(e))?;
        if op.talks() {
            let mut traffic = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
            let (calls, bytes) = traffic.by_kind.entry(op.name()).or_default();
            *calls += 1;
            *bytes += sent;
        }
        Ok(())
    }

    /// Sends bytes to some ranks and receives from some; all that take part are in it at once.
    pub fn exchange(&self, what: &str, sends: &[(usize, &[u8])], receives: &mut [(usize, &mut [u8])]) -> Result<()> {
        let tag = Tag { number: 0, what: fingerprint(what) };
        self.transport.exchange(tag, sends, receives).map_err(|e| self.failed(e))?;
        let mut traffic = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        let (calls, bytes) = traffic.by_kind.entry("exchange").or_default();
        *calls += 1;
        *bytes += sends.iter().map(|(_, b)| b.len()).sum::<usize>();
        Ok(())
    }

    /// Waits until all ranks are here, and finds out whether they agree about `what`.
    pub fn agree(&self, what: &str) -> Result<()> {
        let (own, n) = (fnv(what).to_le_bytes(), self.transport.world());
        let mut came = vec![[0; 8]; n];
        let sends: Vec<(usize, &[u8])> = (0..n).filter(|r| *r != self.rank()).map(|r| (r, &own[..])).collect();
        let others = came.iter_mut().enumerate().filter(|(r, _)| *r != self.rank());
        let mut receives: Vec<(usize, &mut [u8])> = others.map(|(r, b)| (r, &mut b[..])).collect();
        self.exchange("agree", &sends, &mut receives)?;
        match (0..n).find(|&r| r != self.rank() && came[r] != own) {
            Some(rank) => {
                Err(self.failed(Error::Differs { rank, reason: "settings, data or model are not the same".into() }))
            }
            None => Ok(()),
        }
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort("it panicked");
        }
        if !self.over.load(Ordering::Relaxed) {
            self.transport.finish();
        }
    }
}

impl Communicator for Comm {
    fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    fn rank(&self) -> usize {
        self.transport.rank()
    }

    fn run(&self, op: &Collective, ty: &Type, from: &[u8], to: &mut [u8]) -> compiler::Result<()> {
        Comm::run(self, op, ty, from, to).map_err(compiler::Error::from)
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
