//! Radix sort for `sort` and `top_k` of long lines (`templates/radix.cu`): four passes over 32-bit keys, two over 16-bit ones.
//! Lines must be contiguous. Short lines, wider keys and several keys use the sorting networks of `library`.

use super::template::{LaunchSequence, TemplateArg, TemplateLaunch};
use ir::ops::{Sort, TopK};
use ir::{DType, Op, Type};

const TEXT: &str = include_str!("templates/radix.cu");
/// The number of elements of a tile.
const TILE: usize = 4096;
/// Shorter lines are sorted in shared memory by one launch.
const LEAST: usize = 4097;
/// The maximum number of elements of all lines.
const MOST: usize = 1 << 28;

/// One sort.
#[derive(Clone, Debug, PartialEq)]
pub struct RadixSort {
    lines: usize,
    n: usize,
    key: DType,
    descending: bool,
    /// The bytes of an element of each operand.
    operands: Vec<usize>,
    /// For top-k, the number of elements of each line, returned with their indices; all elements if none.
    top_k: Option<usize>,
}

impl RadixSort {
    /// The sort of an op, if it is supported.
    pub fn of(op: &Op, args: &[Type]) -> Option<RadixSort> {
        let (axis, descending, top) = match op {
            Op::Sort(Sort { axis, num_keys: 1, descending }) => (*axis, *descending, None),
            Op::TopK(TopK { k, axis }) => (*axis, true, Some(*k)),
            _ => return None,
        };
        let first = args.first()?;
        let inner: usize = first.shape[axis + 1..].iter().product();
        let (n, all) = (first.shape[axis], first.numel());
        let takes = matches!(first.dtype, DType::F32 | DType::BF16 | DType::F16 | DType::I32 | DType::U32);
        if inner != 1 || !takes || n < LEAST || all == 0 || all > MOST || top == Some(0) {
            return None;
        }
        let operands = args.iter().map(|t| t.dtype.size()).collect();
        Some(RadixSort { lines: all / n, n, key: first.dtype, descending, operands, top_k: top })
    }

    /// The launches.
    pub fn routine(&self) -> LaunchSequence {
        let RadixSort { lines, n, key, .. } = *self;
        let all = lines * n;
        let tiles = n.div_ceil(TILE);
        let bits = 8 * key.size();
        let at = |elements: usize| (4 * elements).next_multiple_of(256);
        // Keys and indices, double-buffered, then counts.
        let (keys, places) = ([0, at(all)], [2 * at(all), 3 * at(all)]);
        let counts = 4 * at(all);
        let totals = counts + at(lines * 256 * tiles);
        let element = match key {
            DType::F32 => "AsF32",
            DType::I32 => "AsI32",
            DType::U32 => "AsU32",
            DType::BF16 => "AsBf16",
            _ => "AsF16",
        };
        let flipped = match (self.descending, bits) {
            (false, _) => 0,
            (true, 16) => 0xffff,
            (true, _) => 0xffff_ffffi64,
        };
        let mut calls = Vec::new();
        let mut push = |entry: String,
                        params: &str,
                        body: &str,
                        blocks: usize,
                        args: Vec<TemplateArg>,
                        sizes: Vec<i64>| {
            let text = format!(
                "{TEXT}extern \"C\" __global__ void __launch_bounds__(256) {entry}({params}) {{\n    wait_turn();\n    {body}\n}}\n"
            );
            calls.push(TemplateLaunch {
                entry_point: entry,
                source: text,
                blocks,
                threads: 256,
                dynamic_shared_bytes: 0,
                args,
                sizes,
            });
        };
        let (wide_n, wide_tiles) = (n as i64, tiles as i64);
        for pass in 0..bits / 8 {
            let (first, last) = (pass == 0, pass + 1 == bits / 8);
            let shift = 8 * pass as i64;
            let (from, to) = ((pass + 1) % 2, pass % 2);
            let (name, source, made, given) = match first {
                true => (
                    element.to_string(),
                    format!("Fresh<{element}>"),
                    format!("const Fresh<{element}> s = {{(const {element}::T*)a, (u32)flipped}};"),
                    [TemplateArg::Operand(0), TemplateArg::Operand(0)],
                ),
                false => (
                    "sorted".to_string(),
                    "Sorted".to_string(),
                    "const Sorted s = {(const u32*)a, (const i32*)b};".to_string(),
                    [TemplateArg::Scratch(keys[from]), TemplateArg::Scratch(places[from])],
                ),
            };
            let [a, b] = given;
            push(
                format!("radix_count_{name}"),
                "const void* a, const void* b, u32* counts, i64 n, i64 tiles, i64 shift, i64 flipped",
                &format!("{made} radix_count<{source}>(s, counts, (i32)n, (i32)tiles, (i32)shift);"),
                lines * tiles,
                vec![a, b, TemplateArg::Scratch(counts)],
                vec![wide_n, wide_tiles, shift, flipped],
            );
            push(
                "radix_before".into(),
                "u32* counts, u32* totals, i64 digits, i64 tiles",
                "radix_before(counts, totals, (i32)digits, (i32)tiles);",
                lines * 32,
                vec![TemplateArg::Scratch(counts), TemplateArg::Scratch(totals)],
                vec![lines as i64 * 256, wide_tiles],
            );
            push(
                format!("radix_move_{name}{}", if last { "_last" } else { "" }),
                "const void* a, const void* b, const u32* before, const u32* totals, u32* keys, i32* places, i64 n, i64 tiles, i64 shift, i64 flipped",
                &format!(
                    "{made} radix_move<{source}, {last}>(s, before, totals, keys, places, (i32)n, (i32)tiles, (i32)shift);"
                ),
                lines * tiles,
                vec![
                    a,
                    b,
                    TemplateArg::Scratch(counts),
                    TemplateArg::Scratch(totals),
                    TemplateArg::Scratch(keys[to]),
                    TemplateArg::Scratch(places[to]),
                ],
                vec![wide_n, wide_tiles, shift, flipped],
            );
        }
        let order = TemplateArg::Scratch(places[(bits / 8 - 1) % 2]);
        let take = self.top_k.unwrap_or(n);
        let blocks = (lines * take).div_ceil(256).min(1 << 16);
        let sizes = vec![lines as i64, wide_n, take as i64];
        for (i, size) in self.operands.iter().enumerate() {
            let t = ["u8", "u16", "u32", "u64"][size.trailing_zeros().min(3) as usize];
            push(
                format!("radix_fetch_{t}"),
                &format!("const {t}* x, const i32* places, {t}* out, i64 lines, i64 n, i64 take"),
                &format!("radix_fetch<{t}>(x, places, out, lines, (i32)n, (i32)take);"),
                blocks,
                vec![TemplateArg::Operand(i), order, TemplateArg::Result(i)],
                sizes.clone(),
            );
        }
        if self.top_k.is_some() {
            push(
                "radix_places".into(),
                "const i32* places, i32* out, i64 lines, i64 n, i64 take",
                "radix_places(places, out, lines, (i32)n, (i32)take);",
                blocks,
                vec![order, TemplateArg::Result(1)],
                sizes,
            );
        }
        LaunchSequence { calls, scratch: totals + at(lines * 256) }
    }
}
