//! Branches, loops, sequences and optionals. Sequences and optionals exist only during import, not in the graph.

use super::shape::concat_all;
use super::{NodeOutputs, one};
use crate::error::{Error, Result};
use crate::item::{ImportedTensor, ImportedValue};
use crate::node::{NodeContext, axis};
use crate::proto::GraphProto;
use ir::ops::{Cond, Scan, While};
use ir::{Binary, Builder, Compare, DType, Graph, GraphBuilder, Literal, Type, Value};

/// Loops of known length are unrolled if their bodies have at most this many nodes in total.
const MAX_UNROLLED_NODES: usize = 512;

pub(super) fn if_op(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let c = cx.x(0)?;
    if cx.shape(c).iter().product::<usize>() != 1 || cx.dtype(c) != DType::Bool {
        return Err(Error::node_error("its condition must be one bool"));
    }
    let (yes, no) = (cx.graph("then_branch")?, cx.graph("else_branch")?);
    if let Some(x) = cx.imp.constant_of(c) {
        let taken = if scalar_bool(&x)? { yes } else { no };
        return cx.imp.inline(taken, Vec::new());
    }
    let bodies = (|| -> Result<_> {
        let a = cx.imp.body(no, &[], |_, _| Ok(Vec::new()))?;
        let b = cx.imp.body(yes, &[], |_, _| Ok(Vec::new()))?;
        match a.graph.output_types() == b.graph.output_types() {
            true => Ok((a, b)),
            false => Err(Error::node_error(format!(
                "its branches return different types ({} and {}); shapes are static here",
                types(&b.graph),
                types(&a.graph)
            ))),
        }
    })();
    let (a, b) = match bodies {
        Ok(bodies) => bodies,
        // If one program can't contain both branches, a condition that can be evaluated selects one.
        Err(e) => {
            return match cx.imp.static_value(c, "its condition (input 0), since its branches can't be one program,") {
                Ok(x) => {
                    let taken = if scalar_bool(&x)? { yes } else { no };
                    cx.imp.inline(taken, Vec::new())
                }
                Err(needs @ Error::NeedsValue { .. }) => Err(needs),
                Err(_) => Err(e),
            };
        }
    };
    // Both branches take the captures of both.
    let captures: Vec<Value> = b.captures.iter().chain(&a.captures).copied().collect();
    let n = b.captures.len();
    let padded = |g: &Graph, own: std::ops::Range<usize>| -> Result<Graph> {
        let mut p = Builder::new();
        let ins: Vec<Value> = captures.iter().map(|&v| p.graph.input(cx.ty(v))).collect();
        let outs = p.inline(g, &ins[own])?;
        Ok(p.finish(&outs))
    };
    let (on, off) = (padded(&b.graph, 0..n)?, padded(&a.graph, n..captures.len())?);
    let c = cx.reshape(c, &[])?;
    let index = cx.cast(c, DType::I32)?;
    let args: Vec<Value> = std::iter::once(index).chain(captures).collect();
    let outs = cx.emit(Cond::new([off, on]).into(), &args)?;
    Ok(outs.iter().zip(&b.outs).map(|(&v, t)| ImportedValue::Tensor(ImportedTensor { v, elem: t.elem })).collect())
}

