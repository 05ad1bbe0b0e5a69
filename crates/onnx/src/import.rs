//! From a model to a Graph: names, scopes, functions and the bodies of control flow. What each op means stands in `ops`.

use crate::elem::Elem;
use crate::error::{Error, Result};
use crate::fold::{Fold, Unknown};
use crate::item::{Item, Tensor};
use crate::node::Cx;
use crate::options::{Given, Options};
use crate::proto::{
    AttributeProto, DimensionValue, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetId, TensorType,
    TypeProto, TypeValue,
};
use crate::tensor::{self, External, NoExternal};
use crate::weight::{self, Key, Weights};
use ir::{Build, DType, Graph, Literal, Loc, Type, Value};
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;

/// Nodes visited at most, those of functions and unrolled loops counted again each time.
const MOST_NODES: usize = 1 << 20;
/// Elements of sequences that nodes read, all together: each node that makes a longer sequence copies the one before.
const MOST_COPIED: usize = 1 << 22;
/// Elements of one tensor at most: more than any memory holds, and few enough that places in it can be computed with.
const MOST_ELEMENTS: usize = 1 << 40;
/// Functions and bodies inside of each other at most.
const MOST_DEPTH: usize = 64;

/// A tensor that goes into or out of an imported graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its name in the model; elements of a sequence are numbered: `xs.0`.
    pub name: String,
    /// Its type in the model; see [`Elem`] for those that are carried.
    pub elem: Elem,
    /// Its type in the graph.
    pub ty: Type,
}

/// How an output of the model is made of outputs of the graph.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// One of them.
    Tensor(usize),
    /// A sequence.
    Sequence(Vec<Form>),
    /// An optional.
    Optional(Option<Box<Form>>),
}

/// An imported model.
#[derive(Clone, Debug)]
pub struct Imported {
    /// From the inputs, then the parameters, to the outputs.
    pub graph: Graph,
    /// The inputs that are left when values were given.
    pub inputs: Vec<Port>,
    /// Weights: floats can be trained. Small integers and numbers of rank 0 are constants in the graph instead.
    pub parameters: Vec<(String, Literal)>,
    /// The graph's outputs.
    pub outputs: Vec<Port>,
    /// The model's outputs.
    pub forms: Vec<(String, Form)>,
}

/// Imports a model whose tensors are all inside.
pub fn import(bytes: &[u8], options: &Options) -> Result<Imported> {
    import_with(bytes, options, &NoExternal)
}

/// Imports a model from a file; tensors may be in files beside it.
pub fn import_file(path: &std::path::Path, options: &Options) -> Result<Imported> {
    let bytes = std::fs::read(path).map_err(|e| Error::Format(format!("{}: {e}", path.display())))?;
    let folder = path.parent().map(std::path::Path::to_path_buf).unwrap_or_default();
    import_with(&bytes, options, &tensor::Folder(folder))
}

/// Imports a model whose further data is found elsewhere.
pub fn import_with(bytes: &[u8], options: &Options, external: &dyn External) -> Result<Imported> {
    let fault = |e: prost::DecodeError| Error::Format(e.to_string());
    let model = ModelProto::decode(bytes::Bytes::copy_from_slice(bytes)).map_err(fault)?;
    import_model(&model, options, external)
}

/// Imports a model that has been read.
pub fn import_model(model: &ModelProto, options: &Options, external: &dyn External) -> Result<Imported> {
    let graph = model.graph.as_ref().ok_or_else(|| Error::Format("the model has no graph".into()))?;
    let importer = Importer::new(model, options, external);
    let mut weights = Weights { functions: &importer.functions, known: HashMap::new(), deepest: MOST_DEPTH };
    if weights.of(&graph.node, 0) > MOST_NODES {
        return Err(Error::Model(format!(
            "more than {MOST_NODES} nodes, or more than {MOST_DEPTH} levels of nested functions, after inlining its \
             functions"
        )));
    }
    importer.run(graph).map_err(Error::of_model)
}

/// Names that a list of nodes sees.
struct Scope<'m> {
    names: HashMap<String, Item>,
    /// The frame its values are in.
    frame: usize,
    /// Whether names of the scope around it are seen.
    open: bool,
    /// Attributes of the call, in a function.
    attributes: HashMap<&'m str, &'m AttributeProto>,
    opsets: Arc<HashMap<String, i64>>,
}

