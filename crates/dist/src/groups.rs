//! The NCCL groups of a mesh: one for each set of axes in a program, created when the first such program is loaded.
//!
//! The first rank of a group sends the group's id to the others over their [`Comm`]. NCCL alone would wait
//! forever for a lost rank: a thread polls the transport, aborts all groups when a rank is lost, and every later call returns
//! the error.

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

/// The interval in which the transport is polled for lost ranks.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The NCCL groups of a rank.
pub struct NcclGroups {
    nccl: Arc<Nccl>,
    comm: Arc<Comm>,
    state: Arc<Mutex<Shared>>,
    /// The thread that polls for lost ranks, until the sender is dropped.
    failure_watcher: Option<(Sender<()>, JoinHandle<()>)>,
}

#[derive(Default)]
struct Shared {
    /// The groups by the names of their axes, in order.
    groups: BTreeMap<Vec<String>, Arc<Group>>,
    /// The error of a lost rank.
    failed: Option<Error>,
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn names(axes: &[MeshAxis]) -> Vec<String> {
    axes.iter().map(|a| a.name.clone()).collect()
}

impl NcclGroups {
    /// No groups yet; all are created over the ranks of `comm`.
    pub fn new(nccl: Arc<Nccl>, comm: Arc<Comm>) -> NcclGroups {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (line, end) = channel::<()>();
        let (seen, ranks) = (shared.clone(), comm.clone());
        let look = move || {
            while end.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let Some(e) = ranks.transport().lost_rank() else { continue };
                let mut shared = locked(&seen);
                shared.failed = Some(e);
                std::mem::take(&mut shared.groups).values().for_each(|group| group.abort());
                return;
            }
        };
        NcclGroups { nccl, comm, state: shared, failure_watcher: Some((line, std::thread::spawn(look))) }
    }

    /// The communicator.
    pub fn comm(&self) -> &Arc<Comm> {
        &self.comm
    }

    /// Creates the group of some axes if there is none; all of its ranks call this in the same order, each with its device current.
    pub fn join(&self, axes: &[MeshAxis]) -> Result<()> {
        {
            let shared = locked(&self.state);
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
        let tell = Collective::new(Kind::AllGather { dim: 0, same: true, turn: 0 }, axes);
        self.comm.run(&tell, &Type::new(DType::U8, &[own.len()]), &own, &mut all)?;
        let mut id: UniqueId = [0; 128];
        id.copy_from_slice(&all[..own.len()]);
        let group = Group::join(&self.nccl, &id, ranks, me)?;
        locked(&self.state).groups.insert(names(axes), Arc::new(group));
        Ok(())
    }

    /// Enqueues a collective on a stream; its group must exist. `zero` fills bytes with zeros on the stream.
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
            let shared = locked(&self.state);
            if let Some(e) = &shared.failed {
                return Err(e.clone());
            }
            shared.groups.get(&names(&op.axes)).cloned()
        };
        let Some(group) = found else {
            return Err(Error::InvalidCall(format!(
                "{}: there is no group of {:?}",
                ir::Rules::name(op),
                names(&op.axes)
            )));
        };
        // SAFETY: `from` and `to` are valid on the device for the bytes of `ty` and of the result until the stream has
        // run the collective.
        let done = unsafe { group.run(op, ty, from, to, stream, zero) };
        // An NCCL error after the loss of a rank is attributed to that rank.
        let blamed = || locked(&self.state).failed.clone().or_else(|| self.comm.transport().lost_rank());
        done.map_err(|e| blamed().unwrap_or(e))?;
        self.comm.count(op, op.sent_bytes(ty.bytes()));
        Ok(())
    }
}

impl DeviceCommunicator for NcclGroups {
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

    unsafe fn enqueue(
        &self,
        op: &Collective,
        ty: &Type,
        from: u64,
        to: u64,
        stream: *mut c_void,
    ) -> compiler::Result<()> {
        // SAFETY: both addresses are valid on the device for the bytes of their types until the stream has run the
        // collective; memory that receives nothing is zero already.
        let done = unsafe { self.run(op, ty, (from as *const c_void, to as *mut c_void), stream, &|_, _| {}) };
        done.map_err(compiler::Error::from)
    }
}

impl Drop for NcclGroups {
    fn drop(&mut self) {
        // The thread also holds a reference to the rank, and must not be the one that shuts it down.
        if let Some((line, thread)) = self.failure_watcher.take() {
            drop(line);
            let _ = thread.join();
        }
    }
}
