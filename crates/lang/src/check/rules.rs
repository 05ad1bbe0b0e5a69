//! Shape rules that signatures cannot express: products, broadcasting, splitting, reshaping, reducing.

use super::primitives::ShapeRule;
use super::types::{Shape, TensorType, is_integer, promoted};
use crate::consteval::{ConstValue, Ternary};
use crate::dims::{Dim, ExactDivision};
use crate::span::Span;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// An operand of an operation.
#[derive(Clone, Debug)]
pub(super) struct CheckedOperand {
    /// Its source text.
    pub(super) text: String,
    pub(super) ty: TensorType,
    pub(super) span: Span,
}

/// Why shapes do not match.
#[derive(Clone, Debug, Default)]
pub(super) struct ShapeError {
    pub(super) label: String,
    pub(super) hint: Option<String>,
}

impl ShapeError {
    fn new(label: impl Into<String>) -> ShapeError {
        ShapeError { label: label.into(), hint: None }
    }
}

pub(super) type Attributes = BTreeMap<String, ConstValue>;

/// Computes the results' types, and the divisions that must be exact for them; unknown shapes are propagated.
pub(super) fn infer_shapes(
    rule: ShapeRule,
    inputs: &[CheckedOperand],
    attributes: &Attributes,
) -> Result<(Vec<TensorType>, Vec<ExactDivision>), ShapeError> {
    let sizes = SizeComparison::default();
    let types = results(&sizes, rule, inputs, attributes)?;
    Ok((types, sizes.exact.into_inner()))
}

fn results(
    sizes: &SizeComparison,
    rule: ShapeRule,
    inputs: &[CheckedOperand],
    attributes: &Attributes,
) -> Result<Vec<TensorType>, ShapeError> {
    let shapes: Option<Vec<&Shape>> = inputs.iter().map(|input| input.ty.shape.as_ref()).collect();
    let dtype = match rule {
        ShapeRule::Divide
            if !inputs
                .iter()
                .any(|input| input.ty.dtype.as_deref().is_none_or(|d| !is_integer(d)) && !is_scalar(&input.ty)) =>
        {
            Some("fp32".to_string())
        }
        ShapeRule::Broadcast
        | ShapeRule::Divide
        | ShapeRule::Matmul
        | ShapeRule::BatchedMatmul
        | ShapeRule::GroupedGemm
        | ShapeRule::Concat
            if inputs.iter().any(|input| !input.ty.dtype.as_deref().is_some_and(is_integer)) =>
        {
            // A number as operand has the dtype of the tensors.
            let number = |input: &&CheckedOperand| input.ty.dtype.is_some() || !is_scalar(&input.ty);
            promoted(inputs.iter().filter(number).map(|input| input.ty.dtype.as_deref()))
        }
        _ => inputs.first().and_then(|input| input.ty.dtype.clone()),
    };
    let dtype = if rule == ShapeRule::Compare { Some("int32".to_string()) } else { dtype };
    let typed = |shape: Shape| TensorType { shape: Some(shape), dtype: dtype.clone() };
    let one =
        |shape: Result<Option<Shape>, ShapeError>| shape.map(|shape| vec![TensorType { shape, dtype: dtype.clone() }]);
    let count = match rule {
        ShapeRule::Split => list(attributes, "sizes").map_or(0, <[ConstValue]>::len),
        ShapeRule::Fork => attributes.get("count").and_then(ConstValue::as_int).unwrap_or(0).clamp(0, 64) as usize,
        _ => 1,
    };
    if rule == ShapeRule::Filled {
        return Ok(vec![filled_type(attributes)]);
    }
    let Some(shapes) = shapes else {
        return Ok(vec![TensorType { shape: None, dtype: dtype.clone() }; count.max(1)]);
    };
    match (rule, &shapes[..]) {
        (ShapeRule::Matmul | ShapeRule::BatchedMatmul, _)
            if attributes.get("transpose") == Some(&ConstValue::Unknown) =>
        {
            Ok(vec![TensorType::default()])
        }
        (ShapeRule::Matmul, [a, b]) => {
            let mode = word(attributes, "transpose").unwrap_or("NN");
            let result = matmul(sizes, mode, a, b).map_err(|label| matmul_error(mode, label, a, b, matmul));
            one(result.map(Some))
        }
        (ShapeRule::BatchedMatmul, [a, b]) => {
            let mode = word(attributes, "transpose").unwrap_or("NN");
            let result =
                batched_matmul(sizes, mode, a, b).map_err(|label| matmul_error(mode, label, a, b, batched_matmul));
            one(result.map(Some))
        }
        (ShapeRule::GroupedGemm, [x, w, _]) => one(grouped_gemm(sizes, word(attributes, "transpose"), x, w).map(Some)),
        (ShapeRule::Broadcast | ShapeRule::Divide | ShapeRule::Compare, all) => {
            let mut result = (*all[0]).clone();
            for shape in &all[1..] {
                result = broadcast(sizes, &result, shape)?;
            }
            Ok(vec![typed(result)])
        }
        (ShapeRule::Split, [x]) => split(sizes, x, attributes).map(|shapes| match shapes {
            Some(shapes) => shapes.into_iter().map(typed).collect(),
            None => vec![TensorType { shape: None, dtype: dtype.clone() }; count],
        }),
        (ShapeRule::Concat, all) => one(concat(sizes, all, attributes).map(Some)),
        (ShapeRule::View, [x]) => one(view(sizes, x, attributes)),
        (ShapeRule::Transpose, [x]) => one(transpose(x, attributes).map(Some)),
        (ShapeRule::Permute, [x]) => one(permute(x, attributes)),
        (ShapeRule::Reduce, [x]) => {
            let shape = reduce(x, attributes)?;
            // The second result contains indices, of the same shape.
            let indices = TensorType { shape: shape.clone(), dtype: Some("int32".to_string()) };
            Ok(vec![TensorType { shape, dtype: dtype.clone() }, indices])
        }
        (ShapeRule::Fork, [x]) => Ok(vec![typed((*x).clone()); count]),
        _ => Ok(vec![TensorType::default(); count]),
    }
}

