//! Profiles (§6.3): programs compiled and bound for several sizes, and a router that picks the smallest profile that fits.
//!
//! Choosing another profile compiles, plans and allocates nothing, and no input is padded to one maximum size.

use crate::backend::Backend;
use crate::bindings::{Bindings, check_signature};
use crate::device::{Device, DeviceRun};
use crate::error::{Error, Result};
use crate::execution_stream::Stream;
use crate::memory::begin_use;
use crate::plan::Plan;
use crate::program::Program;
use crate::tensor::Tensor;
use std::sync::Arc;

/// A program that is ready to run for one family of shapes.
pub struct Profile {
    plan: Plan,
    bindings: Bindings,
    recorded: Option<RecordedGraph>,
}

/// A schedule that a device has recorded.
struct RecordedGraph {
    device: Arc<dyn Device>,
    graph: usize,
}

impl Drop for RecordedGraph {
    fn drop(&mut self) {
        self.device.destroy_graph(self.graph);
    }
}

impl Profile {
    /// Creates a profile from a plan and its bindings, in any memory.
    pub fn new(plan: Plan, bindings: Bindings) -> Result<Profile> {
        plan.check(&bindings)?;
        Ok(Profile { plan, bindings, recorded: None })
    }

    /// Plans and binds a program.
    pub fn compile(program: &Arc<Program>, backend: &Backend) -> Result<Profile> {
        let plan = Plan::new(program, backend)?;
        let bindings = plan.bind()?;
        Profile::new(plan, bindings)
    }

    /// Plans and binds a program that shares the parameters of another profile.
    pub fn compile_sharing(program: &Arc<Program>, backend: &Backend, other: &Profile) -> Result<Profile> {
        let plan = Plan::new(program, backend)?;
        let bindings = plan.bind_sharing(&other.bindings)?;
        Profile::new(plan, bindings)
    }

