//! NCCL: collectives between NVIDIA GPUs. The library is loaded at run time.
//!
//! [`nccl_calls`] translates a collective to NCCL calls, as data: NCCL gathers and scatters whole buffers, so an inner axis
//! needs a call for each outer row, in one group. [`Group::run`] executes the calls on device memory, in stream order. NCCL
//! has its own order of additions, so sums may differ from those of other transports in their last bits.

use crate::error::{Error, Result};
use ir::ops::{Collective, CollectiveKind as Kind};
use ir::{DType, Rules, Type};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// One NCCL call; positions are byte offsets in the operand or the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `ncclAllReduce`.
    AllReduce {
        /// The number of elements.
        count: usize,
        /// The reduction operator.
        op: Reduction,
    },
    /// `ncclAllGather` of `count` elements of each rank.
    AllGather {
        /// The offset of the operand's elements.
        from: usize,
        /// The offset of the gathered elements.
        to: usize,
        /// The number of elements of a rank.
        count: usize,
    },
    /// `ncclReduceScatter` to `count` elements of each rank.
    ReduceScatter {
        /// The offset of the operand's elements.
        from: usize,
        /// The offset of the rank's elements.
        to: usize,
        /// The number of elements of a rank.
        count: usize,
    },
    /// `ncclSend`.
    Send {
        /// The offset of the elements.
        from: usize,
        /// The number of elements.
        count: usize,
        /// The destination rank.
        peer: usize,
    },
    /// `ncclRecv`.
    Recv {
        /// The offset of the elements.
        to: usize,
        /// The number of elements.
        count: usize,
        /// The source rank.
        peer: usize,
    },
    /// Sets the result to zero, without an NCCL call.
    Zero,
}

/// The reduction operators, with NCCL's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The sum.
    Sum = 0,
    /// The maximum.
    Max = 2,
    /// The minimum.
    Min = 3,
}

