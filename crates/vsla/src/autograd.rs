//! Reverse mode (§9): builds a backward program with the same transforms as every other front end.
//!
//! The derivative is split into a forward graph, which also returns the residuals, and a backward graph, which maps the residuals
//! and the cotangents of the outputs to gradients. Both graphs are compiled and planned. Gradients inside backward share memory
//! by liveness; no memory is reserved for a worst case; and residuals that are inputs, parameters or outputs aren't copied.
//!
//! ```
//! use std::sync::Arc;
//! use tensorloom_vsla::autograd::{self, BackwardOptions};
//! use tensorloom_vsla::{Backend, DType, ProgramBuilder, Stream, Tensor};
//!
//! let mut b = ProgramBuilder::new();
//! let x = b.input("x", DType::F64, &[3])?;
//! let w = b.param("w", DType::F64, &[2])?;
//! let y = b.conv1d(x, w)?;
//! let loss = b.sum(y, 0)?;
//! b.output(loss)?;
//! let program = Arc::new(b.build()?);
//!
//! let backward = autograd::build_backward(&program, &BackwardOptions::default())?;
//! let plan = autograd::plan_backward(&backward, &Backend::cpu(1))?;
//! let mut bound = plan.bind()?;
//! bound.values_mut().write(x, &Tensor::vector(&[1.0f64, 2.0, 3.0]))?;
//! bound.write_cotangent(loss, &Tensor::vector(&[1.0f64]))?;
//! autograd::execute_backward_plan(&plan, &mut bound, &Stream::default())?;
//! assert_eq!(bound.read_gradient(w)?, Tensor::vector(&[6.0f64, 6.0]));
//! # Ok::<(), tensorloom_vsla::Error>(())
//! ```

use crate::backend::Backend;
use crate::bindings::{Bindings, check_signature, edge_buffer, zero};
use crate::describe::{ValueId, ValueTag};
use crate::error::{Error, Result};
use crate::execution_stream::Stream;
use crate::memory::{Memory, arenas, begin_use, total};
use crate::plan::{ArenaClass, CompiledLayout, EdgeInfo, Interval, edge_infos, report};
use crate::program::Program;
use crate::tensor::Tensor;
use compiler::{ALIGN, DeviceBuffer};
use cpu::HostBuffer;
use ir::ops::RematPolicy;
use ir::{Builder, Def, Graph, GraphBuilder, Value};
use std::fmt;
use std::sync::Arc;

/// Options of [`build_backward`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackwardOptions {
    /// Whether to compute the gradients of the inputs too, after those of the parameters.
    pub inputs: bool,
}

/// The source of an input of the backward graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputSource {
    /// The n-th input of the forward graph.
    Input(usize),
    /// The n-th result of the forward graph: an output of the program, or a residual. The residuals follow the outputs.
    Result(usize),
    /// The cotangent of the n-th output.
    Cotangent(usize),
}

/// A backward program before planning: the forward and the backward graph of the derivative.
#[derive(Clone, Debug)]
pub struct BackwardProgram {
    program: Arc<Program>,
    forward: Graph,
    backward: Graph,
    sources: Vec<InputSource>,
    wrt: Vec<ValueId>,
}

impl BackwardProgram {
    /// Returns the forward program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Returns the values whose gradients are computed, in order.
    pub fn wrt(&self) -> &[ValueId] {
        &self.wrt
    }

    /// Returns the graph that maps inputs, parameters and seed to outputs, then residuals.
    pub fn forward_graph(&self) -> &Graph {
        &self.forward
    }

    /// Returns the graph that maps residuals and cotangents to the gradients.
    pub fn backward_graph(&self) -> &Graph {
        &self.backward
    }

    /// Returns the bytes of residuals that are saved for backward only.
    pub fn kept_bytes(&self) -> usize {
        let outs = self.program.outputs().len();
        self.forward.output_types()[outs..].iter().map(ir::Type::bytes).sum()
    }
}