fn is_scalar(ty: &TensorType) -> bool {
    ty.shape.as_ref().is_some_and(|shape| shape.variadic.is_none() && shape.dims.is_empty())
}

fn word<'a>(attributes: &'a Attributes, name: &str) -> Option<&'a str> {
    match attributes.get(name) {
        Some(ConstValue::Identifier(word) | ConstValue::Str(word)) => Some(word),
        _ => None,
    }
}

fn list<'a>(attributes: &'a Attributes, name: &str) -> Option<&'a [ConstValue]> {
    match attributes.get(name) {
        Some(ConstValue::List(items)) => Some(items),
        _ => None,
    }
}

fn dims(attributes: &Attributes, name: &str) -> Option<Vec<Dim>> {
    list(attributes, name)?
        .iter()
        .map(|value| match value {
            ConstValue::Int(dim) => Some(dim.clone()),
            _ => None,
        })
        .collect()
}

/// Compares sizes and records which divisions must be exact for them to agree.
#[derive(Default)]
struct SizeComparison {
    exact: RefCell<Vec<ExactDivision>>,
}

impl SizeComparison {
    fn same_size(&self, a: &Dim, b: &Dim) -> bool {
        match a.equal(b) {
            Some(exact) => {
                self.exact.borrow_mut().extend(exact);
                true
            }
            None => false,
        }
    }

    fn same_shape(&self, a: &Shape, b: &Shape) -> bool {
        a.variadic == b.variadic
            && a.dims.len() == b.dims.len()
            && a.dims.iter().zip(&b.dims).all(|(a, b)| self.same_size(a, b))
    }
}

