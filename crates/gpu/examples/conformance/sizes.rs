//! Compares graphs with many blocks, rows of every length, and products of every layout with the CPU.

use crate::Slice;
use crate::device::{Device, bind, load, outputs, same_bits};
use crate::report::Report;
use compiler::Options;
use ir::composites::activation::{Gelu, gelu};
use ir::composites::norm::layernorm;
use ir::composites::softmax::softmax;
use ir::ops::{Dot, GatherMode, Quantize, ReduceKind, Scan};
use ir::{Binary, Builder, DType, Graph, GraphBuilder, Literal, Result as Made, Type, Unary, Value};
use testing::{FillKind, Rng};

struct Case {
    name: String,
    graph: Graph,
    fill: FillKind,
    /// The bound of integers that are indices or counts.
    index: usize,
}

/// One graph: its inputs, and the function that builds it.
fn case(
    name: String,
    types: &[Type],
    fill: FillKind,
    index: usize,
    f: impl FnOnce(&mut Builder, &[Value]) -> Made<Vec<Value>>,
) -> Case {
    let mut b = Builder::new();
    let args: Vec<Value> = types.iter().map(|t| b.graph.input(t.clone())).collect();
    let outs = f(&mut b, &args).unwrap_or_else(|e| panic!("{name}: {e}"));
    Case { name, graph: b.finish(&outs), fill, index }
}

pub(crate) fn sizes(device: Device, slice: Slice, report: &mut Report) {
    let mut all = maps();
    all.extend(rows());
    all.extend(rearranged());
    all.extend(loops());
    each(device, slice, all, report);
}

pub(crate) fn products(device: Device, slice: Slice, report: &mut Report) {
    let mut all = matmuls();
    all.extend(rounded());
    each(device, slice, all, report);
}

fn each(mut device: Device, slice: Slice, all: Vec<Case>, report: &mut Report) {
    for (k, c) in all.into_iter().enumerate() {
        if !slice.has(k as u64) {
            continue;
        }
        report.at(k as u64, &c.name);
        let attempt = std::panic::AssertUnwindSafe(|| one(&device, &c, k as u64));
        if let Err(e) = std::panic::catch_unwind(attempt).unwrap_or_else(|_| Err("it panicked".into())) {
            device.mend(&e);
            report.failed(&c.name, &e, device.show(&c.graph, &Options::default()));
        }
    }
}

fn one(device: &Device, c: &Case, seed: u64) -> Result<(), String> {
    if let Some(compiled) = device.compiled(&c.graph) {
        return compiled;
    }
    if let Some(refused) = device.refused(&c.graph) {
        return refused;
    }
    let mut rng = Rng::new(seed + 1);
    let fill = |t: &Type, rng: &mut Rng| match t.dtype {
        DType::I32 if c.index > 0 => FillKind::IndexBelow(c.index).random_tensor(t, rng),
        _ => c.fill.random_tensor(t, rng),
    };
    let inputs: Vec<Literal> = c.graph.input_types().iter().map(|t| fill(t, &mut rng)).collect();
    let want = crate::device::run(&*device.cpu, &c.graph, &inputs, &Options::default())?;
    let exe = load(device.backend(), &c.graph, &Options::default())?;
    let mut b = bind(device.backend(), &*exe, &inputs)?;
    exe.run(&mut b).map_err(|e| format!("run: {e}"))?;
    let got = outputs(&b, exe.program())?;
    for (k, (g, w)) in got.iter().zip(&want).enumerate() {
        close(g, w).map_err(|e| format!("result {k}: {e}"))?;
    }
    for what in ["a second run", "a replay"] {
        exe.run(&mut b).map_err(|e| format!("{what}: {e}"))?;
        same_bits(&got, &outputs(&b, exe.program())?, what)?;
    }
    Ok(())
}