    /// Records the schedule on the backend's device (§8.2); later runs replay it. The CPU has nothing to record, since a plan
    /// already is a schedule with all addresses known, and returns [`Error::NotImplemented`].
    pub fn record(&mut self) -> Result<()> {
        let device = self.plan.backend.device().cloned();
        let graph = device.as_ref().map_or(Ok(None), |d| d.record(self.plan.segments()))?;
        let recorded = device.zip(graph).map(|(device, graph)| RecordedGraph { device, graph });
        let none = || Error::NotImplemented("this backend does not record graphs; run the profile directly".into());
        self.recorded = Some(recorded.ok_or_else(none)?);
        Ok(())
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the inputs, outputs and parameters.
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// Returns the inputs, outputs and parameters for writing.
    pub fn bindings_mut(&mut self) -> &mut Bindings {
        &mut self.bindings
    }

    /// Returns the plan and its bindings, for a run on the caller's data. Returns `None` if runs replay a recorded schedule,
    /// whose addresses are fixed.
    pub fn parts(&mut self) -> Option<(&Plan, &mut Bindings)> {
        match self.recorded {
            None => Some((&self.plan, &mut self.bindings)),
            Some(_) => None,
        }
    }

    /// Whether this profile accepts these tensors as inputs, after promotion.
    pub fn accepts(&self, inputs: &[&Tensor]) -> bool {
        let program = self.plan.program();
        inputs.len() == program.inputs().len()
            && (program.inputs().iter().zip(inputs)).all(|(v, t)| holds(program.signature(*v), t))
    }

    /// Whether an input of this profile accepts data of the given shape, after promotion.
    pub fn holds(&self, input: crate::ValueId, shape: &[usize]) -> bool {
        let program = self.plan.program();
        program.inputs().contains(&input) && crate::shape::fits_inside(shape, &program.signature(input).shape)
    }

    /// Sets the inputs, in order, and runs. Allocates nothing.
    pub fn run(&mut self, inputs: &[&Tensor], stream: &Stream) -> Result<()> {
        let program = self.plan.program();
        if inputs.len() != program.inputs().len() {
            return Err(Error::invalid_arg(format!(
                "{} inputs were given, but the program has {}",
                inputs.len(),
                program.inputs().len()
            )));
        }
        for (v, t) in program.inputs().iter().zip(inputs) {
            check_signature(program.signature(*v), t)?;
        }
        for (v, t) in program.inputs().iter().zip(inputs) {
            self.bindings.write(*v, t)?;
        }
        self.execute(stream)
    }

    /// Runs the program with the inputs that are already set.
    pub fn execute(&mut self, stream: &Stream) -> Result<()> {
        let Some(recorded) = &self.recorded else {
            return self.plan.execute(&mut self.bindings, stream);
        };
        stream.wait_for_submitted()?;
        let _held = begin_use(&self.bindings.shared)?;
        let layout = &self.plan.layout;
        let mut run = DeviceRun::new(layout, &mut self.bindings.inner, &mut self.bindings.arena);
        recorded.device.replay(recorded.graph, &mut run)?;
        run.check_segments_run(layout.segments.len())
    }
}

/// Does the check of `check_signature` without an error message, which would allocate.
fn holds(wanted: &crate::ValueSignature, t: &Tensor) -> bool {
    let s = t.signature();
    (s.dtype, s.model, s.shape.len()) == (wanted.dtype, wanted.model, wanted.shape.len())
        && s.shape.iter().zip(&wanted.shape).all(|(a, b)| a <= b)
}

/// Profiles of one model, smallest first, which share one set of parameters.
pub struct Router {
    profiles: Vec<Profile>,
}

impl Router {
    /// Compiles a profile for each size. All programs declare the same parameters and share one PARAMS arena.
    ///
    /// ```
    /// use tensorloom_vsla::{Backend, DType, ProgramBuilder, Router, Stream, Tensor};
    ///
    /// let mut router = Router::compile(&[4, 16], &Backend::cpu(1), |n| {
    ///     let mut b = ProgramBuilder::new();
    ///     let x = b.input("x", DType::F64, &[n])?;
    ///     let w = b.param("w", DType::F64, &[2])?;
    ///     let y = b.conv1d(x, w)?;
    ///     b.output(y)?;
    ///     b.build()
    /// })?;
    /// assert_eq!(router.route(&[&Tensor::vector(&[1.0f64; 5])])?, 1);
    /// # Ok::<(), tensorloom_vsla::Error>(())
    /// ```
    pub fn compile(
        buckets: &[usize],
        backend: &Backend,
        mut build: impl FnMut(usize) -> Result<Program>,
    ) -> Result<Router> {
        let mut sizes = buckets.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        let mut profiles: Vec<Profile> = Vec::with_capacity(sizes.len());
        for n in sizes {
            let program = Arc::new(build(n)?);
            profiles.push(match profiles.first() {
                None => Profile::compile(&program, backend)?,
                Some(first) => Profile::compile_sharing(&program, backend, first)?,
            });
        }
        if profiles.is_empty() {
            return Err(Error::invalid_arg("a router needs at least one bucket"));
        }
        Ok(Router { profiles })
    }

    /// Returns the profiles, smallest first.
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// Returns a profile for setting parameters, which all profiles share.
    pub fn profile_mut(&mut self, i: usize) -> Option<&mut Profile> {
        self.profiles.get_mut(i)
    }

    /// Returns the index of the smallest profile that accepts these inputs.
    pub fn route(&self, inputs: &[&Tensor]) -> Result<usize> {
        self.profiles.iter().position(|p| p.accepts(inputs)).ok_or_else(|| {
            let shapes: Vec<String> = inputs.iter().map(|t| t.signature().to_string()).collect();
            Error::shape(
                "route",
                format!("no profile is large enough for inputs ({}); add a larger bucket", shapes.join(", ")),
            )
        })
    }

    /// Runs the smallest profile that accepts these inputs, and returns the profile, whose bindings have the outputs. Allocates
    /// nothing.
    pub fn run(&mut self, inputs: &[&Tensor], stream: &Stream) -> Result<&Profile> {
        let at = self.route(inputs)?;
        let profile = &mut self.profiles[at];
        profile.run(inputs, stream)?;
        Ok(profile)
    }
}