/// Differentiates a program (§9.1).
///
/// Without checkpoints, forward saves all residuals. With checkpoints, it saves only the marked values, and backward recomputes
/// the others from them and from the inputs (§9.2).
pub fn build_backward(program: &Arc<Program>, options: &BackwardOptions) -> Result<BackwardProgram> {
    let mut wrt = program.params().to_vec();
    if options.inputs {
        wrt.extend(program.inputs());
    }
    if wrt.is_empty() {
        return Err(Error::invalid_arg(
            "nothing to differentiate: the program has no parameters; request gradients of inputs",
        ));
    }
    let checkpoints = program.checkpoints();
    let graph = if checkpoints.is_empty() {
        program.graph().clone()
    } else {
        transform::remat(program.graph(), RematPolicy::Names(checkpoints))?
    };
    let given: Vec<ValueId> = program.inputs().iter().chain(program.params()).copied().collect();
    let place = |v: &ValueId| given.iter().position(|g| g == v).expect("it is an input or parameter");
    let mut active = vec![false; graph.inputs().len()];
    wrt.iter().for_each(|v| active[place(v)] = true);

    let lin = transform::linearize(&graph, &active)?;
    let outs = graph.outputs().len();
    let n_active = active.iter().filter(|a| **a).count();
    let linear: Vec<bool> = (0..lin.residuals + n_active).map(|i| i >= lin.residuals).collect();
    let tangents: Vec<usize> = (0..outs).filter(|&i| lin.tangents[i]).collect();
    let (back, gives) = transform::transpose(&lin.linear, &linear, &vec![true; tangents.len()])?;

    // Each residual is saved once, and residuals that are inputs or outputs are not saved again.
    let mut results: Vec<Value> = lin.known.outputs()[..outs].to_vec();
    let mut sources = Vec::with_capacity(lin.residuals + tangents.len());
    let (back, used) = back.without_dead_inputs();
    for &v in &lin.known.outputs()[outs..] {
        let at = used[sources.len()];
        sources.push(match lin.known.def(v) {
            Def::Input(i) => InputSource::Input(i as usize),
            _ if !at => InputSource::Input(0),
            _ => InputSource::Result(results.iter().position(|r| *r == v).unwrap_or_else(|| {
                results.push(v);
                results.len() - 1
            })),
        });
    }
    sources.extend(tangents.into_iter().map(InputSource::Cotangent));
    let sources: Vec<InputSource> = sources.into_iter().zip(&used).filter(|(_, u)| **u).map(|(s, _)| s).collect();
    let mut forward = lin.known.clone();
    forward.set_outputs(results);

    // The backward graph returns one gradient for each requested value; it is zero if no output depends on the value.
    let mut b = Builder::new();
    let args: Vec<Value> = back.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let mut found = b.inline(&back, &args)?.into_iter();
    let mut by_place = vec![None; active.len()];
    let places = (0..active.len()).filter(|&i| active[i]);
    for (i, &g) in places.zip(&gives) {
        by_place[i] = if g { found.next() } else { None };
    }
    let mut grads = Vec::with_capacity(wrt.len());
    for v in &wrt {
        grads.push(match by_place[place(v)] {
            Some(g) => g,
            None => b.zeros(&program.signature(*v).ty())?,
        });
    }
    Ok(BackwardProgram {
        program: program.clone(),
        forward: forward.without_dead_nodes(),
        backward: b.finish(&grads),
        sources,
        wrt,
    })
}

/// The plans of a forward and a backward program that run together.
#[derive(Clone)]
pub struct BackwardPlan {
    backward: Arc<BackwardProgram>,
    backend: Backend,
    forward_layout: Arc<CompiledLayout>,
    backward_layout: Arc<CompiledLayout>,
}