fn types(g: &Graph) -> String {
    g.output_types().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The value of a condition, which must have one element.
pub(super) fn scalar_bool(x: &Literal) -> Result<bool> {
    match x.ty().numel() {
        1 => Ok(x.get(0).to_bool()),
        _ => Err(Error::node_error(format!("a condition is one bool, not {}", x.ty()))),
    }
}

pub(super) fn loop_op(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let body = cx.graph("body")?;
    let start: Vec<ImportedValue> = (2..cx.args.len())
        .map(|i| cx.item(i).cloned().ok_or_else(|| Error::node_error(format!("its input {i} is missing"))))
        .collect::<Result<_>>()?;
    if body.input.len() != start.len() + 2 || body.output.len() < start.len() + 1 {
        return Err(Error::node_error(format!(
            "its body takes {} and gives {} values for {} carried ones",
            body.input.len(),
            body.output.len(),
            start.len()
        )));
    }
    let most = cx.opt(0)?;
    let go = cx.opt(1)?;
    let scans = body.output.len() - 1 - start.len();
    // The trip count, if it is known.
    let trips = match most {
        None => None,
        Some(m) => match cx.imp.constant_of(m) {
            Some(x) => x.scalars().next().map(|s| s.to_i64().max(0)),
            // Scan outputs need a known number of iterations.
            None if scans > 0 || start.iter().any(|i| !matches!(i, ImportedValue::Tensor(_))) => {
                let x = cx.imp.static_value(m, "its trip count (input 0)")?;
                x.scalars().next().map(|s| s.to_i64().max(0))
            }
            None => None,
        },
    };
    let first = match go {
        None => Some(true),
        Some(g) => match cx.imp.constant_of(g) {
            Some(x) => Some(scalar_bool(&x)?),
            None if scans > 0 || start.iter().any(|i| !matches!(i, ImportedValue::Tensor(_))) => {
                Some(scalar_bool(&cx.imp.static_value(g, "its condition (input 1)")?)?)
            }
            None => None,
        },
    };
    if first == Some(false) || trips == Some(0) {
        return finish(cx, body, start, vec![Vec::new(); scans]);
    }
    let cost = |n: i64| (n as u64).saturating_mul(body.node.len().max(1) as u64);
    let short = trips.is_none_or(|n| cost(n) <= MAX_UNROLLED_NODES as u64);
    let plain = start.iter().all(|i| matches!(i, ImportedValue::Tensor(_)));
    if first == Some(true)
        && (short || !plain)
        && let Some(outs) = unrolled(cx, body, &start, trips, scans)?
    {
        return Ok(outs);
    }
    if first == Some(true)
        && let Some(n) = trips
        && let Some(outs) = scanned(cx, body, &start, n as usize)?
    {
        return Ok(outs);
    }
    if scans > 0 {
        return Err(Error::node_error(
            "it collects results of each iteration, but the number of iterations depends on data; shapes are static \
             here",
        ));
    }
    conditional(cx, body, &start, most, go)
}

/// The results of a loop: carried values, then stacked scan outputs.
fn finish(
    cx: &mut NodeContext,
    body: &GraphProto,
    carried: Vec<ImportedValue>,
    collected: Vec<Vec<ImportedTensor>>,
) -> Result<NodeOutputs> {
    let mut outs = carried;
    for (k, list) in collected.iter().enumerate() {
        let Some(first) = list.first() else {
            // Without iterations: an empty tensor of the declared type.
            let info = &body.output[body.output.len() - collected.len() + k];
            let (elem, shape) = match info.r#type.as_ref().and_then(|t| t.value.as_ref()) {
                Some(crate::proto::TypeValue::Tensor(t)) => (t.elem_type.unwrap_or(1), t.shape.clone()),
                _ => (1, None),
            };
            let mut dims = vec![0];
            for d in shape.map(|s| s.dim).unwrap_or_default() {
                dims.push(match d.value {
                    Some(crate::proto::DimensionValue::Size(n)) => usize::try_from(n).unwrap_or(0),
                    _ => 0,
                });
            }
            let ty = Type::checked(cx.dtype_of(elem.into())?.0, &dims)?;
            outs.push(cx.zeros(&ty)?.into());
            continue;
        };
        let mut shape = cx.shape(first.v);
        shape.insert(0, 1);
        let parts: Vec<Value> = list.iter().map(|t| cx.reshape(t.v, &shape)).collect::<ir::Result<_>>()?;
        let v = if parts.len() == 1 { parts[0] } else { cx.concat(&parts, 0)? };
        outs.push(ImportedValue::Tensor(ImportedTensor { v, elem: first.elem }));
    }
    Ok(outs)
}

/// Unrolls the loop if each condition is known; `None` if one isn't.
fn unrolled<'m>(
    cx: &mut NodeContext<'_, 'm>,
    body: &'m GraphProto,
    start: &[ImportedValue],
    trips: Option<i64>,
    scans: usize,
) -> Result<Option<NodeOutputs>> {
    let mut carried = start.to_vec();
    let mut collected: Vec<Vec<ImportedTensor>> = vec![Vec::new(); scans];
    let mut i = 0i64;
    let sequences = !start.iter().all(|i| matches!(i, ImportedValue::Tensor(_)));
    loop {
        if trips.is_some_and(|n| i >= n) {
            break;
        }
        if i as usize * body.node.len().max(1) > MAX_UNROLLED_NODES * 64 {
            // Only a loop that must be unrolled may be this long.
            if sequences || trips.is_some() {
                return Err(Error::node_error(format!("more than {i} iterations cannot be unrolled")));
            }
            return Ok(None);
        }
        let (n, go) = (cx.constant(Literal::new(&[], &[i]))?, cx.constant(Literal::new(&[], &[true]))?);
        let args = [n.into(), go.into()].into_iter().chain(carried.iter().cloned()).collect();
        let mut outs = cx.imp.inline(body, args)?.into_iter();
        let Some(ImportedValue::Tensor(next)) = outs.next() else {
            return Err(Error::node_error("the first output of its body must be a bool"));
        };
        carried = outs.by_ref().take(start.len()).collect();
        for (list, item) in collected.iter_mut().zip(outs) {
            match item {
                ImportedValue::Tensor(t) => list.push(t),
                other => return Err(Error::node_error(format!("it collects {}", other.kind()))),
            }
        }
        i += 1;
        match cx.imp.constant_of(next.v) {
            Some(x) if scalar_bool(&x)? => {}
            Some(_) => break,
            None if trips.is_some_and(|n| i >= n) => break,
            None if sequences => {
                if !scalar_bool(&cx.imp.static_value(next.v, "the condition that its body gives")?)? {
                    break;
                }
            }
            None => return Ok(None),
        }
        if trips.is_none() && i > 4096 {
            return Ok(None);
        }
    }
    finish(cx, body, carried, collected).map(Some)
}

