//! Matrix products with AMX: one instruction multiplies 16 rows of A by 16 columns of B over 32 bf16 (or 64 i8) elements of k.
//!
//! A tile of the product has up to 32 × 32 elements: two AMX tiles of A (one below the other) times two tiles of B (side by
//! side), with four accumulator tiles. The law in `kernel.rs` applies with two changes: a step in k is a whole tile, padded with
//! zeros, and each k-block accumulates onto the sums that C already contains. The instructions are written as inline assembly,
//! since Rust has no stable intrinsics for them.
//! For tests, [`emulate_amx`] replaces them with plain code on machines without AMX.

use super::kernel::{Kernels, MicroKernelFn, Tile};
use super::vector::Float;
use super::vnni_packing::{PackGroupsFn, VnniFormat};
use ir::DType;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of rows, columns and packed k elements of an AMX tile.
pub(crate) const TILE_SIDE: usize = 16;
/// The number of rows and columns that one kernel call computes.
pub(super) const TILE_PAIR: usize = 2 * TILE_SIDE;

/// The functions that must run around a kernel that uses AMX tiles.
pub(crate) struct TileUse<T: 'static> {
    pub(super) micro: MicroKernelFn<T>,
    /// Functions that run before the first tile of a thread's part and after the last one.
    pub(super) begin: unsafe fn(),
    pub(super) end: unsafe fn(),
}

static EMULATED: AtomicBool = AtomicBool::new(false);

/// Makes all later plans use AMX tiles, emulated with plain code where the machine has no AMX.
/// For tests. Returns whether the machine has AMX.
#[doc(hidden)]
pub fn emulate_amx() -> bool {
    EMULATED.store(true, Ordering::Relaxed);
    hardware(DType::BF16)
}

/// The kernels for bf16 operands, if the machine supports them.
pub(super) fn of_bf16() -> Option<&'static Kernels<f32>> {
    #[cfg(target_arch = "x86_64")]
    if hardware(DType::BF16) {
        return Some(&x86::BF16);
    }
    EMULATED.load(Ordering::Relaxed).then_some(&plain::BF16)
}

/// The kernels for i8 operands, if the machine supports them.
pub(super) fn of_i8() -> Option<&'static Kernels<i32>> {
    #[cfg(target_arch = "x86_64")]
    if hardware(DType::I8) {
        return Some(&x86::I8);
    }
    EMULATED.load(Ordering::Relaxed).then_some(&plain::I8)
}

fn hardware(dtype: DType) -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        static HAVE: std::sync::OnceLock<[bool; 2]> = std::sync::OnceLock::new();
        HAVE.get_or_init(x86::detect)[(dtype == DType::I8) as usize]
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    {
        let _ = dtype;
        false
    }
}

/// Four accumulator tiles: 0 and 1 side by side, 2 and 3 below them.
///
/// # Safety
/// All methods require `begin` to have been called, and addresses that are valid for a tile.
trait Sums {
    type Elem: Float;

    /// Returns accumulators that are all zero.
    unsafe fn zero() -> Self;
    /// Loads one of the tiles from rows that are `row` elements apart.
    unsafe fn load(&mut self, which: usize, from: *const Self::Elem, row: isize);
    /// Adds the product of one step of k: the tiles of A are consecutive, and so are the rows of tiles of B. Without `TALL` there
    /// is no second tile of A; without `WIDE` there is no second tile of B.
    unsafe fn step<const TALL: bool, const WIDE: bool>(&mut self, a: *const Self::Elem, b: *const Self::Elem);
    /// Stores one of the tiles as rows that are `row` elements apart.
    unsafe fn store(&self, which: usize, to: *mut Self::Elem, row: isize);
}