/// `op(A)·op(B)` on matrices; leading axes of an operand that is not transposed are flattened into rows, and leading axes of both
/// operands are summed over if the first is transposed (§6.1.1, §5.12.3).
fn matmul(sizes: &SizeComparison, mode: &str, a: &Shape, b: &Shape) -> Result<Shape, String> {
    let (Some((m, a_rows)), Some((n, b_rows))) = (a.dims.split_last(), b.dims.split_last()) else {
        return Err("needs matrices".to_string());
    };
    let a_lead = || Shape { variadic: a.variadic.clone(), dims: a_rows.to_vec() };
    let matrix = || match b_rows {
        [rows] if b.variadic.is_none() => Ok(rows),
        _ => Err(format!("the second operand must be a matrix, got {b}")),
    };
    let with = |mut shape: Shape, last: &Dim| {
        shape.dims.push(last.clone());
        shape
    };
    match mode {
        "NN" => {
            let k = matrix()?;
            if !sizes.same_size(m, k) {
                return Err(format!("A[m,k]·B[k,n] needs equal inner axes, got {m} and {k}"));
            }
            Ok(with(a_lead(), n))
        }
        "NT" => {
            let rows = matrix()?;
            if !sizes.same_size(m, n) {
                return Err(format!("A[m,k]·B[n,k] needs equal last axes, got {m} and {n}"));
            }
            Ok(with(a_lead(), rows))
        }
        "TN" => {
            let b_lead = Shape { variadic: b.variadic.clone(), dims: b_rows.to_vec() };
            if !sizes.same_shape(&a_lead(), &b_lead) {
                let show = |shape: &Shape| shape.to_string().trim_matches(['[', ']']).replace(", ", "·");
                let (left, right) = (show(&a_lead()), show(&b_lead));
                return Err(format!("A[k,m]·B[k,n] needs equal first axes, got {left} and {right}"));
            }
            Ok(Shape::fixed(vec![m.clone(), n.clone()]))
        }
        _ => {
            let rows = matrix()?;
            let k = a_lead().elements();
            if !sizes.same_size(&k, n) {
                return Err(format!("A[k,m]·B[n,k] needs A's first axis equal to B's last, got {k} and {n}"));
            }
            Ok(Shape::fixed(vec![m.clone(), rows.clone()]))
        }
    }
}

fn batched_matmul(sizes: &SizeComparison, mode: &str, a: &Shape, b: &Shape) -> Result<Shape, String> {
    let ([a_lead @ .., a1, a2], [b_lead @ .., b1, b2]) = (&a.dims[..], &b.dims[..]) else {
        return Err("needs at least two dimensions on both sides".to_string());
    };
    let (m, k) = if mode.starts_with('T') { (a2, a1) } else { (a1, a2) };
    let (inner, n) = if mode.ends_with('T') { (b2, b1) } else { (b1, b2) };
    if !sizes.same_size(k, inner) {
        return Err(format!("transpose={mode} needs equal inner axes, got {k} and {inner}"));
    }
    let left = Shape { variadic: a.variadic.clone(), dims: a_lead.to_vec() };
    let right = Shape { variadic: b.variadic.clone(), dims: b_lead.to_vec() };
    let mut lead = broadcast(sizes, &left, &right).map_err(|error| error.label)?;
    lead.dims.extend([m.clone(), n.clone()]);
    Ok(lead)
}

/// `[n, K]` by one matrix per group: `[G, N, K]`, or `[G, K, N]` if it is not transposed.
fn grouped_gemm(sizes: &SizeComparison, mode: Option<&str>, x: &Shape, w: &Shape) -> Result<Shape, ShapeError> {
    let ([rows, k], [_, first, second]) = (&x.dims[..], &w.dims[..]) else {
        return Err(ShapeError::new("needs an input [n, K] and weights of three dimensions"));
    };
    // Rows belong to their groups, so the left operand is never transposed.
    if let Some(mode @ ("TN" | "TT")) = mode {
        let mut misfit = ShapeError::new(format!("transpose={mode} would transpose the rows that form the groups"));
        let fits = if sizes.same_size(k, second) { Some("NT") } else { sizes.same_size(k, first).then_some("NN") };
        misfit.hint = fits.map(|other| format!("transpose={other} would fit"));
        return Err(misfit);
    }
    let (inner, n) = if mode == Some("NN") { (first, second) } else { (second, first) };
    if !sizes.same_size(k, inner) {
        let mut misfit = ShapeError::new(format!("the rows have {k} elements, the matrices take {inner}"));
        let other = if mode == Some("NN") { "NT" } else { "NN" };
        misfit.hint = sizes.same_size(k, n).then(|| format!("transpose={other} would fit"));
        return Err(misfit);
    }
    Ok(Shape::fixed(vec![rows.clone(), n.clone()]))
}