/// The tensors that a loop carries.
fn tensors(items: &[ImportedValue]) -> Result<Vec<ImportedTensor>> {
    let one = |item: &ImportedValue| match item {
        ImportedValue::Tensor(t) => Ok(*t),
        other => Err(Error::node_error(format!("it carries {}, and its length is not known", other.kind()))),
    };
    items.iter().map(one).collect()
}

/// A loop of known length whose condition stays true, as a scan; `None` if it may end early.
fn scanned<'m>(
    cx: &mut NodeContext<'_, 'm>,
    body: &'m GraphProto,
    start: &[ImportedValue],
    trips: usize,
) -> Result<Option<NodeOutputs>> {
    let carried = tensors(start)?;
    let mut inputs = vec![Type::scalar(DType::I64)];
    inputs.extend(carried.iter().map(|t| cx.ty(t.v)));
    let b = cx.imp.body(body, &inputs, |fold, own| {
        let go = fold.constant(Literal::new(&[], &[true]))?;
        let rest =
            own[1..].iter().zip(&carried).map(|(&v, t)| ImportedValue::Tensor(ImportedTensor { v, elem: t.elem }));
        Ok([own[0].into(), go.into()].into_iter().chain(rest).collect())
    })?;
    // Whether the condition is always true.
    let always = b.graph.node_of(b.graph.outputs()[0]).is_some_and(|n| match &n.op {
        ir::Op::Const(c) => scalar_bool(&c.0).unwrap_or(false),
        _ => false,
    });
    if !always {
        return Ok(None);
    }
    let n = carried.len();
    let mut g = Builder::new();
    let captures: Vec<Value> = b.captures.iter().map(|&v| g.graph.input(cx.ty(v))).collect();
    let carries: Vec<Value> = carried.iter().map(|t| g.graph.input(cx.ty(t.v))).collect();
    let i = g.graph.input(Type::scalar(DType::I64));
    let args: Vec<Value> = std::iter::once(i).chain(carries).chain(captures).collect();
    let outs = g.inline(&b.graph, &args)?;
    let step = g.finish(&outs[1..]);
    let numbers = cx.iota(DType::I64, &[trips], 0)?;
    let args: Vec<Value> = b.captures.iter().copied().chain(carried.iter().map(|t| t.v)).chain([numbers]).collect();
    let outs = cx.emit(Scan::over(b.captures.len(), n, trips, step).into(), &args)?;
    let items = outs.iter().zip(&b.outs[1..]).map(|(&v, t)| ImportedValue::Tensor(ImportedTensor { v, elem: t.elem }));
    Ok(Some(items.collect()))
}

