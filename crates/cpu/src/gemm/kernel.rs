//! The micro-kernel: keeps a tile of C in registers during the loop over k.

#![expect(clippy::needless_range_loop, reason = "indices name registers, several arrays at a time")]
//!
//! The law that makes results independent of tiling: an element of C starts with `acc = 0`, then
//! `acc = a·b + acc` (one rounding where the instruction set has a fused multiply-add) for each k of the block in
//! order, then `alpha·acc` or `alpha·acc + c`. Tile sizes, masks and packing do not change that. Where the machine multiplies
//! several small elements at once (two bf16, four i8), a packed element is such a group, and one step of k covers a group.

use ir::DType;

use super::amx::{self, TILE_PAIR, TILE_SIDE, TileUse};
use super::gemv::HasGemv;
use super::pack::{pack_panel, upcast};
use super::vector::{Float, Isa, PLAIN_ROWS, Plain32, Plain64, PlainI32, Vector};
use super::vnni_packing::VnniFormat;

/// The arguments of one call of a micro-kernel. `b` points to a row of at least `cols` elements for each k.
pub(crate) struct Tile<T> {
    pub(crate) k: usize,
    pub(crate) a: *const T,
    /// Strides of `a` in elements. Kernels for contiguous rows ignore `a_row`.
    pub(crate) a_row: isize,
    pub(crate) a_k: isize,
    pub(crate) b: *const T,
    pub(crate) b_k: isize,
    /// Whether rows of `b` may be read up to the next multiple of the vector length.
    pub(crate) b_padded: bool,
    /// The address to prefetch into L2, as many elements per k as a row of B, and the step from one prefetch to the
    /// next.
    pub(crate) ahead: *const T,
    pub(crate) ahead_k: isize,
    pub(crate) c: *mut T,
    pub(crate) c_row: isize,
    /// The number of rows. Only tile (AMX) kernels read it; other kernels are compiled for a fixed number of rows.
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) alpha: T,
    /// Whether to add to C rather than overwrite it.
    pub(crate) add: bool,
}

impl<T: Float> Tile<T> {
    /// A call with no rows, columns or depth.
    pub(crate) const EMPTY: Tile<T> = Tile {
        k: 0,
        a: std::ptr::null(),
        a_row: 1,
        a_k: 0,
        b: std::ptr::null(),
        b_k: 0,
        b_padded: false,
        ahead: std::ptr::null(),
        ahead_k: 0,
        c: std::ptr::null_mut(),
        c_row: 0,
        rows: 0,
        cols: 0,
        alpha: T::ONE,
        add: false,
    };
}

/// A micro-kernel for a fixed number of rows and vectors.
///
/// # Safety
/// The pointers of the tile are valid for its sizes and strides, and the machine has the kernel's instruction set.
pub(crate) type MicroKernelFn<T> = unsafe fn(&Tile<T>);

/// [`pack_panel`] for an instruction set, with its safety conditions.
pub(crate) type PackFn<T> = unsafe fn(*mut T, usize, *const T, (isize, isize), usize, usize);

/// [`upcast`] for an instruction set, with its safety conditions.
pub(crate) type UpcastFn<T> = unsafe fn(DType, *const u8, isize, *mut T, usize);

/// The number of rows of the tallest kernel of any instruction set.
pub(crate) const MAX_MR: usize = 14;
/// The number of vectors of the widest kernel of any instruction set.
pub(crate) const MAX_NV: usize = 2;

/// The micro-kernels of one instruction set.
pub(crate) struct Kernels<T: 'static> {
    /// The number of rows of a full tile.
    pub(crate) mr: usize,
    /// The number of columns of a full tile.
    pub(crate) nr: usize,
    pub(crate) lanes: usize,
    /// Packs a panel; see [`pack_panel`].
    pub(crate) pack: PackFn<T>,
    /// Copies a line of another dtype; see [`upcast`].
    pub(crate) widen: UpcastFn<T>,
    /// The format of packed elements that are groups of small elements; `None` if each packed element is one `T`.
    pub(crate) groups: Option<&'static VnniFormat>,
    /// The AMX kernel, which replaces the tables.
    pub(crate) tiles: Option<TileUse<T>>,
    /// Kernels by rows − 1, then vectors − 1, for columns of A with adjacent elements (packed A, or Aᵀ).
    adjacent: [[MicroKernelFn<T>; MAX_NV]; MAX_MR],
    /// Kernels by rows − 1, then vectors − 1, for any strides of A.
    strided: [[MicroKernelFn<T>; MAX_NV]; MAX_MR],
    /// A kernel for full tiles with a packed A.
    whole: Option<MicroKernelFn<T>>,
}

