//! Combines updates with the elements of the operand. Only this file depends on the element type: it has one function per type
//! and kind, which receives a block of positions at a time.

use super::STRIP_BYTES;
use super::geometry::AHEAD;
use crate::gemm::Isa;
use crate::library::along::prefetch_line;
use crate::library::element::{Element, by_dtype, by_sum_dtype};
use ir::DType;
use ir::ops::ScatterKind;
use std::hint::select_unpredictable;

/// Runs of updates and their destinations; all offsets are in elements.
pub(super) struct Block<'a> {
    pub(super) y: *mut u8,
    pub(super) updates: *const u8,
    pub(super) to: &'a [u32],
    pub(super) from: &'a [u32],
    /// The number of adjacent elements of each run.
    pub(super) run: usize,
    /// Whether later rows are prefetched.
    pub(super) far: bool,
}

/// Contiguous single updates and their indices, for a table with `room` elements.
pub(super) struct Count {
    pub(super) table: *mut u8,
    pub(super) index: *const i32,
    pub(super) updates: *const u8,
    pub(super) n: usize,
    pub(super) room: u32,
    pub(super) clip: bool,
}

/// The properties and functions of a type and kind.
#[derive(Clone, Copy)]
pub(super) struct Combiner {
    block: unsafe fn(&Block),
    one: unsafe fn(*mut u8, *const u8),
    /// A function for histograms, for the common combinations.
    pub(super) count: Option<unsafe fn(&Count)>,
    /// Whether updates may be combined in any order and grouping: for sums, products and extrema of integers.
    pub(super) free_order: bool,
    /// The bytes of an element.
    pub(super) size: usize,
    plain: bool,
}

impl Combiner {
    pub(super) fn new(kind: ScatterKind, dtype: DType, isa: Isa) -> Option<Combiner> {
        // Separate code for every pair of type and kind would be large, so only distinct operations are compiled.
        let kind = match (kind, dtype) {
            // `or` and `and` of booleans.
            (ScatterKind::Add, DType::Bool) => ScatterKind::Max,
            (ScatterKind::Mul, DType::Bool) => ScatterKind::Min,
            (kind, _) => kind,
        };
        match kind {
            ScatterKind::Set => match dtype.size() {
                1 => Some(of::<u8, Set>(isa)),
                2 => Some(of::<u16, Set>(isa)),
                4 => Some(of::<u32, Set>(isa)),
                8 => Some(of::<u64, Set>(isa)),
                _ => None,
            },
            ScatterKind::Add => {
                let this = by_sum_dtype!(dtype, T => of::<T, Add>(isa));
                let count: Option<unsafe fn(&Count)> = match dtype {
                    DType::I32 | DType::U32 => Some(counted::<u32>),
                    DType::I64 | DType::U64 => Some(counted::<u64>),
                    _ => None,
                };
                this.map(|c| Combiner { count, ..c })
            }
            ScatterKind::Mul => by_sum_dtype!(dtype, T => of::<T, Mul>(isa)),
            ScatterKind::Min => by_dtype!(dtype, T => of::<T, Min>(isa)),
            ScatterKind::Max => by_dtype!(dtype, T => of::<T, Max>(isa)),
        }
    }

    /// Combines a block.
    ///
    /// # Safety
    /// All runs are inside result and updates, and nothing else accesses those of the result.
    pub(super) unsafe fn combine_block(&self, b: &Block) {
        // SAFETY: all runs of the block are inside result and updates, nothing else accesses those of the result, and
        // `plain` is false only where the machine has the instructions.
        unsafe {
            if !self.plain {
                return (self.block)(b);
            }
            // Machines without AVX2 use one short scalar loop.
            for (&to, &from) in b.to.iter().zip(b.from) {
                for i in 0..b.run {
                    (self.one)(b.y.add((to as usize + i) * self.size), b.updates.add((from as usize + i) * self.size));
                }
            }
        }
    }
}

fn of<T: Element, C: Combine<T>>(isa: Isa) -> Combiner {
    Combiner {
        block: block::<T, C>,
        one: one::<T, C>,
        count: None,
        free_order: C::FREE,
        size: size_of::<T>(),
        plain: isa == Isa::Portable && cfg!(target_arch = "x86_64"),
    }
}

