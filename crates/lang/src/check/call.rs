//! Calls: which operation a name means, which argument goes where, and what comes out.
//!
//! Tensors bind to inputs and then to parameters in order, constants to attributes or to the module's parameters in
//! order; sizes that are not given follow from the tensors.

use super::graph::{Entry, GraphChecker, Instance, Undecided};
use super::primitives::{self, Primitive, Rule};
use super::rules::{self, Attributes, Operand};
use super::scope::Scope;
use super::signature::{Misfit, Signature};
use super::types::{TensorType, is_integer};
use crate::ast::{Arg, Call, DTYPE_NAMES, DeclKind, Expr, ExprKind, IndexItem, IoTensor, Param, TypeExpr, TypeKind};
use crate::consteval::Value;
use crate::diagnostic::{Code, Diagnostic};
use crate::dims::Dim;
use crate::resolve::{Entity, ItemRef, ModuleView};
use crate::span::Span;
use crate::suggest::closest;
use std::collections::BTreeMap;

/// What a call names.
enum Target {
    Primitive(&'static Primitive),
    Module(ItemRef),
    Instance(Instance),
    /// Something whose results are not followed: a backward of a module, a declared primitive.
    Opaque,
    /// A stack of blocks, each fed with the results of the one before.
    Stacked,
    Unknown,
}

/// An argument once it is known to be a tensor or a constant.
enum Argument {
    Tensor(Operand),
    Constant(Value),
    Absent,
}

impl GraphChecker<'_> {
    fn target(&mut self, call: &Call) -> Target {
        let path = &call.callee.path;
        match self
            .entries
            .get(&path.parts[0].name)
            .map(|defined| defined.entry.clone())
        {
            Some(Entry::Instances(instance, length)) if path.parts.len() == 1 => {
                self.slice_in_range(call, length);
                return Target::Instance(instance);
            }
            Some(Entry::Instance(instance)) if path.parts.len() == 1 => return Target::Instance(instance),
            Some(Entry::Instance(_) | Entry::Instances(..)) if path.last().name == "backward" => {
                return Target::Opaque;
            }
            Some(Entry::Instance(_) | Entry::Instances(..)) => {
                if let Some(Entry::Instance(inner)) = self.path_entry(path) {
                    return Target::Instance(inner);
                }
            }
            _ => {}
        }
        match self.program.lookup(self.file, path) {
            Some(Entity::Item(item)) => {
                return match self.program.decl(item).map(|decl| decl.kind) {
                    Some(DeclKind::Primitive) => match path.as_name().and_then(|n| primitives::find(&n.name)) {
                        Some(primitive) => Target::Primitive(primitive),
                        None => Target::Opaque,
                    },
                    Some(_) => Target::Module(item),
                    None => Target::Unknown,
                };
            }
            Some(Entity::Primitive(name)) => {
                if let Some(primitive) = primitives::find(&name) {
                    return Target::Primitive(primitive);
                }
            }
            _ => {}
        }
        let name = path.to_string();
        if let Some(primitive) = primitives::find(&name) {
            return Target::Primitive(primitive);
        }
        match name.as_str() {
            "StackedBlocks" => return Target::Stacked,
            "StackedBlocksBackward" => return Target::Opaque,
            _ => {}
        }
        // `Linear_backward` and `LinearBackward` are the backward of a module in reach.
        let base = name.strip_suffix("_backward").or_else(|| name.strip_suffix("Backward"));
        if let Some(base) = base
            && (self.entries.contains_key(base) || self.program.files[self.file].scope.contains_key(base))
        {
            return Target::Opaque;
        }
        Target::Unknown
    }

    /// `blocks[8:16]()` must lie inside the array, where both are numbers.
    fn slice_in_range(&mut self, call: &Call, length: Option<Dim>) {
        let Some(length) = length.and_then(|length| length.as_constant()) else {
            return;
        };
        for item in call.callee.index.iter().flatten() {
            let (last, span) = match item {
                IndexItem::At(expr) => (self.scope.constant(expr).as_int().map(|n| n + 1), expr.span),
                IndexItem::Slice {
                    end: Some(end), span, ..
                } => (self.scope.constant(end).as_int(), *span),
                IndexItem::Slice { .. } => continue,
            };
            if last.is_some_and(|last| last > length) {
                self.diagnostics.push(
                    Diagnostic::new(Code::E004, span, "index past the end of the array")
                        .label(format!("`{}` has {length} elements", call.callee.path)),
                );
            }
        }
    }