impl<T> Kernels<T> {
    /// Returns the kernel for a tile of `rows × cols`.
    #[inline]
    pub(crate) fn get(&self, rows: usize, cols: usize, a_adjacent: bool) -> MicroKernelFn<T> {
        if let Some(tiles) = &self.tiles {
            return tiles.micro;
        }
        let table = if a_adjacent { &self.adjacent } else { &self.strided };
        table[rows - 1][(cols - 1) / self.lanes]
    }

    /// Returns the kernel for a tile of `rows × cols` with a packed A.
    #[inline]
    pub(crate) fn of_packed(&self, rows: usize, cols: usize) -> MicroKernelFn<T> {
        match self.whole {
            Some(whole) if rows == self.mr && cols == self.nr => whole,
            _ => self.get(rows, cols, true),
        }
    }

    /// The depth in packed elements must be a multiple of this number.
    pub(crate) fn step(&self) -> usize {
        if self.tiles.is_some() { TILE_SIDE } else { 1 }
    }

    /// Returns kernels that use AMX tiles of groups.
    pub(super) const fn of_tiles(tiles: TileUse<T>, groups: &'static VnniFormat) -> Kernels<T> {
        unsafe fn no_pack<T>(_: *mut T, _: usize, _: *const T, _: (isize, isize), _: usize, _: usize) {}
        unsafe fn no_widen<T>(_: DType, _: *const u8, _: isize, _: *mut T, _: usize) {}
        let table = [[tiles.micro; MAX_NV]; MAX_MR];
        Kernels {
            mr: TILE_PAIR,
            nr: TILE_PAIR,
            lanes: TILE_SIDE,
            pack: no_pack::<T>,
            widen: no_widen::<T>,
            groups: Some(groups),
            tiles: Some(tiles),
            adjacent: table,
            strided: table,
            whole: None,
        }
    }

    /// The number of k elements in a packed element.
    pub(crate) fn per(&self) -> usize {
        self.groups.map_or(1, |g| g.per)
    }
}

/// Element types that have micro-kernels.
pub(crate) trait HasKernels: HasGemv {
    /// Returns the kernels for operands of a dtype.
    fn kernels(isa: Isa, operands: DType) -> &'static Kernels<Self>;
}

/// # Safety
/// A, B and C are valid for the tile, and the machine has the vectors.
#[inline(always)]
unsafe fn tile<V: Vector, const R: usize, const N: usize, const ADJACENT: bool>(t: &Tile<V::Elem>) {
    let last = t.cols - (N - 1) * V::LANES;
    // SAFETY: A, B and C are valid for the tile; only the first `last` lanes of the last vector are accessed where
    // memory ends there.
    unsafe {
        prefetch_tile::<V, R, N>(t);
        // Where masked loads are free, one code path serves full and partial vectors.
        let acc = if V::MASKS {
            products::<V, R, N, ADJACENT, false>(t, last)
        } else if t.b_padded || last == V::LANES {
            products::<V, R, N, ADJACENT, true>(t, last)
        } else {
            products::<V, R, N, ADJACENT, false>(t, last)
        };
        store(t, &acc);
    }
}

/// Prefetches a tile of C into L1.
///
/// # Safety
/// The machine has the target features; prefetching does not access memory.
#[inline(always)]
pub(super) unsafe fn prefetch_tile<V: Vector, const R: usize, const N: usize>(t: &Tile<V::Elem>) {
    for i in 0..R {
        let c = t.c.wrapping_offset(i as isize * t.c_row);
        for j in 0..N {
            // SAFETY: what is asked for need not be there.
            unsafe { V::prefetch(c.wrapping_add(j * V::LANES)) };
        }
    }
}

/// Stores a tile of products in C.
///
/// # Safety
/// C is valid for the tile, and the machine has the vectors.
#[inline(always)]
pub(super) unsafe fn store<V: Vector, const R: usize, const N: usize>(t: &Tile<V::Elem>, acc: &[[V; N]; R]) {
    let last = t.cols - (N - 1) * V::LANES;
    // SAFETY: C is valid for the tile; only the first `last` lanes of the last vector are accessed.
    unsafe {
        let alpha = V::splat(t.alpha);
        for i in 0..R {
            let c = t.c.offset(i as isize * t.c_row);
            for j in 0..N {
                let (acc, c) = (acc[i][j], c.add(j * V::LANES));
                if j + 1 < N || last == V::LANES {
                    let out = if t.add { acc.mul_add(alpha, V::load(c)) } else { acc.mul(alpha) };
                    out.store(c);
                } else {
                    let out = if t.add { acc.mul_add(alpha, V::load_first(c, last)) } else { acc.mul(alpha) };
                    out.store_first(c, last);
                }
            }
        }
    }
}