/// A loop with a trip count that is known only at run time.
fn conditional<'m>(
    cx: &mut NodeContext<'_, 'm>,
    body: &'m GraphProto,
    start: &[ImportedValue],
    most: Option<Value>,
    go: Option<Value>,
) -> Result<NodeOutputs> {
    let carried = tensors(start)?;
    let mut inputs = vec![Type::scalar(DType::I64), Type::scalar(DType::Bool)];
    inputs.extend(carried.iter().map(|t| cx.ty(t.v)));
    let b = cx.imp.body(body, &inputs, |_, own| {
        let rest =
            own[2..].iter().zip(&carried).map(|(&v, t)| ImportedValue::Tensor(ImportedTensor { v, elem: t.elem }));
        Ok([own[0].into(), own[1].into()].into_iter().chain(rest).collect())
    })?;
    // (captures.., i, go, carried..) -> (i + 1, go, carried..)
    let mut g = Builder::new();
    let captures: Vec<Value> = b.captures.iter().map(|&v| g.graph.input(cx.ty(v))).collect();
    let own: Vec<Value> = inputs.iter().map(|t| g.graph.input(t.clone())).collect();
    let args: Vec<Value> = own.iter().copied().chain(captures).collect();
    let outs = g.inline(&b.graph, &args)?;
    let next = g.offset(own[0], 1.0)?;
    let verdict = g.reshape(outs[0], &[])?;
    let step = g.finish(&[&[next, verdict], &outs[1..]].concat());
    // (most, i, go, carried..) -> go and i < most
    let mut t = Builder::new();
    let limit = most.map(|_| t.graph.input(Type::scalar(DType::I64)));
    let own: Vec<Value> = inputs.iter().map(|ty| t.graph.input(ty.clone())).collect();
    let verdict = match limit {
        Some(m) => {
            let more = t.compare(Compare::Lt, own[0], m)?;
            t.binary(Binary::And, own[1], more)?
        }
        None => own[1],
    };
    let test = t.finish(&[verdict]);
    let zero = cx.constant(Literal::new(&[], &[0i64]))?;
    let first = match go {
        Some(g) => cx.reshape(g, &[])?,
        None => cx.constant(Literal::new(&[], &[true]))?,
    };
    let mut args = Vec::new();
    if let Some(m) = most {
        args.push(cx.reshape(m, &[])?);
    }
    let conditions = args.len();
    args.extend(&b.captures);
    args.extend([zero, first]);
    args.extend(carried.iter().map(|t| t.v));
    let outs = cx.emit(While::new(conditions, b.captures.len(), test, step).into(), &args)?;
    let items =
        outs[2..].iter().zip(&b.outs[1..]).map(|(&v, t)| ImportedValue::Tensor(ImportedTensor { v, elem: t.elem }));
    Ok(items.collect())
}

pub(super) fn scan(cx: &mut NodeContext) -> Result<NodeOutputs> {
    if cx.version < 9 {
        return Err(Error::node_error(
            "Scan before opset 9 has a batch axis of its own; convert the model to opset 13",
        ));
    }
    let body = cx.graph("body")?;
    let count = cx.args.len();
    let m = usize::try_from(cx.int("num_scan_inputs", 0)).unwrap_or(0);
    let n = count.checked_sub(m).ok_or_else(|| Error::node_error(format!("{m} scan inputs, but {count} inputs")))?;
    let k = body
        .output
        .len()
        .checked_sub(n)
        .ok_or_else(|| Error::node_error("its body gives fewer outputs than states"))?;
    if m == 0 || body.input.len() != count {
        return Err(Error::node_error(format!("its body takes {} values, not {count}", body.input.len())));
    }
    let all: Vec<ImportedTensor> = (0..count).map(|i| cx.operand(i)).collect::<Result<_>>()?;
    let list = |name: &str, len: usize| -> Result<Vec<i64>> {
        let l = cx.ints(name).map_or_else(|| vec![0; len], <[i64]>::to_vec);
        if l.len() == len { Ok(l) } else { Err(Error::node_error(format!("{name} needs {len} numbers"))) }
    };
    let (axes, directions) = (list("scan_input_axes", m)?, list("scan_input_directions", m)?);
    let (out_axes, out_directions) = (list("scan_output_axes", k)?, list("scan_output_directions", k)?);
    let mut xs = Vec::new();
    let mut length = None;
    for i in 0..m {
        let v = all[n + i].v;
        let a = axis(axes[i], cx.rank(v))?;
        let mut v = cx.move_axis(v, a, 0)?;
        if directions[i] == 1 {
            v = cx.flip(v, &[0])?;
        }
        let size = cx.shape(v)[0];
        if length.is_some_and(|l| l != size) {
            return Err(Error::node_error("its scan inputs have different lengths"));
        }
        length = Some(size);
        xs.push(v);
    }
    let mut inputs: Vec<Type> = all[..n].iter().map(|t| cx.ty(t.v)).collect();
    inputs.extend(xs.iter().map(|&v| cx.ty(v).unbatched()));
    let b = cx.imp.body(body, &inputs, |_, own| {
        Ok(own.iter().zip(&all).map(|(&v, t)| ImportedValue::Tensor(ImportedTensor { v, elem: t.elem })).collect())
    })?;
    let mut g = Builder::new();
    let captures: Vec<Value> = b.captures.iter().map(|&v| g.graph.input(cx.ty(v))).collect();
    let own: Vec<Value> = inputs.iter().map(|t| g.graph.input(t.clone())).collect();
    let args: Vec<Value> = own.into_iter().chain(captures).collect();
    let outs = g.inline(&b.graph, &args)?;
    let step = g.finish(&outs);
    let args: Vec<Value> =
        b.captures.iter().copied().chain(all[..n].iter().map(|t| t.v)).chain(xs.iter().copied()).collect();
    let outs = cx.emit(Scan::over(b.captures.len(), n, length.unwrap_or(0), step).into(), &args)?;
    let mut items: NodeOutputs = Vec::new();
    for (i, &v) in outs.iter().enumerate() {
        let mut v = v;
        if i >= n {
            if out_directions[i - n] == 1 {
                v = cx.flip(v, &[0])?;
            }
            let a = axis(out_axes[i - n], cx.rank(v))?;
            v = cx.move_axis(v, 0, a)?;
        }
        items.push(ImportedValue::Tensor(ImportedTensor { v, elem: b.outs[i].elem }));
    }
    Ok(items)
}

