//! Plans matrix products: by tiles, or column by column if there are few rows; with split-k if the results alone
//! would not saturate the device. The order of sums depends only on the shape: equal products give equal bits.

use super::coop_matrix::{CoopMatmul, CoopMatrixSize};
use super::gemv::Gemv;
use super::launch::{Argument, blocks};
use super::tiles::{PARAMS, Store, TiledMatmul, bindings, storer};
use crate::wgpu::ShaderSource;
use crate::wgpu::functions::needed;
use compiler::program::{BufferSlice, Matmul};
use compiler::{Error, Result};
use ir::DType;

/// The number of workgroups that saturates a device.
const BUSY: usize = 256;
/// The minimum length of a part of k.
const PART: usize = 128;
/// The threads of the kernel that adds partial sums.
const ADDING: usize = 256;

/// The tiling of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MatmulTiling {
    /// The rows and columns of a workgroup's tile.
    pub(super) tile: (usize, usize),
    /// The rows and columns of a thread's tile.
    pub(super) thread_tile: (usize, usize),
    /// The part of k in shared memory at a time.
    pub(super) k_tile: usize,
    /// Whether the next strips are prefetched during the multiplication.
    pub(super) prefetch: bool,
    /// The number of parts of k (split-k).
    pub(super) split_k: usize,
    /// Whether it uses cooperative matrices; then `thread_tile` is the tile of a subgroup.
    pub(super) coop_matrix: bool,
}

#[cfg(not(target_arch = "wasm32"))]
impl MatmulTiling {
    /// Whether it is a tiling with cooperative matrices.
    pub(super) fn uses_coop_matrix(&self) -> bool {
        self.coop_matrix && ON_UNITS.contains(&(self.tile, self.thread_tile, self.k_tile))
    }
}

/// Tilings with cooperative matrices: the workgroup's tile, the subgroup's tile, and the depth of strips.
const ON_UNITS: &[((usize, usize), (usize, usize), usize)] = &[
    ((128, 128), (64, 32), 32),
    ((128, 128), (32, 64), 32),
    ((128, 128), (64, 64), 32),
    ((128, 64), (32, 32), 32),
    ((64, 128), (32, 32), 32),
    ((64, 64), (32, 32), 32),
    ((64, 64), (32, 16), 64),
    ((32, 32), (16, 16), 64),
];

/// The candidate tilings of a product, which use at most 16 KiB of shared memory, or 32 KiB with cooperative matrices.
#[cfg(not(target_arch = "wasm32"))]
pub(super) fn candidate_tilings(s: &Matmul, squares: Option<CoopMatrixSize>) -> Vec<MatmulTiling> {
    let shapes = [
        ((128, 128), (8, 8), 16),
        ((128, 128), (8, 8), 8),
        ((128, 64), (8, 8), 16),
        ((64, 128), (8, 8), 16),
        ((64, 64), (8, 8), 16),
        ((64, 64), (4, 4), 16),
        ((64, 64), (8, 4), 16),
        ((32, 64), (4, 4), 32),
        ((32, 32), (4, 4), 32),
    ];
    let shapes = shapes.iter().map(|x| (*x, false));
    let on_units = ON_UNITS.iter().filter(|_| squares.is_some() && s.dtype == DType::F16).map(|x| (*x, true));
    let mut all = Vec::new();
    for ((tile, each, depth), units) in shapes.chain(on_units) {
        for ahead in [true, false] {
            for splits in [1, 2, 4, 8, 16] {
                let count = s.m.div_ceil(tile.0) * s.n.div_ceil(tile.1) * s.batch * splits;
                let sensible = splits == 1 || (count <= 16 * BUSY && s.k / splits >= 64);
                // Padded elements cost as much as the others.
                let padded = s.m.next_multiple_of(tile.0) * s.n.next_multiple_of(tile.1);
                if sensible && (tile.0 <= 32 || padded < 2 * s.m * s.n) {
                    all.push(MatmulTiling {
                        tile,
                        thread_tile: each,
                        k_tile: depth,
                        prefetch: ahead,
                        split_k: splits,
                        coop_matrix: units,
                    });
                }
            }
        }
    }
    all
}