/// Compares integers exactly, and floats with a tolerance relative to the element and to the tensor's largest magnitude.
pub(crate) fn close(got: &Literal, want: &Literal) -> Result<(), String> {
    let d = want.ty().dtype;
    let tolerance = match d {
        DType::F64 => 1e-11,
        DType::F32 => 2e-5,
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => 0.0,
    };
    let finite = |l: &Literal| l.scalars().map(|s| s.to_f64().abs()).filter(|x| x.is_finite()).fold(0.0, f64::max);
    let largest = if d.is_float() { finite(want) } else { 0.0 };
    let mut wrong = (0, String::new());
    for i in 0..want.ty().numel() {
        let (g, w) = (got.get(i), want.get(i));
        let (x, y) = (g.to_f64(), w.to_f64());
        let same = match d.is_float() {
            true => (x.is_nan() && y.is_nan()) || x == y || (x - y).abs() <= tolerance * (y.abs() + 0.25 * largest),
            false => g == w,
        };
        if !same {
            wrong.0 += 1;
            if wrong.0 == 1 {
                wrong.1 = format!("first at {i}: got {g}, want {w}");
            }
        }
    }
    if wrong.0 == 0 { Ok(()) } else { Err(format!("{} of {} wrong, {}", wrong.0, want.ty(), wrong.1)) }
}

fn ty(d: DType, shape: &[usize]) -> Type {
    Type::new(d, shape)
}

/// `gelu(1.5x + 0.5)·sigmoid(x) + x`.
pub(crate) fn chain(b: &mut Builder, x: Value) -> Made<Value> {
    let t = b.ty(x);
    let y = b.scale(x, 1.5)?;
    let y = b.offset(y, 0.5)?;
    let y = b.emit(gelu(&t, Gelu::Tanh)?.into(), &[y])?[0];
    let s = b.unary(Unary::Logistic, x)?;
    let y = b.mul(y, s)?;
    b.add(y, x)
}

fn maps() -> Vec<Case> {
    let mut all = Vec::new();
    let lengths = [1, 3, 31, 32, 33, 127, 255, 256, 257, 1000, 4095, 4096, 65_537, (1 << 20) + 3];
    for n in lengths {
        for d in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            let name = format!("chain {d}[{n}]");
            all.push(case(name, &[ty(d, &[n])], FillKind::Smooth, 0, |b, x| Ok(vec![chain(b, x[0])?])));
        }
        for d in [DType::I32, DType::U8, DType::I64, DType::I8, DType::U32] {
            let name = format!("integers {d}[{n}]");
            all.push(case(name, &[ty(d, &[n]), ty(d, &[n])], FillKind::Uniform(0.0, 100.0), 0, |b, x| {
                let y = b.mul(x[0], x[1])?;
                let y = b.binary(Binary::Max, y, x[0])?;
                let z = b.binary(Binary::Xor, y, x[1])?;
                let c = b.compare(ir::Compare::Lt, x[0], x[1])?;
                Ok(vec![z, c, b.select(c, x[1], x[0])?])
            }));
        }
    }
    for (m, n) in [(1000, 33), (33, 1000), (257, 256), (3, 100_000)] {
        let name = format!("broadcasts [{m},{n}]");
        let types = [ty(DType::F32, &[m, n]), ty(DType::F32, &[n]), ty(DType::F32, &[m]), ty(DType::F32, &[])];
        all.push(case(name, &types, FillKind::Smooth, 0, |b, x| {
            let shape = b.ty(x[0]).shape;
            let row = b.broadcast(x[1], &shape, &[1])?;
            let column = b.broadcast(x[2], &shape, &[0])?;
            let one = b.broadcast(x[3], &shape, &[])?;
            let y = b.mul(x[0], row)?;
            let y = b.add(y, column)?;
            Ok(vec![b.mul(y, one)?])
        }));
    }
    all
}