/// Calls `f` with the index, the rows, the columns and the address in C of each of the four accumulator tiles.
#[inline(always)]
fn each_tile<T>(t: &Tile<T>, mut f: impl FnMut(usize, usize, usize, *mut T)) {
    for which in 0..4 {
        let (row, col) = (which / 2 * TILE_SIDE, which % 2 * TILE_SIDE);
        if row < t.rows && col < t.cols {
            let c = t.c.wrapping_offset(row as isize * t.c_row).wrapping_add(col);
            f(which, (t.rows - row).min(TILE_SIDE), (t.cols - col).min(TILE_SIDE), c);
        }
    }
}

/// Computes a tile. Without an `alpha` factor the sums accumulate directly onto C, as if k had not been split into blocks.
///
/// # Safety
/// The packed operands are valid for `t.k` groups, a multiple of `SIDE`, and C for the tile.
#[inline(always)]
unsafe fn product<S: Sums>(t: &Tile<S::Elem>) {
    // SAFETY: the packed operands are valid for `t.k` groups, a multiple of `SIDE`, and C for the tile.
    unsafe {
        let sums = match (t.rows > TILE_SIDE, t.cols > TILE_SIDE) {
            (false, false) => steps::<S, false, false>(t),
            (false, true) => steps::<S, false, true>(t),
            (true, false) => steps::<S, true, false>(t),
            (true, true) => steps::<S, true, true>(t),
        };
        let plain = t.alpha == S::Elem::ONE;
        each_tile(t, |which, rows, cols, c| {
            if plain && rows == TILE_SIDE && cols == TILE_SIDE {
                return sums.store(which, c, t.c_row);
            }
            let mut own = [S::Elem::default(); TILE_SIDE * TILE_SIDE];
            sums.store(which, own.as_mut_ptr(), TILE_SIDE as isize);
            for (i, line) in own.chunks_exact(TILE_SIDE).enumerate().take(rows) {
                let c = std::slice::from_raw_parts_mut(c.offset(i as isize * t.c_row), cols);
                for (c, &x) in c.iter_mut().zip(line) {
                    *c = match (plain, t.add) {
                        (true, _) => x,
                        (false, false) => x.mul(t.alpha),
                        (false, true) => c.add(x.mul(t.alpha)),
                    };
                }
            }
        });
    }
}

/// # Safety
/// The packed operands are valid for `t.k` groups, and C for the tile.
#[inline(always)]
unsafe fn steps<S: Sums, const TALL: bool, const WIDE: bool>(t: &Tile<S::Elem>) -> S {
    // SAFETY: the packed operands are valid for `t.k` groups, and C for the tile.
    unsafe {
        let mut sums = S::zero();
        if t.add && t.alpha == S::Elem::ONE {
            each_tile(t, |which, rows, cols, c| {
                if rows == TILE_SIDE && cols == TILE_SIDE {
                    return sums.load(which, c, t.c_row);
                }
                let mut own = [S::Elem::default(); TILE_SIDE * TILE_SIDE];
                for (i, line) in own.chunks_exact_mut(TILE_SIDE).enumerate().take(rows) {
                    std::ptr::copy_nonoverlapping(c.offset(i as isize * t.c_row), line.as_mut_ptr(), cols);
                }
                sums.load(which, own.as_ptr(), TILE_SIDE as isize);
            });
        }
        for k in (0..t.k).step_by(TILE_SIDE) {
            sums.step::<TALL, WIDE>(t.a.add(k * TILE_PAIR), t.b.add(k * TILE_PAIR));
        }
        sums
    }
}