/// NCCL's number for a dtype.
fn dtype(d: DType) -> Result<c_int> {
    Ok(match d {
        DType::I8 => 0,
        DType::U8 | DType::Bool => 1,
        DType::I32 => 2,
        DType::U32 => 3,
        DType::I64 => 4,
        DType::U64 => 5,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::BF16 => 9,
        other => return Err(Error::InvalidCall(format!("NCCL does not support {other}"))),
    })
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The calls of a collective for the participating rank `me`.
pub fn nccl_calls(op: &Collective, ty: &Type, me: usize) -> Result<Vec<Call>> {
    let (n, size) = (op.ranks(), ty.dtype.size());
    dtype(ty.dtype)?;
    let outer = |dim: usize| ty.shape[..dim].iter().product::<usize>();
    let inner = |dim: usize| ty.shape[dim..].iter().product::<usize>();
    let reduction = |op: Reduction| match ty.dtype {
        DType::Bool => Err(Error::InvalidCall(format!("NCCL does not support {op:?} of bools"))),
        _ => Ok(vec![Call::AllReduce { count: ty.numel(), op }]),
    };
    Ok(match &op.kind {
        Kind::Sum => reduction(Reduction::Sum)?,
        Kind::Max => reduction(Reduction::Max)?,
        Kind::Min => reduction(Reduction::Min)?,
        Kind::AllGather { dim, .. } => {
            let count = inner(*dim);
            let row = |o: usize| Call::AllGather { from: o * count * size, to: o * n * count * size, count };
            (0..outer(*dim)).map(row).collect()
        }
        Kind::ReduceScatter { dim } => {
            let count = inner(*dim) / n;
            let row = |o: usize| Call::ReduceScatter { from: o * n * count * size, to: o * count * size, count };
            (0..outer(*dim)).map(row).collect()
        }
        Kind::AllToAll { split, join } => {
            // The rows of a piece before and after the exchange.
            let cut = inner(*split) / n;
            let mut result = ty.clone();
            result.shape[*split] /= n;
            result.shape[*join] *= n;
            let joined = result.shape[*join..].iter().product::<usize>() / n;
            let (piece, run) = (ty.numel() / n, gcd(cut, joined).max(1));
            let place = |rank: usize, at: usize, row: usize| ((at / row * n + rank) * row + at % row) * size;
            let mut all = Vec::new();
            for peer in 0..n {
                for at in (0..piece).step_by(run) {
                    all.push(Call::Send { from: place(peer, at, cut), count: run, peer });
                    all.push(Call::Recv { to: place(peer, at, joined), count: run, peer });
                }
            }
            all
        }
        Kind::Permute { pairs } => {
            let mut all = Vec::new();
            if let Some((_, to)) = pairs.iter().find(|(from, _)| *from == me) {
                all.push(Call::Send { from: 0, count: ty.numel(), peer: *to });
            }
            match pairs.iter().find(|(_, to)| *to == me) {
                Some((from, _)) => all.push(Call::Recv { to: 0, count: ty.numel(), peer: *from }),
                None => all.push(Call::Zero),
            }
            all
        }
        Kind::PVary | Kind::AxisIndex | Kind::ShardSlice { .. } => {
            return Err(Error::InvalidCall(format!("{} needs no other rank", op.name())));
        }
    })
}

/// The id of a group, which its first rank sends to the others.
pub type UniqueId = [u8; 128];

#[repr(C)]
#[derive(Clone, Copy)]
struct RawId([c_char; 128]);

type Raw = *mut c_void;

/// NCCL's functions.
pub struct Nccl {
    get_id: unsafe extern "C" fn(*mut RawId) -> c_int,
    init: unsafe extern "C" fn(*mut Raw, c_int, RawId, c_int) -> c_int,
    destroy: unsafe extern "C" fn(Raw) -> c_int,
    abort: unsafe extern "C" fn(Raw) -> c_int,
    error: unsafe extern "C" fn(c_int) -> *const c_char,
    start: unsafe extern "C" fn() -> c_int,
    end: unsafe extern "C" fn() -> c_int,
    all_reduce: unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Raw, Raw) -> c_int,
    all_gather: unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, Raw, Raw) -> c_int,
    reduce_scatter: unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Raw, Raw) -> c_int,
    send: unsafe extern "C" fn(*const c_void, usize, c_int, c_int, Raw, Raw) -> c_int,
    recv: unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Raw, Raw) -> c_int,
    /// Keeps the library loaded.
    _library: libloading::Library,
}

impl Nccl {
    /// Loads the system's library, or the file in TENSORLOOM_NCCL.
    pub fn open() -> Result<Arc<Nccl>> {
        let file = std::env::var("TENSORLOOM_NCCL").unwrap_or_else(|_| "libnccl.so.2".into());
        Nccl::load(&file)
    }

    /// Loads a library file.
    pub fn load(file: &str) -> Result<Arc<Nccl>> {
        let missing = |e: libloading::Error| {
            Error::Rendezvous(format!(
                "cannot load NCCL: {file}: {e}; install it, or set TENSORLOOM_NCCL to the path of the library"
            ))
        };
        // SAFETY: loading runs the library's own start, which NCCL's is made for; the types are those of nccl.h.
        unsafe {
            let library = libloading::Library::new(file).map_err(missing)?;
            macro_rules! find {
                ($name:literal) => {
                    *library.get($name.as_bytes()).map_err(missing)?
                };
            }
            Ok(Arc::new(Nccl {
                get_id: find!("ncclGetUniqueId"),
                init: find!("ncclCommInitRank"),
                destroy: find!("ncclCommDestroy"),
                abort: find!("ncclCommAbort"),
                error: find!("ncclGetErrorString"),
                start: find!("ncclGroupStart"),
                end: find!("ncclGroupEnd"),
                all_reduce: find!("ncclAllReduce"),
                all_gather: find!("ncclAllGather"),
                reduce_scatter: find!("ncclReduceScatter"),
                send: find!("ncclSend"),
                recv: find!("ncclRecv"),
                _library: library,
            }))
        }
    }

