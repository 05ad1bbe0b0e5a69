//! All shader sources that are not printed from grids, for inspection and checks without an adapter.

use super::attention;
use super::binding_split::split;
use super::coop_matrix::{CoopMatmul, CoopMatrixSize};
use super::copy_fill;
use super::gemv::Gemv;
use super::product::{Kind, candidate_tilings};
use super::tiles::{Store, TiledMatmul};
use crate::wgpu::ShaderSource;
use compiler::program::Matmul;
use ir::DType;

/// A shader source, and whether it needs f16 and cooperative matrices.
pub struct Template {
    /// A description.
    pub name: String,
    /// The source.
    pub text: ShaderSource,
    /// Whether it needs cooperative matrices.
    pub units: bool,
}

/// Products, attention, copies and fills in every variant, with separate bindings and with one binding, whole and in parts.
pub fn templates() -> Vec<Template> {
    let mut all = Vec::new();
    let mut add = |name: String, arguments: usize, text: &dyn Fn(&[usize]) -> ShaderSource, units: bool| {
        let separate: Vec<usize> = (0..arguments).collect();
        let mut last = vec![0; arguments];
        last[arguments - 1] = 1;
        // The binding assignments in turn.
        let homes = [separate, vec![0; arguments], last].into_iter().nth(all.len() % 3).unwrap_or_default();
        let whole = text(&homes);
        let parts: Vec<usize> = (0..whole.bindings.len()).map(|i| 1 + (i + all.len()) % 3).collect();
        let text = if all.len() % 2 == 0 { whole } else { split(whole, &parts, 1 << 25) };
        all.push(Template { name: format!("{name} {homes:?}"), text, units });
    };
    let squares = [CoopMatrixSize { size: 16, lanes: 32 }, CoopMatrixSize { size: 8, lanes: 32 }];
    let n = 4096;
    let dense = [(n * n) as isize, n as isize, 1];
    let (dtype, acc, out) = (DType::F16, DType::F32, DType::F16);
    let large = Matmul { dtype, acc, out, batch: 1, m: n, n, k: n, a: dense, b: dense, c: dense };
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let stores = if dtype == DType::F32 { vec![Store::Single] } else { vec![Store::Pairs, Store::Parts] };
        for rows in 1..=4 {
            for along_k in [true, false] {
                let kind = Kind::Gemv(Gemv { dtype, out: dtype, rows, along_k });
                add(format!("{kind:?}"), 3, &|h| kind.text(h), false);
            }
        }
        add(format!("sum {dtype}"), 2, &|h| Kind::Sum(dtype).text(h), false);
        for way in candidate_tilings(&large, Some(squares[0])).into_iter().filter(|w| w.split_k == 1) {
            for (i, store) in stores.iter().enumerate() {
                for whole in [true, false] {
                    let (a_along_k, b_along_k) = (i == 0, whole);
                    let (tile, each, depth, ahead, store) =
                        (way.tile, way.thread_tile, way.k_tile, way.prefetch, *store);
                    if !way.coop_matrix {
                        let kind = Kind::Tiles(TiledMatmul {
                            dtype,
                            out: dtype,
                            tile,
                            thread_tile: each,
                            prefetch: ahead,
                            k_tile: depth,
                            a_along_k,
                            b_along_k,
                            exact_tiles: whole,
                            store,
                        });
                        add(format!("{kind:?}"), 3, &|h| kind.text(h), false);
                        continue;
                    }
                    for squares in squares {
                        let out = dtype;
                        let kind = Kind::Units(CoopMatmul {
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
                        });
                        add(format!("{kind:?}"), 3, &|h| kind.text(h), true);
                    }
                }
            }
        }
    }
    for shape in attention::shapes() {
        add(format!("{shape:?}"), shape.arguments().0, &|h| shape.text(h), false);
    }
    add("copy".into(), 2, &copy_fill::copy_text, false);
    add("zero".into(), 1, &copy_fill::zero_text, false);
    all
}