    /// Reports a callee that does not exist.
    pub(super) fn callee_exists(&mut self, call: &Call) -> bool {
        let unknown = matches!(self.target(call), Target::Unknown);
        if unknown {
            self.report_unknown(call);
        }
        !unknown
    }

    fn report_unknown(&mut self, call: &Call) {
        let name = call.callee.path.to_string();
        let is_module = call
            .callee
            .path
            .last()
            .name
            .starts_with(|c: char| c.is_ascii_uppercase());
        let (code, message) = match is_module {
            true => (Code::E002, format!("no module named `{name}`")),
            false => (Code::E014, format!("no operation named `{name}`")),
        };
        let own = self.program.files[self.file].scope.keys().chain(self.entries.keys());
        let own: Vec<&str> = own.map(String::as_str).collect();
        let close = closest(&name, own)
            .or_else(|| closest(&name, primitives::names()))
            .map(str::to_string);
        let label = if is_module {
            "not declared and not imported"
        } else {
            "neither a primitive nor a module"
        };
        let mut found = Diagnostic::new(code, call.callee.span, message).label(label);
        if let Some(close) = close {
            found = found.hint(format!("did you mean `{close}`?"));
        }
        self.diagnostics.push(found);
    }

    /// The results of a call; `None` if they are not followed.
    pub(super) fn call(&mut self, call: &Call, inputs: Vec<Operand>) -> Result<Option<Vec<TensorType>>, Undecided> {
        let target = self.target(call);
        let args = call.args.as_deref().unwrap_or_default();
        match target {
            Target::Unknown => {
                self.report_unknown(call);
                Ok(None)
            }
            Target::Opaque => {
                self.visit_arguments(args)?;
                Ok(None)
            }
            Target::Primitive(primitive) => self.primitive_call(call, primitive, inputs, args),
            Target::Module(item) => self.module_call(call, item, BTreeMap::new(), inputs, args),
            Target::Instance(instance) => self.module_call(call, instance.item, instance.given, inputs, args),
            Target::Stacked => self.stacked_call(call, inputs, args),
        }
    }

    fn visit_arguments(&mut self, args: &[Arg]) -> Result<(), Undecided> {
        for arg in args {
            self.argument(&arg.value, true)?;
        }
        Ok(())
    }

    /// Whether an argument is a tensor or a constant; names that are both are what `tensor_first` says.
    fn argument(&mut self, expr: &Expr, tensor_first: bool) -> Result<Argument, Undecided> {
        match &expr.kind {
            ExprKind::Paren(inner) => return self.argument(inner, tensor_first),
            ExprKind::None => return Ok(Argument::Absent),
            ExprKind::Ellipsis => {
                self.left_out(expr.span, "arguments");
                return Ok(Argument::Absent);
            }
            ExprKind::IfElse {
                then,
                condition,
                otherwise,
            } => {
                let branch = if self.guard(condition)? { then } else { otherwise };
                return self.argument(branch, tensor_first);
            }
            ExprKind::Name(name) => {
                let tensor = self.entries.contains_key(name);
                let constant = self.scope.has_constant(name);
                if let Some(super::graph::Defined {
                    entry: Entry::Absent, ..
                }) = self.entries.get(name)
                    && !constant
                {
                    return Ok(Argument::Absent);
                }
                if tensor && (tensor_first || !constant) {
                    return Ok(Argument::Tensor(self.operand(expr)));
                }
                if !tensor && !constant {
                    return Ok(Argument::Constant(Value::Word(name.clone())));
                }
            }
            ExprKind::Attr(..) | ExprKind::Index(..) | ExprKind::Spread(_) => {
                return Ok(Argument::Tensor(self.operand(expr)));
            }
            _ => {}
        }
        if let ExprKind::List(items) | ExprKind::Tuple(items) = &expr.kind
            && items
                .iter()
                .all(|item| item.as_name().is_none_or(|name| !self.scope.has_constant(name)))
            && items
                .iter()
                .any(|item| item.as_name().is_some_and(|name| self.entries.contains_key(name)))
        {
            return Ok(Argument::Constant(Value::Unknown));
        }
        // Runtime dimensions such as B may stand in shapes given as arguments.
        let value = match &expr.kind {
            ExprKind::List(items) => Value::List(
                items
                    .iter()
                    .map(|item| self.scope.dim(item).map_or(Value::Unknown, Value::Int))
                    .collect(),
            ),
            _ => self.scope.constant(expr),
        };
        Ok(Argument::Constant(value))
    }

