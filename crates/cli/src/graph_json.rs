//! The Graph IR as JSON (§9.7.1): nodes with their attributes and the annotations of their statements, edges between nodes, and
//! sizes as written in the source.

use ir::attr::Attr;
use ir::{Graph, Loc, Type, Value};
use lang::ast::{Annotation, DimExpr, Statement, TypeExpr, TypeKind};
use lang::lower::Lowered;
use lang::resolve::{Entity, ItemRef, ModuleProgram, ModuleView};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// Source information about the names of a graph.
struct SourceText<'a> {
    program: &'a ModuleProgram,
    /// Statements with annotations: file, first line, last line and annotations.
    noted: Vec<(String, usize, usize, Vec<&'a Annotation>)>,
    /// Sizes as written in the source, by the name of an input, output or parameter.
    sizes: BTreeMap<String, Vec<String>>,
    /// Sizes that are known only at run time, as negative numbers.
    symbols: BTreeMap<String, i64>,
}

/// Returns a lowered declaration as JSON: the forward graph, and the graph with backward if a parameter is trainable.
pub(crate) fn json(program: &ModuleProgram, item: ItemRef, lowered: &Lowered, backward: Option<&Graph>) -> Json {
    let text = SourceText::new(program, item, lowered);
    let params = lowered.params.iter().map(|p| p.path.clone());
    let inputs: Vec<String> = params.chain(lowered.inputs.iter().cloned()).collect();
    let trained = lowered.params.iter().filter(|p| p.trainable).map(|p| format!("d_{}", p.path));
    let cotangents = lowered.outputs.iter().map(|name| format!("d_{name}"));
    let all_in: Vec<String> = inputs.iter().cloned().chain(cotangents).collect();
    // Observed values are outputs between the results and the gradients.
    let shown = lowered.observations.iter().map(|seen| seen.path.clone());
    let results: Vec<String> = lowered.outputs.iter().cloned().chain(shown).collect();
    let all_out: Vec<String> = results.iter().cloned().chain(trained).collect();
    json!({
        "name": program.decl(item).map_or("", |decl| &decl.name.name),
        "symbols": text.symbols,
        "forward": graph(&lowered.graph, &inputs, &results, &text),
        "backward": backward.map(|backward| graph(backward, &all_in, &all_out, &text)),
    })
}