/// Names another transposition that would match, decided on the same symbols.
fn matmul_error(
    mode: &str,
    label: String,
    a: &Shape,
    b: &Shape,
    product: fn(&SizeComparison, &str, &Shape, &Shape) -> Result<Shape, String>,
) -> ShapeError {
    let fitting = ["NT", "NN", "TN", "TT"]
        .into_iter()
        .filter(|other| *other != mode)
        .find_map(|other| product(&SizeComparison::default(), other, a, b).ok().map(|shape| (other, shape)));
    let hint = fitting.map(|(other, shape)| format!("transpose={other} would fit: {shape}"));
    ShapeError { label, hint }
}

/// Aligns shapes at their last axes; an axis of size 1, or a missing one, is broadcast.
fn broadcast(sizes: &SizeComparison, a: &Shape, b: &Shape) -> Result<Shape, ShapeError> {
    let (long, short) = if a.dims.len() >= b.dims.len() { (a, b) } else { (b, a) };
    let lead = match (&long.variadic, &short.variadic) {
        (x, y) if x == y => x.clone(),
        (Some(lead), None) => Some(lead.clone()),
        (None, Some(_)) if long.dims.len() > short.dims.len() => {
            return Err(ShapeError::new(format!("{a} and {b} do not broadcast: `*` may be any shape")));
        }
        (_, lead) => lead.clone(),
    };
    let offset = long.dims.len() - short.dims.len();
    let mut dims = long.dims[..offset].to_vec();
    let is_one = |dim: &Dim| dim.as_constant() == Some(1);
    for (x, y) in long.dims[offset..].iter().zip(&short.dims) {
        dims.push(match (is_one(x), is_one(y)) {
            (_, true) => x.clone(),
            (true, false) => y.clone(),
            (false, false) if sizes.same_size(x, y) => x.clone(),
            (false, false) => return Err(ShapeError::new(format!("{a} and {b} do not broadcast: {x} is not {y}"))),
        });
    }
    Ok(Shape { variadic: lead, dims })
}

fn axis(shape: &Shape, attributes: &Attributes, name: &str, default: i64) -> Result<usize, ShapeError> {
    let number = attributes.get(name).and_then(ConstValue::as_int).unwrap_or(default);
    shape.axis(number).ok_or_else(|| ShapeError::new(format!("{shape} has no axis {number}")))
}

fn split(sizes: &SizeComparison, x: &Shape, attributes: &Attributes) -> Result<Option<Vec<Shape>>, ShapeError> {
    let axis = axis(x, attributes, "dim", -1)?;
    let Some(parts) = dims(attributes, "sizes") else {
        return Ok(None);
    };
    let sum = parts.iter().cloned().fold(Dim::default(), |sum, size| sum + size);
    if !sizes.same_size(&sum, &x.dims[axis]) {
        return Err(ShapeError::new(format!("the sizes add up to {sum}, but the axis has {}", x.dims[axis])));
    }
    let part = |size: Dim| {
        let mut part = x.clone();
        part.dims[axis] = size;
        part
    };
    Ok(Some(parts.into_iter().map(part).collect()))
}

fn concat(sizes: &SizeComparison, all: &[&Shape], attributes: &Attributes) -> Result<Shape, ShapeError> {
    let Some((first, rest)) = all.split_first() else {
        return Err(ShapeError::new("needs at least one tensor"));
    };
    let axis = axis(first, attributes, "dim", -1)?;
    let mut result = (*first).clone();
    for shape in rest {
        let fits = shape.variadic == result.variadic
            && shape.dims.len() == result.dims.len()
            && (0..result.dims.len()).all(|i| i == axis || sizes.same_size(&shape.dims[i], &result.dims[i]));
        if !fits {
            return Err(ShapeError::new(format!("{first} and {shape} differ outside axis {axis}")));
        }
        result.dims[axis] = result.dims[axis].clone() + shape.dims[axis].clone();
    }
    Ok(result)
}