    fn primitive_call(
        &mut self,
        call: &Call,
        primitive: &'static Primitive,
        mut inputs: Vec<Operand>,
        args: &[Arg],
    ) -> Result<Option<Vec<TensorType>>, Undecided> {
        let mut attributes = Attributes::new();
        let mut named_inputs: BTreeMap<String, Operand> = BTreeMap::new();
        let mut next = 0;
        for arg in args {
            if let Some(name) = &arg.name {
                let ty = attribute(primitive, &name.name);
                match (ty, self.argument(&arg.value, ty.is_none())?) {
                    (Some((ty, _)), Argument::Constant(value)) => {
                        self.attribute_value(&name.name, ty, &value, arg.value.span);
                        attributes.insert(name.name.clone(), value);
                    }
                    (Some(_), Argument::Absent) => {
                        attributes.insert(name.name.clone(), Value::None);
                    }
                    (Some(_), Argument::Tensor(_)) => {
                        attributes.insert(name.name.clone(), Value::Unknown);
                    }
                    (None, argument) if slot_exists(primitive, &name.name) => {
                        if let Argument::Tensor(operand) = argument {
                            named_inputs.insert(name.name.clone(), operand);
                        }
                    }
                    (None, _) => self.unknown_argument(primitive, name.span, &name.name),
                }
                continue;
            }
            match self.argument(&arg.value, true)? {
                Argument::Tensor(operand) => inputs.push(operand),
                Argument::Absent => {}
                // A number beside tensors, as in `x -> add(eps)`, is a tensor without dimensions.
                Argument::Constant(Value::Int(_) | Value::Float(_)) if primitive.rule == Rule::Broadcast => {
                    let text = self.program.sources.slice(arg.value.span).to_string();
                    let shape = super::types::Shape::fixed(Vec::new());
                    inputs.push(Operand {
                        text,
                        ty: TensorType::of(shape),
                        span: arg.value.span,
                    });
                }
                // A word that names nothing, while a tensor is still missing, was meant to be one.
                Argument::Constant(Value::Word(word)) if inputs.len() < required(primitive) => {
                    self.undefined(arg.value.span, &word, "no tensor");
                    inputs.push(Operand {
                        text: word,
                        ty: TensorType::default(),
                        span: arg.value.span,
                    });
                }
                Argument::Constant(value) => match primitive.attributes.get(next) {
                    Some(Param::Named { name, ty, .. }) => {
                        next += 1;
                        if let Some(ty) = ty {
                            self.attribute_value(&name.name, ty, &value, arg.value.span);
                        }
                        attributes.insert(name.name.clone(), value);
                    }
                    // `transpose(1, 2)` has all its attributes by now.
                    _ => self.too_many(call, arg.value.span),
                },
            }
        }
        if self.missing_attributes(call, primitive, &mut attributes) {
            return Ok(None);
        }
        self.record_primitive(primitive.name, &inputs);
        if primitive.rule == Rule::Opaque {
            return Ok(None);
        }
        let Some(inputs) = self.count_inputs(call, primitive, inputs, named_inputs) else {
            return Ok(None);
        };
        self.dtypes(call, primitive, &inputs);
        if primitive.rule != Rule::Signature {
            let operands: Vec<Operand> = inputs.into_iter().flatten().collect();
            return Ok(match rules::apply(primitive.rule, &operands, &attributes) {
                Ok(types) => Some(types),
                Err(error) => {
                    let misfit = Misfit {
                        expected: String::new(),
                        label: error.label,
                    };
                    self.shape_error(call.span, misfit, &operands, error.hint);
                    None
                }
            });
        }
        let constants: BTreeMap<String, Value> = attributes
            .iter()
            .filter(|(_, value)| matches!(value, Value::Int(_)))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let mut scope = Scope::with_constants(self.fresh_scope(), constants);
        let slots: Vec<&IoTensor> = primitive.inputs.iter().collect();
        let outputs: Vec<&IoTensor> = primitive.outputs.iter().collect();
        let mut signature = Signature::new(&mut scope, &slots, &outputs);
        Ok(self.fit_all(call.span, &mut signature, &inputs))
    }