/// The kernels of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Tiles(TiledMatmul),
    Units(CoopMatmul),
    Gemv(Gemv),
    /// Adds partial sums, with results of this dtype.
    Sum(DType),
}

impl Kind {
    pub(super) fn text(&self, homes: &[usize]) -> ShaderSource {
        match self {
            Kind::Tiles(t) => t.text(homes),
            Kind::Units(u) => u.text(homes),
            Kind::Gemv(g) => g.text(homes),
            Kind::Sum(out) => sum(*out, homes),
        }
    }
}

/// A dispatch of a product: its kernel, its memory, its parameters, its workgroups.
pub(super) struct MatmulDispatch {
    pub(super) kind: Kind,
    pub(super) args: Vec<Argument>,
    pub(super) params: Vec<u32>,
    pub(super) grid: [u32; 3],
}

/// A product with the buffers of its operands.
struct MatmulPlan {
    shape: Matmul,
    a: BufferSlice,
    b: BufferSlice,
    c: BufferSlice,
    /// The alignment in bytes of the buffers of A, B and C.
    aligned: [usize; 3],
    /// The size of cooperative matrices, if supported.
    squares: Option<CoopMatrixSize>,
}

/// The dispatches of a product, and the bytes of scratch that they need from `scratch_at` on.
pub(super) fn plan(
    shape: &Matmul,
    places: [&BufferSlice; 3],
    aligned: [usize; 3],
    scratch_at: usize,
    way: Option<MatmulTiling>,
    squares: Option<CoopMatrixSize>,
) -> Result<(Vec<MatmulDispatch>, usize)> {
    let known = |d: DType| matches!(d, DType::F32 | DType::F16 | DType::BF16);
    if !known(shape.dtype) || !known(shape.out) {
        return Err(Error::Internal(format!(
            "matrix products of {} to {} are not supported by wgpu",
            shape.dtype, shape.out
        )));
    }
    if shape.batch * shape.m * shape.n == 0 {
        return Ok((Vec::new(), 0));
    }
    let [a, b, c] = places.map(Clone::clone);
    let mut p = MatmulPlan { shape: shape.clone(), a, b, c, aligned, squares };
    if p.shape.n <= 4 && p.shape.m > p.shape.n {
        p = p.transposed();
    }
    Ok(p.parts(scratch_at, way))
}

impl MatmulPlan {
    /// Cᵀ = Bᵀ Aᵀ.
    fn transposed(self) -> MatmulPlan {
        let s = &self.shape;
        let turned = |[batch, row, column]: [isize; 3]| [batch, column, row];
        let shape = Matmul { m: s.n, n: s.m, a: turned(s.b), b: turned(s.a), c: turned(s.c), ..s.clone() };
        let [a, b, c] = self.aligned;
        MatmulPlan { shape, a: self.b, b: self.a, aligned: [b, a, c], ..self }
    }

