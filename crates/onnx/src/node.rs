//! The context of an op's import rule: operands, attributes, and the graph under construction.

use crate::elem::Elem;
use crate::error::{Error, Result};
use crate::import::Importer;
use crate::item::{ImportedTensor, ImportedValue};
use crate::proto::{AttributeProto, GraphProto, NodeProto};
use ir::graph::Values;
use ir::{Binary, DType, GraphBuilder, Literal, Op, Type, Value};

/// Sizes and amounts of a model must be below this, so that sums of a few don't overflow.
const MAX_AMOUNT: i64 = 1 << 40;

pub(crate) struct NodeContext<'a, 'm> {
    pub(crate) imp: &'a mut Importer<'m>,
    pub(crate) node: &'m NodeProto,
    pub(crate) domain: &'m str,
    pub(crate) version: i64,
    pub(crate) args: Vec<Option<ImportedValue>>,
    pub(crate) attributes: Vec<(&'m str, &'m AttributeProto)>,
}

impl GraphBuilder for NodeContext<'_, '_> {
    fn emit(&mut self, op: Op, args: &[Value]) -> ir::Result<Values> {
        self.imp.fold().emit(op, args)
    }

    fn ty(&self, v: Value) -> Type {
        self.imp.ty(v)
    }
}

impl<'m> NodeContext<'_, 'm> {
    pub(crate) fn op(&self) -> &'m str {
        self.node.op_type.as_deref().unwrap_or("")
    }

    /// The number of outputs: those after the last named one are unused.
    pub(crate) fn outputs(&self) -> usize {
        self.node.output.iter().rposition(|o| !o.is_empty()).map_or(0, |i| i + 1)
    }

    /// Whether an output is used.
    pub(crate) fn output_is_used(&self, i: usize) -> bool {
        self.node.output.get(i).is_some_and(|o| !o.is_empty())
    }

    pub(crate) fn attr(&self, name: &str) -> Option<&'m AttributeProto> {
        self.attributes.iter().find(|(n, _)| *n == name).map(|(_, a)| *a)
    }

    pub(crate) fn int(&self, name: &str, default: i64) -> i64 {
        self.attr(name).and_then(|a| a.i).unwrap_or(default)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.int(name, 0) != 0
    }

    pub(crate) fn int_opt(&self, name: &str) -> Option<i64> {
        self.attr(name).map(|a| a.i.unwrap_or(0))
    }

    pub(crate) fn float(&self, name: &str, default: f64) -> f64 {
        self.float_opt(name).unwrap_or(default)
    }

    pub(crate) fn float_opt(&self, name: &str) -> Option<f64> {
        self.attr(name).map(|a| a.f.unwrap_or(0.0).into())
    }

    pub(crate) fn string(&self, name: &str, default: &str) -> String {
        let found = self.attr(name).and_then(|a| a.s.as_ref());
        found.map_or_else(|| default.to_string(), |s| String::from_utf8_lossy(s).into_owned())
    }

    pub(crate) fn strings(&self, name: &str) -> Vec<String> {
        let list = self.attr(name).map_or(&[][..], |a| &a.strings);
        list.iter().map(|s| String::from_utf8_lossy(s).into_owned()).collect()
    }

    pub(crate) fn floats(&self, name: &str) -> Option<Vec<f64>> {
        self.attr(name).map(|a| a.floats.iter().map(|&x| x.into()).collect())
    }

    pub(crate) fn ints(&self, name: &str) -> Option<&'m [i64]> {
        self.attr(name).map(|a| a.ints.as_slice())
    }

    /// An integer that is a count: from 1 to 2²⁰, so that counts may be multiplied.
    pub(crate) fn count(&self, name: &str, default: i64) -> Result<usize> {
        let n = self.int(name, default);
        let fits = usize::try_from(n).ok().filter(|n| (1..=1 << 20).contains(n));
        fits.ok_or_else(|| Error::node_error(format!("the attribute {name} is {n}; a number from 1 to 2²⁰ is needed")))
    }

    /// Integers that are amounts: small enough to be added.
    pub(crate) fn amounts(&self, name: &str) -> Result<Option<Vec<i64>>> {
        let Some(list) = self.ints(name) else { return Ok(None) };
        for &x in list {
            if x.unsigned_abs() > MAX_AMOUNT.unsigned_abs() {
                return Err(Error::node_error(format!(
                    "the attribute {name} has the value {x}, which is out of range"
                )));
            }
        }
        Ok(Some(list.to_vec()))
    }

    /// Integers that are counts for each of `n` axes, at least `least`; `default` if absent.
    pub(crate) fn sizes(&self, name: &str, n: usize, least: i64, default: usize) -> Result<Vec<usize>> {
        match self.amounts(name)? {
            None => Ok(vec![default; n]),
            Some(list) if list.is_empty() => Ok(vec![default; n]),
            Some(list) if list.len() == n && list.iter().all(|&x| (least..=1 << 20).contains(&x)) => {
                Ok(list.iter().map(|&x| x as usize).collect())
            }
            Some(list) => Err(Error::node_error(format!(
                "the attribute {name} is {list:?}; {n} numbers from {least} to 2²⁰ are needed"
            ))),
        }
    }

    pub(crate) fn graph(&self, name: &str) -> Result<&'m GraphProto> {
        let found = self.attr(name).and_then(|a| a.g.as_ref());
        found.ok_or_else(|| Error::node_error(format!("the attribute {name}, a graph, is missing")))
    }

    /// An operand, if it is present.
    pub(crate) fn item(&self, i: usize) -> Option<&ImportedValue> {
        self.args.get(i).and_then(Option::as_ref)
    }

    fn required(&self, i: usize) -> Result<&ImportedValue> {
        self.item(i).ok_or_else(|| Error::node_error(format!("its input {i} is missing")))
    }

    /// An operand of any element type.
    pub(crate) fn operand(&self, i: usize) -> Result<ImportedTensor> {
        match self.required(i)? {
            ImportedValue::Tensor(t) => Ok(*t),
            other => Err(Error::node_error(format!("its input {i} must be a tensor, not {}", other.kind()))),
        }
    }

    /// An operand with a dtype of ours.
    pub(crate) fn x(&self, i: usize) -> Result<Value> {
        let t = self.operand(i)?;
        match t.elem {
            None => Ok(t.v),
            Some(elem) => Err(Error::node_error(format!(
                "its input {i} is {}, which it can't compute with; cast it first",
                elem.name()
            ))),
        }
    }

    /// An optional operand.
    pub(crate) fn opt(&self, i: usize) -> Result<Option<Value>> {
        self.item(i).is_some().then(|| self.x(i)).transpose()
    }

    pub(crate) fn sequence(&self, i: usize) -> Result<Vec<ImportedValue>> {
        match self.required(i)? {
            ImportedValue::Sequence(items) => Ok(items.clone()),
            ImportedValue::Optional(Some(inner)) => match &**inner {
                ImportedValue::Sequence(items) => Ok(items.clone()),
                other => Err(Error::node_error(format!("its input {i} must be a sequence, not {}", other.kind()))),
            },
            other => Err(Error::node_error(format!("its input {i} must be a sequence, not {}", other.kind()))),
        }
    }

    pub(crate) fn rank(&self, v: Value) -> usize {
        self.ty(v).rank()
    }

    pub(crate) fn shape(&self, v: Value) -> Vec<usize> {
        self.ty(v).shape.to_vec()
    }

    pub(crate) fn dtype(&self, v: Value) -> DType {
        self.ty(v).dtype
    }

    /// The value of an operand that determines a shape.
    pub(crate) fn static_operand(&mut self, i: usize, what: &str) -> Result<Literal> {
        let v = self.operand(i)?.v;
        self.imp.static_value(v, &format!("its {what} (input {i})"))
    }

    /// The integers of such an operand.
    pub(crate) fn static_ints(&mut self, i: usize, what: &str) -> Result<Vec<i64>> {
        let x = self.static_operand(i, what)?;
        match x.ty().dtype.is_float() {
            true => Err(Error::node_error(format!("its {what} (input {i}) must be integers, not {}", x.ty()))),
            false => Ok(x.to_vec()),
        }
    }

    /// The sizes or amounts of such an operand.
    pub(crate) fn static_amounts(&mut self, i: usize, what: &str) -> Result<Vec<i64>> {
        let list = self.static_ints(i, what)?;
        match list.iter().find(|x| x.unsigned_abs() > MAX_AMOUNT.unsigned_abs()) {
            Some(x) => {
                Err(Error::node_error(format!("its {what} (input {i}) has the value {x}, which is out of range")))
            }
            None => Ok(list),
        }
    }

    /// Axes from an operand, or else from an attribute: `None` if both are absent.
    pub(crate) fn axes(&mut self, operand: usize, rank: usize) -> Result<Option<Vec<usize>>> {
        let list = match self.item(operand) {
            Some(_) => self.static_ints(operand, "axes")?,
            None => match self.ints("axes") {
                Some(list) => list.to_vec(),
                None => return Ok(None),
            },
        };
        list.iter().map(|&a| axis(a, rank)).collect::<Result<_>>().map(Some)
    }

    /// The attribute `axis`.
    pub(crate) fn axis(&self, default: i64, rank: usize) -> Result<usize> {
        axis(self.int("axis", default), rank)
    }

    /// NumPy's broadcasting of several operands to one shape.
    pub(crate) fn broadcast_all(&mut self, xs: &[Value]) -> Result<Vec<Value>> {
        let shapes: Vec<Vec<usize>> = xs.iter().map(|&x| self.shape(x)).collect();
        let shape = broadcast_shapes(&shapes)?;
        xs.iter().map(|&x| Ok(self.broadcast_to(x, &shape)?)).collect()
    }

    /// `f(a, b)` with broadcasting.
    pub(crate) fn broadcast_binary(&mut self, op: Binary, a: Value, b: Value) -> Result<Value> {
        let list = self.broadcast_all(&[a, b])?;
        Ok(self.binary(op, list[0], list[1])?)
    }

    /// Broadcasts a vector along one axis of a shape.
    pub(crate) fn broadcast_along(&mut self, v: Value, shape: &[usize], axis: usize) -> Result<Value> {
        Ok(self.broadcast(v, shape, &[axis])?)
    }

    /// A constant vector of integers.
    pub(crate) fn indices(&mut self, list: &[i64]) -> Result<Value> {
        Ok(self.constant(Literal::new(&[list.len()], list))?)
    }

    /// The dtype of an element type.
    pub(crate) fn dtype_of(&self, number: i64) -> Result<(DType, Option<Elem>)> {
        let elem =
            Elem::from_number(number).ok_or_else(|| Error::node_error(format!("unknown element type {number}")))?;
        Ok((self.imp.dtype(elem)?, elem.is_emulated().then_some(elem)))
    }
}