/// Packs a left operand into tiles: element `w` of group `d` is in tile `d / 16`, row `w`, whose 16 groups are adjacent.
///
/// # Safety
/// `src` is valid for `valid × depth` elements, and `dst` for `width` rows of whole tiles.
#[inline(always)]
unsafe fn rows<S: Copy + Default, const PER: usize>(
    dst: *mut u32,
    width: usize,
    src: *const S,
    (along, deep): (isize, isize),
    valid: usize,
    depth: usize,
) {
    let each = TILE_SIDE * PER;
    // SAFETY: `src` is valid for `valid × depth` elements, and `dst` for `width` rows of whole tiles.
    unsafe {
        for k in (0..depth).step_by(each) {
            let n = each.min(depth - k);
            for w in 0..width {
                let line = dst.cast::<S>().add(k * width + w * each);
                let there = if w < valid { n } else { 0 };
                let from = src.offset(w.min(valid - 1) as isize * along + k as isize * deep);
                if deep == 1 && there == each {
                    // A row of a tile has 64 bytes for every element type.
                    line.cast::<[u8; 4 * TILE_SIDE]>()
                        .write_unaligned(from.cast::<[u8; 4 * TILE_SIDE]>().read_unaligned());
                } else if deep == 1 {
                    std::ptr::copy_nonoverlapping(from, line, there);
                } else {
                    (0..there).for_each(|i| *line.add(i) = *from.offset(i as isize * deep));
                }
                (there..each).for_each(|i| *line.add(i) = S::default());
            }
        }
    }
}

/// Pads a panel of B with zeros up to a whole tile.
///
/// # Safety
/// `dst` is valid for whole tiles.
#[inline(always)]
unsafe fn fill_up(dst: *mut u32, width: usize, groups: usize) {
    for d in groups..groups.next_multiple_of(TILE_SIDE) {
        // SAFETY: `dst` is valid for whole tiles.
        unsafe { dst.add(d * width).write_bytes(0, width) };
    }
}