    /// Fits operands to the inputs of a signature and returns the types of its results.
    fn fit_all(
        &mut self,
        span: Span,
        signature: &mut Signature,
        inputs: &[Option<Operand>],
    ) -> Option<Vec<TensorType>> {
        let operands: Vec<Operand> = inputs.iter().flatten().cloned().collect();
        let slots = signature.inputs.clone();
        for (slot, operand) in slots.iter().zip(inputs) {
            let Some(operand) = operand else { continue };
            if let Err(misfit) = signature.fit(&slot.ty, &operand.ty) {
                let hint = format!("`{}` should be {}", operand.text, misfit.expected);
                self.shape_error(span, misfit, &operands, Some(hint));
                return None;
            }
        }
        self.exact.extend(signature.unifier.exactness().iter().cloned());
        let dtype = operands
            .first()
            .and_then(|operand| operand.ty.dtype.clone())
            .filter(|dtype| !is_integer(dtype));
        Some(
            signature
                .outputs
                .iter()
                .map(|slot| {
                    let mut ty = signature.solved(&slot.ty);
                    ty.dtype = ty.dtype.or_else(|| dtype.clone());
                    ty
                })
                .collect(),
        )
    }

    fn shape_error(&mut self, span: Span, misfit: Misfit, operands: &[Operand], hint: Option<String>) {
        let mut found = Diagnostic::new(Code::E004, span, "shapes do not fit").label(misfit.label);
        let shown: Vec<String> = operands.iter().map(|o| format!("{}: {}", o.text, o.ty)).collect();
        found = found.note(shown.join("   "));
        found.hint = hint;
        self.diagnostics.push(found);
    }

    /// Puts operands into slots; optional ones may stay empty. `None` if the number is wrong.
    fn count_inputs(
        &mut self,
        call: &Call,
        primitive: &Primitive,
        inputs: Vec<Operand>,
        mut named: BTreeMap<String, Operand>,
    ) -> Option<Vec<Option<Operand>>> {
        if primitive.inputs.iter().any(|slot| slot.variadic) {
            return Some(inputs.into_iter().map(Some).collect());
        }
        let given = inputs.len() + named.len();
        let mut inputs = inputs.into_iter();
        let mut filled = Vec::new();
        let mut complete = true;
        for slot in &primitive.inputs {
            let name = slot.name.as_ref().map_or("", |name| &name.name);
            let optional = matches!(slot.ty.as_ref().map(|ty| &ty.kind), Some(TypeKind::Optional(_)));
            let operand = named.remove(name).or_else(|| inputs.next());
            complete &= operand.is_some() || optional;
            filled.push(operand);
        }
        if complete && inputs.next().is_none() {
            return Some(filled);
        }
        let names: Vec<&str> = primitive
            .inputs
            .iter()
            .filter_map(|slot| slot.name.as_ref())
            .map(|name| &*name.name)
            .collect();
        let needed = primitive.inputs.len();
        let plural = if needed == 1 { "" } else { "s" };
        self.diagnostics.push(
            Diagnostic::new(
                Code::E003,
                call.span,
                format!("wrong number of tensors for `{}`", primitive.name),
            )
            .label(format!("takes {needed} tensor{plural}, got {given}"))
            .note(format!("inputs: {}", names.join(", "))),
        );
        None
    }

