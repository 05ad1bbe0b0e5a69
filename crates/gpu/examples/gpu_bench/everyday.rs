//! Memory-bound operations of common programs, each over some hundred megabytes: permutations, reductions over any axes,
//! cumulative sums, gathers. The bytes of a case are those of its arguments and results, so its speed is comparable to that of a
//! copy.

use super::{Case, case};
use ir::composites::softmax::softmax;
use ir::ops::{GatherMode, ReduceKind, ScatterKind, ScatterMode};
use ir::{Builder, DType, GraphBuilder, Result, Type, Value};

type Makes = dyn Fn(&mut Builder, &[Value]) -> Result<Value>;

pub(super) fn cases() -> Vec<Case> {
    use DType::{BF16, F32, I32, U8};
    let mut all = Vec::new();
    let mut add = |name: &str, types: &[(DType, &[usize])], f: &Makes| {
        let types: Vec<Type> = types.iter().map(|(d, s)| Type::new(*d, s)).collect();
        let mut c = case(name, &types, 0.0, 0.0, |b, x| Ok(vec![f(b, x)?]));
        let outs = c.graph.output_types();
        c.bytes = types.iter().chain(&outs).map(|t| t.bytes() as f64).sum();
        all.push(c);
    };
    let turn = |order: &'static [usize]| move |b: &mut Builder, x: &[Value]| b.permute(x[0], order);
    add("turn_f32_8192", &[(F32, &[8192, 8192])], &turn(&[1, 0]));
    add("turn_bf16_8192", &[(BF16, &[8192, 8192])], &turn(&[1, 0]));
    add("turn_u8_16384", &[(U8, &[16384, 16384])], &turn(&[1, 0]));
    add("turn_f32_odd", &[(F32, &[8191, 8193])], &turn(&[1, 0]));
    add("turn_f32_thin", &[(F32, &[1 << 22, 12])], &turn(&[1, 0]));
    add("turn_f32_wide", &[(F32, &[12, 1 << 22])], &turn(&[1, 0]));
    add("turn_f32_batches", &[(F32, &[1024, 256, 256])], &turn(&[0, 2, 1]));
    add("turn_nchw_to_nhwc", &[(F32, &[64, 64, 112, 112])], &turn(&[0, 2, 3, 1]));
    add("turn_nhwc_to_nchw", &[(F32, &[64, 112, 112, 64])], &turn(&[0, 3, 1, 2]));
    add("turn_image_to_nchw", &[(F32, &[256, 256, 256, 3])], &turn(&[0, 3, 1, 2]));
    add("turn_heads", &[(BF16, &[32, 2048, 16, 64])], &turn(&[0, 2, 1, 3]));
    add("turn_keys", &[(BF16, &[32, 2048, 16, 64])], &turn(&[0, 2, 3, 1]));
    add("turn_reversed", &[(F32, &[512, 256, 512])], &turn(&[2, 1, 0]));
    add("turn_and_add", &[(F32, &[8192, 8192]), (F32, &[8192, 8192])], &|b, x| {
        let y = b.permute(x[0], &[1, 0])?;
        b.add(y, x[1])
    });
    let reduce =
        |kind: ReduceKind, axes: &'static [usize]| move |b: &mut Builder, x: &[Value]| b.reduce(kind, x[0], axes);
    let (sum, max) = (ReduceKind::Sum, ReduceKind::Max);
    add("sum_middle", &[(F32, &[64, 1024, 1024])], &reduce(sum, &[1]));
    add("sum_outer_two", &[(F32, &[64, 64, 112, 112])], &reduce(sum, &[0, 1]));
    add("sum_channels", &[(F32, &[64, 64, 112, 112])], &reduce(sum, &[0, 2, 3]));
    add("sum_channels_last", &[(F32, &[64, 112, 112, 64])], &reduce(sum, &[0, 1, 2]));
    add("sum_planes", &[(F32, &[64, 64, 112, 112])], &reduce(sum, &[2, 3]));
    add("sum_first_and_last", &[(F32, &[256, 512, 512])], &reduce(sum, &[0, 2]));
    add("max_short_rows", &[(F32, &[1 << 22, 16])], &reduce(max, &[1]));
    add("max_odd_rows", &[(F32, &[1 << 20, 67])], &reduce(max, &[1]));
    add("sum_bf16_rows", &[(BF16, &[8192, 16384])], &reduce(sum, &[1]));
    add("sum_bf16_columns", &[(BF16, &[16384, 8192])], &reduce(sum, &[0]));
    add("max_columns", &[(F32, &[16384, 4096])], &reduce(max, &[0]));
    add("max_few_columns", &[(F32, &[1 << 24, 4])], &reduce(max, &[0]));
    add("sum_few_long_rows", &[(F32, &[4, 1 << 24])], &reduce(sum, &[1]));
    add("argmax_rows", &[(F32, &[16384, 4096])], &|b, x| b.argmax(x[0], 1, I32));
    add("argmax_short_rows", &[(F32, &[1 << 22, 16])], &|b, x| b.argmax(x[0], 1, I32));
    add("argmax_columns", &[(F32, &[4096, 16384])], &|b, x| b.argmax(x[0], 0, I32));
    add("argmax_all", &[(F32, &[1 << 26])], &|b, x| b.argmax(x[0], 0, I32));
    let soft = |shape: &'static [usize], order: &'static [usize]| {
        move |b: &mut Builder, x: &[Value]| {
            let y = b.permute(x[0], order)?;
            let y = b.one(softmax(&Type::new(F32, shape))?.into(), &[y])?;
            b.permute(y, order)
        }
    };
    add("softmax_short_rows", &[(F32, &[1 << 22, 16])], &soft(&[1 << 22, 16], &[0, 1]));
    add("softmax_odd_rows", &[(F32, &[1 << 16, 1001])], &soft(&[1 << 16, 1001], &[0, 1]));
    add("softmax_columns", &[(F32, &[8192, 8192])], &soft(&[8192, 8192], &[1, 0]));
    add("softmax_long_rows", &[(F32, &[64, 1 << 20])], &soft(&[64, 1 << 20], &[0, 1]));
    let run = |axis: usize| move |b: &mut Builder, x: &[Value]| b.cumulative(ReduceKind::Sum, x[0], axis, false);
    add("cumsum_rows", &[(F32, &[16384, 4096])], &run(1));
    add("cumsum_columns", &[(F32, &[4096, 16384])], &run(0));
    add("cumsum_short_rows", &[(F32, &[1 << 22, 16])], &run(1));
    add("cumsum_all", &[(F32, &[1 << 26])], &run(0));
    let rows = |n: usize| {
        move |b: &mut Builder| -> Result<Value> {
            // Rows in a scattered order: multiples of an odd number.
            let i = b.iota(DType::U32, &[n], 0)?;
            let odd = b.scalar(DType::U32, 2_654_435_761.0)?;
            let odd = b.splat(odd, &[n])?;
            let i = b.mul(i, odd)?;
            let last = b.scalar(DType::U32, (n - 1) as f64)?;
            let last = b.splat(last, &[n])?;
            let i = b.binary(ir::Binary::And, i, last)?;
            b.cast(i, I32)
        }
    };
    add("take_rows_64", &[(F32, &[1 << 20, 64])], &move |b, x| {
        let i = rows(1 << 20)(b)?;
        b.take(x[0], i, 0, GatherMode::Clip)
    });
    add("take_numbers", &[(F32, &[1 << 24])], &move |b, x| {
        let i = rows(1 << 24)(b)?;
        b.take(x[0], i, 0, GatherMode::Clip)
    });
    add("scatter_add_rows_64", &[(F32, &[1 << 16, 64]), (F32, &[1 << 20, 64])], &move |b, x| {
        let i = rows(1 << 20)(b)?;
        let few = b.scalar(I32, 65535.0)?;
        let few = b.splat(few, &[1 << 20])?;
        let i = b.binary(ir::Binary::And, i, few)?;
        let i = b.index_vectors(i)?;
        let dims = ir::ops::SliceDims::take(2, 0, 1);
        b.scatter(ScatterKind::Add, dims, ScatterMode::Drop, x[0], i, x[1])
    });
    let eight = [(F32, &[8192usize, 1000][..]); 8];
    add("concat_eight", &eight, &|b, x| b.concat(x, 1));
    add("every_second", &[(F32, &[8192, 16384])], &|b, x| b.slice(x[0], &[0, 0], &[8192, 16384], &[1, 2]));
    add("every_second_row", &[(F32, &[16384, 8192])], &|b, x| b.slice(x[0], &[0, 0], &[16384, 8192], &[2, 1]));
    add("flip_rows", &[(F32, &[8192, 8192])], &|b, x| b.flip(x[0], &[1]));
    add("pad_planes", &[(F32, &[64, 64, 112, 112])], &|b, x| {
        let zero = b.scalar(F32, 0.0)?;
        b.pad(x[0], zero, &[0, 0, 1, 1], &[0, 0, 1, 1], &[0; 4])
    });
    add("add_row", &[(F32, &[8192, 8191]), (F32, &[8191])], &|b, x| {
        let y = b.broadcast(x[1], &[8192, 8191], &[1])?;
        b.add(x[0], y)
    });
    add("add_column", &[(F32, &[8192, 8191]), (F32, &[8192])], &|b, x| {
        let y = b.broadcast(x[1], &[8192, 8191], &[0])?;
        b.add(x[0], y)
    });
    add("cast_u8_f32", &[(U8, &[1 << 26])], &|b, x| b.cast(x[0], F32));
    add("sort_rows_1024", &[(F32, &[1 << 14, 1024])], &|b, x| {
        Ok(b.emit(ir::ops::Sort { axis: 1, num_keys: 1, descending: false }.into(), &[x[0]])?[0])
    });
    all
}