fn rows() -> Vec<Case> {
    let mut all = Vec::new();
    let shapes = [
        (1, 1),
        (1, 100_000),
        (3, 5000),
        (1000, 3),
        (257, 129),
        (64, 4096),
        (5, 33),
        (2048, 32),
        (4096, 1000),
        (7, 8192),
        (2, 20_000),
        (70_000, 1),
        (300, 31),
    ];
    for (m, n) in shapes {
        for d in [DType::F32, DType::BF16, DType::F64] {
            let t = ty(d, &[m, n]);
            for (axes, what) in [(&[1usize][..], "rows"), (&[0][..], "columns"), (&[0, 1][..], "all")] {
                let name = format!("reduce {what} {t}");
                all.push(case(name, std::slice::from_ref(&t), FillKind::Uniform(0.1, 2.0), 0, |b, x| {
                    let wide = b.cast(x[0], d.accumulator())?;
                    let sum = b.sum(wide, axes)?;
                    let max = b.reduce(ReduceKind::Max, x[0], axes)?;
                    let min = b.reduce(ReduceKind::Min, x[0], axes)?;
                    Ok(vec![sum, max, min])
                }));
            }
            let name = format!("softmax {t}");
            all.push(case(name, std::slice::from_ref(&t), FillKind::Smooth, 0, |b, x| {
                let y = b.emit(softmax(&t)?.into(), &[x[0]])?[0];
                Ok(vec![y])
            }));
            let w = ty(d, &[n]);
            let name = format!("layernorm {t}");
            all.push(case(name, &[t.clone(), w.clone(), w.clone()], FillKind::Smooth, 0, |b, x| {
                let norm = layernorm(&t, Some(&w), Some(&w), 1e-5)?;
                Ok(vec![b.emit(norm.into(), &[x[0], x[1], x[2]])?[0]])
            }));
        }
        let t = ty(DType::I32, &[m, n]);
        let name = format!("reduce integers {t}");
        all.push(case(name, std::slice::from_ref(&t), FillKind::Uniform(-50.0, 50.0), 0, |b, x| {
            let positive = b.full_like(x[0], 0.0)?;
            let positive = b.compare(ir::Compare::Gt, x[0], positive)?;
            let (sum, any) = (b.sum(x[0], &[1])?, b.reduce(ReduceKind::Any, positive, &[1])?);
            let (whole, every) = (b.sum_all(x[0])?, b.reduce(ReduceKind::All, positive, &[0, 1])?);
            Ok(vec![sum, any, whole, every])
        }));
    }
    for shape in [[7, 300, 65], [64, 2, 1000], [3, 1000, 4], [100, 100, 10]] {
        for axes in [&[1usize][..], &[0], &[2], &[0, 2], &[0, 1], &[1, 2]] {
            let t = ty(DType::F32, &shape);
            let name = format!("reduce {axes:?} of {t}");
            all.push(case(name, &[t], FillKind::Uniform(0.1, 2.0), 0, |b, x| {
                let y = b.mul(x[0], x[0])?;
                Ok(vec![b.sum(y, axes)?])
            }));
        }
    }
    all
}

fn rearranged() -> Vec<Case> {
    let mut all = Vec::new();
    for d in [DType::F32, DType::BF16, DType::U8] {
        for (m, n) in [(1000, 777), (33, 4096), (1, 1000)] {
            let name = format!("transpose {d}[{m},{n}]");
            let types = [ty(d, &[m, n]), ty(d, &[n, m])];
            all.push(case(name, &types, FillKind::Uniform(0.0, 100.0), 0, |b, x| {
                let t = b.permute(x[0], &[1, 0])?;
                Ok(vec![t, b.add(t, x[1])?])
            }));
        }
        let name = format!("permute {d}");
        all.push(case(name, &[ty(d, &[33, 65, 17])], FillKind::Uniform(0.0, 100.0), 0, |b, x| {
            Ok(vec![b.permute(x[0], &[2, 0, 1])?, b.permute(x[0], &[1, 2, 0])?])
        }));
        let name = format!("concat, pad, flip, slice {d}");
        all.push(case(name, &[ty(d, &[1000, 50]), ty(d, &[200, 50])], FillKind::Uniform(0.0, 100.0), 0, |b, x| {
            let c = b.concat(x, 0)?;
            let zero = b.full(&Type::new(d, &[]), ir::Scalar::one(d))?;
            let p = b.pad(c, zero, &[3, 1], &[2, -4], &[0, 1])?;
            let f = b.flip(c, &[0, 1])?;
            let s = b.slice(f, &[5, 1], &[1100, 49], &[3, 2])?;
            Ok(vec![c, p, f, s])
        }));
    }
    let types = [ty(DType::F32, &[5000, 64]), ty(DType::I32, &[3000])];
    all.push(case("take rows".into(), &types, FillKind::Smooth, 5000, |b, x| {
        let y = b.take(x[0], x[1], 0, GatherMode::Clip)?;
        Ok(vec![y, b.mul(y, y)?])
    }));
    let types = [ty(DType::F32, &[100, 1000])];
    all.push(case("cumsum and sort on the host".into(), &types, FillKind::Smooth, 0, |b, x| {
        let y = b.cumulative(ReduceKind::Sum, x[0], 1, false)?;
        let z = b.scale(y, 0.5)?;
        let m = b.argmax(z, 1, DType::I32)?;
        Ok(vec![y, z, m])
    }));
    all
}