/// Defines the kernels and packing functions for one set of functions.
macro_rules! tiles {
    ($sums32:ty, $sums_i32:ty, ($begin:expr, $end:expr), ($pairs:expr, $quads:expr) $(, $feature:literal)?) => {
        /// # Safety
        /// As for `product`, and the machine has the target features.
        $(#[target_feature(enable = $feature)])?
        unsafe fn product_bf16(t: &Tile<f32>) {
            // SAFETY: `product` has the contract of this function, and gets its arguments unchanged.
            unsafe { product::<$sums32>(t) }
        }

        /// # Safety
        /// As for `product`, and the machine has the target features.
        $(#[target_feature(enable = $feature)])?
        unsafe fn product_i8(t: &Tile<i32>) {
            // SAFETY: `product` has the contract of this function, and gets its arguments unchanged.
            unsafe { product::<$sums_i32>(t) }
        }

        tiles!(@pack left_bf16, right_bf16, u16, 2, $pairs $(, $feature)?);
        tiles!(@pack left_i8, right_i8, u8, 4, $quads $(, $feature)?);

        static BF16_GROUPS: VnniFormat = VnniFormat { per: 2, left: left_bf16, right: right_bf16 };
        static I8_GROUPS: VnniFormat = VnniFormat { per: 4, left: left_i8, right: right_i8 };
        pub(super) static BF16: Kernels<f32> =
            Kernels::of_tiles(TileUse { micro: product_bf16, begin: $begin, end: $end }, &BF16_GROUPS);
        pub(super) static I8: Kernels<i32> =
            Kernels::of_tiles(TileUse { micro: product_i8, begin: $begin, end: $end }, &I8_GROUPS);
    };
    (@pack $left:ident, $right:ident, $s:ty, $per:literal, $join:expr $(, $feature:literal)?) => {
        /// # Safety
        /// `src` is valid for `valid × depth` elements at the strides `by`, and `dst` for `width` rows of whole tiles.
        $(#[target_feature(enable = $feature)])?
        unsafe fn $left(dst: *mut u32, width: usize, src: *const u8, by: (isize, isize), valid: usize, depth: usize) {
            // SAFETY: `src` is valid for `valid × depth` elements at the strides `by`, and `dst` for `width` rows of
            // whole tiles.
            unsafe { rows::<$s, $per>(dst, width, src.cast(), by, valid, depth) }
        }

        /// # Safety
        /// `src` is valid for `valid × depth` elements at the strides `by`, and `dst` for whole tiles of `width`
        /// columns.
        $(#[target_feature(enable = $feature)])?
        unsafe fn $right(dst: *mut u32, width: usize, src: *const u8, by: (isize, isize), valid: usize, depth: usize) {
            // SAFETY: `src` is valid for `valid × depth` elements at the strides `by`, and `dst` for whole tiles of
            // `width` columns.
            unsafe {
                let join: PackGroupsFn = $join;
                join(dst, width, src, by, valid, depth);
                fill_up(dst, width, depth.div_ceil($per));
            }
        }
    };
}

mod plain {
    use super::super::vnni_packing::pack_groups;
    use super::*;

    /// Emulated tiles, kept in memory.
    struct EmulatedTiles<T, const I8: bool>([[T; TILE_SIDE * TILE_SIDE]; 4]);

    /// The dot product of a group of two bf16, and of a group of four i8.
    fn bf16_pair(a: u32, b: u32) -> f32 {
        let part = |x: u32, i: u32| f32::from_bits(x >> (16 * i) << 16);
        part(a, 0) * part(b, 0) + part(a, 1) * part(b, 1)
    }

    fn i8_quad(a: u32, b: u32) -> i32 {
        let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
        (0..4).map(|i| a[i] as i8 as i32 * b[i] as i8 as i32).sum()
    }

    macro_rules! emulated {
        ($t:ty, $i8:literal, $dot:expr) => {
            impl Sums for EmulatedTiles<$t, $i8> {
                type Elem = $t;

                unsafe fn zero() -> Self {
                    EmulatedTiles([[<$t>::default(); TILE_SIDE * TILE_SIDE]; 4])
                }

                unsafe fn step<const TALL: bool, const WIDE: bool>(&mut self, a: *const $t, b: *const $t) {
                    let (a, b) = (a.cast::<u32>(), b.cast::<u32>());
                    for which in (0..4).filter(|w| (TALL || w / 2 == 0) && (WIDE || w % 2 == 0)) {
                        for at in 0..TILE_SIDE * TILE_SIDE {
                            let (i, j) =
                                (at / TILE_SIDE + which / 2 * TILE_SIDE, at % TILE_SIDE + which % 2 * TILE_SIDE);
                            for k in 0..TILE_SIDE {
                                // SAFETY: `a` and `b` are valid for a tile each.
                                let (a, b) = unsafe { (*a.add(i * TILE_SIDE + k), *b.add(k * TILE_PAIR + j)) };
                                let sum = &mut self.0[which][at];
                                *sum = Float::add(*sum, $dot(a, b));
                            }
                        }
                    }
                }

                unsafe fn load(&mut self, which: usize, from: *const $t, row: isize) {
                    for (i, line) in self.0[which].chunks_exact_mut(TILE_SIDE).enumerate() {
                        // SAFETY: both sides are valid for these rows.
                        unsafe {
                            std::ptr::copy_nonoverlapping(from.offset(i as isize * row), line.as_mut_ptr(), TILE_SIDE)
                        };
                    }
                }

                unsafe fn store(&self, which: usize, to: *mut $t, row: isize) {
                    for (i, line) in self.0[which].chunks_exact(TILE_SIDE).enumerate() {
                        // SAFETY: both sides are valid for these rows.
                        unsafe { std::ptr::copy_nonoverlapping(line.as_ptr(), to.offset(i as isize * row), TILE_SIDE) };
                    }
                }
            }
        };
    }
    emulated!(f32, false, bf16_pair);
    emulated!(i32, true, i8_quad);

    /// # Safety
    /// None: nothing is done.
    unsafe fn nothing() {}

    /// # Safety
    /// `src` is valid for `valid × depth` elements at the strides `by`, and `dst` for the groups of `width` lines.
    unsafe fn pairs(dst: *mut u32, width: usize, src: *const u8, by: (isize, isize), valid: usize, depth: usize) {
        let group = |[a, b]: [u16; 2]| a as u32 | (b as u32) << 16;
        // SAFETY: `src` is valid for `valid × depth` elements at the strides `by`, and `dst` for the groups of `width`
        // lines.
        unsafe { pack_groups(dst, width, src.cast(), by, valid, depth, group, |_, _, _, _, _, _| 0, |_, _, _| 0) }
    }

    /// # Safety
    /// `src` is valid for `valid × depth` elements at the strides `by`, and `dst` for the groups of `width` lines.
    unsafe fn quads(dst: *mut u32, width: usize, src: *const u8, by: (isize, isize), valid: usize, depth: usize) {
        // SAFETY: `src` is valid for `valid × depth` elements at the strides `by`, and `dst` for the groups of `width`
        // lines.
        unsafe {
            pack_groups(dst, width, src.cast(), by, valid, depth, u32::from_le_bytes, |_, _, _, _, _, _| 0, |_, _, _| 0)
        }
    }

    tiles!(EmulatedTiles<f32, false>, EmulatedTiles<i32, true>, (nothing, nothing), (pairs, quads));
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::vnni_packing::{BF16_PAIRS, I8_QUADS};
    use super::*;
    use std::arch::asm;

    /// The tile configuration: tiles 0 to 3 are accumulators, 4 and 5 hold A, 6 and 7 hold B. All tiles have the full size.
    #[repr(C, align(64))]
    struct Shapes {
        palette: u8,
        start: u8,
        reserved: [u8; 14],
        bytes: [u16; 16],
        rows: [u8; 16],
    }

    const fn shapes() -> Shapes {
        let (mut bytes, mut rows) = ([0; 16], [0; 16]);
        let mut tile = 0;
        while tile < 8 {
            (bytes[tile], rows[tile]) = (64, TILE_SIDE as u8);
            tile += 1;
        }
        Shapes { palette: 1, start: 0, reserved: [0; 14], bytes, rows }
    }

    static SHAPES: Shapes = shapes();

    /// # Safety
    /// The machine has tiles, and the system permits them.
    unsafe fn begin() {
        // SAFETY: kernels on tiles are only taken where the machine has them and the system lets us.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const SHAPES, options(nostack, preserves_flags)) }
    }

    /// # Safety
    /// `begin` was called on this thread.
    unsafe fn end() {
        // SAFETY: as in `begin`.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags)) }
    }

    struct AmxTiles<T, const I8: bool>(std::marker::PhantomData<T>);

    macro_rules! hardware {
        ($t:ty, $i8:literal, $dot:literal) => {
            impl Sums for AmxTiles<$t, $i8> {
                type Elem = $t;

                #[inline(always)]
                unsafe fn zero() -> Self {
                    // SAFETY: as in `begin`, which was called.
                    unsafe {
                        asm!(
                            "tilezero tmm0",
                            "tilezero tmm1",
                            "tilezero tmm2",
                            "tilezero tmm3",
                            options(nostack, preserves_flags)
                        )
                    }
                    AmxTiles(std::marker::PhantomData)
                }

                #[inline(always)]
                unsafe fn step<const TALL: bool, const WIDE: bool>(&mut self, a: *const $t, b: *const $t) {
                    // SAFETY: as in `begin`; `a` and `b` are valid for a tile each.
                    unsafe {
                        asm!(
                            "tileloadd tmm4, [{a} + {a_row}*1]",
                            "tileloadd tmm6, [{b} + {b_row}*1]",
                            concat!($dot, " tmm0, tmm4, tmm6"),
                            a = in(reg) a, b = in(reg) b, a_row = in(reg) 4 * TILE_SIDE, b_row = in(reg) 4 * TILE_PAIR,
                            options(nostack, preserves_flags)
                        );
                        if WIDE {
                            asm!(
                                "tileloadd tmm7, [{b} + {b_row}*1]",
                                concat!($dot, " tmm1, tmm4, tmm7"),
                                b = in(reg) b.add(TILE_SIDE), b_row = in(reg) 4 * TILE_PAIR,
                                options(nostack, preserves_flags)
                            );
                        }
                        if TALL {
                            asm!(
                                "tileloadd tmm5, [{a} + {a_row}*1]",
                                concat!($dot, " tmm2, tmm5, tmm6"),
                                a = in(reg) a.add(TILE_SIDE * TILE_SIDE), a_row = in(reg) 4 * TILE_SIDE,
                                options(nostack, preserves_flags)
                            );
                        }
                        if TALL && WIDE {
                            asm!(concat!($dot, " tmm3, tmm5, tmm7"), options(nostack, preserves_flags));
                        }
                    }
                }

                #[inline(always)]
                unsafe fn load(&mut self, which: usize, from: *const $t, row: isize) {
                    let row = 4 * row;
                    // SAFETY: as in `begin`; the memory is valid for the rows of a tile.
                    unsafe {
                        match which {
                            0 => asm!("tileloadd tmm0, [{} + {}*1]", in(reg) from, in(reg) row, options(nostack, preserves_flags)),
                            1 => asm!("tileloadd tmm1, [{} + {}*1]", in(reg) from, in(reg) row, options(nostack, preserves_flags)),
                            2 => asm!("tileloadd tmm2, [{} + {}*1]", in(reg) from, in(reg) row, options(nostack, preserves_flags)),
                            _ => asm!("tileloadd tmm3, [{} + {}*1]", in(reg) from, in(reg) row, options(nostack, preserves_flags)),
                        }
                    }
                }

                #[inline(always)]
                unsafe fn store(&self, which: usize, to: *mut $t, row: isize) {
                    let row = 4 * row;
                    // SAFETY: as in `begin`; the memory is valid for the rows of a tile.
                    unsafe {
                        match which {
                            0 => asm!("tilestored [{} + {}*1], tmm0", in(reg) to, in(reg) row, options(nostack, preserves_flags)),
                            1 => asm!("tilestored [{} + {}*1], tmm1", in(reg) to, in(reg) row, options(nostack, preserves_flags)),
                            2 => asm!("tilestored [{} + {}*1], tmm2", in(reg) to, in(reg) row, options(nostack, preserves_flags)),
                            _ => asm!("tilestored [{} + {}*1], tmm3", in(reg) to, in(reg) row, options(nostack, preserves_flags)),
                        }
                    }
                }
            }
        };
    }
    hardware!(f32, false, "tdpbf16ps");
    hardware!(i32, true, "tdpbssd");

    tiles!(AmxTiles<f32, false>, AmxTiles<i32, true>, (begin, end), (BF16_PAIRS.right, I8_QUADS.right), "avx512f,avx512vl,avx512dq,avx512bw");

    /// Returns whether the machine has AMX for bf16 and for i8 and the operating system permits its use. The system has to save
    /// the tiles when it switches threads, so permission is requested once per process.
    #[cfg(target_os = "linux")]
    pub(super) fn detect() -> [bool; 2] {
        use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
        /// # Safety
        /// The machine and the system use `xsave`.
        #[target_feature(enable = "xsave")]
        unsafe fn enabled() -> u64 {
            // SAFETY: the system uses `xsave`.
            unsafe { _xgetbv(0) }
        }
        let tiles = 1u64 << 17 | 1 << 18;
        let avx512 = std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512vl")
            && std::is_x86_feature_detected!("avx512dq");
        if !avx512 || __cpuid(0).eax < 7 || __cpuid(1).ecx >> 27 & 1 == 0 {
            return [false; 2];
        }
        let edx = __cpuid_count(7, 0).edx;
        // SAFETY: the bit above says that the system uses `xsave`.
        if edx >> 24 & 1 == 0 || unsafe { enabled() } & tiles != tiles {
            return [false; 2];
        }
        // arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
        let answer: i64;
        // SAFETY: a system call with two numbers that changes no memory of ours.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") 158i64 => answer,
                in("rdi") 0x1023, in("rsi") 18,
                out("rcx") _, out("r11") _,
                options(nostack)
            );
        }
        let bf16 = edx >> 22 & 1 == 1;
        let i8 = edx >> 25 & 1 == 1;
        [bf16 && answer == 0, i8 && answer == 0]
    }
}