/// How an update is combined with an element.
trait Combine<T> {
    /// Whether the operation is common enough for specialized code for short runs.
    const OFTEN: bool;
    /// Whether the result is one of the two operands.
    const PICKS: bool;
    const FREE: bool;
    fn apply(old: T, new: T) -> T;
    /// Whether the old value is kept.
    fn keeps(old: T, new: T) -> bool;
}

macro_rules! combines {
    ($($name:ident, $free:expr, $often:expr, $picks:expr, ($a:ident, $b:ident) => $e:expr, $keeps:expr);*) => {$(
        struct $name;
        impl<T: Element> Combine<T> for $name {
            const OFTEN: bool = $often;
            const PICKS: bool = $picks;
            const FREE: bool = $free && T::IS_INT;
            #[inline(always)]
            fn apply($a: T, $b: T) -> T {
                $e
            }
            #[inline(always)]
            fn keeps($a: T, $b: T) -> bool {
                let _ = ($a, $b);
                $keeps
            }
        }
    )*};
}
combines!(
    Set, false, true, false, (_a, b) => b, false;
    Add, true, size_of::<T>() >= 4, false, (a, b) => a.add(b), false;
    Mul, true, false, false, (a, b) => a.mul(b), false;
    Min, true, size_of::<T>() >= 4, true, (a, b) => a.smaller(b), a.is_nan() | a.less(b);
    Max, true, size_of::<T>() >= 4, true, (a, b) => a.larger(b), a.is_nan() | b.less(a)
);

/// Returns the same pointer, hidden from the compiler. Otherwise it would only write elements that a new extremum changes, by
/// masked stores, which are slow.
#[inline(always)]
fn unknown<T>(p: *mut T) -> *mut T {
    #[cfg(target_arch = "x86_64")]
    {
        let mut p = p;
        // SAFETY: nothing happens.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) p, options(pure, nomem, nostack, preserves_flags)) };
        p
    }
    #[cfg(not(target_arch = "x86_64"))]
    p
}

/// Selects one of two values by their bits, without a branch, because the choice is unpredictable.
///
/// # Safety
/// Both are valid for an element, which has as many bytes as its bits.
#[inline(always)]
unsafe fn pick<T: Element, C: Combine<T>, Bits: Copy>(y: *mut T, update: *const T) {
    // SAFETY: `y` and `update` are valid for an element of `T`, which has as many bytes as `Bits`.
    unsafe {
        let (old, new) = (y.cast::<Bits>().read(), update.cast::<Bits>().read());
        let keeps = C::keeps(y.read(), update.read());
        unknown(y).cast::<Bits>().write(select_unpredictable(keeps, old, new));
    }
}

/// Combines a few adjacent updates; all are read before the first is written, so vector code needs no check for overlap.
///
/// # Safety
/// `y` and `updates` are valid for `N` elements, and nothing else accesses those of `y`.
#[inline(always)]
unsafe fn apply<T: Element, C: Combine<T>, const N: usize>(y: *mut T, updates: *const T) {
    // SAFETY: `y` and `updates` are valid for `N` elements, and nothing else accesses those of `y`.
    unsafe {
        if C::PICKS && N == 1 {
            return match size_of::<T>() {
                1 => pick::<T, C, u8>(y, updates),
                2 => pick::<T, C, u16>(y, updates),
                4 => pick::<T, C, u32>(y, updates),
                _ => pick::<T, C, u64>(y, updates),
            };
        }
        let (old, mut new) = (y.cast::<[T; N]>().read(), updates.cast::<[T; N]>().read());
        let to = if C::PICKS && N > 1 { unknown(y) } else { y };
        let mut i = 0;
        while i < N {
            new[i] = C::apply(old[i], new[i]);
            i += 1;
        }
        to.cast::<[T; N]>().write(new);
    }
}

/// # Safety
/// Both are valid for an element.
unsafe fn one<T: Element, C: Combine<T>>(y: *mut u8, update: *const u8) {
    // SAFETY: `apply` has the contract of this function, and gets its arguments unchanged.
    unsafe { apply::<T, C, 1>(y.cast(), update.cast()) }
}