/// A graph under construction: the whole, or the body of a loop inside of it.
#[derive(Default)]
struct Frame {
    fold: Fold,
    /// Values of the frame around it, and the inputs that stand for them here.
    captures: Vec<(Value, Value)>,
    memo: HashMap<Value, Value>,
    /// Inputs of the model by value.
    names: HashMap<Value, String>,
}

/// The body of a loop or branch as a graph: its own inputs first, then what it captures.
pub(crate) struct Body {
    pub(crate) graph: Graph,
    pub(crate) captures: Vec<Value>,
    pub(crate) outs: Vec<Tensor>,
}

pub(crate) struct Importer<'m> {
    model: &'m ModelProto,
    functions: HashMap<Key<'m>, &'m FunctionProto>,
    pub(crate) options: &'m Options,
    external: &'m dyn External,
    frames: Vec<Frame>,
    scopes: Vec<Scope<'m>>,
    visited: usize,
    copied: usize,
}

/// Elements of a type if no axis were empty.
fn room(ty: &Type) -> usize {
    ty.shape.iter().fold(1, |n: usize, &d| n.saturating_mul(d.max(1)))
}

/// A name for messages.
fn label(name: &str) -> &str {
    if name.is_empty() { "without a name" } else { name }
}

fn text(s: &Option<String>) -> &str {
    s.as_deref().unwrap_or("")
}

fn opsets(list: &[OperatorSetId]) -> Arc<HashMap<String, i64>> {
    let domain = |o: &OperatorSetId| if text(&o.domain) == "ai.onnx" { "" } else { text(&o.domain) }.to_string();
    Arc::new(list.iter().map(|o| (domain(o), o.version.unwrap_or(0))).collect())
}

