//! The groups of a mesh in NCCL: one for each set of axes that programs name, made when the first of them is loaded.
//!
//! Ranks find each other through their [`Comm`], over which the first rank of a group tells the others its name. NCCL alone would wait
//! for ever for a rank that is gone: a thread asks the transport, ends all groups when one is, and every later call says which.

use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::nccl::{Group, Nccl, UniqueId};
use compiler::DeviceCommunicator;
use ir::ops::{Collective, CollectiveKind as Kind};
use ir::{DType, Mesh, MeshAxis, Type};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the transport is asked who is gone.
const LOOK: Duration = Duration::from_millis(100);

/// A rank's groups.
pub struct Groups {
    nccl: Arc<Nccl>,
    comm: Arc<Comm>,
    shared: Arc<Mutex<Shared>>,
    /// Looks who is gone until the other end of its line is.
    watch: Option<(Sender<()>, JoinHandle<()>)>,
}

#[derive(Default)]
struct Shared {
    /// By the names of their axes, in order.
    groups: BTreeMap<Vec<String>, Arc<Group>>,
    /// Who is gone.
    failed: Option<Error>,
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn names(axes: &[MeshAxis]) -> Vec<String> {
    axes.iter().map(|a| a.name.clone()).collect()
}

impl Groups {
    /// No group yet; all are over the ranks of `comm`.
    pub fn new(nccl: Arc<Nccl>, comm: Arc<Comm>) -> Groups {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (line, end) = channel::<()>();
        let (seen, ranks) = (shared.clone(), comm.clone());
        let look = move || {
            while end.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let Some(e) = ranks.transport().gone() else { continue };
                let mut shared = locked(&seen);
                shared.failed = Some(e);
                std::mem::take(&mut shared.groups).values().for_each(|group| group.abort());
                return;
            }
        };
        Groups { nccl, comm, shared, watch: Some((line, std::thread::spawn(look))) }
    }

    /// The ranks.
    pub fn comm(&self) -> &Arc<Comm> {
        &self.comm
    }

    /// Makes the group of some axes if there is none; all of its ranks call this in the same order, each with its device current.
    pub fn join(&self, axes: &[MeshAxis]) -> Result<()> {
        {
            let shared = locked(&self.shared);
            if let Some(e) = &shared.failed {
                return Err(e.clone());
            }
            if shared.groups.contains_key(&names(axes)) {
                return Ok(());
            }
        }
        let mesh = self.comm.mesh();
        let (ranks, me) = (mesh.group(self.comm.rank(), axes).len(), mesh.index(self.comm.rank(), axes));
        let own: UniqueId = if me == 0 { self.nccl.unique_id()? } else { [0; 128] };
        let mut all = vec![0; own.len() * ranks];
        let tell = Collective::new(Kind::Gather { dim: 0, same: true, turn: 0 }, axes);
        self.comm.run(&tell, &Type::new(DType::U8, &[own.len()]), &own, &mut all)?;
        let mut id: UniqueId = [0; 128];
        id.copy_from_slice(&all[..own.len()]);
        let group = Group::join(&self.nccl, &id, ranks, me)?;
        locked(&self.shared).groups.insert(names(axes), Arc::new(group));
        Ok(())
    }

    /// Gives a collective to a stream; its group must have been made. `zero` fills bytes there.
    ///
    /// # Safety
    /// As [`Group::run`].
    pub unsafe fn run(
        &self,
        op: &Collective,
        ty: &Type,
        (from, to): (*const c_void, *mut c_void),
        stream: *mut c_void,
        zero: &dyn Fn(*mut c_void, usize),
    ) -> Result<()> {
        let found = {
            let shared = locked(&self.shared);
            if let Some(e) = &shared.failed {
                return Err(e.clone());
            }
            shared.groups.get(&names(&op.axes)).cloned()
        };
        let Some(group) = found else {
            return Err(Error::Call(format!("{}: there is no group of {:?}", ir::Rules::name(op), names(&op.axes))));
        };
        // SAFETY: by the caller's promise.
        let done = unsafe { group.run(op, ty, from, to, stream, zero) };
        // What a rank that is gone breaks is its fault.
        let blamed = || locked(&self.shared).failed.clone().or_else(|| self.comm.transport().gone());
        done.map_err(|e| blamed().unwrap_or(e))?;
        self.comm.count(op, op.sent_bytes(ty.bytes()));
        Ok(())
    }
}

impl DeviceCommunicator for Groups {
    fn mesh(&self) -> &Mesh {
        self.comm.mesh()
    }

    fn rank(&self) -> usize {
        self.comm.rank()
    }

    fn prepare(&self, axes: &[MeshAxis]) -> compiler::Result<()> {
        self.join(axes).map_err(|e| {
            compiler::Error::Backend(format!(
                "{e}; NCCL needs one GPU per rank: set TENSORLOOM_NCCL=off to send through host memory instead"
            ))
        })
    }

    unsafe fn put(&self, op: &Collective, ty: &Type, from: u64, to: u64, stream: *mut c_void) -> compiler::Result<()> {
        // SAFETY: by the caller's promise; what gets nothing is zero already.
        let done = unsafe { self.run(op, ty, (from as *const c_void, to as *mut c_void), stream, &|_, _| {}) };
        done.map_err(compiler::Error::from)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        // The thread holds the rank too, and must not be the one that says goodbye.
        if let Some((line, thread)) = self.watch.take() {
            drop(line);
            let _ = thread.join();
        }
    }
}