/// Plans forward and backward (§9.3). Parameters are shared with the forward program, residuals are in the arena ACTIVATIONS,
/// gradients in GRADS.
pub fn plan_backward(backward: &BackwardProgram, backend: &Backend) -> Result<BackwardPlan> {
    let program = &backward.program;
    let name = |v: &ValueId| match program.values()[v.0 as usize].name.as_str() {
        "" => format!("v{}", v.0),
        name => name.to_string(),
    };
    let (inputs, mut outputs) = edge_infos(program);
    for k in outputs.len()..backward.forward.outputs().len() {
        outputs
            .push(EdgeInfo { name: format!("kept {}", k - program.outputs().len()), class: ArenaClass::Activations });
    }
    let first = CompiledLayout::new(&backward.forward, &inputs, &outputs, ArenaClass::Activations, backend, false)?;
    let read: Vec<EdgeInfo> = (backward.sources.iter())
        .map(|s| match s {
            InputSource::Input(i) => inputs[*i].clone(),
            InputSource::Result(k) => outputs[*k].clone(),
            InputSource::Cotangent(k) => {
                EdgeInfo { name: format!("d {}", name(&program.outputs()[*k])), class: ArenaClass::External }
            }
        })
        .collect();
    let grads: Vec<EdgeInfo> = (backward.wrt.iter())
        .map(|v| EdgeInfo { name: format!("grad {}", name(v)), class: ArenaClass::Grads })
        .collect();
    let second = CompiledLayout::new(&backward.backward, &read, &grads, ArenaClass::Grads, backend, false)?;
    Ok(BackwardPlan {
        backward: Arc::new(backward.clone()),
        backend: backend.clone(),
        forward_layout: Arc::new(first),
        backward_layout: Arc::new(second),
    })
}

/// Runs forward, then backward. Allocates nothing.
pub fn execute_backward_plan(plan: &BackwardPlan, bindings: &mut AdBindings, stream: &Stream) -> Result<()> {
    plan.forward(bindings, stream)?;
    plan.backward(bindings, stream)
}

impl BackwardPlan {
    /// Returns the backward program that was planned.
    pub fn program(&self) -> &Arc<BackwardProgram> {
        &self.backward
    }

    /// Returns the sizes in bytes of the arenas of forward and of backward, in the order of [`ArenaClass::ALL`].
    pub fn arena_sizes(&self) -> [[usize; 5]; 2] {
        [self.forward_layout.sizes, self.backward_layout.sizes]
    }

    /// Returns the offset and lifetime of each value of backward.
    pub fn intervals(&self) -> &[Interval] {
        &self.backward_layout.intervals
    }

    /// Returns two values that overlap in memory while both are live. A correct plan has none.
    pub fn overlap(&self) -> Option<(&Interval, &Interval)> {
        self.forward_layout.overlap().or_else(|| self.backward_layout.overlap())
    }

    /// Allocates memory for forward and backward.
    pub fn bind(&self) -> Result<AdBindings> {
        self.bind_to(None, None)
    }

    /// Allocates memory for forward and backward, and shares the parameters of other bindings.
    pub fn bind_sharing(&self, params: &Bindings) -> Result<AdBindings> {
        self.bind_to(Some(params), None)
    }

    /// Returns the size in bytes of one block for all memory of forward and backward, for [`BackwardPlan::bind_in`]. If `sharing`
    /// is true, the parameters are shared and not included.
    pub fn memory_bytes(&self, sharing: bool) -> Result<usize> {
        total(&self.arenas(sharing))
    }

    /// Binds forward and backward in one block of the caller's memory, which also holds the gradients.
    pub fn bind_in(&self, memory: Memory, params: Option<&Bindings>) -> Result<AdBindings> {
        self.bind_to(params, Some(memory))
    }

