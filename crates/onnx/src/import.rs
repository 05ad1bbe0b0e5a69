//! Imports a model as a Graph: names, scopes, functions and bodies of control flow. The rules of the ops are in `ops`.

use crate::elem::Elem;
use crate::error::{Error, Result};
use crate::fold::{FoldingBuilder, NotConstant};
use crate::function_sizes::{self, FunctionSizes, OpKey};
use crate::item::{ImportedTensor, ImportedValue};
use crate::node::NodeContext;
use crate::options::{ImportOptions, InputInfo};
use crate::proto::{
    AttributeProto, DimensionValue, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetId, TensorType,
    TypeProto, TypeValue,
};
use crate::tensor::{self, ExternalData, NoExternalData};
use ir::{DType, Graph, GraphBuilder, Literal, Loc, Type, Value};
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of visited nodes; those of functions and unrolled loops are counted each time.
const MAX_NODES: usize = 1 << 20;
/// Maximum number of sequence elements that nodes read in total: each node that extends a sequence copies it.
const MAX_COPIED_ELEMENTS: usize = 1 << 22;
/// Maximum number of elements of a tensor: more than any memory, and small enough that index arithmetic does not overflow.
const MAX_ELEMENTS: usize = 1 << 40;
/// Maximum nesting depth of functions and bodies.
const MAX_DEPTH: usize = 64;

/// An input or output tensor of an imported graph.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorPort {
    /// Its name in the model; elements of a sequence are numbered: `xs.0`.
    pub name: String,
    /// Its type in the model; see [`Elem`] for emulated types.
    pub elem: Elem,
    /// Its type in the graph.
    pub ty: Type,
}

/// How an output of the model is assembled from outputs of the graph.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputForm {
    /// One output of the graph.
    Tensor(usize),
    /// A sequence.
    Sequence(Vec<OutputForm>),
    /// An optional value.
    Optional(Option<Box<OutputForm>>),
}

/// An imported model.
#[derive(Clone, Debug)]
pub struct ImportedModel {
    /// The graph from the inputs, then the parameters, to the outputs.
    pub graph: Graph,
    /// The inputs without given values.
    pub inputs: Vec<TensorPort>,
    /// Weights: floats can be trained. Small integers and tensors of rank 0 are constants in the graph instead.
    pub parameters: Vec<(String, Literal)>,
    /// The graph's outputs.
    pub outputs: Vec<TensorPort>,
    /// The model's outputs.
    pub forms: Vec<(String, OutputForm)>,
}

/// Imports a model without external data.
pub fn import(bytes: &[u8], options: &ImportOptions) -> Result<ImportedModel> {
    import_with(bytes, options, &NoExternalData)
}

/// Imports a model from a file; its external data may be in files beside it.
pub fn import_file(path: &std::path::Path, options: &ImportOptions) -> Result<ImportedModel> {
    let bytes = std::fs::read(path).map_err(|e| Error::Format(format!("{}: {e}", path.display())))?;
    let folder = path.parent().map(std::path::Path::to_path_buf).unwrap_or_default();
    import_with(&bytes, options, &tensor::DirectoryData(folder))
}

/// Imports a model whose external data is read by `external`.
pub fn import_with(bytes: &[u8], options: &ImportOptions, external: &dyn ExternalData) -> Result<ImportedModel> {
    let fault = |e: prost::DecodeError| Error::Format(e.to_string());
    let model = ModelProto::decode(bytes::Bytes::copy_from_slice(bytes)).map_err(fault)?;
    import_model(&model, options, external)
}

/// Imports a parsed model.
pub fn import_model(model: &ModelProto, options: &ImportOptions, external: &dyn ExternalData) -> Result<ImportedModel> {
    let graph = model.graph.as_ref().ok_or_else(|| Error::Format("the model has no graph".into()))?;
    let importer = Importer::new(model, options, external);
    let mut weights = FunctionSizes { functions: &importer.functions, known: HashMap::new(), deepest: MAX_DEPTH };
    if weights.of(&graph.node, 0) > MAX_NODES {
        return Err(Error::Model(format!(
            "more than {MAX_NODES} nodes, or more than {MAX_DEPTH} levels of nested functions, after inlining its \
             functions"
        )));
    }
    importer.run(graph).map_err(Error::model_error)
}

/// The names that are visible to a list of nodes.
struct NameScope<'m> {
    names: HashMap<String, ImportedValue>,
    /// The frame that contains its values.
    frame: usize,
    /// Whether names of the enclosing scope are visible.
    open: bool,
    /// Attributes of the call, in a function.
    attributes: HashMap<&'m str, &'m AttributeProto>,
    opsets: Arc<HashMap<String, i64>>,
}