/// # Safety
/// `t.a` is valid for `k` columns, `t.b` for `k` rows, and the machine has the vectors.
#[inline(always)]
unsafe fn products<V: Vector, const R: usize, const N: usize, const ADJACENT: bool, const WHOLE: bool>(
    t: &Tile<V::Elem>,
    last: usize,
) -> [[V; N]; R] {
    // SAFETY: `a` is valid for `k` columns, and `b` for `k` rows.
    unsafe {
        let zero = V::splat(V::Elem::from_f64(0.0));
        let mut acc = [[zero; N]; R];
        let mut bias = [zero; N];
        let (mut a, mut b, mut ahead) = (t.a, t.b, t.ahead);
        for _ in 0..t.k {
            let mut bv = [zero; N];
            for j in 0..N {
                let p = b.add(j * V::LANES);
                bv[j] = if WHOLE || j + 1 < N { V::load(p) } else { V::load_first(p, last) };
            }
            for i in 0..R {
                let offset = if ADJACENT { i as isize } else { i as isize * t.a_row };
                let av = V::splat(*a.offset(offset));
                for j in 0..N {
                    acc[i][j] = av.dot_add(bv[j], acc[i][j]);
                }
            }
            if let Some(shift) = V::BIAS {
                let shift = V::splat(shift);
                for j in 0..N {
                    bias[j] = shift.dot_add(bv[j], bias[j]);
                }
            }
            for j in 0..N {
                V::prefetch_l2(ahead.wrapping_add(j * V::LANES));
            }
            ahead = ahead.wrapping_offset(t.ahead_k);
            a = a.wrapping_offset(t.a_k);
            b = b.wrapping_offset(t.b_k);
        }
        if V::BIAS.is_some() {
            let minus = V::splat(V::Elem::from_f64(-1.0));
            for i in 0..R {
                for j in 0..N {
                    acc[i][j] = bias[j].mul_add(minus, acc[i][j]);
                }
            }
        }
        acc
    }
}

/// Builds the table of kernels for every tile size from the function `micro`, which must be in scope where this is expanded. Entries
/// above `$mr` rows repeat the tallest kernel and are never used.
macro_rules! table {
    ($mr:expr, $adjacent:literal) => {
        table!($mr, $adjacent, 1 2 3 4 5 6 7 8 9 10 11 12 13 14)
    };
    ($mr:expr, $adjacent:literal, $($r:literal)*) => {
        [$([
            micro::<{ if $r < $mr { $r } else { $mr } }, 1, $adjacent>,
            micro::<{ if $r < $mr { $r } else { $mr } }, 2, $adjacent>,
        ]),*]
    };
}