    /// Returns the sizes of the arenas: those of forward, then cotangents and gradients. Forward and backward share one arena for
    /// intermediate values, since backward needs none of forward's except the residuals.
    fn arenas(&self, sharing: bool) -> [usize; 6] {
        let [params, external, kept, run] = self.forward_layout.arenas(sharing);
        let sources = self.backward.sources.iter().zip(&self.backward_layout.edge_intervals);
        let cotangents = sources.filter(|(s, _)| matches!(s, InputSource::Cotangent(_)));
        let cotangents =
            cotangents.map(|(_, &i)| self.backward_layout.intervals[i].bytes.next_multiple_of(ALIGN)).sum();
        let grads = self.backward_layout.edge_bytes(ArenaClass::Grads);
        [params, external, kept, run.max(self.backward_layout.run_bytes()), cotangents, grads]
    }

    fn bind_to(&self, share: Option<&Bindings>, block: Option<Memory>) -> Result<AdBindings> {
        let b = &*self.backward;
        let made = arenas(self.arenas(share.is_some()), &self.backend, block)?;
        let [params, inputs, kept, run, external, grads] = made;
        let values =
            Bindings::in_arenas(&b.program, &self.forward_layout, &self.backend, share, [params, inputs, kept, run])?;
        let (external, grads) = (Arc::new(external), Arc::new(grads));
        let mut cotangents = vec![None; b.program.outputs().len()];
        let mut at = 0;
        let mut inputs = Vec::with_capacity(b.sources.len());
        for (i, s) in b.sources.iter().enumerate() {
            inputs.push(match s {
                InputSource::Input(n) => values.inner.inputs[*n].clone(),
                InputSource::Result(n) => values.inner.outputs[*n].clone(),
                InputSource::Cotangent(n) => {
                    let bytes = self.backward_layout.intervals[self.backward_layout.edge_intervals[i]].bytes;
                    // SAFETY: cotangents lie one behind the other, and nothing else uses their arena.
                    let part = unsafe { HostBuffer::slice(&external, at, bytes)? };
                    let buffer: Arc<dyn DeviceBuffer> = Arc::new(part);
                    at += bytes.next_multiple_of(ALIGN);
                    cotangents[*n] = Some(buffer.clone());
                    buffer
                }
            });
        }
        let count = b.sources.len();
        let outputs =
            (0..b.wrt.len()).map(|i| edge_buffer(&self.backward_layout, &grads, count + i)).collect::<Result<_>>()?;
        Ok(AdBindings {
            backward: self.backward.clone(),
            values,
            inner: compiler::Bindings { inputs, outputs },
            cotangents,
        })
    }

    fn check(&self, bindings: &AdBindings) -> Result<()> {
        if Arc::ptr_eq(&bindings.backward, &self.backward) {
            return Ok(());
        }
        Err(Error::invalid_arg("these bindings belong to another backward plan; bind them with this one"))
    }

    /// Runs forward: writes the outputs and the residuals.
    pub fn forward(&self, bindings: &mut AdBindings, stream: &Stream) -> Result<()> {
        stream.wait_for_submitted()?;
        self.run_forward(bindings)
    }

    /// Runs backward after forward and writes the gradients.
    pub fn backward(&self, bindings: &mut AdBindings, stream: &Stream) -> Result<()> {
        stream.wait_for_submitted()?;
        self.run_backward(bindings)
    }

    pub(crate) fn run_forward(&self, bindings: &mut AdBindings) -> Result<()> {
        self.check(bindings)?;
        let values = &mut bindings.values;
        let _held = begin_use(&values.shared)?;
        self.forward_layout.run(&mut values.inner, &mut values.arena, &self.backend)
    }

    pub(crate) fn run_backward(&self, bindings: &mut AdBindings) -> Result<()> {
        self.check(bindings)?;
        let _held = begin_use(&bindings.values.shared)?;
        // An input may have been linked to the memory of other bindings after these bindings were created.
        for (input, source) in bindings.inner.inputs.iter_mut().zip(&self.backward.sources) {
            if let InputSource::Input(n) = source
                && !Arc::ptr_eq(input, &bindings.values.inner.inputs[*n])
            {
                input.clone_from(&bindings.values.inner.inputs[*n]);
            }
        }
        self.backward_layout.run(&mut bindings.inner, &mut bindings.values.arena, &self.backend)
    }
}