    fn dtypes(&mut self, call: &Call, primitive: &Primitive, inputs: &[Option<Operand>]) {
        for (slot, operand) in primitive.inputs.iter().zip(inputs) {
            let Some(operand) = operand else { continue };
            let kind = slot.ty.as_ref().map(|ty| match &ty.kind {
                TypeKind::Optional(inner) => &inner.kind,
                kind => kind,
            });
            let wants_integer =
                matches!(kind, Some(TypeKind::Tensor { dtype: Some(dtype), .. }) if is_integer(&dtype.name));
            if wants_integer {
                self.integers.insert(operand.text.clone());
            }
            let Some(dtype) = &operand.ty.dtype else { continue };
            let moves_only = matches!(
                primitive.rule,
                Rule::Split
                    | Rule::Concat
                    | Rule::View
                    | Rule::Transpose
                    | Rule::Permute
                    | Rule::Fork
                    | Rule::Broadcast
                    | Rule::Reduce
            ) || matches!(primitive.name, "copy" | "contiguous" | "dequantize" | "all_reduce");
            let name = slot.name.as_ref().map_or("", |name| &name.name);
            let words = match (wants_integer, is_integer(dtype)) {
                (true, false) => format!("`{name}` holds indices and must be int32"),
                (false, true) if !moves_only && dtype == "int32" => format!("`{name}` must be a float tensor"),
                _ => continue,
            };
            self.diagnostics.push(
                Diagnostic::new(
                    Code::E015,
                    call.span,
                    format!("`{}` cannot take {dtype} here", primitive.name),
                )
                .label(words)
                .also(operand.span, format!("this is {dtype}")),
            );
        }
    }

    fn attribute_value(&mut self, name: &str, ty: &TypeExpr, value: &Value, span: Span) {
        if let Value::Word(word) = value {
            let expects_word = match &ty.kind {
                TypeKind::Named { path, .. } => matches!(path.to_string().as_str(), "enum" | "dtype" | "string"),
                _ => false,
            };
            if !expects_word && !DTYPE_NAMES.contains(&word.as_str()) {
                return self.undefined(span, word, "no value");
            }
        }
        self.check_kind(name, ty, value, span);
    }

    /// Puts in the defaults; whether an attribute without one is missing.
    fn missing_attributes(&mut self, call: &Call, primitive: &Primitive, attributes: &mut Attributes) -> bool {
        let mut missing = false;
        for param in &primitive.attributes {
            let Param::Named { name, default, .. } = param else {
                continue;
            };
            if attributes.contains_key(&name.name) {
                continue;
            }
            match default {
                // Defaults of the table are literals or words.
                Some(default) => {
                    let scope = Scope::empty(0);
                    let value = crate::consteval::eval(default, &scope)
                        .unwrap_or_else(|_| Value::Word(default.as_name().unwrap_or_default().to_string()));
                    attributes.insert(name.name.clone(), value);
                }
                None => {
                    missing = true;
                    self.diagnostics.push(
                        Diagnostic::new(
                            Code::E012,
                            call.span,
                            format!("`{}` needs `{}`", primitive.name, name.name),
                        )
                        .label("it has no default"),
                    );
                }
            }
        }
        missing
    }

    fn unknown_argument(&mut self, primitive: &Primitive, span: Span, name: &str) {
        let known = primitive.attributes.iter().filter_map(|param| match param {
            Param::Named { name, .. } => Some(name.name.as_str()),
            Param::Elided(_) => None,
        });
        let mut found = Diagnostic::new(
            Code::E003,
            span,
            format!("`{}` has no argument `{name}`", primitive.name),
        )
        .label("unknown argument");
        if let Some(close) = closest(name, known) {
            found = found.hint(format!("did you mean `{close}`?"));
        }
        self.diagnostics.push(found);
    }

    fn too_many(&mut self, call: &Call, span: Span) {
        let name = call.callee.path.to_string();
        self.diagnostics
            .push(Diagnostic::new(Code::E003, span, format!("`{name}` takes fewer arguments")).label("one too many"));
    }