impl<'a> SourceText<'a> {
    fn new(program: &'a ModuleProgram, item: ItemRef, lowered: &Lowered) -> SourceText<'a> {
        let mut noted = Vec::new();
        for (file, resolved) in program.files.iter().enumerate() {
            for number in 0..resolved.ast.items.len() {
                let Some(view) = ModuleView::new(program, ItemRef { file, item: number }) else { continue };
                let passes = [view.forward.graph, view.backward.as_ref().and_then(|pass| pass.graph)];
                for graph in passes.into_iter().flatten() {
                    statements(program, &graph.statements, &mut noted);
                }
            }
        }
        let mut text = SourceText { program, noted, sizes: BTreeMap::new(), symbols: BTreeMap::new() };
        let Some(view) = ModuleView::new(program, item) else { return text };
        for (tensors, default) in [(&view.forward.inputs, "in"), (&view.forward.outputs, "out")] {
            for tensor in tensors {
                let name = tensor.name.as_ref().map_or(default, |name| &name.name);
                if let Some(ty) = &tensor.ty {
                    text.sizes.insert(name.to_string(), text.dim_text(ty));
                }
            }
        }
        for param in &lowered.params {
            if let Some(ty) = text.parameter(&view, &param.path) {
                text.sizes.insert(param.path.clone(), text.dim_text(ty));
            }
        }
        let known: Vec<&str> = view
            .header
            .iter()
            .filter_map(|param| match param {
                lang::ast::Param::Named { name, .. } => Some(name.name.as_str()),
                lang::ast::Param::Elided(_) => None,
            })
            .collect();
        let bound = |name: &str| {
            view.lets.iter().any(|entry| matches!(entry, lang::ast::LetItem::Bind { name: n, .. } if n.name == name))
        };
        let free: Vec<String> = view
            .forward
            .inputs
            .iter()
            .filter_map(|input| input.name.as_ref().map_or(Some("in"), |name| Some(&name.name)))
            .filter_map(|name| text.sizes.get(name))
            .flatten()
            .filter(|size| size.chars().all(|c| c.is_alphanumeric() || c == '_'))
            .filter(|size| !size.starts_with(|c: char| c.is_ascii_digit()))
            .filter(|size| !known.contains(&size.as_str()) && !bound(size))
            .cloned()
            .collect();
        for name in free {
            let next = -(text.symbols.len() as i64) - 1;
            text.symbols.entry(name).or_insert(next);
        }
        text
    }

    /// Returns the sizes of a type as written in the source.
    fn dim_text(&self, ty: &TypeExpr) -> Vec<String> {
        match &ty.kind {
            TypeKind::Tensor { dims, .. } => dims
                .iter()
                .map(|dim| match dim {
                    DimExpr::Size(expr) => self.program.sources.slice(expr.span).to_string(),
                    DimExpr::Variadic(_) => "*".to_string(),
                    DimExpr::Elided(_) => "...".to_string(),
                })
                .collect(),
            TypeKind::Optional(inner) => self.dim_text(inner),
            _ => Vec::new(),
        }
    }

    /// Returns the declared type of a parameter, from the module that declares it.
    fn parameter(&self, view: &ModuleView<'a>, path: &str) -> Option<&'a TypeExpr> {
        let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        let name = first.split('[').next()?;
        let entry = view.params.iter().find(|entry| entry.path.as_name().is_some_and(|n| n.name == name))?;
        let mut ty = &entry.ty;
        let Some(rest) = rest else { return Some(ty) };
        let module = loop {
            match &ty.kind {
                TypeKind::Array { element, .. } => ty = element,
                TypeKind::Optional(inner) => ty = inner,
                TypeKind::Named { path, .. } => break path,
                _ => return None,
            }
        };
        match self.program.lookup(view.item.file, module)? {
            Entity::Item(item) => self.parameter(&ModuleView::new(self.program, item)?, rest),
            _ => None,
        }
    }

    /// Returns the annotations of the statement that a node belongs to.
    fn annotations(&self, loc: &Loc) -> Vec<Json> {
        let Loc::File(place) = loc else { return Vec::new() };
        let (file, line) = (place.0.split_once("] ").map_or(place.0.as_str(), |(_, file)| file), place.1 as usize);
        let own = self.noted.iter().filter(|(name, first, last, _)| name == file && (*first..=*last).contains(&line));
        own.flat_map(|(.., notes)| notes)
            .map(|note| {
                let params: serde_json::Map<String, Json> = note
                    .args
                    .iter()
                    .flatten()
                    .enumerate()
                    .map(|(i, arg)| {
                        let key = arg.name.as_ref().map_or(i.to_string(), |name| name.name.clone());
                        (key, self.program.sources.slice(arg.value.span).trim_matches('"').into())
                    })
                    .collect();
                json!({ "type": note.name.name, "params": params })
            })
            .collect()
    }
}

fn statements<'a>(
    program: &ModuleProgram,
    list: &'a [Statement],
    noted: &mut Vec<(String, usize, usize, Vec<&'a Annotation>)>,
) {
    for statement in list {
        match statement {
            Statement::Flow(flow) => {
                let steps = flow.steps.iter().flat_map(|step| &step.annotations);
                let items = flow.dest.items.iter().flat_map(|item| &item.annotations);
                let notes: Vec<&Annotation> = flow.annotations.iter().chain(steps).chain(items).collect();
                if notes.is_empty() {
                    continue;
                }
                let file = program.sources.file(flow.span.file);
                let (first, last) = (file.line_column(flow.span.start).line, file.line_column(flow.span.end).line);
                noted.push((file.name().to_string(), first, last, notes));
            }
            Statement::If(branch) => {
                statements(program, &branch.then, noted);
                statements(program, branch.otherwise.as_deref().unwrap_or_default(), noted);
            }
            Statement::Recompute { body, .. } => statements(program, body, noted),
            Statement::Elided(_) | Statement::Empty(_) => {}
        }
    }
}

fn type_json(ty: &Type) -> Json {
    json!({ "dtype": ty.dtype.to_string(), "shape": ty.shape.to_vec() })
}

/// Returns one graph as JSON. Inputs and outputs without a name are named by their index.
fn graph(graph: &Graph, inputs: &[String], outputs: &[String], text: &SourceText<'_>) -> Json {
    let tensor = |names: &[String], i: usize, value: &Value| {
        let ty = graph.ty(*value);
        let name = names.get(i).cloned().unwrap_or_else(|| i.to_string());
        let written = text.sizes.get(name.strip_prefix("d_").unwrap_or(&name));
        let written = written.filter(|sizes| sizes.len() == ty.shape.len());
        // A size that is known only at run time is a negative number.
        let symbolic = written.map(|sizes| {
            let each = sizes.iter().zip(&ty.shape);
            each.map(|(size, n)| text.symbols.get(size).copied().unwrap_or(*n as i64)).collect::<Vec<_>>()
        });
        json!({
            "name": name, "value": value.0, "dtype": ty.dtype.to_string(), "shape": ty.shape.to_vec(),
            "sizes": written, "symbolic_shape": symbolic,
        })
    };
    let mut made: BTreeMap<Value, (usize, usize)> = BTreeMap::new();
    let (mut nodes, mut edges) = (Vec::new(), Vec::new());
    for (id, node) in graph.nodes().iter().enumerate() {
        for (slot, value) in node.args.iter().enumerate() {
            // An edge without a source node comes from an input of the graph.
            let (source, output) = made.get(value).map_or((None, None), |(node, output)| (Some(node), Some(output)));
            let ty = graph.ty(*value);
            edges.push(json!({
                "source_node": source, "source_output": output, "dest_node": id, "dest_input": slot, "value": value.0,
                "dtype": ty.dtype.to_string(), "shape": ty.shape.to_vec(),
            }));
        }
        made.extend(node.outs.iter().enumerate().map(|(output, value)| (*value, (id, output))));
        let attributes: serde_json::Map<String, Json> =
            node.op.attrs().iter().map(|(name, attr)| (name.to_string(), attribute(attr, text))).collect();
        let outs: Vec<Json> = node.outs.iter().map(|value| type_json(graph.ty(*value))).collect();
        let place = node.loc.to_string();
        nodes.push(json!({
            "id": id, "op_type": node.op.name(), "attributes": attributes, "outputs": outs,
            "place": (!place.is_empty()).then_some(place), "annotations": text.annotations(&node.loc),
        }));
    }
    let listed = |values: &[Value], names: &[String]| -> Vec<Json> {
        values.iter().enumerate().map(|(i, value)| tensor(names, i, value)).collect()
    };
    json!({
        "inputs": listed(graph.inputs(), inputs), "outputs": listed(graph.outputs(), outputs), "nodes": nodes,
        "edges": edges,
    })
}

fn attribute(attr: &Attr, text: &SourceText<'_>) -> Json {
    match attr {
        Attr::Int(n) => json!(n),
        Attr::Bool(value) => json!(value),
        Attr::Word(text) | Attr::Str(text) => json!(text),
        Attr::List(items) => items.iter().map(|item| attribute(item, text)).collect(),
        Attr::Scalar(scalar) => json!(scalar.to_f64()),
        // Only the type is printed, since constants such as tables of rotary embeddings are large.
        Attr::Literal(literal) => type_json(literal.ty()),
        Attr::Graph(inner) => graph(inner, &[], &[], text),
    }
}