macro_rules! kernels {
    ($name:ident, $t:ty, $v:ty, $mr:expr, $groups:expr, $whole:expr $(, $feature:literal)?) => {
        mod $name {
            use super::*;

            /// # Safety
            /// As for `tile`, and the machine has the target features.
            $(#[target_feature(enable = $feature)])?
            unsafe fn micro<const R: usize, const N: usize, const ADJACENT: bool>(t: &Tile<$t>) {
                // SAFETY: `tile` has the contract of this function, and gets its arguments unchanged.
                unsafe { tile::<$v, R, N, ADJACENT>(t) }
            }

            /// # Safety
            /// `src` is valid for `valid × depth` elements at `strides`, and `dst` for `width × depth`.
            $(#[target_feature(enable = $feature)])?
            unsafe fn pack(dst: *mut $t, width: usize, src: *const $t, strides: (isize, isize), valid: usize, depth: usize) {
                // SAFETY: `src` is valid for `valid × depth` elements at `strides`, and `dst` for `width × depth`. A
                // known width unrolls the copies.
                unsafe {
                    if width == $mr {
                        pack_panel::<$v>(dst, $mr, src, strides, valid, depth)
                    } else {
                        pack_panel::<$v>(dst, 2 * <$v as Vector>::LANES, src, strides, valid, depth)
                    }
                }
            }

            /// # Safety
            /// As for `widen`, and the machine has the target features.
            $(#[target_feature(enable = $feature)])?
            unsafe fn widened(dtype: DType, src: *const u8, stride: isize, dst: *mut $t, n: usize) {
                // SAFETY: `widen` has the contract of this function, and gets its arguments unchanged.
                unsafe { upcast(dtype, src, stride, dst, n) }
            }

            pub(crate) static KERNELS: Kernels<$t> = Kernels {
                pack,
                widen: widened,
                groups: $groups,
                tiles: None,
                mr: $mr,
                nr: 2 * <$v as Vector>::LANES,
                lanes: <$v as Vector>::LANES,
                adjacent: table!($mr, true),
                strided: table!($mr, false),
                whole: $whole,
            };
        }
    };
}

kernels!(portable_f32, f32, Plain32, PLAIN_ROWS, None, None);
kernels!(portable_f64, f64, Plain64, PLAIN_ROWS, None, None);
kernels!(portable_i32, i32, PlainI32, PLAIN_ROWS, None, None);
#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::full_tile_kernel;
    use super::super::vector_x86::{Pairs, Quads};
    use super::super::vnni_packing::{BF16_PAIRS, I8_QUADS};
    use super::*;
    use std::arch::x86_64::*;
    kernels!(avx2_f32, f32, __m256, 6, None, None, "avx2,fma,f16c");
    kernels!(avx2_f64, f64, __m256d, 6, None, None, "avx2,fma");
    kernels!(avx2_i32, i32, __m256i, 6, None, None, "avx2");
    kernels!(
        avx512_f32,
        f32,
        __m512,
        full_tile_kernel::ROWS,
        None,
        Some(full_tile_kernel::f32),
        "avx512f,avx512vl,avx512dq,avx512bw"
    );
    kernels!(
        avx512_f64,
        f64,
        __m512d,
        full_tile_kernel::ROWS,
        None,
        Some(full_tile_kernel::f64),
        "avx512f,avx512vl,avx512dq,avx512bw"
    );
    kernels!(avx512_i32, i32, __m512i, 12, None, None, "avx512f,avx512vl,avx512dq,avx512bw");
    kernels!(
        avx512_bf16,
        f32,
        Pairs,
        full_tile_kernel::ROWS,
        Some(&BF16_PAIRS),
        Some(full_tile_kernel::pairs),
        "avx512f,avx512vl,avx512dq,avx512bw,avx512bf16"
    );
    kernels!(avx512_i8, i32, Quads, 12, Some(&I8_QUADS), None, "avx512f,avx512vl,avx512dq,avx512bw,avx512vnni");

    pub(crate) static F32: [&Kernels<f32>; 2] = [&avx2_f32::KERNELS, &avx512_f32::KERNELS];
    pub(crate) static F64: [&Kernels<f64>; 2] = [&avx2_f64::KERNELS, &avx512_f64::KERNELS];
    pub(crate) static I32: [&Kernels<i32>; 2] = [&avx2_i32::KERNELS, &avx512_i32::KERNELS];
    pub(crate) static BF16: &Kernels<f32> = &avx512_bf16::KERNELS;
    pub(crate) static I8: &Kernels<i32> = &avx512_i8::KERNELS;
}

impl HasKernels for f32 {
    fn kernels(isa: Isa, operands: DType) -> &'static Kernels<f32> {
        if isa == Isa::Avx512
            && operands == DType::BF16
            && let Some(kernels) = amx::of_bf16()
        {
            return kernels;
        }
        match (isa, operands) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, DType::BF16) if std::is_x86_feature_detected!("avx512bf16") => x86::BF16,
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, _) => x86::F32[0],
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, _) => x86::F32[1],
            _ => &portable_f32::KERNELS,
        }
    }
}

impl HasKernels for f64 {
    fn kernels(isa: Isa, _: DType) -> &'static Kernels<f64> {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => x86::F64[0],
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => x86::F64[1],
            _ => &portable_f64::KERNELS,
        }
    }
}

impl HasKernels for i32 {
    fn kernels(isa: Isa, operands: DType) -> &'static Kernels<i32> {
        if isa == Isa::Avx512
            && operands == DType::I8
            && let Some(kernels) = amx::of_i8()
        {
            return kernels;
        }
        match (isa, operands) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, DType::I8) if std::is_x86_feature_detected!("avx512vnni") => x86::I8,
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, _) => x86::I32[0],
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, _) => x86::I32[1],
            _ => &portable_i32::KERNELS,
        }
    }
}