fn loops() -> Vec<Case> {
    let mut all = Vec::new();
    for n in [1, 4, 33, 4096] {
        let length = 100;
        let mut b = Builder::new();
        let (h, x) = (b.input(DType::F32, &[n]), b.input(DType::F32, &[n]));
        let mut body = || -> Made<Graph> {
            let y = b.add(h, x)?;
            let t = b.unary(Unary::Tanh, y)?;
            Ok(std::mem::take(&mut b).finish(&[y, t]))
        };
        let body = body().expect("it type-checks");
        let types = [ty(DType::F32, &[n]), ty(DType::F32, &[length, n])];
        all.push(case(format!("elementwise scan of {n}"), &types, FillKind::Smooth, 0, |b, x| {
            Ok(b.emit(Scan::over(0, 1, length, body.clone()).into(), x)?.to_vec())
        }));
        let reverse = Scan { reverse: true, ..Scan::over(0, 1, length, body) };
        all.push(case(format!("reverse scan of {n}"), &types, FillKind::Smooth, 0, |b, x| {
            Ok(b.emit(reverse.into(), x)?.to_vec())
        }));
    }
    for bounded in [false, true] {
        let (batch, d, length) = (8, 32, 20);
        let mut b = Builder::new();
        let (w, h, x) =
            (b.input(DType::F32, &[d, d]), b.input(DType::F32, &[batch, d]), b.input(DType::F32, &[batch, d]));
        let mut body = || -> Made<Graph> {
            let y = b.matmul(h, w)?;
            let y = b.scale(y, 0.1)?;
            let y = b.add(y, x)?;
            let t = b.unary(Unary::Tanh, y)?;
            Ok(std::mem::take(&mut b).finish(&[t, y]))
        };
        let body = body().expect("it type-checks");
        let scan = Scan { bounded, ..Scan::over(1, 1, length, body) };
        let mut types = vec![ty(DType::F32, &[d, d]), ty(DType::F32, &[batch, d]), ty(DType::F32, &[length, batch, d])];
        if bounded {
            types.insert(0, ty(DType::I32, &[]));
        }
        let name = format!("scan with products, bounded {bounded}");
        all.push(case(name, &types, FillKind::Smooth, length, |b, x| Ok(b.emit(scan.into(), x)?.to_vec())));
    }
    all
}

fn matmuls() -> Vec<Case> {
    let mut all = Vec::new();
    let shapes = [
        (1, 1, 1),
        (2, 3, 4),
        (7, 16, 33),
        (64, 64, 64),
        (100, 257, 31),
        (1, 1000, 64),
        (128, 1, 256),
        (512, 384, 640),
        (1, 300, 512),
        (3, 2048, 1024),
        (1000, 2, 768),
        (4, 96, 8192),
    ];
    for d in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for (m, n, k) in shapes {
            for layout in 0..8 {
                let batch = if layout >= 4 { 3 } else { 1 };
                // The bits of the layout: A transposed, B transposed; from 4 on with a batch, from 6 on with B shared by all
                // matrices.
                let (ta, tb, share) = (layout % 2 == 1, layout / 2 % 2 == 1, layout >= 6);
                let a = if ta { [batch, k, m] } else { [batch, m, k] };
                let b_batch = if share { 1 } else { batch };
                let bt = if tb { [b_batch, n, k] } else { [b_batch, k, n] };
                let out = if layout == 1 { d.accumulator() } else { d };
                let name = format!("{batch}×[{m},{k}]·[{k},{n}] {d} to {out}, layout {layout}");
                all.push(case(name, &[ty(d, &a), ty(d, &bt)], FillKind::Smooth, 0, |b, x| {
                    let mut l = x[0];
                    if ta {
                        l = b.permute(l, &[0, 2, 1])?;
                    }
                    let mut r = x[1];
                    if tb {
                        r = b.permute(r, &[0, 2, 1])?;
                    }
                    if share {
                        r = b.reshape(r, &[k, n])?;
                        r = b.broadcast(r, &[batch, k, n], &[1, 2])?;
                    }
                    let dot = Dot { out, ..Dot::batched_matmul(d, 1) };
                    let y = b.one(dot.into(), &[l, r])?;
                    let z = b.scale(y, 0.5)?;
                    Ok(vec![y, z])
                }));
            }
        }
        let name = format!("strided and broadcast operands {d}");
        all.push(case(name, &[ty(d, &[60, 40]), ty(d, &[20, 50]), ty(d, &[1, 20])], FillKind::Smooth, 0, |b, x| {
            let every_second = b.slice(x[0], &[0, 0], &[60, 40], &[2, 2])?;
            let y = b.matmul(every_second, x[1])?;
            let same_rows = b.reshape(x[2], &[20])?;
            let same_rows = b.broadcast(same_rows, &[30, 20], &[1])?;
            let z = b.matmul(same_rows, x[1])?;
            let odd = b.slice(x[1], &[0, 1], &[20, 50], &[1, 1])?;
            let u = b.matmul(every_second, odd)?;
            Ok(vec![y, z, u])
        }));
        let name = format!("a product of nothing {d}");
        all.push(case(name, &[ty(d, &[5, 0]), ty(d, &[0, 7]), ty(d, &[0, 5])], FillKind::Smooth, 0, |b, x| {
            let y = b.matmul(x[0], x[1])?;
            Ok(vec![y, b.matmul(x[2], y)?])
        }));
    }
    let name = "heads of attention".to_string();
    let t = ty(DType::F32, &[2, 50, 4, 16]);
    all.push(case(name, &[t.clone(), t.clone(), t], FillKind::Smooth, 0, |b, x| {
        let heads = |b: &mut Builder, v| b.permute(v, &[0, 2, 1, 3]);
        let (q, k, v) = (heads(b, x[0])?, heads(b, x[1])?, heads(b, x[2])?);
        let kt = b.permute(k, &[0, 1, 3, 2])?;
        let s = b.one(Dot::batched_matmul(DType::F32, 2).into(), &[q, kt])?;
        let s = b.scale(s, 0.25)?;
        let st = b.ty(s);
        let p = b.emit(softmax(&st)?.into(), &[s])?[0];
        let y = b.one(Dot::batched_matmul(DType::F32, 2).into(), &[p, v])?;
        let y = b.permute(y, &[0, 2, 1, 3])?;
        Ok(vec![b.reshape(y, &[2, 50, 64])?])
    }));
    all
}