/// The number of elements for these sizes, before a tensor exists.
pub(crate) fn checked_numel(sizes: &[usize]) -> Result<usize> {
    let n = sizes.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    n.filter(|&n| n <= MAX_AMOUNT as usize)
        .ok_or_else(|| Error::node_error(format!("the product of the sizes {sizes:?} is too large")))
}

/// An axis that may be counted from the end.
pub(crate) fn axis(a: i64, rank: usize) -> Result<usize> {
    let n = rank as i64;
    match (-n..n).contains(&a) {
        true => Ok(if a < 0 { a + n } else { a } as usize),
        false => Err(Error::node_error(format!("axis {a} is out of range for rank {rank}"))),
    }
}

/// The shape to which all are broadcast.
pub(crate) fn broadcast_shapes(shapes: &[Vec<usize>]) -> Result<Vec<usize>> {
    let rank = shapes.iter().map(Vec::len).max().unwrap_or(0);
    let mut out = vec![1; rank];
    for shape in shapes {
        for (o, &d) in out[rank - shape.len()..].iter_mut().zip(shape) {
            if *o == 1 {
                *o = d;
            } else if d != 1 && d != *o {
                return Err(Error::node_error(format!("the shapes {shapes:?} do not broadcast")));
            }
        }
    }
    Ok(out)
}