    fn check(&self, code: c_int, what: &str) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: NCCL gives a text that stays.
        let text = unsafe { CStr::from_ptr((self.error)(code)) }.to_string_lossy().to_string();
        Err(Error::InvalidCall(format!("NCCL: {what}: {text}")))
    }

    /// Creates the id of a new group, which its first rank sends to the others.
    pub fn unique_id(&self) -> Result<UniqueId> {
        let mut id = RawId([0; 128]);
        // SAFETY: it writes to `id` alone.
        self.check(unsafe { (self.get_id)(&mut id) }, "ncclGetUniqueId")?;
        Ok(id.0.map(|b| b as u8))
    }
}

/// A rank's membership in a group, on the device that is current in this thread.
pub struct Group {
    nccl: Arc<Nccl>,
    /// Null after the group was aborted.
    raw: AtomicPtr<c_void>,
    ranks: usize,
    rank: usize,
}

impl Group {
    /// Creates the group together with the other ranks; all call it at once.
    pub fn join(nccl: &Arc<Nccl>, id: &UniqueId, ranks: usize, me: usize) -> Result<Group> {
        let mut raw = std::ptr::null_mut();
        let id = RawId(id.map(|b| b as c_char));
        // SAFETY: it writes to `raw` alone.
        let code = unsafe { (nccl.init)(&mut raw, ranks as c_int, id, me as c_int) };
        nccl.check(code, "ncclCommInitRank")?;
        Ok(Group { nccl: nccl.clone(), raw: AtomicPtr::new(raw), ranks, rank: me })
    }

    /// Enqueues a collective on a stream; `zero` fills bytes with zeros on the stream.
    ///
    /// # Safety
    /// `from` and `to` are valid for the operand and the result on the group's device until the stream has run the
    /// collective, and only one thread at a time uses the group.
    pub unsafe fn run(
        &self,
        op: &Collective,
        ty: &Type,
        from: *const c_void,
        to: *mut c_void,
        stream: *mut c_void,
        zero: &dyn Fn(*mut c_void, usize),
    ) -> Result<()> {
        if op.ranks() != self.ranks {
            return Err(Error::InvalidCall(format!(
                "{} over {} ranks in a group of {}",
                op.name(),
                op.ranks(),
                self.ranks
            )));
        }
        let (n, kind, all) = (&self.nccl, dtype(ty.dtype)?, nccl_calls(op, ty, self.rank)?);
        let raw = self.raw.load(Ordering::Acquire);
        if raw.is_null() {
            return Err(Error::InvalidCall(format!("{}: lost a rank of its group", op.name())));
        }
        // SAFETY: offsets are inside of operand and result, which are valid for their types.
        unsafe {
            let (at, into) = (|b: usize| from.cast::<u8>().add(b).cast(), |b: usize| to.cast::<u8>().add(b).cast());
            n.check((n.start)(), "ncclGroupStart")?;
            for call in all {
                let code = match call {
                    Call::AllReduce { count, op } => (n.all_reduce)(from, to, count, kind, op as c_int, raw, stream),
                    Call::AllGather { from, to, count } => (n.all_gather)(at(from), into(to), count, kind, raw, stream),
                    Call::ReduceScatter { from, to, count } => {
                        (n.reduce_scatter)(at(from), into(to), count, kind, Reduction::Sum as c_int, raw, stream)
                    }
                    Call::Send { from, count, peer } => (n.send)(at(from), count, kind, peer as c_int, raw, stream),
                    Call::Recv { to, count, peer } => (n.recv)(into(to), count, kind, peer as c_int, raw, stream),
                    Call::Zero => {
                        zero(to, ty.bytes());
                        0
                    }
                };
                n.check(code, op.name())?;
            }
            n.check((n.end)(), "ncclGroupEnd")
        }
    }
}

impl Group {
    /// Aborts the operations in progress after a rank is lost: streams continue, and results are invalid.
    ///
    /// NCCL allows this from another thread while one is blocked in a call.
    pub(crate) fn abort(&self) {
        let raw = self.raw.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !raw.is_null() {
            // SAFETY: later calls find null, and NCCL ends its kernels itself.
            let _ = unsafe { (self.nccl.abort)(raw) };
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let raw = *self.raw.get_mut();
        if !raw.is_null() {
            // SAFETY: it is used no more.
            let _ = unsafe { (self.nccl.destroy)(raw) };
        }
    }
}
