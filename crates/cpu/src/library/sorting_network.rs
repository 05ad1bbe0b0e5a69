//! Sorts short lines in SIMD lanes, one line per lane, by a sorting network (Batcher's), which does not depend on the elements.
//!
//! A lane contains the key of an element above its position in the line, so no two lanes are equal, equal keys keep their order,
//! and other operands can be permuted afterwards.

use super::along::AxisLines;
use super::element::{Element, by_dtype};
use crate::gemm::Isa;
use crate::thresholds::Threshold;
use ir::DType;

/// The maximum number of elements of a line.
pub(super) const MAX_NETWORK: usize = 32;
pub(super) const THRESHOLDS: &[Threshold] =
    &[Threshold::new("sort.network", MAX_NETWORK, "elements of a line: up to here lines are sorted side by side")];

/// The number of lines that are sorted together.
pub(super) const SIDE_BY_SIDE: usize = 8;

/// The keys and positions of the lines, element by element.
pub(super) type Room = [[u64; SIDE_BY_SIDE]; MAX_NETWORK];

/// Reads the keys of some lines and sorts them; flipped key bits sort in descending order. Arguments: operand, lines, first line
/// and count, flip mask, compare-exchanges.
type SortLines = unsafe fn(*const u8, &AxisLines, [usize; 2], u64, &[(u8, u8)], &mut Room);

pub(super) struct Network {
    exchanges: Vec<(u8, u8)>,
    sort: SortLines,
}

/// Returns the network for lines of `n` elements of a dtype, if they are short and keys leave bits for positions.
pub(super) fn network(n: usize, dtype: DType, isa: Isa) -> Option<Network> {
    if !(2..=MAX_NETWORK).contains(&n) || dtype.size() > 4 {
        return None;
    }
    let sort = by_dtype!(dtype, T => sort_vectorized::<T>(isa))?;
    Some(Network { exchanges: compare_exchanges(n), sort })
}

/// Returns the compare-exchanges of Batcher's odd-even merge sort, for any number of elements.
fn compare_exchanges(n: usize) -> Vec<(u8, u8)> {
    let mut all = Vec::new();
    let mut run = 1;
    while run < n {
        let mut distance = run;
        while distance > 0 {
            for first in (distance % run..n.saturating_sub(distance)).step_by(2 * distance) {
                for i in first..(first + distance).min(n - distance) {
                    if i / (2 * run) == (i + distance) / (2 * run) {
                        all.push((i as u8, (i + distance) as u8));
                    }
                }
            }
            distance /= 2;
        }
        run *= 2;
    }
    all
}

impl Network {
    /// Computes the sorted positions of `count ≤ SIDE_BY_SIDE` lines from `line` on: the positions of the `k`-th elements are
    /// the low halves of `room[k]`.
    ///
    /// # Safety
    /// `p` is valid for the lines, and the machine has the instruction set.
    pub(super) unsafe fn sort(
        &self,
        p: *const u8,
        lines: &AxisLines,
        line: usize,
        count: usize,
        descending: bool,
        room: &mut Room,
    ) {
        let flip = if descending { u32::MAX as u64 } else { 0 };
        // SAFETY: `p` is valid for the lines, and `self.sort` was chosen for the instruction set of this machine.
        unsafe { (self.sort)(p, lines, [line, count], flip, &self.exchanges, room) }
    }
}

/// # Safety
/// `p` is valid for the lines, and the machine has the target features of the function that this is inlined into.
#[inline(always)]
unsafe fn inline<T: Element>(
    p: *const u8,
    l: &AxisLines,
    [line, count]: [usize; 2],
    flip: u64,
    exchanges: &[(u8, u8)],
    room: &mut Room,
) {
    let p = p.cast::<T>();
    for lane in 0..SIDE_BY_SIDE {
        // Lanes without a line repeat the last one.
        let line = line + lane.min(count - 1);
        let base = line / l.inner * l.inner * l.n + line % l.inner;
        for (k, room) in room.iter_mut().enumerate().take(l.n) {
            // SAFETY: the operand is valid for the line.
            let key = unsafe { *p.add(base + k * l.inner) }.key();
            room[lane] = (key ^ flip) << 32 | k as u64;
        }
    }
    for &(i, j) in exchanges {
        let (a, b) = (room[i as usize % MAX_NETWORK], room[j as usize % MAX_NETWORK]);
        let (mut low, mut high) = (a, b);
        for lane in 0..SIDE_BY_SIDE {
            low[lane] = a[lane].min(b[lane]);
            high[lane] = a[lane].max(b[lane]);
        }
        (room[i as usize % MAX_NETWORK], room[j as usize % MAX_NETWORK]) = (low, high);
    }
}

/// Returns [`inline`] compiled for the machine's instruction set.
fn sort_vectorized<T: Element>(isa: Isa) -> SortLines {
    unsafe fn plain<T: Element>(
        p: *const u8,
        l: &AxisLines,
        at: [usize; 2],
        flip: u64,
        by: &[(u8, u8)],
        room: &mut Room,
    ) {
        // SAFETY: `inline` has the contract of this function, and gets its arguments unchanged.
        unsafe { inline::<T>(p, l, at, flip, by, room) }
    }
    #[cfg(target_arch = "x86_64")]
    {
        /// # Safety
        /// As for `inline`, and the machine has the target features.
        #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
        unsafe fn avx512<T: Element>(
            p: *const u8,
            l: &AxisLines,
            at: [usize; 2],
            flip: u64,
            by: &[(u8, u8)],
            room: &mut Room,
        ) {
            // SAFETY: `inline` has the contract of this function, and gets its arguments unchanged.
            unsafe { inline::<T>(p, l, at, flip, by, room) }
        }
        /// # Safety
        /// As for `inline`, and the machine has the target features.
        #[target_feature(enable = "avx2")]
        unsafe fn avx2<T: Element>(
            p: *const u8,
            l: &AxisLines,
            at: [usize; 2],
            flip: u64,
            by: &[(u8, u8)],
            room: &mut Room,
        ) {
            // SAFETY: `inline` has the contract of this function, and gets its arguments unchanged.
            unsafe { inline::<T>(p, l, at, flip, by, room) }
        }
        match isa {
            Isa::Avx512 => return avx512::<T>,
            Isa::Avx2 => return avx2::<T>,
            Isa::Portable => {}
        }
    }
    let _ = isa;
    plain::<T>
}
