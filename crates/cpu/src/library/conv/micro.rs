//! Micro-kernels with one operand read in place: each step of k finds it by an offset, not by a stride.
//!
//! The law is that of matrix products: an element of a tile is `acc = 0`, then `acc = a·b + acc` in the order of k, then the
//! previous contents are added.

#![expect(clippy::needless_range_loop, reason = "indices name registers, several arrays at a time")]

use crate::gemm::Isa;
use crate::gemm::vector::{PLAIN_ROWS, Plain32, Vector};

/// The number of rows of the tallest tile of any instruction set.
const MAX_MR: usize = 12;
/// The number of vectors of the widest tile.
const MAX_NV: usize = 2;

/// The arguments of a tile of output features by positions: a packed kernel times windows.
pub(super) struct Windowed {
    pub(super) k: usize,
    /// The packed rows of the kernel, and the distance from one k to the next.
    pub(super) a: *const f32,
    pub(super) a_k: usize,
    /// The offset of each window element from the first one.
    pub(super) offsets: *const u32,
    /// The first window elements of each half of each vector; for whole vectors, only of the first halves.
    pub(super) b: [*const f32; 2 * MAX_NV],
    /// The destination of each vector, its number of lanes, and the row stride.
    pub(super) c: [*mut f32; MAX_NV],
    pub(super) lanes: [usize; MAX_NV],
    pub(super) c_row: usize,
    /// Whether to add to the previous contents.
    pub(super) add: bool,
}

/// The arguments of a tile of window elements by output features: the kernel gradient of some images.
pub(super) struct Gathered {
    /// The first image, and the offset of each row from there.
    pub(super) a: *const f32,
    pub(super) offsets: *const u32,
    /// The numbers of images, lines and elements, and their strides.
    pub(super) sizes: [usize; 3],
    pub(super) steps: [usize; 3],
    /// The cotangents of all features, with the image stride and the element stride.
    pub(super) b: *const f32,
    pub(super) b_image: usize,
    pub(super) b_k: usize,
    /// The rows of sums, and their stride.
    pub(super) c: *mut f32,
    pub(super) c_row: usize,
    pub(super) add: bool,
}

pub(super) type Window = unsafe fn(&Windowed);
pub(super) type Gather = unsafe fn(&Gathered);

/// The micro-kernels of an instruction set.
pub(super) struct Micros<F: 'static> {
    pub(super) rows: usize,
    pub(super) lanes: usize,
    /// Indexed by rows − 1.
    of_rows: [F; MAX_MR],
}

/// Indexed by vectors − 1, then by whether each vector consists of halves at two addresses.
pub(super) type Windows = Micros<[[Window; 2]; MAX_NV]>;
/// Indexed by vectors − 1.
pub(super) type Gathers = Micros<[Gather; MAX_NV]>;

impl Windows {
    pub(super) fn micro(&self, rows: usize, vectors: usize, halves: bool) -> Window {
        self.of_rows[rows - 1][vectors - 1][usize::from(halves)]
    }

    /// Returns the widest micro-kernels of an instruction set.
    pub(super) fn of(isa: Isa) -> &'static Windows {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => &x86::avx512::WINDOWS,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => &x86::avx2::WINDOWS,
            _ => &portable::WINDOWS,
        }
    }

    /// Returns the micro-kernels for pairs of bf16.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn pairs() -> &'static Windows {
        &x86::avx512_pairs::WINDOWS
    }
}

impl Gathers {
    pub(super) fn micro(&self, rows: usize, vectors: usize) -> Gather {
        self.of_rows[rows - 1][vectors - 1]
    }

    /// Returns the micro-kernels for rows of at most `features` features: narrow vectors waste fewer lanes.
    pub(super) fn of(isa: Isa, features: usize) -> &'static Gathers {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 if features <= <std::arch::x86_64::__m256 as Vector>::LANES => &x86::avx512_half::GATHERS,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => &x86::avx512::GATHERS,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => &x86::avx2::GATHERS,
            _ => {
                let _ = features;
                &portable::GATHERS
            }
        }
    }
}

/// # Safety
/// The kernel and each window are valid for `k` elements, and the result for the lanes that are stored.
#[inline(always)]
unsafe fn windowed<V: Vector<Elem = f32>, const R: usize, const N: usize, const HALVES: bool>(t: &Windowed) {
    // SAFETY: the kernel and each window are valid for `k` elements, and the result for the lanes that are stored.
    unsafe {
        let mut acc = [[V::splat(0.0); N]; R];
        let mut a = t.a;
        for k in 0..t.k {
            let at = *t.offsets.add(k) as usize;
            let mut b = [V::splat(0.0); N];
            for j in 0..N {
                b[j] = match HALVES {
                    true => V::load_halves(t.b[2 * j].add(at), t.b[2 * j + 1].add(at)),
                    false => V::load(t.b[2 * j].add(at)),
                };
            }
            for i in 0..R {
                let a = V::splat(*a.add(i));
                for j in 0..N {
                    acc[i][j] = a.dot_add(b[j], acc[i][j]);
                }
            }
            a = a.add(t.a_k);
        }
        for i in 0..R {
            for j in 0..N {
                let c = t.c[j].add(i * t.c_row);
                if t.lanes[j] == V::LANES {
                    let out = if t.add { acc[i][j].add(V::load(c)) } else { acc[i][j] };
                    out.store(c);
                } else {
                    let n = t.lanes[j];
                    let out = if t.add { acc[i][j].add(V::load_first(c, n)) } else { acc[i][j] };
                    out.store_first(c, n);
                }
            }
        }
    }
}