    fn parts(&self, scratch_at: usize, way: Option<MatmulTiling>) -> (Vec<MatmulDispatch>, usize) {
        let s = &self.shape;
        let along_k = |k: isize, other: isize| k.unsigned_abs() <= other.unsigned_abs();
        let (a_along_k, b_along_k) = (along_k(s.a[2], s.a[1]), along_k(s.b[1], s.b[2]));
        let few = s.m <= 4;
        let gemv = Gemv { dtype: s.dtype, out: s.out, rows: s.m, along_k: b_along_k && s.k >= 32 };
        let units = self.squares.filter(|_| !few && self.can_load_pairs(a_along_k, b_along_k));
        let known = way.filter(|w| !few && (!w.coop_matrix || units.is_some()));
        let way = known.unwrap_or_else(|| self.default_tiling(few.then(|| gemv.columns()), units.is_some()));
        let MatmulTiling {
            tile,
            thread_tile: each,
            k_tile: depth,
            prefetch: ahead,
            split_k: splits,
            coop_matrix: on_units,
        } = way;
        let units = units.filter(|_| on_units);
        let step = s.k.div_ceil(splits).next_multiple_of(depth).max(depth);
        let splits = s.k.div_ceil(step).max(1);
        // Partial sums are stored in scratch, dense and in f32.
        let (out, strides, store) = match splits {
            1 => (s.out, s.c, self.store()),
            _ => (DType::F32, [(s.m * s.n) as isize, s.n as isize, 1], Store::Single),
        };
        let target = match splits {
            1 => Argument::place(&self.c, s.out.size()),
            _ => Argument::scratch(scratch_at, splits * s.batch * s.m * s.n * 4),
        };
        let whole = s.k > 0 && s.m.is_multiple_of(tile.0) && s.n.is_multiple_of(tile.1) && s.k.is_multiple_of(depth);
        let kind = match (few, units) {
            (true, _) => Kind::Gemv(Gemv { out, ..gemv }),
            (_, Some(squares)) => Kind::Units(CoopMatmul {
                squares,
                out,
                tile,
                subgroup_tile: each,
                k_tile: depth,
                prefetch: ahead,
                a_along_k,
                b_along_k,
                exact_tiles: whole,
                store,
            }),
            _ => Kind::Tiles(TiledMatmul {
                dtype: s.dtype,
                out,
                tile,
                thread_tile: each,
                prefetch: ahead,
                k_tile: depth,
                a_along_k,
                b_along_k,
                exact_tiles: whole,
                store,
            }),
        };
        let deep = (s.batch * splits).min(65_535) as u32;
        let grid = match few {
            true => [blocks(s.n, gemv.columns()), 1, deep],
            false => [s.n.div_ceil(tile.1) as u32, s.m.div_ceil(tile.0) as u32, deep],
        };
        let results = s.batch * s.m * s.n;
        let mut params: Vec<u32> = [s.batch, s.m, s.n, s.k].iter().map(|n| *n as u32).collect();
        params.extend([s.a, s.b, strides].into_iter().flatten().map(|n| n as u32));
        params.extend([splits as u32, step as u32, results as u32]);
        debug_assert_eq!(params.len() + 3, PARAMS);
        let size = s.dtype.size();
        let args = vec![Argument::place(&self.a, size), Argument::place(&self.b, size), target.clone()];
        let mut all = vec![MatmulDispatch { kind, args, params, grid }];
        if splits == 1 {
            return (all, 0);
        }
        let mut params: Vec<u32> = [s.batch, s.m, s.n, splits].iter().map(|n| *n as u32).collect();
        params.extend(s.c.iter().map(|n| *n as u32));
        let args = vec![target, Argument::place(&self.c, s.out.size())];
        all.push(MatmulDispatch { kind: Kind::Sum(s.out), args, params, grid: [blocks(results, ADDING), 1, 1] });
        (all, splits * results * 4)
    }

    /// Whether cooperative matrices can load both operands in pairs of adjacent elements, none of which crosses the end of a line.
    fn can_load_pairs(&self, a_along_k: bool, b_along_k: bool) -> bool {
        let s = &self.shape;
        let even = |n: isize| n % 2 == 0;
        let dense = |line: isize, other: isize, batch: isize, length: usize, lines: usize| {
            line == 1 && length.is_multiple_of(2) && (even(other) || lines == 1) && (even(batch) || s.batch == 1)
        };
        let a = match a_along_k {
            true => dense(s.a[2], s.a[1], s.a[0], s.k, s.m),
            false => dense(s.a[1], s.a[2], s.a[0], s.m, s.k),
        };
        let b = match b_along_k {
            true => dense(s.b[1], s.b[2], s.b[0], s.k, s.n),
            false => dense(s.b[2], s.b[1], s.b[0], s.n, s.k),
        };
        let aligned = self.aligned[0].is_multiple_of(4) && self.aligned[1].is_multiple_of(4);
        s.dtype == DType::F16 && a && b && aligned
    }