pub(super) fn sequence_construct(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let items: Vec<ImportedValue> =
        (0..cx.args.len()).map(|i| cx.operand(i).map(ImportedValue::Tensor)).collect::<Result<_>>()?;
    Ok(vec![ImportedValue::Sequence(items)])
}

/// An index into a sequence, which may count from the end.
fn sequence_index(cx: &mut NodeContext, i: usize, len: usize) -> Result<usize> {
    let list = cx.static_ints(i, "position")?;
    axis(list.first().copied().unwrap_or(0), len)
        .map_err(|_| Error::node_error(format!("position {list:?} in a sequence of {len}")))
}

pub(super) fn sequence_at(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let items = cx.sequence(0)?;
    let at = sequence_index(cx, 1, items.len())?;
    Ok(vec![items[at].clone()])
}

pub(super) fn sequence_insert(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let mut items = cx.sequence(0)?;
    let t = cx.operand(1)?;
    let at = match cx.item(2) {
        Some(_) => {
            let list = cx.static_ints(2, "position")?;
            let n = items.len() as i64;
            let p = list.first().copied().unwrap_or(0);
            let p = if p < 0 { p.saturating_add(n) } else { p };
            usize::try_from(p)
                .ok()
                .filter(|&p| p <= items.len())
                .ok_or_else(|| Error::node_error(format!("position {p} in a sequence of {n}")))?
        }
        None => items.len(),
    };
    items.insert(at, ImportedValue::Tensor(t));
    Ok(vec![ImportedValue::Sequence(items)])
}

pub(super) fn sequence_erase(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let mut items = cx.sequence(0)?;
    let at = match cx.item(1) {
        Some(_) => sequence_index(cx, 1, items.len())?,
        None => items.len().checked_sub(1).ok_or_else(|| Error::node_error("its sequence is empty"))?,
    };
    items.remove(at);
    Ok(vec![ImportedValue::Sequence(items)])
}

pub(super) fn sequence_length(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let n = cx.sequence(0)?.len() as i64;
    one(cx.constant(Literal::new(&[], &[n]))?)
}

pub(super) fn concat_from_sequence(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let items = tensors(&cx.sequence(0)?)?;
    let stack = cx.flag("new_axis");
    concat_all(cx, &items, stack)
}

pub(super) fn sequence_map(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let body = cx.graph("body")?;
    let n = cx.sequence(0)?.len();
    let mut outs: Vec<Vec<ImportedValue>> = vec![Vec::new(); body.output.len()];
    for i in 0..n {
        let mut args = Vec::new();
        for a in 0..cx.args.len() {
            args.push(match cx.item(a) {
                Some(ImportedValue::Sequence(items)) if items.len() == n => items[i].clone(),
                Some(ImportedValue::Tensor(t)) => ImportedValue::Tensor(*t),
                _ => return Err(Error::node_error(format!("its input {a} must be a tensor or a sequence of {n}"))),
            });
        }
        for (list, item) in outs.iter_mut().zip(cx.imp.inline(body, args)?) {
            list.push(item);
        }
    }
    Ok(outs.into_iter().map(ImportedValue::Sequence).collect())
}

pub(super) fn optional(cx: &mut NodeContext) -> Result<NodeOutputs> {
    Ok(vec![ImportedValue::Optional(cx.item(0).cloned().map(Box::new))])
}

pub(super) fn optional_get(cx: &mut NodeContext) -> Result<NodeOutputs> {
    match cx.item(0) {
        Some(ImportedValue::Optional(Some(item))) => Ok(vec![(**item).clone()]),
        Some(ImportedValue::Optional(None)) | None => {
            Err(Error::node_error("its optional is empty; ask OptionalHasElement first"))
        }
        Some(item) => Ok(vec![item.clone()]),
    }
}

pub(super) fn optional_has(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let has = !matches!(cx.item(0), None | Some(ImportedValue::Optional(None)));
    one(cx.constant(Literal::new(&[], &[has]))?)
}
