//! Lowering: a checked declaration with its sizes given becomes an `ir::Graph`.
//!
//! The graph's inputs are the parameters in the order of their declaration, depth first, then the tensors of `in:`.
//! Modules are inlined, `StackedBlocks` is unrolled. A module whose backward is written becomes a composite that brings
//! that graph as its derivative, so the written backward runs wherever `transform` differentiates.
//!
//! With [`Options::decode`] the graph is one step of decoding: attention and state-space primitives keep their past in
//! caches, which are further inputs and outputs, and positions count from an i32 input.

mod backward;
mod call;
mod checkpoint;
mod declare;
mod frame;
mod graph;
mod primitives;
mod rope_table;

use crate::ast::{Expr, LetItem};
use crate::consteval::Value as Const;
use crate::diagnostic::{Code, Diagnostic};
use crate::resolve::{ItemRef, ModuleView, Program};
use crate::span::Span;
use frame::Frame;
use ir::{Builder, DType, Graph, Loc, Type, Value};
use rope_table::RopeTable;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What may be chosen about a lowering.
#[derive(Clone, Debug)]
pub struct Options {
    /// The dtype of parameters and activations that declare none.
    pub dtype: DType,
    /// Lower one step of decoding, with caches for this many positions.
    pub decode: Option<usize>,
    /// Use backward graphs as they are written; otherwise all are derived.
    pub written_backward: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { dtype: DType::F32, decode: None, written_backward: true }
    }
}

/// A parameter of a lowered declaration.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its path, such as `blocks[3].attention.qkv_weight`.
    pub path: String,
    /// Its type.
    pub ty: Type,
    /// Whether it is trained: not `@frozen`.
    pub trainable: bool,
}

/// A declaration as a graph.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// From parameters, inputs (in decoding: position and caches too) to outputs (and caches).
    pub graph: Graph,
    /// The first inputs of the graph.
    pub params: Vec<Parameter>,
    /// Paths that stand for another parameter: `lm_head`, `embedding`.
    pub tied: Vec<(String, String)>,
    /// Names of the inputs after the parameters.
    pub inputs: Vec<String>,
    /// Names of the outputs.
    pub outputs: Vec<String>,
    /// Types of the caches of a decoding step: inputs behind the position, and outputs behind the others.
    pub caches: Vec<Type>,
}

pub use primitives::mean_cross_entropy;

/// What lowering returns; a failure is one finding.
pub type Result<T> = std::result::Result<T, Box<Diagnostic>>;

/// Lowers a declaration for the given parameters and input types.
pub fn lower(
    program: &Program,
    item: ItemRef,
    given: &BTreeMap<String, Const>,
    inputs: &[Type],
    options: &Options,
) -> Result<Lowered> {
    let view = ModuleView::new(program, item).ok_or_else(|| {
        let span = Span::new(program.files[0].id, 0, 0);
        Box::new(Diagnostic::new(Code::E002, span, "nothing to lower: not a module or model"))
    })?;
    let mut lowerer = Lowerer {
        program,
        options,
        b: Builder::new(),
        params: Vec::new(),
        tied: Vec::new(),
        tables: Vec::new(),
        caches: Vec::new(),
        position: None,
        depth: 0,
        checkpoint_blocks: false,
    };
    lowerer.run(&view, given, inputs)
}

/// Deeper nesting of modules than this is taken for a module that contains itself.
const MAX_DEPTH: usize = 64;

/// A table, how many positions of it, and its cosines and sines.
type TableRows = (RopeTable, usize, (Value, Value));

struct Lowerer<'a> {
    program: &'a Program,
    options: &'a Options,
    b: Builder,
    params: Vec<Parameter>,
    tied: Vec<(String, String)>,
    /// Tables that the current builder already holds.
    tables: Vec<TableRows>,
    /// Caches of decoding: what comes in, what goes out.
    caches: Vec<(Value, Value)>,
    position: Option<Value>,
    depth: usize,
    /// The next stack computes each block again in backward.
    checkpoint_blocks: bool,
}

impl Lowerer<'_> {
    fn run(&mut self, view: &ModuleView<'_>, given: &BTreeMap<String, Const>, inputs: &[Type]) -> Result<Lowered> {
        let mut frame = Frame::new(view.item.file, given.clone());
        frame.defaults(view, view.decl.name.span)?;
        frame.lets(view, false)?;
        let instance = self.declare(view, &frame, "")?;
        let values: Vec<Value> = inputs.iter().map(|ty| self.b.graph.input(ty.clone())).collect();
        let names = view.forward.inputs.iter();
        let names: Vec<String> = names.map(|t| frame::io_name(t, "in")).collect();
        if self.options.decode.is_some() {
            self.position = Some(self.b.graph.input(Type::new(DType::I32, &[])));
        }
        let given = values.into_iter().map(Some).collect();
        let mut outputs = self.run_instance(&instance, given, view.decl.name.span)?;
        let caches: Vec<Type> = self.caches.iter().map(|(v, _)| self.b.graph.ty(*v).clone()).collect();
        outputs.extend(self.caches.iter().map(|(_, out)| *out));
        let builder = std::mem::take(&mut self.b);
        Ok(Lowered {
            graph: builder.finish(&outputs),
            params: std::mem::take(&mut self.params),
            tied: std::mem::take(&mut self.tied),
            inputs: names,
            outputs: view.forward.outputs.iter().map(|t| frame::io_name(t, "out")).collect(),
            caches,
        })
    }

    /// Later nodes belong to this place.
    fn at(&mut self, span: Span) {
        let file = self.program.sources.file(span.file);
        let place = file.line_column(span.start);
        self.b.loc = Loc::File(Arc::new((file.name().to_string(), place.line as u32, place.column as u32)));
    }

    fn enter(&mut self, span: Span) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return fail(Code::E007, span, "a module contains itself", "nested too deeply");
        }
        Ok(())
    }
}

/// A finding as a failure.
fn fail<T>(code: Code, span: Span, message: impl Into<String>, label: impl Into<String>) -> Result<T> {
    Err(Box::new(Diagnostic::new(code, span, message).label(label)))
}

/// The failure of an op of the graph: shapes or dtypes that do not fit.
fn misfit(error: &ir::Error, span: Span, what: &str) -> Box<Diagnostic> {
    Box::new(Diagnostic::new(Code::E004, span, format!("`{what}` does not fit")).label(error.to_string()))
}

fn unsupported<T>(span: Span, what: impl std::fmt::Display) -> Result<T> {
    fail(Code::L001, span, format!("{what} is not supported yet"), "cannot be lowered")
}

/// The conditions of `constraint:` blocks, with what to say when they fail.
fn constraints<'a>(view: &ModuleView<'a>) -> impl Iterator<Item = (&'a Expr, &'a str)> {
    let lists = view.lets.clone().into_iter().filter_map(|item| match item {
        LetItem::Constraints(list, _) => Some(list),
        _ => None,
    });
    lists.flatten().map(|c| (&c.condition, c.message.value.as_str()))
}