    /// The default tiling of a product that was not autotuned; `columns` of a workgroup if it has few rows.
    fn default_tiling(&self, columns: Option<usize>, units: bool) -> MatmulTiling {
        let s = &self.shape;
        let large = s.m.div_ceil(128) * s.n.div_ceil(128) * s.batch;
        let side = |n: usize| if n <= 32 { 32 } else { 64 };
        let (tile, each, depth) = match units && s.m >= 16 && s.n >= 16 {
            true if s.m >= 96 && s.n >= 96 && large * 2 >= BUSY => ON_UNITS[0],
            true if s.m > 32 && s.n > 32 => ON_UNITS[5],
            true => ON_UNITS[7],
            false => self.thread_tiling(large, (side(s.m), side(s.n))),
        };
        let units = units && s.m >= 16 && s.n >= 16;
        let count = match columns {
            Some(c) => s.n.div_ceil(c) * s.batch,
            None => s.m.div_ceil(tile.0) * s.n.div_ceil(tile.1) * s.batch,
        };
        let most = (s.k / PART).max(1);
        let splits = if count * 2 > BUSY { 1 } else { (2 * BUSY).div_ceil(count).min(most) };
        MatmulTiling { tile, thread_tile: each, k_tile: depth, prefetch: true, split_k: splits, coop_matrix: units }
    }

    /// The default tiling without cooperative matrices.
    fn thread_tiling(&self, large: usize, sides: (usize, usize)) -> ((usize, usize), (usize, usize), usize) {
        let s = &self.shape;
        let (tile, each) = match sides {
            _ if s.m >= 96 && s.n >= 96 && large * 2 >= BUSY => ((128, 128), (8, 8)),
            (64, 64) => ((64, 64), (8, 4)),
            tile => (tile, (4, 4)),
        };
        (tile, each, 16)
    }

    /// How tiles store their results.
    fn store(&self) -> Store {
        let s = &self.shape;
        if s.out == DType::F32 {
            return Store::Single;
        }
        let even = |n: isize| n % 2 == 0;
        let pairs =
            s.c[2] == 1 && s.n.is_multiple_of(2) && (even(s.c[1]) || s.m == 1) && (even(s.c[0]) || s.batch == 1);
        if pairs && self.aligned[2].is_multiple_of(4) { Store::Pairs } else { Store::Parts }
    }
}

/// Parameters: partial sums and C in elements; batch, m, n, splits; strides of C.
fn sum(out: DType, homes: &[usize]) -> ShaderSource {
    let written = homes[1];
    let parts = out != DType::F32;
    let (head, all) = bindings(homes, parts.then_some(written));
    let load = match parts && homes[0] == written {
        true => format!("bitcast<f32>(atomicLoad(&g{}[at]))", homes[0]),
        false => format!("bitcast<f32>(g{}[at])", homes[0]),
    };
    let t = format!(
        "{head}{}
@compute @workgroup_size({ADDING}) fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) wgs: vec3<u32>) {{
    let m = p(3u); let n = p(4u);
    let total = p(2u) * m * n;
    for (var e = id.x; e < total; e += wgs.x * {ADDING}u) {{
        var s = 0.0f;
        for (var k = 0u; k < p(5u); k += 1u) {{
            let at = p(0u) + k * total + e;
            s += {load};
        }}
        let row = e / n;
        put(p(1u) + (row / m) * p(6u) + (row % m) * p(7u) + (e % n) * p(8u), s);
    }}
}}
",
        storer(written, out, parts)
    );
    let source = format!("{}{t}", needed(&t));
    ShaderSource { source, bindings: all, params: 9, shared: 0 }
}