/// A graph under construction: the main graph, or the body of a loop.
#[derive(Default)]
struct GraphFrame {
    fold: FoldingBuilder,
    /// Captured values of the enclosing frame, and the inputs that represent them here.
    captures: Vec<(Value, Value)>,
    memo: HashMap<Value, Value>,
    /// The names of the model's inputs by value.
    names: HashMap<Value, String>,
}

/// The body of a loop or branch as a graph: its own inputs first, then the captures.
pub(crate) struct SubgraphBody {
    pub(crate) graph: Graph,
    pub(crate) captures: Vec<Value>,
    pub(crate) outs: Vec<ImportedTensor>,
}

pub(crate) struct Importer<'m> {
    model: &'m ModelProto,
    functions: HashMap<OpKey<'m>, &'m FunctionProto>,
    pub(crate) options: &'m ImportOptions,
    external: &'m dyn ExternalData,
    frames: Vec<GraphFrame>,
    scopes: Vec<NameScope<'m>>,
    visited: usize,
    copied: usize,
}

/// The number of elements of a type, with empty axes counted as 1.
fn nonempty_elements(ty: &Type) -> usize {
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
    fn new(model: &'m ModelProto, options: &'m ImportOptions, external: &'m dyn ExternalData) -> Importer<'m> {
        let key = |f: &'m FunctionProto| (text(&f.domain), text(&f.name), text(&f.overload));
        Importer {
            model,
            functions: model.functions.iter().map(|f| (key(f), f)).collect(),
            options,
            external,
            frames: vec![GraphFrame::default()],
            scopes: Vec::new(),
            visited: 0,
            copied: 0,
        }
    }

    fn run(mut self, graph: &'m GraphProto) -> Result<ImportedModel> {
        let opsets = opsets(&self.model.opset_import);
        self.scopes.push(NameScope {
            names: HashMap::new(),
            frame: 0,
            open: false,
            attributes: HashMap::new(),
            opsets,
        });
        let unknown = self.options.inputs.keys().find(|k| !graph.input.iter().any(|i| text(&i.name) == k.as_str()));
        if let Some(name) = unknown {
            let all: Vec<&str> = graph.input.iter().map(|i| text(&i.name)).collect();
            return Err(Error::Model(format!("the model has no input `{name}`; its inputs are {}", all.join(", "))));
        }
        let initialised: HashMap<&str, ()> = graph.initializer.iter().map(|t| (text(&t.name), ())).collect();
        let mut inputs = Vec::new();
        for info in &graph.input {
            let name = text(&info.name);
            // Before IR version 4, initializers were also listed as inputs.
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
        Ok(ImportedModel { graph, inputs, parameters, outputs, forms })
    }

    fn form(&self, name: &str, item: &ImportedValue, outs: &mut Vec<Value>, ports: &mut Vec<TensorPort>) -> OutputForm {
        match item {
            ImportedValue::Tensor(t) => {
                let ty = self.frames[0].fold.ty(t.v);
                ports.push(TensorPort {
                    name: name.to_string(),
                    elem: t.elem.unwrap_or(Elem::from_dtype(ty.dtype)),
                    ty,
                });
                outs.push(t.v);
                OutputForm::Tensor(outs.len() - 1)
            }
            ImportedValue::Sequence(items) => {
                let one = |(i, item): (usize, &ImportedValue)| self.form(&format!("{name}.{i}"), item, outs, ports);
                OutputForm::Sequence(items.iter().enumerate().map(one).collect())
            }
            ImportedValue::Optional(item) => {
                OutputForm::Optional(item.as_ref().map(|item| Box::new(self.form(name, item, outs, ports))))
            }
        }
    }

    /// The dtype of an element type with these options.
    pub(crate) fn dtype(&self, elem: Elem) -> Result<DType> {
        match (elem, self.options.float_dtype) {
            (Elem::Float, Some(d)) => Ok(d),
            _ => elem.dtype().ok_or_else(|| Error::node_error(format!("{} tensors are not supported", elem.name()))),
        }
    }

    /// Converts a literal to the dtype that the options select.
    fn converted(&self, x: Literal, elem: Elem) -> Result<Literal> {
        let dtype = self.dtype(elem)?;
        if x.ty().dtype == dtype || elem != Elem::Float {
            return Ok(x);
        }
        Ok(Literal::from_fn(x.ty().with_dtype(dtype), |i| x.get(i).cast(dtype)))
    }

    /// Converts a tensor of the file to a literal.
    pub(crate) fn literal(&self, t: &'m crate::proto::TensorProto) -> Result<(Literal, Option<Elem>)> {
        let (x, elem) = tensor::literal(t, self.external)?;
        Ok((self.converted(x, elem)?, elem.is_emulated().then_some(elem)))
    }

    fn input(
        &mut self,
        name: &str,
        ty: Option<&TypeProto>,
        given: Option<&InputInfo>,
        ports: &mut Vec<TensorPort>,
    ) -> Result<ImportedValue> {
        let fault = |what: &str| Error::Model(format!("input {name}: {what}"));
        match ty.and_then(|t| t.value.as_ref()) {
            Some(TypeValue::Tensor(t)) => self.tensor_input(name, t, given, ports),
            Some(TypeValue::Sequence(s)) => {
                let Some(InputInfo::Sequence(items)) = given else {
                    return Err(fault("is a sequence, whose length must be given when importing (`Given::Sequence`)"));
                };
                let elem = s.elem_type.as_deref();
                let mut one = |(i, g): (usize, &InputInfo)| self.input(&format!("{name}.{i}"), elem, Some(g), ports);
                Ok(ImportedValue::Sequence(items.iter().enumerate().map(&mut one).collect::<Result<_>>()?))
            }
            Some(TypeValue::Optional(o)) => match given {
                Some(InputInfo::Absent) => Ok(ImportedValue::Optional(None)),
                Some(InputInfo::Present(g)) => {
                    let item = self.input(name, o.elem_type.as_deref(), Some(g), ports)?;
                    Ok(ImportedValue::Optional(Some(Box::new(item))))
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
        given: Option<&InputInfo>,
        ports: &mut Vec<TensorPort>,
    ) -> Result<ImportedValue> {
        let fault = |what: String| Error::Model(format!("input {name}: {what}"));
        let n = t.elem_type.unwrap_or(0);
        let elem = Elem::from_number(n.into()).ok_or_else(|| fault(format!("unknown element type {n}")))?;
        let Some(own) = elem.dtype() else {
            return Err(fault(format!("{} tensors are not supported; do this part outside the model", elem.name())));
        };
        let carried = elem.is_emulated().then_some(elem);
        if let Some(InputInfo::Value(x)) = given {
            if x.ty().dtype != own {
                return Err(fault(format!("is {}, got a value of {}", elem.name(), x.ty())));
            }
            let x = self.converted(x.clone(), elem)?;
            let v = self.frames[0].fold.constant(x)?;
            return Ok(ImportedTensor { v, elem: carried }.into());
        }
        let shape = match (given, &t.shape) {
            (Some(InputInfo::Shape(shape)), declared) => {
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
        if nonempty_elements(&ty) > MAX_ELEMENTS {
            return Err(fault(format!("{ty} has too many elements")));
        }
        let v = self.frames[0].fold.b.graph.input(ty.clone());
        self.frames[0].names.insert(v, name.to_string());
        ports.push(TensorPort { name: name.to_string(), elem, ty });
        Ok(ImportedTensor { v, elem: carried }.into())
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

    /// Binds a graph's initializers. In the model's main graph, trainable and large ones become inputs.
    fn initializers(&mut self, graph: &'m GraphProto, top: bool) -> Result<Vec<(String, Literal)>> {
        const SMALL: usize = 64;
        let mut parameters = Vec::new();
        for t in &graph.initializer {
            let name = text(&t.name);
            if self.scope().names.contains_key(name) {
                continue;
            }
            let (x, carried) = self.literal(t).map_err(|e| e.with_node(label(name), "initializer"))?;
            let constant = match x.ty().dtype.is_float() {
                true => x.ty().rank() == 0 || carried.is_some_and(|_| x.ty().numel() <= SMALL),
                false => x.ty().numel() <= SMALL,
            };
            let v = if constant || !top || self.options.parameters_as_constants {
                self.fold().constant(x)?
            } else {
                let v = self.fold().b.graph.input(x.ty().clone());
                self.fold().parameters.insert(v, x.clone());
                parameters.push((name.to_string(), x));
                v
            };
            self.bind(name, ImportedTensor { v, elem: carried }.into())?;
        }
        for s in &graph.sparse_initializer {
            let name = s.values.as_ref().map_or("", |v| text(&v.name));
            let x = self.densify(s).map_err(|e| e.with_node(label(name), "sparse initializer"))?;
            let v = self.fold().constant(x)?;
            self.bind(name, v.into())?;
        }
        Ok(parameters)
    }

    /// Converts a sparse tensor to a dense one.
    pub(crate) fn densify(&self, s: &'m crate::proto::SparseTensorProto) -> Result<Literal> {
        let fault = |what: &str| Error::node_error(format!("a sparse tensor {what}"));
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

    fn scope(&mut self) -> &mut NameScope<'m> {
        self.scopes.last_mut().expect("the model's own scope stays")
    }

    pub(crate) fn fold(&mut self) -> &mut FoldingBuilder {
        &mut self.frames.last_mut().expect("the model's own frame stays").fold
    }

    pub(crate) fn ty(&self, v: Value) -> Type {
        self.frames.last().expect("the model's own frame stays").fold.ty(v)
    }

    fn bind(&mut self, name: &str, item: ImportedValue) -> Result<()> {
        if name.is_empty() {
            return Ok(());
        }
        if self.scope().names.insert(name.to_string(), item).is_some() {
            return Err(Error::Model(format!("the name `{name}` is defined twice in one graph")));
        }
        Ok(())
    }

    /// Resolves a name.
    pub(crate) fn find(&mut self, name: &str) -> Option<Result<ImportedValue>> {
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
        if let ImportedValue::Sequence(items) = &item {
            self.copied += items.len();
            if self.copied > MAX_COPIED_ELEMENTS {
                let what = format!("its nodes copy more than {MAX_COPIED_ELEMENTS} elements of sequences");
                return Some(Err(Error::Model(what)));
            }
        }
        Some((frame + 1..self.frames.len()).try_fold(item, |item, f| {
            item.map(&mut |t: ImportedTensor| Ok(ImportedTensor { v: self.capture(f, t.v)?, elem: t.elem }))
        }))
    }

    /// Captures a value of the enclosing frame as a value of frame `f`.
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

    /// The value of an operand that determines a shape.
    pub(crate) fn static_value(&mut self, v: Value, what: &str) -> Result<Literal> {
        let frame = self.frames.len() - 1;
        let mut inputs = Vec::new();
        match self.static_value_in(frame, v, &mut inputs) {
            Some(x) => Ok(x),
            None if inputs.is_empty() => Err(Error::node_error(format!(
                "{what} determines shapes, which are static here, but it changes while the model runs"
            ))),
            None => {
                inputs.sort();
                inputs.dedup();
                Err(Error::NeedsValue { node: String::new(), op: String::new(), what: what.to_string(), inputs })
            }
        }
    }

    fn static_value_in(&mut self, f: usize, v: Value, inputs: &mut Vec<String>) -> Option<Literal> {
        let mut fold = std::mem::take(&mut self.frames[f].fold);
        let captures: HashMap<Value, Value> =
            self.frames[f].captures.iter().map(|&(outer, inner)| (inner, outer)).collect();
        let found = fold.value_of(v, &mut |input| {
            let outer = *captures.get(&input)?;
            self.static_value_in(f - 1, outer, inputs)
        });
        self.frames[f].fold = fold;
        match found {
            Ok(x) => Some(x),
            Err(NotConstant::Inputs(list)) => {
                inputs.extend(list.iter().filter_map(|v| self.frames[f].names.get(v).cloned()));
                None
            }
            Err(NotConstant::TooLarge) => None,
        }
    }

    /// The value, if it is a constant.
    pub(crate) fn constant_of(&self, v: Value) -> Option<Literal> {
        self.frames.last().and_then(|f| f.fold.constant_of(v).cloned())
    }

    fn walk(&mut self, nodes: &'m [NodeProto]) -> Result<()> {
        for (i, node) in nodes.iter().enumerate() {
            self.visited += 1;
            if self.visited > MAX_NODES {
                return Err(Error::Model(format!(
                    "more than {MAX_NODES} nodes after inlining functions and unrolling loops"
                )));
            }
            let (kind, number) = (text(&node.op_type), i.to_string());
            let label = match (text(&node.name), node.output.iter().find(|o| !o.is_empty())) {
                ("", Some(output)) => output,
                ("", None) => &number,
                (name, _) => name,
            };
            self.node(node, label).map_err(|e| e.with_node(label, kind))?;
        }
        Ok(())
    }

    fn node(&mut self, node: &'m NodeProto, label: &str) -> Result<()> {
        let mut args = Vec::with_capacity(node.input.len());
        for name in &node.input {
            args.push(match name.as_str() {
                "" => None,
                name => Some(self.find(name).ok_or_else(|| {
                    Error::node_error(format!(
                        "its input `{name}` is not defined before it; sort the nodes topologically, or fix the name"
                    ))
                })??),
            });
        }
        self.fold().b.loc = Loc::File(Arc::new((label.to_string(), 0, 0)));
        let key = function_sizes::key(node);
        let domain = key.0;
        let outs = match self.functions.get(&key).copied() {
            Some(function) => self.call(function, node, args)?,
            None => {
                let Some(&version) = self.scope().opsets.get(domain) else {
                    return Err(Error::node_error(format!("the model has no opset version for the domain `{domain}`")));
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
                crate::ops::convert(&mut NodeContext { imp: self, node, domain, version, args, attributes })?
            }
        };
        if outs.len() < node.output.iter().rposition(|o| !o.is_empty()).map_or(0, |i| i + 1) {
            return Err(Error::node_error(format!(
                "{} outputs are named, but it has {}",
                node.output.len(),
                outs.len()
            )));
        }
        for (name, item) in node.output.iter().zip(outs) {
            item.map(&mut |t: ImportedTensor| match self.ty(t.v) {
                ty if nonempty_elements(&ty) > MAX_ELEMENTS => {
                    Err(Error::node_error(format!("its result {ty} has too many elements")))
                }
                _ => Ok(t),
            })?;
            self.bind(name, item)?;
        }
        Ok(())
    }

    /// Inlines a function of the model.
    fn call(
        &mut self,
        f: &'m FunctionProto,
        node: &'m NodeProto,
        args: Vec<Option<ImportedValue>>,
    ) -> Result<Vec<ImportedValue>> {
        self.check_depth()?;
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
        self.scopes.push(NameScope {
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
            let missing = |o: &str| {
                Error::node_error(format!("the function {} does not compute its output `{o}`", text(&f.name)))
            };
            f.output.iter().map(|o| self.find(o).ok_or_else(|| missing(o))?).collect()
        })();
        self.scopes.pop();
        outs
    }

    fn check_depth(&self) -> Result<()> {
        match self.scopes.len() < MAX_DEPTH {
            true => Ok(()),
            false => {
                Err(Error::node_error(format!("functions and bodies are nested more than {MAX_DEPTH} levels deep")))
            }
        }
    }

    fn push_scope(&mut self) {
        let (attributes, opsets) = {
            let s = self.scope();
            (s.attributes.clone(), s.opsets.clone())
        };
        let frame = self.frames.len() - 1;
        self.scopes.push(NameScope { names: HashMap::new(), frame, open: true, attributes, opsets });
    }

    fn body_nodes(&mut self, graph: &'m GraphProto, args: Vec<ImportedValue>) -> Result<Vec<ImportedValue>> {
        if args.len() > graph.input.len() {
            return Err(Error::node_error(format!("its body takes {} inputs, not {}", graph.input.len(), args.len())));
        }
        for (info, item) in graph.input.iter().zip(args) {
            self.bind(text(&info.name), item)?;
        }
        self.initializers(graph, false)?;
        self.walk(&graph.node)?;
        let missing = |name: &str| Error::node_error(format!("no node of its body computes the output `{name}`"));
        let names = graph.output.iter().map(|o| text(&o.name));
        names.map(|name| self.find(name).ok_or_else(|| missing(name))?).collect()
    }

    /// Inlines the nodes of a body.
    pub(crate) fn inline(&mut self, graph: &'m GraphProto, args: Vec<ImportedValue>) -> Result<Vec<ImportedValue>> {
        self.check_depth()?;
        let loc = self.fold().b.loc.clone();
        self.push_scope();
        let outs = self.body_nodes(graph, args);
        self.scopes.pop();
        self.fold().b.loc = loc;
        outs
    }

    /// Imports a body as a separate graph. `args` are created in the new frame, which has these inputs.
    pub(crate) fn body(
        &mut self,
        graph: &'m GraphProto,
        inputs: &[Type],
        args: impl FnOnce(&mut FoldingBuilder, &[Value]) -> Result<Vec<ImportedValue>>,
    ) -> Result<SubgraphBody> {
        self.check_depth()?;
        let mut frame = GraphFrame::default();
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
                ImportedValue::Tensor(t) => tensors.push(t),
                other => {
                    return Err(Error::node_error(format!(
                        "its body returns {}, which cannot be loop-carried",
                        other.kind()
                    )));
                }
            }
        }
        // Captures were added during the import; in the result they follow the body's own inputs.
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
        Ok(SubgraphBody {
            graph: built,
            captures: frame.captures.iter().map(|(outer, _)| *outer).collect(),
            outs: tensors,
        })
    }
}