/// Prints the memory report of §14.1 for training: the arenas, then both schedules.
impl fmt::Display for BackwardPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "forward and backward plan for {}", self.backend.name())?;
        report(f, &[&self.forward_layout, &self.backward_layout], self.memory_bytes(false))
    }
}

/// Memory that the runs of one backward plan read and write.
pub struct AdBindings {
    backward: Arc<BackwardProgram>,
    values: Bindings,
    inner: compiler::Bindings,
    /// The cotangent of each output, or `None` if no gradient depends on the output.
    cotangents: Vec<Option<Arc<dyn DeviceBuffer>>>,
}

impl AdBindings {
    /// Returns the inputs, parameters and outputs of the forward program.
    pub fn values(&self) -> &Bindings {
        &self.values
    }

    /// Returns the inputs, parameters and outputs of the forward program for writing.
    pub fn values_mut(&mut self) -> &mut Bindings {
        &mut self.values
    }

    /// Sets the cotangent of an output: the derivative of the loss with respect to it. Smaller shapes are promoted.
    pub fn write_cotangent(&mut self, output: ValueId, t: &Tensor) -> Result<()> {
        let program = &self.backward.program;
        let signature = program.signature(self.output(output).map(|i| program.outputs()[i])?);
        check_signature(signature, t)?;
        let Some(buffer) = &self.cotangents[self.output(output)?] else { return Ok(()) };
        if signature.shape != t.shape() {
            zero(&self.values.backend, &**buffer, signature.bytes())?;
        }
        t.rows_in(&signature.shape, |at, row| self.values.backend.write(&**buffer, at, row))
    }

    /// Sets the cotangent of an output from dense little-endian bytes.
    pub fn write_cotangent_bytes(&mut self, output: ValueId, bytes: &[u8]) -> Result<()> {
        let at = self.output(output)?;
        let needed = self.backward.program.signature(output).bytes();
        if needed != bytes.len() {
            return Err(Error::invalid_arg(format!(
                "{} bytes were given, but the cotangent has {needed}",
                bytes.len()
            )));
        }
        match &self.cotangents[at] {
            Some(b) => self.values.backend.write(&**b, 0, bytes),
            None => Ok(()),
        }
    }

    fn output(&self, v: ValueId) -> Result<usize> {
        let found = self.backward.program.outputs().iter().position(|o| *o == v);
        found.ok_or_else(|| Error::invalid_arg(format!("value {} is not an output of this program", v.0)))
    }

    /// Returns the gradient of a parameter or, if requested in the options, of an input.
    pub fn read_gradient(&self, v: ValueId) -> Result<Tensor> {
        let signature = self.backward.program.value(v)?.signature.clone();
        let mut bytes = vec![0; signature.bytes()];
        self.read_gradient_bytes(v, &mut bytes)?;
        Tensor::from_bytes(signature, &bytes)
    }

    /// Copies a gradient to `to` as dense little-endian bytes.
    pub fn read_gradient_bytes(&self, v: ValueId, to: &mut [u8]) -> Result<()> {
        let Some(at) = self.backward.wrt.iter().position(|w| *w == v) else {
            let is_input = self.backward.program.value(v)?.tag == ValueTag::Input;
            let remedy = if is_input { "; request gradients of inputs" } else { "" };
            return Err(Error::invalid_arg(format!("value {} has no gradient here{remedy}", v.0)));
        };
        let needed = self.backward.program.signature(v).bytes();
        if needed != to.len() {
            return Err(Error::invalid_arg(format!(
                "the buffer has {} bytes, but the gradient has {needed}",
                to.len()
            )));
        }
        self.values.backend.read(&*self.inner.outputs[at], 0, to)
    }
}