/// Combines runs of `N` elements.
///
/// # Safety
/// As for [`Combiner::meet`].
#[inline(always)]
unsafe fn few<T: Element, C: Combine<T>, const N: usize>(b: &Block) {
    let (y, updates) = (b.y.cast::<T>(), b.updates.cast::<T>());
    for (&to, &from) in b.to.iter().zip(b.from) {
        // SAFETY: runs of `N` elements are inside result and updates, and nothing else accesses those of the result.
        unsafe { apply::<T, C, N>(y.add(to as usize), updates.add(from as usize)) };
    }
}

/// The number of adjacent updates that are combined together.
const AT_ONCE: usize = 16;

/// Combines a block.
///
/// # Safety
/// As for [`Combiner::meet`], and the machine has AVX2 if it is an x86-64.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn block<T: Element, C: Combine<T>>(b: &Block) {
    // SAFETY: all runs of the block are inside result and updates, and nothing else accesses those of the result.
    unsafe {
        match b.run {
            1 => return few::<T, C, 1>(b),
            2 if C::OFTEN => return few::<T, C, 2>(b),
            3 if C::OFTEN => return few::<T, C, 3>(b),
            4 if C::OFTEN => return few::<T, C, 4>(b),
            6 if C::OFTEN => return few::<T, C, 6>(b),
            8 if C::OFTEN => return few::<T, C, 8>(b),
            _ => {}
        }
        let (n, bytes) = (b.run, b.run * size_of::<T>());
        for (k, &to) in b.to.iter().enumerate() {
            if b.far
                && let Some(&later) = b.to.get(k + AHEAD)
            {
                let later = b.y.cast::<T>().wrapping_add(later as usize);
                let mut at = 0;
                while at < bytes {
                    prefetch_line(later.wrapping_byte_add(at));
                    at += STRIP_BYTES;
                }
            }
            let (y, updates) = (b.y.cast::<T>().add(to as usize), b.updates.cast::<T>().add(b.from[k] as usize));
            let mut i = 0;
            while i + AT_ONCE <= n {
                apply::<T, C, AT_ONCE>(y.add(i), updates.add(i));
                i += AT_ONCE;
            }
            if C::OFTEN && n - i >= AT_ONCE / 2 {
                apply::<T, C, { AT_ONCE / 2 }>(y.add(i), updates.add(i));
                i += AT_ONCE / 2;
            }
            while n - i >= AT_ONCE / 4 {
                apply::<T, C, { AT_ONCE / 4 }>(y.add(i), updates.add(i));
                i += AT_ONCE / 4;
            }
            while i < n {
                apply::<T, C, 1>(y.add(i), updates.add(i));
                i += 1;
            }
        }
    }
}

/// Adds single updates to a table.
///
/// # Safety
/// There are as many indices and updates, and places of the table up to `room`.
unsafe fn counted<T: Element>(c: &Count) {
    // Pointers are plain arguments here: captures of closures would be reloaded after every write.
    /// # Safety
    /// `index` and `updates` are valid for `n` elements, and `table` for `room + 1`.
    #[inline(always)]
    unsafe fn all<T: Element, const CLIP: bool>(
        table: *mut T,
        index: *const i32,
        updates: *const T,
        n: usize,
        room: u32,
    ) {
        for j in 0..n {
            // SAFETY: `index` and `updates` are valid for `n` elements, and `table` for `room + 1`; a place beyond is
            // left out.
            unsafe {
                let i = *index.add(j);
                let place = if CLIP { i.clamp(0, room as i32) as u32 } else { i as u32 };
                if place <= room {
                    let to = table.add(place as usize);
                    *to = (*to).add(*updates.add(j));
                }
            }
        }
    }
    // SAFETY: `c.index` and `c.updates` are valid for `c.n` elements, and `c.table` for `c.room + 1`.
    unsafe {
        match c.clip {
            true => all::<T, true>(c.table.cast(), c.index, c.updates.cast(), c.n, c.room),
            false => all::<T, false>(c.table.cast(), c.index, c.updates.cast(), c.n, c.room),
        }
    }
}