impl<'m> Importer<'m> {
    fn new(model: &'m ModelProto, options: &'m Options, external: &'m dyn External) -> Importer<'m> {
        let key = |f: &'m FunctionProto| (text(&f.domain), text(&f.name), text(&f.overload));
        Importer {
            model,
            functions: model.functions.iter().map(|f| (key(f), f)).collect(),
            options,
            external,
            frames: vec![Frame::default()],
            scopes: Vec::new(),
            visited: 0,
            copied: 0,
        }
    }

    fn run(mut self, graph: &'m GraphProto) -> Result<Imported> {
        let opsets = opsets(&self.model.opset_import);
        self.scopes.push(Scope { names: HashMap::new(), frame: 0, open: false, attributes: HashMap::new(), opsets });
        let unknown = self.options.inputs.keys().find(|k| !graph.input.iter().any(|i| text(&i.name) == k.as_str()));
        if let Some(name) = unknown {
            let all: Vec<&str> = graph.input.iter().map(|i| text(&i.name)).collect();
            return Err(Error::Model(format!("the model has no input `{name}`; its inputs are {}", all.join(", "))));
        }
        let initialised: HashMap<&str, ()> = graph.initializer.iter().map(|t| (text(&t.name), ())).collect();
        let mut inputs = Vec::new();
        for info in &graph.input {
            let name = text(&info.name);
            // Before IR version 4 initializers were listed as inputs too.
            if initialised.contains_key(name) && !self.options.inputs.contains_key(name) {
                continue;
            }
            let item = self.input(name, info.r#type.as_ref(), self.options.inputs.get(name), &mut inputs)?;
            self.bind(name, item)?;
        }
        let parameters = self.initializers(graph, true)?;
        self.walk(&graph.node)?;
        let (mut outs, mut outputs, mut forms) = (Vec::new(), Vec::new(), Vec::new());
        for info in &graph.output {
            let name = text(&info.name);
            let item =
                self.find(name).ok_or_else(|| Error::Model(format!("no node computes the output `{name}`")))??;
            let form = self.form(name, &item, &mut outs, &mut outputs);
            forms.push((name.to_string(), form));
        }
        let frame = self.frames.remove(0);
        let mut built = frame.fold.b.graph;
        built.set_outputs(outs);
        let graph = built.without_dead_nodes();
        Ok(Imported { graph, inputs, parameters, outputs, forms })
    }

    fn form(&self, name: &str, item: &Item, outs: &mut Vec<Value>, ports: &mut Vec<Port>) -> Form {
        match item {
            Item::Tensor(t) => {
                let ty = self.frames[0].fold.ty(t.v);
                ports.push(Port { name: name.to_string(), elem: t.carried.unwrap_or(Elem::of(ty.dtype)), ty });
                outs.push(t.v);
                Form::Tensor(outs.len() - 1)
            }
            Item::Sequence(items) => {
                let one = |(i, item): (usize, &Item)| self.form(&format!("{name}.{i}"), item, outs, ports);
                Form::Sequence(items.iter().enumerate().map(one).collect())
            }
            Item::Optional(item) => {
                Form::Optional(item.as_ref().map(|item| Box::new(self.form(name, item, outs, ports))))
            }
        }
    }

    /// The dtype of an element type, by the options.
    pub(crate) fn dtype(&self, elem: Elem) -> Result<DType> {
        match (elem, self.options.float) {
            (Elem::Float, Some(d)) => Ok(d),
            _ => elem.dtype().ok_or_else(|| Error::here(format!("{} tensors are not supported", elem.name()))),
        }
    }

    /// A literal in the dtype that the options ask for.
    fn converted(&self, x: Literal, elem: Elem) -> Result<Literal> {
        let dtype = self.dtype(elem)?;
        if x.ty().dtype == dtype || elem != Elem::Float {
            return Ok(x);
        }
        Ok(Literal::from_fn(x.ty().with_dtype(dtype), |i| x.get(i).cast(dtype)))
    }

    /// A tensor of the file as a literal.
    pub(crate) fn literal(&self, t: &'m crate::proto::TensorProto) -> Result<(Literal, Option<Elem>)> {
        let (x, elem) = tensor::literal(t, self.external)?;
        Ok((self.converted(x, elem)?, elem.is_carried().then_some(elem)))
    }

    fn input(
        &mut self,
        name: &str,
        ty: Option<&TypeProto>,
        given: Option<&Given>,
        ports: &mut Vec<Port>,
    ) -> Result<Item> {
        let fault = |what: &str| Error::Model(format!("input {name}: {what}"));
        match ty.and_then(|t| t.value.as_ref()) {
            Some(TypeValue::Tensor(t)) => self.tensor_input(name, t, given, ports),
            Some(TypeValue::Sequence(s)) => {
                let Some(Given::Sequence(items)) = given else {
                    return Err(fault("is a sequence, whose length must be given when importing (`Given::Sequence`)"));
                };
                let elem = s.elem_type.as_deref();
                let mut one = |(i, g): (usize, &Given)| self.input(&format!("{name}.{i}"), elem, Some(g), ports);
                Ok(Item::Sequence(items.iter().enumerate().map(&mut one).collect::<Result<_>>()?))
            }
            Some(TypeValue::Optional(o)) => match given {
                Some(Given::Absent) => Ok(Item::Optional(None)),
                Some(Given::Present(g)) => {
                    let item = self.input(name, o.elem_type.as_deref(), Some(g), ports)?;
                    Ok(Item::Optional(Some(Box::new(item))))
                }
                _ => Err(fault(
                    "is optional: specify when importing whether it is present (`Given::Present`, `Given::Absent`)",
                )),
            },
            Some(TypeValue::Map(_)) => Err(fault("is a map, which is not supported; convert it to tensors before")),
            Some(TypeValue::Sparse(_)) => Err(fault("is a sparse tensor, which is not supported; make it dense")),
            None => Err(fault("has no type; run shape inference on the model first")),
        }
    }

    fn tensor_input(
        &mut self,
        name: &str,
        t: &TensorType,
        given: Option<&Given>,
        ports: &mut Vec<Port>,
    ) -> Result<Item> {
        let fault = |what: String| Error::Model(format!("input {name}: {what}"));
        let n = t.elem_type.unwrap_or(0);
        let elem = Elem::from_number(n.into()).ok_or_else(|| fault(format!("unknown element type {n}")))?;
        let Some(own) = elem.dtype() else {
            return Err(fault(format!("{} tensors are not supported; do this part outside the model", elem.name())));
        };
        let carried = elem.is_carried().then_some(elem);
        if let Some(Given::Value(x)) = given {
            if x.ty().dtype != own {
                return Err(fault(format!("is {}, got a value of {}", elem.name(), x.ty())));
            }
            let x = self.converted(x.clone(), elem)?;
            let v = self.frames[0].fold.constant(x)?;
            return Ok(Tensor { v, carried }.into());
        }
        let shape = match (given, &t.shape) {
            (Some(Given::Shape(shape)), declared) => {
                if let Some(declared) = declared {
                    let fits = declared.dim.len() == shape.len()
                        && declared.dim.iter().zip(shape).all(|(d, &s)| match d.value {
                            Some(DimensionValue::Size(n)) => n == s as i64,
                            _ => true,
                        });
                    if !fits {
                        return Err(fault(format!("the given shape {shape:?} does not match its type")));
                    }
                }
                shape.clone()
            }
            (Some(_), _) => return Err(fault("is a tensor: give its shape or its value".into())),
            (None, None) => {
                return Err(fault(
                    "its shape is not known; give one when importing (`Options::shape`, `--shape`)".into(),
                ));
            }
            (None, Some(declared)) => self.shape(name, &declared.dim)?,
        };
        let ty = Type::checked(self.dtype(elem)?, &shape).map_err(|p| fault(p.to_string()))?;
        if room(&ty) > MOST_ELEMENTS {
            return Err(fault(format!("{ty} has too many elements")));
        }
        let v = self.frames[0].fold.b.graph.input(ty.clone());
        self.frames[0].names.insert(v, name.to_string());
        ports.push(Port { name: name.to_string(), elem, ty });
        Ok(Tensor { v, carried }.into())
    }

    fn shape(&self, input: &str, dims: &[crate::proto::Dimension]) -> Result<Vec<usize>> {
        let one = |(axis, d): (usize, &crate::proto::Dimension)| match &d.value {
            Some(DimensionValue::Size(n)) if *n >= 0 => Ok(*n as usize),
            Some(DimensionValue::Name(name)) if self.options.dims.contains_key(name) => Ok(self.options.dims[name]),
            other => {
                let name = if let Some(DimensionValue::Name(name)) = other { name.clone() } else { "?".into() };
                Err(Error::NeedsSize { input: input.to_string(), axis, name })
            }
        };
        dims.iter().enumerate().map(one).collect()
    }

    /// Binds a graph's initializers. In the model's own graph those that may be trained, and large ones, become inputs.
    fn initializers(&mut self, graph: &'m GraphProto, top: bool) -> Result<Vec<(String, Literal)>> {
        const SMALL: usize = 64;
        let mut parameters = Vec::new();
        for t in &graph.initializer {
            let name = text(&t.name);
            if self.scope().names.contains_key(name) {
                continue;
            }
            let (x, carried) = self.literal(t).map_err(|e| e.at(label(name), "initializer"))?;
            let constant = match x.ty().dtype.is_float() {
                true => x.ty().rank() == 0 || carried.is_some_and(|_| x.ty().numel() <= SMALL),
                false => x.ty().numel() <= SMALL,
            };
            let v = if constant || !top || self.options.constants {
                self.fold().constant(x)?
            } else {
                let v = self.fold().b.graph.input(x.ty().clone());
                self.fold().parameters.insert(v, x.clone());
                parameters.push((name.to_string(), x));
                v
            };
            self.bind(name, Tensor { v, carried }.into())?;
        }
        for s in &graph.sparse_initializer {
            let name = s.values.as_ref().map_or("", |v| text(&v.name));
            let x = self.dense(s).map_err(|e| e.at(label(name), "sparse initializer"))?;
            let v = self.fold().constant(x)?;
            self.bind(name, v.into())?;
        }
        Ok(parameters)
    }

    /// A sparse tensor written out.
    pub(crate) fn dense(&self, s: &'m crate::proto::SparseTensorProto) -> Result<Literal> {
        let fault = |what: &str| Error::here(format!("a sparse tensor {what}"));
        let (Some(values), Some(indices)) = (&s.values, &s.indices) else {
            return Err(fault("without values or indices"));
        };
        let ((values, carried), (indices, _)) = (self.literal(values)?, self.literal(indices)?);
        let dims: Option<Vec<usize>> = s.dims.iter().map(|&d| usize::try_from(d).ok()).collect();
        let dims = dims.filter(|_| carried.is_none()).ok_or_else(|| fault("with an unsupported shape or type"))?;
        let ty = Type::checked(values.ty().dtype, &dims)?;
        let n = ty.numel();
        let stored = values.ty().numel();
        if n > 1 << 28 || indices.ty().shape.first() != Some(&stored) || indices.ty().rank() > 2 {
            return Err(fault("whose indices do not match its shape"));
        }
        let at: Vec<i64> = indices.to_vec();
        let mut filled = vec![ir::Scalar::zero(ty.dtype); n];
        let strides = ty.strides();
        for i in 0..stored {
            let place = match indices.ty().rank() {
                1 => usize::try_from(at[i]).ok(),
                _ if indices.ty().shape[1] != dims.len() => None,
                _ => (0..dims.len()).try_fold(0usize, |sum, a| {
                    let k = usize::try_from(at[i * dims.len() + a]).ok().filter(|&k| k < dims[a])?;
                    Some(sum + k * strides[a])
                }),
            };
            let place = place.filter(|&p| p < n).ok_or_else(|| fault("with an index out of range"))?;
            filled[place] = values.get(i);
        }
        Ok(Literal::from_fn(ty, |i| filled[i]))
    }

    fn scope(&mut self) -> &mut Scope<'m> {
        self.scopes.last_mut().expect("the model's own scope stays")
    }

    pub(crate) fn fold(&mut self) -> &mut Fold {
        &mut self.frames.last_mut().expect("the model's own frame stays").fold
    }

    pub(crate) fn ty(&self, v: Value) -> Type {
        self.frames.last().expect("the model's own frame stays").fold.ty(v)
    }

    fn bind(&mut self, name: &str, item: Item) -> Result<()> {
        if name.is_empty() {
            return Ok(());
        }
        if self.scope().names.insert(name.to_string(), item).is_some() {
            return Err(Error::Model(format!("the name `{name}` is defined twice in one graph")));
        }
        Ok(())
    }

    /// What a name stands for here.
    pub(crate) fn find(&mut self, name: &str) -> Option<Result<Item>> {
        let mut found = None;
        for scope in self.scopes.iter().rev() {
            if let Some(item) = scope.names.get(name) {
                found = Some((item.clone(), scope.frame));
                break;
            }
            if !scope.open {
                break;
            }
        }
        let (item, frame) = found?;
        if let Item::Sequence(items) = &item {
            self.copied += items.len();
            if self.copied > MOST_COPIED {
                let what = format!("its nodes copy more than {MOST_COPIED} elements of sequences");
                return Some(Err(Error::Model(what)));
            }
        }
        Some((frame + 1..self.frames.len()).try_fold(item, |item, f| {
            item.map(&mut |t: Tensor| Ok(Tensor { v: self.capture(f, t.v)?, carried: t.carried }))
        }))
    }

    /// The value of the frame before as a value of frame `f`.
    fn capture(&mut self, f: usize, v: Value) -> Result<Value> {
        if let Some(&inner) = self.frames[f].memo.get(&v) {
            return Ok(inner);
        }
        let inner = match self.frames[f - 1].fold.constant_of(v).cloned() {
            Some(x) => self.frames[f].fold.constant(x)?,
            None => {
                let ty = self.frames[f - 1].fold.ty(v);
                let inner = self.frames[f].fold.b.graph.input(ty);
                self.frames[f].captures.push((v, inner));
                inner
            }
        };
        self.frames[f].memo.insert(v, inner);
        Ok(inner)
    }

    /// The value of something that decides about shapes.
    pub(crate) fn known(&mut self, v: Value, what: &str) -> Result<Literal> {
        let frame = self.frames.len() - 1;
        let mut inputs = Vec::new();
        match self.known_in(frame, v, &mut inputs) {
            Some(x) => Ok(x),
            None if inputs.is_empty() => Err(Error::here(format!(
                "{what} determines shapes, which are static here, but it changes while the model runs"
            ))),
            None => {
                inputs.sort();
                inputs.dedup();
                Err(Error::NeedsValue { node: String::new(), op: String::new(), what: what.to_string(), inputs })
            }
        }
    }

    fn known_in(&mut self, f: usize, v: Value, inputs: &mut Vec<String>) -> Option<Literal> {
        let mut fold = std::mem::take(&mut self.frames[f].fold);
        let captures: HashMap<Value, Value> =
            self.frames[f].captures.iter().map(|&(outer, inner)| (inner, outer)).collect();
        let found = fold.value_of(v, &mut |input| {
            let outer = *captures.get(&input)?;
            self.known_in(f - 1, outer, inputs)
        });
        self.frames[f].fold = fold;
        match found {
            Ok(x) => Some(x),
            Err(Unknown::Inputs(list)) => {
                inputs.extend(list.iter().filter_map(|v| self.frames[f].names.get(v).cloned()));
                None
            }
            Err(Unknown::Costly) => None,
        }
    }

    /// Whether a value is a constant, and which.
    pub(crate) fn constant_of(&self, v: Value) -> Option<Literal> {
        self.frames.last().and_then(|f| f.fold.constant_of(v).cloned())
    }

    fn walk(&mut self, nodes: &'m [NodeProto]) -> Result<()> {
        for (i, node) in nodes.iter().enumerate() {
            self.visited += 1;
            if self.visited > MOST_NODES {
                return Err(Error::Model(format!(
                    "more than {MOST_NODES} nodes after inlining functions and unrolling loops"
                )));
            }
            let (kind, number) = (text(&node.op_type), i.to_string());
            let label = match (text(&node.name), node.output.iter().find(|o| !o.is_empty())) {
                ("", Some(output)) => output,
                ("", None) => &number,
                (name, _) => name,
            };
            self.node(node, label).map_err(|e| e.at(label, kind))?;
        }
        Ok(())
    }

    fn node(&mut self, node: &'m NodeProto, label: &str) -> Result<()> {
        let mut args = Vec::with_capacity(node.input.len());
        for name in &node.input {
            args.push(match name.as_str() {
                "" => None,
                name => Some(self.find(name).ok_or_else(|| {
                    Error::here(format!(
                        "its input `{name}` is not defined before it; sort the nodes topologically, or fix the name"
                    ))
                })??),
            });
        }
        self.fold().b.loc = Loc::File(Arc::new((label.to_string(), 0, 0)));
        let key = weight::key(node);
        let domain = key.0;
        let outs = match self.functions.get(&key).copied() {
            Some(function) => self.call(function, node, args)?,
            None => {
                let Some(&version) = self.scope().opsets.get(domain) else {
                    return Err(Error::here(format!("the model has no opset version for the domain `{domain}`")));
                };
                let mut attributes = Vec::with_capacity(node.attribute.len());
                for a in &node.attribute {
                    match text(&a.ref_attr_name) {
                        "" => attributes.push((text(&a.name), a)),
                        outer => {
                            if let Some(&found) = self.scope().attributes.get(outer) {
                                attributes.push((text(&a.name), found));
                            }
                        }
                    }
                }
                crate::ops::convert(&mut Cx { imp: self, node, domain, version, args, attributes })?
            }
        };
        if outs.len() < node.output.iter().rposition(|o| !o.is_empty()).map_or(0, |i| i + 1) {
            return Err(Error::here(format!("{} outputs are named, but it has {}", node.output.len(), outs.len())));
        }
        for (name, item) in node.output.iter().zip(outs) {
            item.map(&mut |t: Tensor| match self.ty(t.v) {
                ty if room(&ty) > MOST_ELEMENTS => Err(Error::here(format!("its result {ty} has too many elements"))),
                _ => Ok(t),
            })?;
            self.bind(name, item)?;
        }
        Ok(())
    }

    /// A function of the model, written out.
    fn call(&mut self, f: &'m FunctionProto, node: &'m NodeProto, args: Vec<Option<Item>>) -> Result<Vec<Item>> {
        self.deeper()?;
        let mut attributes: HashMap<&'m str, &'m AttributeProto> =
            f.attribute_proto.iter().map(|a| (text(&a.name), a)).collect();
        for a in &node.attribute {
            match text(&a.ref_attr_name) {
                "" => drop(attributes.insert(text(&a.name), a)),
                outer => {
                    if let Some(&found) = self.scope().attributes.get(outer) {
                        attributes.insert(text(&a.name), found);
                    }
                }
            }
        }
        let frame = self.frames.len() - 1;
        self.scopes.push(Scope {
            names: HashMap::new(),
            frame,
            open: false,
            attributes,
            opsets: opsets(&f.opset_import),
        });
        let outs = (|| {
            for (name, item) in f.input.iter().zip(args) {
                if let Some(item) = item {
                    self.bind(name, item)?;
                }
            }
            self.walk(&f.node)?;
            let missing =
                |o: &str| Error::here(format!("the function {} does not compute its output `{o}`", text(&f.name)));
            f.output.iter().map(|o| self.find(o).ok_or_else(|| missing(o))?).collect()
        })();
        self.scopes.pop();
        outs
    }

    fn deeper(&self) -> Result<()> {
        match self.scopes.len() < MOST_DEPTH {
            true => Ok(()),
            false => Err(Error::here(format!("functions and bodies are nested more than {MOST_DEPTH} levels deep"))),
        }
    }

    fn push_scope(&mut self) {
        let (attributes, opsets) = {
            let s = self.scope();
            (s.attributes.clone(), s.opsets.clone())
        };
        let frame = self.frames.len() - 1;
        self.scopes.push(Scope { names: HashMap::new(), frame, open: true, attributes, opsets });
    }

    fn body_nodes(&mut self, graph: &'m GraphProto, args: Vec<Item>) -> Result<Vec<Item>> {
        if args.len() > graph.input.len() {
            return Err(Error::here(format!("its body takes {} inputs, not {}", graph.input.len(), args.len())));
        }
        for (info, item) in graph.input.iter().zip(args) {
            self.bind(text(&info.name), item)?;
        }
        self.initializers(graph, false)?;
        self.walk(&graph.node)?;
        let missing = |name: &str| Error::here(format!("no node of its body computes the output `{name}`"));
        let names = graph.output.iter().map(|o| text(&o.name));
        names.map(|name| self.find(name).ok_or_else(|| missing(name))?).collect()
    }

    /// A body's nodes written here.
    pub(crate) fn inline(&mut self, graph: &'m GraphProto, args: Vec<Item>) -> Result<Vec<Item>> {
        self.deeper()?;
        let loc = self.fold().b.loc.clone();
        self.push_scope();
        let outs = self.body_nodes(graph, args);
        self.scopes.pop();
        self.fold().b.loc = loc;
        outs
    }

    /// A body as a graph of its own. `args` are made in the new frame, which has these inputs.
    pub(crate) fn body(
        &mut self,
        graph: &'m GraphProto,
        inputs: &[Type],
        args: impl FnOnce(&mut Fold, &[Value]) -> Result<Vec<Item>>,
    ) -> Result<Body> {
        self.deeper()?;
        let mut frame = Frame::default();
        frame.fold.b.loc = self.fold().b.loc.clone();
        let own: Vec<Value> = inputs.iter().map(|t| frame.fold.b.graph.input(t.clone())).collect();
        let args = args(&mut frame.fold, &own)?;
        self.frames.push(frame);
        self.push_scope();
        let outs = self.body_nodes(graph, args);
        self.scopes.pop();
        let frame = self.frames.pop().expect("pushed above");
        let mut tensors = Vec::new();
        for item in outs? {
            match item {
                Item::Tensor(t) => tensors.push(t),
                other => {
                    return Err(Error::here(format!("its body returns {}, which cannot be loop-carried", other.kind())));
                }
            }
        }
        // Captures were found on the way; here they follow the body's own inputs.
        let mut built = Graph::new();
        let mut map: HashMap<Value, Value> = HashMap::new();
        for &v in own.iter().chain(frame.captures.iter().map(|(_, inner)| inner)) {
            map.insert(v, built.input(frame.fold.ty(v)));
        }
        let mut source = frame.fold.b.graph;
        source.set_outputs(tensors.iter().map(|t| t.v).collect::<Vec<_>>());
        let args: Vec<Value> = source.inputs().iter().map(|v| map[v]).collect();
        let outs = source.inline(&mut built, &args)?;
        built.set_outputs(outs);
        Ok(Body { graph: built, captures: frame.captures.iter().map(|(outer, _)| *outer).collect(), outs: tensors })
    }
}
