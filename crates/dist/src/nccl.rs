//! NCCL: collectives between NVIDIA GPUs, from the library of that name where one is installed; it is loaded when it is asked for.
//!
//! [`calls`] says which calls of NCCL a collective is, as data: NCCL joins and cuts whole buffers, so an axis inside of a tensor
//! takes a call for each row before it, in one group. [`Group::run`] makes them on memory of a device, in the order of a stream. NCCL
//! adds in an order of its own, so sums may differ from those of other transports in their last bits.

use crate::error::{Error, Result};
use ir::ops::{Collective, CollectiveKind as Kind};
use ir::{DType, Rules, Type};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// One call of NCCL; places are bytes from the start of the operand or the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `ncclAllReduce`.
    AllReduce {
        /// Elements.
        count: usize,
        /// What is computed.
        op: Reduction,
    },
    /// `ncclAllGather` of `count` elements of each rank.
    AllGather {
        /// Where the operand's are.
        from: usize,
        /// Where all go.
        to: usize,
        /// Elements of a rank.
        count: usize,
    },
    /// `ncclReduceScatter` to `count` elements of each rank.
    ReduceScatter {
        /// Where all of the operand's are.
        from: usize,
        /// Where the rank's go.
        to: usize,
        /// Elements of a rank.
        count: usize,
    },
    /// `ncclSend`.
    Send {
        /// Where they are.
        from: usize,
        /// Elements.
        count: usize,
        /// To whom.
        peer: usize,
    },
    /// `ncclRecv`.
    Recv {
        /// Where they go.
        to: usize,
        /// Elements.
        count: usize,
        /// From whom.
        peer: usize,
    },
    /// The result is zero: no call of NCCL.
    Zero,
}

/// What a reduction computes, by NCCL's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The sum.
    Sum = 0,
    /// The largest.
    Max = 2,
    /// The smallest.
    Min = 3,
}

/// NCCL's number of a dtype.
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
        other => return Err(Error::Call(format!("NCCL does not support {other}"))),
    })
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The calls that a collective is for rank `me` of those that take part.
pub fn calls(op: &Collective, ty: &Type, me: usize) -> Result<Vec<Call>> {
    let (n, size) = (op.ranks(), ty.dtype.size());
    dtype(ty.dtype)?;
    let outer = |dim: usize| ty.shape[..dim].iter().product::<usize>();
    let inner = |dim: usize| ty.shape[dim..].iter().product::<usize>();
    let reduction = |op: Reduction| match ty.dtype {
        DType::Bool => Err(Error::Call(format!("NCCL does not support {op:?} of bools"))),
        _ => Ok(vec![Call::AllReduce { count: ty.numel(), op }]),
    };
    Ok(match &op.kind {
        Kind::Sum => reduction(Reduction::Sum)?,
        Kind::Max => reduction(Reduction::Max)?,
        Kind::Min => reduction(Reduction::Min)?,
        Kind::Gather { dim, .. } => {
            let count = inner(*dim);
            let row = |o: usize| Call::AllGather { from: o * count * size, to: o * n * count * size, count };
            (0..outer(*dim)).map(row).collect()
        }
        Kind::SumScatter { dim } => {
            let count = inner(*dim) / n;
            let row = |o: usize| Call::ReduceScatter { from: o * n * count * size, to: o * count * size, count };
            (0..outer(*dim)).map(row).collect()
        }
        Kind::AllToAll { split, join } => {
            // Rows of a piece as it is cut, and as it is joined.
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
        Kind::Vary | Kind::Index | Kind::Part { .. } => {
            return Err(Error::Call(format!("{} needs no other rank", op.name())));
        }
    })
}

/// What all ranks of a group are told by the first.
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
    /// Kept loaded.
    _library: libloading::Library,
}

impl Nccl {
    /// The library of the system, or the file that TENSORLOOM_NCCL names.
    pub fn open() -> Result<Arc<Nccl>> {
        let file = std::env::var("TENSORLOOM_NCCL").unwrap_or_else(|_| "libnccl.so.2".into());
        Nccl::load(&file)
    }

    /// A library by its file.
    pub fn load(file: &str) -> Result<Arc<Nccl>> {
        let missing = |e: libloading::Error| {
            Error::Start(format!(
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
        Err(Error::Call(format!("NCCL: {what}: {text}")))
    }

    /// A new group's name, which its first rank tells the others.
    pub fn unique_id(&self) -> Result<UniqueId> {
        let mut id = RawId([0; 128]);
        // SAFETY: it writes to `id` alone.
        self.check(unsafe { (self.get_id)(&mut id) }, "ncclGetUniqueId")?;
        Ok(id.0.map(|b| b as u8))
    }
}

/// A rank among those of a group, on the device that is current in this thread.
pub struct Group {
    nccl: Arc<Nccl>,
    /// Null once it was aborted.
    raw: AtomicPtr<c_void>,
    ranks: usize,
    me: usize,
}

impl Group {
    /// Joins the others; all call it at once.
    pub fn join(nccl: &Arc<Nccl>, id: &UniqueId, ranks: usize, me: usize) -> Result<Group> {
        let mut raw = std::ptr::null_mut();
        let id = RawId(id.map(|b| b as c_char));
        // SAFETY: it writes to `raw` alone.
        let code = unsafe { (nccl.init)(&mut raw, ranks as c_int, id, me as c_int) };
        nccl.check(code, "ncclCommInitRank")?;
        Ok(Group { nccl: nccl.clone(), raw: AtomicPtr::new(raw), ranks, me })
    }

    /// Puts a collective on a stream; `zero` fills bytes there.
    ///
    /// # Safety
    /// `from` and `to` must be good for the operand and the result on the group's device until the stream is through, and only
    /// one thread at a time may use the group.
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
            return Err(Error::Call(format!("{} over {} ranks in a group of {}", op.name(), op.ranks(), self.ranks)));
        }
        let (n, kind, all) = (&self.nccl, dtype(ty.dtype)?, calls(op, ty, self.me)?);
        let raw = self.raw.load(Ordering::Acquire);
        if raw.is_null() {
            return Err(Error::Call(format!("{}: lost a rank of its group", op.name())));
        }
        // SAFETY: places lie inside of operand and result, which the caller vouches for.
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
    /// Ends what is under way with a rank that is gone: streams go on, and results are worth nothing.
    ///
    /// NCCL lets another thread do this while one waits in a call.
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