fn view(sizes: &SizeComparison, x: &Shape, attributes: &Attributes) -> Result<Option<Shape>, ShapeError> {
    let Some(mut target) = dims(attributes, "shape") else {
        return Ok(None);
    };
    let inferred: Vec<usize> = (0..target.len()).filter(|i| target[*i].as_constant() == Some(-1)).collect();
    let elements = x.elements();
    match inferred[..] {
        [] => {}
        [place] => {
            target[place] = Dim::constant(1);
            let known = Shape::fixed(target.clone()).elements();
            target[place] = elements.floor_div(&known);
        }
        _ => return Err(ShapeError::new("only one size can be -1")),
    }
    let target = Shape::fixed(target);
    let new = target.elements();
    if inferred.is_empty() && !sizes.same_size(&elements, &new) {
        return Err(ShapeError::new(format!("{x} has {elements} elements, but {target} has {new}")));
    }
    Ok(Some(target))
}

fn transpose(x: &Shape, attributes: &Attributes) -> Result<Shape, ShapeError> {
    let (a, b) = (axis(x, attributes, "dim0", 0)?, axis(x, attributes, "dim1", 1)?);
    let mut result = x.clone();
    result.dims.swap(a, b);
    Ok(result)
}

fn permute(x: &Shape, attributes: &Attributes) -> Result<Option<Shape>, ShapeError> {
    let Some(order) = list(attributes, "dims") else {
        return Ok(None);
    };
    let axes: Option<Vec<usize>> = order.iter().map(|value| x.axis(value.as_int()?)).collect();
    let complete = |axes: &Vec<usize>| (0..x.dims.len()).all(|i| axes.contains(&i)) && axes.len() == x.dims.len();
    match axes.filter(complete) {
        Some(axes) => Ok(Some(Shape::fixed(axes.into_iter().map(|i| x.dims[i].clone()).collect()))),
        None => {
            let order: Vec<String> = order.iter().map(ConstValue::to_string).collect();
            Err(ShapeError::new(format!("[{}] is not a permutation of the axes of {x}", order.join(", "))))
        }
    }
}

fn reduce(x: &Shape, attributes: &Attributes) -> Result<Option<Shape>, ShapeError> {
    let numbers: Option<Vec<i64>> = match (list(attributes, "dims"), attributes.get("dim")) {
        (Some(items), _) => items.iter().map(ConstValue::as_int).collect(),
        (None, Some(ConstValue::Int(dim))) => dim.as_constant().map(|n| vec![n]),
        _ => Some((0..x.dims.len() as i64).collect()),
    };
    let Some(numbers) = numbers else { return Ok(None) };
    if numbers.len() > x.dims.len() || (x.variadic.is_some() && numbers.iter().any(|n| *n >= 0)) {
        return Ok(None);
    }
    let mut axes = Vec::new();
    for number in numbers {
        axes.push(x.axis(number).ok_or_else(|| ShapeError::new(format!("{x} has no axis {number}")))?);
    }
    let keep = matches!(attributes.get("keepdim"), Some(ConstValue::Bool(Ternary::Known(true))));
    let mut result = Shape { variadic: x.variadic.clone(), dims: Vec::new() };
    for (index, dim) in x.dims.iter().enumerate() {
        match (axes.contains(&index), keep) {
            (false, _) => result.dims.push(dim.clone()),
            (true, true) => result.dims.push(Dim::constant(1)),
            (true, false) => {}
        }
    }
    Ok(Some(result))
}

fn filled_type(attributes: &Attributes) -> TensorType {
    let dtype = word(attributes, "dtype").map(str::to_string);
    TensorType { shape: dims(attributes, "shape").map(Shape::fixed), dtype }
}