/// # Safety
/// Rows and cotangents of all images are valid for their sizes, and so are the sums.
#[inline(always)]
unsafe fn gathered<V: Vector<Elem = f32>, const R: usize, const N: usize>(t: &Gathered) {
    // SAFETY: rows and cotangents of all images are valid for their sizes, and so are the sums.
    unsafe {
        let mut offsets = [0; R];
        for i in 0..R {
            offsets[i] = *t.offsets.add(i) as usize;
        }
        let mut acc = [[V::splat(0.0); N]; R];
        for image in 0..t.sizes[0] {
            let mut b = t.b.add(image * t.b_image);
            for line in 0..t.sizes[1] {
                let mut a = t.a.add(image * t.steps[0] + line * t.steps[1]);
                for _ in 0..t.sizes[2] {
                    let mut all = [V::splat(0.0); N];
                    for j in 0..N {
                        all[j] = V::load(b.add(j * V::LANES));
                    }
                    for i in 0..R {
                        let a = V::splat(*a.add(offsets[i]));
                        for j in 0..N {
                            acc[i][j] = a.mul_add(all[j], acc[i][j]);
                        }
                    }
                    a = a.wrapping_add(t.steps[2]);
                    b = b.add(t.b_k);
                }
            }
        }
        for i in 0..R {
            for j in 0..N {
                let c = t.c.add(i * t.c_row + j * V::LANES);
                let out = if t.add { acc[i][j].add(V::load(c)) } else { acc[i][j] };
                out.store(c);
            }
        }
    }
}

/// The micro-kernels of every height; entries above `$rows` repeat the tallest and are never used.
macro_rules! micros {
    ($kind:ident, $v:ty, $rows:expr $(, $feature:literal)?) => {
        micros!($kind, $v, $rows, ($($feature)?), 1 2 3 4 5 6 7 8 9 10 11 12);
    };
    (windows, $v:ty, $rows:expr, ($($feature:literal)?), $($r:literal)*) => {
        /// # Safety
        /// As for `windowed`, and the machine has the target features.
        $(#[target_feature(enable = $feature)])?
        unsafe fn window<const R: usize, const N: usize, const HALVES: bool>(t: &Windowed) {
            // SAFETY: `windowed` has the contract of this function, and gets its arguments unchanged.
            unsafe { windowed::<$v, R, N, HALVES>(t) }
        }

        pub(in crate::library::conv) static WINDOWS: Windows = Micros {
            rows: $rows,
            lanes: <$v as Vector>::LANES,
            of_rows: [$([
                [window::<{ if $r < $rows { $r } else { $rows } }, 1, false>, window::<{ if $r < $rows { $r } else { $rows } }, 1, true>],
                [window::<{ if $r < $rows { $r } else { $rows } }, 2, false>, window::<{ if $r < $rows { $r } else { $rows } }, 2, true>],
            ]),*],
        };
    };
    (gathers, $v:ty, $rows:expr, ($($feature:literal)?), $($r:literal)*) => {
        /// # Safety
        /// As for `gathered`, and the machine has the target features.
        $(#[target_feature(enable = $feature)])?
        unsafe fn gather<const R: usize, const N: usize>(t: &Gathered) {
            // SAFETY: `gathered` has the contract of this function, and gets its arguments unchanged.
            unsafe { gathered::<$v, R, N>(t) }
        }

        pub(in crate::library::conv) static GATHERS: Gathers = Micros {
            rows: $rows,
            lanes: <$v as Vector>::LANES,
            of_rows: [$([
                gather::<{ if $r < $rows { $r } else { $rows } }, 1>, gather::<{ if $r < $rows { $r } else { $rows } }, 2>,
            ]),*],
        };
    };
}

mod portable {
    use super::*;
    micros!(windows, Plain32, PLAIN_ROWS);
    micros!(gathers, Plain32, PLAIN_ROWS);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use crate::gemm::vector_x86::Pairs;
    use std::arch::x86_64::{__m256, __m512};

    pub(super) mod avx2 {
        use super::*;
        micros!(windows, __m256, 6, "avx2,fma");
        micros!(gathers, __m256, 6, "avx2,fma");
    }
    pub(super) mod avx512 {
        use super::*;
        micros!(windows, __m512, 12, "avx512f,avx512vl,avx512dq,avx512bw,fma");
        micros!(gathers, __m512, 12, "avx512f,avx512vl,avx512dq,avx512bw,fma");
    }
    pub(super) mod avx512_pairs {
        use super::*;
        micros!(windows, Pairs, 12, "avx512f,avx512vl,avx512dq,avx512bw,avx512bf16");
    }
    /// For AVX-512, which has more registers than AVX2.
    pub(super) mod avx512_half {
        use super::*;
        micros!(gathers, __m256, 12, "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma");
    }
}