    /// The parameters given to an instance between its parentheses (E003, E012, L007).
    pub(super) fn instance_arguments(&mut self, item: ItemRef, args: &[Arg], span: Span) -> BTreeMap<String, Value> {
        let Some(view) = ModuleView::new(self.program, item) else {
            return BTreeMap::new();
        };
        if view.decl.kind == DeclKind::AbstractModule {
            self.diagnostics.push(
                Diagnostic::new(Code::L007, span, format!("`{}` is abstract", view.decl.name.name))
                    .label("has no graph to run")
                    .also(view.decl.name.span, "declared here")
                    .hint("use a module that extends it"),
            );
        }
        let mut given = BTreeMap::new();
        let header = header_names(&view);
        for (index, arg) in args.iter().enumerate() {
            if matches!(arg.value.kind, ExprKind::Ellipsis) {
                self.left_out(arg.value.span, "arguments");
                return given;
            }
            let name = match &arg.name {
                Some(name) if header.contains(&&*name.name) => name.name.clone(),
                Some(name) => {
                    let mut found = Diagnostic::new(
                        Code::E003,
                        name.span,
                        format!("`{}` has no parameter `{}`", view.decl.name.name, name.name),
                    )
                    .label("unknown parameter");
                    if let Some(close) = closest(&name.name, header.iter().copied()) {
                        found = found.hint(format!("did you mean `{close}`?"));
                    }
                    self.diagnostics.push(found);
                    continue;
                }
                None => match header.get(index) {
                    Some(name) => (*name).to_string(),
                    None => {
                        self.diagnostics.push(
                            Diagnostic::new(
                                Code::E003,
                                arg.value.span,
                                format!("`{}` takes {} parameters", view.decl.name.name, header.len()),
                            )
                            .label("one too many"),
                        );
                        break;
                    }
                },
            };
            let value = self.scope.constant(&arg.value);
            given.insert(name, value);
        }
        for param in &view.header {
            let Param::Named { name, ty, default, .. } = param else {
                continue;
            };
            if let (Some(ty), Some(value)) = (ty, given.get(&name.name)) {
                let value = value.clone();
                self.check_kind(&name.name, ty, &value, span);
            }
            if given.contains_key(&name.name) {
                continue;
            }
            match default {
                Some(default) => {
                    let value = crate::consteval::eval(default, &Scope::empty(0)).unwrap_or(Value::Unknown);
                    given.insert(name.name.clone(), value);
                }
                None => self.diagnostics.push(
                    Diagnostic::new(
                        Code::E012,
                        span,
                        format!("`{}` needs `{}`", view.decl.name.name, name.name),
                    )
                    .label("not given, and it has no default")
                    .also(name.span, "declared here"),
                ),
            }
        }
        let scope = Scope::of_module(&view, self.fresh_scope(), given.clone(), BTreeMap::new());
        self.constraints(&view.lets, Some((span, &scope)));
        given
    }

    /// A parameter of an instance, in the sizes of the module under check.
    pub(super) fn member(&mut self, instance: &Instance, name: &str) -> Option<Entry> {
        let view = ModuleView::new(self.program, instance.item)?;
        let entry = view
            .params
            .iter()
            .find(|entry| entry.path.as_name().is_some_and(|n| n.name == name))?;
        let id = self.fresh_scope();
        let scope = Scope::of_module(&view, id, instance.given.clone(), BTreeMap::new());
        // Checked on its own elsewhere: here only the type is of interest.
        let mut inner = GraphChecker::new(self.program, instance.item.file, scope);
        let entry = inner.param_entry(entry).unwrap_or(Entry::Tensor(TensorType::default()));
        Some(match entry {
            Entry::Tensor(ty) if mentions(&ty, id) => Entry::Tensor(TensorType {
                shape: None,
                dtype: ty.dtype,
            }),
            other => other,
        })
    }