/// Products of operands that are rounded to 8 bits, as in training: forward, and both gradients.
fn rounded() -> Vec<Case> {
    let few = |b: &mut Builder, x: Value, d: DType, most: f64| -> Made<Value> {
        let shape = b.ty(x).shape;
        let wide = b.cast(x, DType::F32)?;
        let size = b.unary(Unary::Abs, wide)?;
        let axes: Vec<usize> = (0..shape.len()).collect();
        let scale = b.reduce(ReduceKind::Max, size, &axes)?;
        let scale = b.scale(scale, 1.0 / most)?;
        let scale = b.splat(scale, &shape)?;
        let codes = b.div(wide, scale)?;
        let codes = b.one(Quantize(d).into(), &[codes])?;
        let codes = b.cast(codes, DType::F32)?;
        b.mul(codes, scale)
    };
    let dot = |left: &[usize], right: &[usize]| Dot {
        lhs_contract: left.iter().copied().collect(),
        rhs_contract: right.iter().copied().collect(),
        ..Dot::last_axes(DType::F32, 2, 2)
    };
    let mut all = Vec::new();
    for (m, n, k) in [(8, 16, 16), (32, 48, 32), (256, 384, 640), (512, 2048, 1024), (50, 60, 31), (24, 144, 80)] {
        for d in [DType::BF16, DType::F32] {
            let name = format!("2×[{m},{k}]·[{n},{k}] {d} in 8 bits");
            let types = [ty(d, &[2, m, k]), ty(d, &[n, k]), ty(d, &[2, m, n])];
            all.push(case(name, &types, FillKind::Smooth, 0, |b, x| {
                let rows = few(b, x[0], DType::F8E4M3, 448.0)?;
                let weight = few(b, x[1], DType::F8E4M3, 448.0)?;
                let back = few(b, x[2], DType::F8E5M2, 57344.0)?;
                let y = b.one(dot(&[2], &[1]).into(), &[rows, weight])?;
                let dx = b.one(dot(&[2], &[0]).into(), &[back, weight])?;
                let dw = b.one(dot(&[0, 1], &[0, 1]).into(), &[back, rows])?;
                // fp8 matrix units accumulate with fewer bits than f32 has, so results are compared as bf16, one of them through
                // f32.
                let dx = b.scale(dx, 0.5)?;
                [y, dx, dw].into_iter().map(|v| b.cast(v, DType::BF16)).collect()
            }));
        }
    }
    all
}
