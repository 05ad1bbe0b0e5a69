//! How a matrix product is computed: by tiles, or column by column where there are few rows; along k in several parts where the results alone
//! would not keep the device busy. Order is fixed by the shape: equal products give equal bits.

use super::gemv::Gemv;
use super::launch::{Argument, blocks};
use super::tiles::{PARAMS, Store, Tiles, bindings, storer};
use crate::wgpu::Text;
use crate::wgpu::functions::needed;
use compiler::program::{Matmul, Place};
use compiler::{Error, Result};
use ir::DType;

/// Workgroups that keep a device busy.
const BUSY: usize = 256;
/// A part of k is at least this long.
const PART: usize = 256;
/// Threads of the kernel that adds parts up.
const ADDING: usize = 256;

/// The kernels of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Tiles(Tiles),
    Gemv(Gemv),
    /// Adds parts up: into results of this type.
    Sum(DType),
}

impl Kind {
    pub(super) fn text(&self, homes: &[usize]) -> Text {
        match self {
            Kind::Tiles(t) => t.text(homes),
            Kind::Gemv(g) => g.text(homes),
            Kind::Sum(out) => sum(*out, homes),
        }
    }
}

/// A dispatch of a product: its kernel, its memory, its parameters, its workgroups.
pub(super) struct Part {
    pub(super) kind: Kind,
    pub(super) args: Vec<Argument>,
    pub(super) params: Vec<u32>,
    pub(super) grid: [u32; 3],
}

/// A product with its operands' places.
struct Product {
    shape: Matmul,
    a: Place,
    b: Place,
    c: Place,
    /// Bytes that the place of C is always a multiple of.
    aligned: usize,
}

/// The dispatches of a product, and the bytes of scratch that they need from `scratch_at` on.
pub(super) fn plan(
    shape: &Matmul,
    places: [&Place; 3],
    aligned: usize,
    scratch_at: usize,
) -> Result<(Vec<Part>, usize)> {
    let known = |d: DType| matches!(d, DType::F32 | DType::F16 | DType::BF16);
    if !known(shape.dtype) || !known(shape.out) {
        return Err(Error::Internal(format!("a product of {} to {}, which wgpu has none of", shape.dtype, shape.out)));
    }
    if shape.batch * shape.m * shape.n == 0 {
        return Ok((Vec::new(), 0));
    }
    let [a, b, c] = places.map(Clone::clone);
    let mut p = Product { shape: shape.clone(), a, b, c, aligned };
    if p.shape.n <= 4 && p.shape.m > p.shape.n {
        p = p.transposed();
    }
    Ok(p.parts(scratch_at))
}

impl Product {
    /// Cᵀ = Bᵀ Aᵀ.
    fn transposed(self) -> Product {
        let s = &self.shape;
        let turned = |[batch, row, column]: [isize; 3]| [batch, column, row];
        let shape = Matmul { m: s.n, n: s.m, a: turned(s.b), b: turned(s.a), c: turned(s.c), ..s.clone() };
        Product { shape, a: self.b, b: self.a, ..self }
    }

    fn parts(&self, scratch_at: usize) -> (Vec<Part>, usize) {
        let s = &self.shape;
        let along_k = |k: isize, other: isize| k.unsigned_abs() <= other.unsigned_abs();
        let (a_along_k, b_along_k) = (along_k(s.a[2], s.a[1]), along_k(s.b[1], s.b[2]));
        let few = s.m <= 4;
        let gemv = Gemv { dtype: s.dtype, out: s.out, rows: s.m, along_k: b_along_k && s.k >= 32 };
        let (tile, each) = tile(s);
        let depth = 16;
        let count = match few {
            true => s.n.div_ceil(gemv.columns()) * s.batch,
            false => s.m.div_ceil(tile.0) * s.n.div_ceil(tile.1) * s.batch,
        };
        let most = (s.k / PART).max(1);
        let mut splits = if count * 2 > BUSY { 1 } else { BUSY.div_ceil(count).min(most) };
        let step = s.k.div_ceil(splits).next_multiple_of(depth).max(depth);
        splits = s.k.div_ceil(step).max(1);
        // Parts go to memory of their own, dense and in f32.
        let (out, strides, store) = match splits {
            1 => (s.out, s.c, self.store()),
            _ => (DType::F32, [(s.m * s.n) as isize, s.n as isize, 1], Store::Single),
        };
        let target = match splits {
            1 => Argument::place(&self.c, s.out.size()),
            _ => Argument::scratch(scratch_at, splits * s.batch * s.m * s.n * 4),
        };
        let whole = s.k > 0 && s.m.is_multiple_of(tile.0) && s.n.is_multiple_of(tile.1) && s.k.is_multiple_of(depth);
        let kind = match few {
            true => Kind::Gemv(Gemv { out, ..gemv }),
            false => Kind::Tiles(Tiles {
                dtype: s.dtype,
                out,
                tile,
                each,
                ahead: true,
                depth,
                a_along_k,
                b_along_k,
                whole,
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
        let mut all = vec![Part { kind, args, params, grid }];
        if splits == 1 {
            return (all, 0);
        }
        let mut params: Vec<u32> = [s.batch, s.m, s.n, splits].iter().map(|n| *n as u32).collect();
        params.extend(s.c.iter().map(|n| *n as u32));
        let args = vec![target, Argument::place(&self.c, s.out.size())];
        all.push(Part { kind: Kind::Sum(s.out), args, params, grid: [blocks(results, ADDING), 1, 1] });
        (all, splits * results * 4)
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
        if pairs && self.aligned.is_multiple_of(4) { Store::Pairs } else { Store::Parts }
    }
}

/// Rows and columns of tiles, and of each thread.
fn tile(s: &Matmul) -> ((usize, usize), (usize, usize)) {
    let large = s.m.div_ceil(128) * s.n.div_ceil(128) * s.batch;
    if s.m >= 96 && s.n >= 96 && large * 2 >= BUSY {
        return ((128, 128), (8, 8));
    }
    let side = |n: usize| if n <= 32 { 32 } else { 64 };
    match (side(s.m), side(s.n)) {
        (64, 64) => ((64, 64), (8, 8)),
        tile => (tile, (4, 4)),
    }
}

/// Parameters: parts and C in elements; batch, m, n, splits; strides of C.
fn sum(out: DType, homes: &[usize]) -> Text {
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
    Text { source, bindings: all, params: 9, shared: 0 }
}