    fn module_call(
        &mut self,
        call: &Call,
        item: ItemRef,
        mut given: BTreeMap<String, Value>,
        inputs: Vec<Operand>,
        args: &[Arg],
    ) -> Result<Option<Vec<TensorType>>, Undecided> {
        let Some(view) = ModuleView::new(self.program, item) else {
            return Ok(None);
        };
        let is_instance = !given.is_empty();
        if view.decl.kind == DeclKind::AbstractModule && !is_instance {
            self.instance_arguments(item, &[], call.span);
            return Ok(None);
        }
        let header = header_names(&view);
        let entries: Vec<String> = view
            .params
            .iter()
            .filter_map(|e| e.path.as_name())
            .map(|n| n.name.clone())
            .collect();
        let mut weights: Vec<(String, Operand)> = Vec::new();
        let mut next = 0;
        for arg in args {
            let key = arg.name.as_ref().map(|name| name.name.as_str());
            let tensor_first = key.is_none_or(|key| !header.contains(&key));
            match self.argument(&arg.value, tensor_first)? {
                Argument::Tensor(operand) => {
                    let name = key.map(str::to_string).or_else(|| entries.get(weights.len()).cloned());
                    match name {
                        Some(name) if entries.contains(&name) => weights.push((name, operand)),
                        _ => self.too_many(call, arg.value.span),
                    }
                }
                Argument::Constant(value) => {
                    let name = key
                        .map(str::to_string)
                        .or_else(|| header.get(next).map(|name| (*name).to_string()));
                    next += usize::from(key.is_none());
                    match name {
                        Some(name) if header.contains(&name.as_str()) => {
                            given.insert(name, value);
                        }
                        _ => self.too_many(call, arg.value.span),
                    }
                }
                Argument::Absent => {}
            }
        }
        self.fill_defaults(&view, &mut given, false);
        let id = self.fresh_scope();
        let mut scope = Scope::of_module(&view, id, given.clone(), BTreeMap::new());
        let mut signature = Signature::new(&mut scope, &view.forward.inputs, &view.forward.outputs);
        if inputs.len() > signature.inputs.len()
            || signature.inputs.iter().skip(inputs.len()).any(|slot| !slot.optional)
        {
            let names: Vec<&str> = signature.inputs.iter().map(|slot| &*slot.name).collect();
            let (needed, got) = (names.len(), inputs.len());
            let plural = if needed == 1 { "" } else { "s" };
            self.diagnostics.push(
                Diagnostic::new(
                    Code::E003,
                    call.span,
                    format!("wrong number of inputs for `{}`", view.decl.name.name),
                )
                .label(format!("takes {needed} tensor{plural}, got {got}"))
                .note(format!("inputs: {}", names.join(", "))),
            );
            return Ok(None);
        }
        for (name, operand) in &weights {
            let Some(entry) = view
                .params
                .iter()
                .find(|e| e.path.as_name().is_some_and(|n| n.name == *name))
            else {
                continue;
            };
            let Some(slot) = scope.tensor(&entry.ty) else { continue };
            if let Err(misfit) = signature.fit(&slot, &operand.ty) {
                let hint = format!("parameter `{name}` should be {}", misfit.expected);
                let operands: Vec<Operand> = inputs.iter().chain(weights.iter().map(|(_, o)| o)).cloned().collect();
                self.shape_error(call.span, misfit, &operands, Some(hint));
                return Ok(None);
            }
        }
        let inputs: Vec<Option<Operand>> = inputs.into_iter().map(Some).collect();
        let Some(first) = self.fit_all(call.span, &mut signature, &inputs) else {
            return Ok(None);
        };
        let results = self.solve_header(call, &view, &mut signature, &scope, first);
        let solved: BTreeMap<String, Value> = header
            .iter()
            .filter_map(|name| {
                let value = given.get(*name).cloned().or_else(|| {
                    let value = signature.unifier.value(scope.symbol(name)?)?;
                    Some(Value::Int(value.clone()))
                })?;
                Some(((*name).to_string(), value))
            })
            .collect();
        if !is_instance {
            let scope = Scope::of_module(&view, self.fresh_scope(), solved, BTreeMap::new());
            self.constraints(&view.lets, Some((call.span, &scope)));
        }
        Ok(Some(results))
    }

    /// Parameters that were neither given nor follow from the tensors take their default, or are missing (E012).
    fn solve_header(
        &mut self,
        call: &Call,
        view: &ModuleView<'_>,
        signature: &mut Signature,
        scope: &Scope,
        first: Vec<TensorType>,
    ) -> Vec<TensorType> {
        for param in &view.header {
            let Param::Named { name, default, .. } = param else {
                continue;
            };
            let Some(symbol) = scope.symbol(&name.name) else {
                continue;
            };
            if signature.unifier.value(symbol).is_some() {
                continue;
            }
            match default.as_ref().map(|default| crate::consteval::eval(default, scope)) {
                Some(Ok(Value::Int(value))) => signature.unifier.bind(symbol.clone(), value),
                Some(_) => {}
                None => self.diagnostics.push(
                    Diagnostic::new(
                        Code::E012,
                        call.span,
                        format!("`{}` needs `{}`", view.decl.name.name, name.name),
                    )
                    .label("not given, and no tensor decides it")
                    .also(name.span, "declared here"),
                ),
            }
        }
        let dtype = first.first().and_then(|ty| ty.dtype.clone());
        signature
            .outputs
            .iter()
            .map(|slot| {
                let mut ty = signature.solved(&slot.ty);
                ty.dtype = ty.dtype.or_else(|| dtype.clone());
                ty
            })
            .collect()
    }

