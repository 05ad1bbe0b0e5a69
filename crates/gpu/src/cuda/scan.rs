//! Cumulative sums of long contiguous lines (`templates/running.cu`), in three launches, or in one if a line is a single tile.
//! Other lines, products and extrema use `library`.

use super::template::{LaunchSequence, TemplateArg, TemplateLaunch};
use ir::ops::{Cumulative, ReduceKind};
use ir::{DType, Op, Type};

const TEXT: &str = include_str!("templates/running.cu");
/// The number of elements of a tile.
const TILE: usize = 4096;
/// Shorter lines leave most of a tile empty.
const LEAST: usize = TILE / 4;

/// A cumulative sum.
#[derive(Clone, Debug, PartialEq)]
pub struct CumulativeSum {
    lines: usize,
    n: usize,
    dtype: DType,
    reverse: bool,
}

impl CumulativeSum {
    /// The cumulative sum of an op, if it is supported.
    pub fn of(op: &Op, args: &[Type]) -> Option<CumulativeSum> {
        let Op::Cumulative(Cumulative { kind: ReduceKind::Sum, axis, reverse }) = op else { return None };
        let x = args.first()?;
        let inner: usize = x.shape[axis + 1..].iter().product();
        let (n, all) = (x.shape[*axis], x.numel());
        let blocks = all.div_ceil(TILE) + all / n.max(1);
        if inner != 1 || n < LEAST || all == 0 || blocks >= 1 << 31 || element(x.dtype).is_none() {
            return None;
        }
        Some(CumulativeSum { lines: all / n, n, dtype: x.dtype, reverse: *reverse })
    }

    /// The launches.
    pub fn routine(&self) -> LaunchSequence {
        let tiles = self.n.div_ceil(TILE);
        let (kept, sum, wide, narrow) = element(self.dtype).unwrap_or(("f32", "f64", "x", "(f32)x"));
        let name = format!("Running_{}", self.dtype);
        let element = format!(
            "struct {name} {{ typedef {kept} T; typedef {sum} A; D A wide(T x) {{ return {wide}; }} D T narrow(A x) {{ return {narrow}; }} }};\n"
        );
        let sizes = vec![self.n as i64, tiles as i64, self.reverse as i64];
        let call = |what: &str, params: &str, args: &str, blocks: usize, given: Vec<TemplateArg>, sizes: Vec<i64>| {
            let entry = format!("running_{what}_{}", self.dtype);
            let of = if what == "before" { format!("{name}::A") } else { name.clone() };
            let text = format!(
                "{TEXT}#ifndef {name}_IS_THERE\n#define {name}_IS_THERE\n{element}#endif\nextern \"C\" __global__ void \
                 __launch_bounds__(256) {entry}({params}) {{\n    wait_turn();\n    running_{what}<{of}>({args});\n}}\n"
            );
            TemplateLaunch {
                entry_point: entry,
                source: text,
                blocks,
                threads: 256,
                dynamic_shared_bytes: 0,
                args: given,
                sizes,
            }
        };
        let [x, totals, out] = [TemplateArg::Operand(0), TemplateArg::Scratch(0), TemplateArg::Result(0)];
        let mut calls = vec![
            call(
                "totals",
                &format!("const {kept}* x, {sum}* totals, i64 n, i64 tiles, i64 reverse"),
                "x, totals, n, tiles, reverse",
                self.lines * tiles,
                vec![x, totals],
                sizes.clone(),
            ),
            call(
                "before",
                &format!("{sum}* totals, i64 tiles"),
                "totals, tiles",
                self.lines,
                vec![totals],
                vec![tiles as i64],
            ),
            call(
                "sums",
                &format!("const {kept}* x, const {sum}* before, {kept}* out, i64 n, i64 tiles, i64 reverse"),
                "x, before, out, n, tiles, reverse",
                self.lines * tiles,
                vec![x, totals, out],
                sizes,
            ),
        ];
        if tiles == 1 {
            // A single tile has no prefix.
            calls.drain(..2);
        }
        LaunchSequence { calls, scratch: self.lines * tiles * 8 }
    }
}

/// The storage type, the accumulator type and the conversions of a dtype: floats are rounded once, integers wrap.
fn element(d: DType) -> Option<(&'static str, &'static str, &'static str, &'static str)> {
    Some(match d {
        DType::F64 => ("f64", "f64", "x", "x"),
        DType::F32 => ("f32", "f64", "x", "(f32)x"),
        DType::F16 => ("u16", "f64", "f16_f32(x)", "f32_f16(odd(x))"),
        DType::BF16 => ("u16", "f64", "bf16_f32(x)", "f32_bf16(odd(x))"),
        DType::I32 => ("i32", "u32", "(u32)x", "(i32)x"),
        DType::I64 => ("i64", "u64", "(u64)x", "(i64)x"),
        _ => return None,
    })
}