    /// Gives parameters that are not sizes their defaults: sizes may still follow from tensors.
    fn fill_defaults(&mut self, view: &ModuleView<'_>, given: &mut BTreeMap<String, Value>, sizes: bool) {
        for param in &view.header {
            let Param::Named {
                name,
                default: Some(default),
                ..
            } = param
            else {
                continue;
            };
            if given.contains_key(&name.name) {
                continue;
            }
            match crate::consteval::eval(default, &Scope::empty(0)) {
                Ok(Value::Int(_)) if !sizes => {}
                Ok(value) => {
                    given.insert(name.name.clone(), value);
                }
                Err(_) => {}
            }
        }
    }

    /// `(x, r) -> StackedBlocks(blocks, n) -> (y, s)`: each block takes the results of the one before.
    fn stacked_call(
        &mut self,
        call: &Call,
        inputs: Vec<Operand>,
        args: &[Arg],
    ) -> Result<Option<Vec<TensorType>>, Undecided> {
        let Some(first) = args.first() else {
            self.diagnostics.push(
                Diagnostic::new(Code::E012, call.span, "`StackedBlocks` needs the blocks")
                    .label("expected `StackedBlocks(blocks, n)`"),
            );
            return Ok(None);
        };
        let entry = first.value.as_path().and_then(|path| self.path_entry(&path));
        let Some(Entry::Instances(instance, _)) = entry else {
            self.diagnostics.push(
                Diagnostic::new(Code::E003, first.value.span, "`StackedBlocks` needs an array of blocks")
                    .label("declare it as `blocks: [n] x Block(...)`"),
            );
            return Ok(None);
        };
        for arg in &args[1..] {
            self.scope.constant(&arg.value);
        }
        let results = self.module_call(call, instance.item, instance.given, inputs.clone(), &[])?;
        if let Some(types) = &results {
            for (index, (input, result)) in inputs.iter().zip(types).enumerate() {
                if let (Some(a), Some(b)) = (&input.ty.shape, &result.shape)
                    && !a.equal(b)
                {
                    self.diagnostics.push(
                        Diagnostic::new(
                            Code::E004,
                            call.span,
                            "a block's results must fit its inputs to be stacked",
                        )
                        .label(format!(
                            "result {} is {b}, input `{}` is {a}",
                            index + 1,
                            input.text
                        )),
                    );
                }
            }
        }
        Ok(results)
    }
}

fn header_names<'a>(view: &ModuleView<'a>) -> Vec<&'a str> {
    view.header
        .iter()
        .filter_map(|param| match param {
            Param::Named { name, .. } => Some(name.name.as_str()),
            Param::Elided(_) => None,
        })
        .collect()
}

fn attribute<'a>(primitive: &'a Primitive, wanted: &str) -> Option<(&'a TypeExpr, Span)> {
    primitive.attributes.iter().find_map(|param| match param {
        Param::Named {
            name,
            ty: Some(ty),
            span,
            ..
        } if name.name == wanted => Some((ty, *span)),
        _ => None,
    })
}

/// How many tensors a primitive cannot do without.
fn required(primitive: &Primitive) -> usize {
    let optional = |slot: &&IoTensor| matches!(slot.ty.as_ref().map(|ty| &ty.kind), Some(TypeKind::Optional(_)));
    primitive
        .inputs
        .iter()
        .filter(|slot| !optional(slot) && !slot.variadic)
        .count()
}

fn slot_exists(primitive: &Primitive, wanted: &str) -> bool {
    primitive
        .inputs
        .iter()
        .any(|slot| slot.name.as_ref().is_some_and(|name| name.name == wanted))
}

/// Whether a type has symbols of a call's scope left in it.
fn mentions(ty: &TensorType, scope: u32) -> bool {
    ty.shape.as_ref().is_some_and(|shape| {
        shape.lead.as_ref().is_some_and(|lead| lead.scope == scope)
            || shape
                .dims
                .iter()
                .any(|dim| dim.symbols().iter().any(|symbol| symbol.scope == scope))
    })
}
