//! Compares explicit backward graphs with the derived derivative, and with finite differences of the forward pass (§9.8.1).

use crate::consteval::ConstValue as Const;
use crate::diagnostic::Diagnostic;
use crate::lower::{LowerOptions, lower};
use crate::resolve::{ItemRef, ModuleProgram, ModuleView};
use ir::attr::Attr;
use ir::{DType, Graph, Literal, Scalar, Type, interp};
use std::collections::BTreeMap;

/// Tolerances. All values are computed in f64, unless the module uses a narrower dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
struct GradientTolerance {
    /// Tolerance relative to the derived derivative.
    derived: f64,
    /// Tolerance relative to finite differences, whose own error is the rounding error of the sum divided by the step.
    differences: f64,
    /// The step of finite differences.
    step: f64,
}

impl GradientTolerance {
    fn of(narrowest: DType) -> GradientTolerance {
        match narrowest {
            DType::F64 => GradientTolerance { derived: 1e-8, differences: 1e-6, step: 1e-5 },
            DType::F32 => GradientTolerance { derived: 1e-5, differences: 2e-3, step: 1e-3 },
            _ => GradientTolerance { derived: 5e-2, differences: 2e-1, step: 5e-2 },
        }
    }
}

/// The narrowest float dtype of a graph, also inside called subgraphs.
fn narrowest(graph: &Graph) -> DType {
    let made = graph.nodes().iter().flat_map(|node| node.outs.iter());
    let own = graph.inputs().iter().chain(made).map(|value| graph.ty(*value).dtype);
    let inside = graph.nodes().iter().flat_map(|node| node.op.attrs()).filter_map(|(_, attr)| match attr {
        Attr::Graph(inner) => Some(narrowest(&inner)),
        _ => None,
    });
    let floats = own.filter(|dtype| dtype.is_float()).chain(inside);
    floats.min_by_key(|dtype| dtype.size()).unwrap_or(DType::F64)
}

/// The result of the comparison of one gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientCheck {
    /// The name of its tensor.
    pub name: String,
    /// Whether it is excluded by `@frozen` or `@gradient(skip)`.
    pub skipped: bool,
    /// The largest difference from the derived derivative, relative to the largest element.
    pub derived_error: f64,
    /// The difference from finite differences along a few directions, relative to the gradient's norm.
    pub finite_difference: f64,
    /// The narrowest dtype in its computation, which determines the tolerance.
    pub dtype: DType,
    /// The requested tolerance, if there is one.
    pub tolerance: Option<f64>,
}

/// Options of a comparison (§9.8.1).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GradientCheckOptions {
    /// The step of finite differences; the default depends on the dtypes.
    pub epsilon: Option<f64>,
    /// The largest relative error; the default depends on the dtypes.
    pub tolerance: Option<f64>,
}

impl GradientCheck {
    /// Whether the gradient is within tolerance.
    pub fn passes(&self) -> bool {
        let tolerance = GradientTolerance::of(self.dtype);
        let derived = self.tolerance.unwrap_or(tolerance.derived);
        let differences = self.tolerance.unwrap_or(tolerance.differences);
        self.skipped || self.derived_error < derived && self.finite_difference < differences
    }
}

/// Why no comparison was possible.
#[derive(Clone, Debug)]
pub enum GradientCheckError {
    /// The module could not be lowered.
    Diagnostic(Box<Diagnostic>),
    /// The graph could not be differentiated or run.
    Graph(ir::Error),
}

impl From<Box<Diagnostic>> for GradientCheckError {
    fn from(found: Box<Diagnostic>) -> GradientCheckError {
        GradientCheckError::Diagnostic(found)
    }
}

impl From<ir::Error> for GradientCheckError {
    fn from(error: ir::Error) -> GradientCheckError {
        GradientCheckError::Graph(error)
    }
}

/// Compares the gradients of a declaration's parameters and inputs, on fixed pseudo-random numbers.
pub fn verify_backward(
    program: &ModuleProgram,
    item: ItemRef,
    given: &BTreeMap<String, Const>,
    inputs: &[Type],
) -> Result<Vec<GradientCheck>, GradientCheckError> {
    verify_backward_with(program, item, given, inputs, &GradientCheckOptions::default())
}

/// [`verify_backward`] with options.
pub fn verify_backward_with(
    program: &ModuleProgram,
    item: ItemRef,
    given: &BTreeMap<String, Const>,
    inputs: &[Type],
    settings: &GradientCheckOptions,
) -> Result<Vec<GradientCheck>, GradientCheckError> {
    let inputs: Vec<Type> =
        inputs.iter().map(|ty| if ty.dtype.is_float() { ty.with_dtype(DType::F64) } else { ty.clone() }).collect();
    let mut gradients: Vec<Vec<Vec<f64>>> = Vec::new();
    let mut last = None;
    for written_backward in [true, false] {
        let options = LowerOptions { dtype: DType::F64, custom_backward: written_backward, ..LowerOptions::default() };
        let lowered = lower(program, item, given, &inputs, &options)?;
        let types = lowered.graph.input_types();
        let floats: Vec<usize> = (0..types.len()).filter(|&i| types[i].dtype.is_float()).collect();
        let back = transform::vjp(&lowered.graph, &floats)?;
        let outs = interp::run(&back, &samples(&back.input_types()))?;
        let outs = outs[lowered.graph.outputs().len()..].iter();
        gradients.push(outs.map(|l| l.scalars().map(|s| s.to_f64()).collect()).collect());
        last = Some((lowered, floats));
    }
    let Some((lowered, floats)) = last else { return Ok(Vec::new()) };
    let names: Vec<&String> = lowered.params.iter().map(|p| &p.path).chain(&lowered.inputs).collect();
    let skipped = skipped(program, item);
    let dtype = narrowest(&lowered.graph);
    let mut checks = Vec::new();
    for (k, &input) in floats.iter().enumerate() {
        let (written, derived) = (&gradients[0][k], &gradients[1][k]);
        let size = derived.iter().fold(1e-12f64, |m, x| m.max(x.abs()));
        let worst = written.iter().zip(derived).fold(0f64, |m, (x, y)| m.max(relative_error(*x, *y)));
        checks.push(GradientCheck {
            name: names[input].clone(),
            skipped: skipped.contains(names[input]),
            derived_error: worst / size,
            finite_difference: {
                let step = settings.epsilon.unwrap_or(GradientTolerance::of(dtype).step);
                finite_difference_error(&lowered.graph, input, written, step)?
            },
            dtype,
            tolerance: settings.tolerance,
        });
    }
    Ok(checks)
}

/// The difference; NaN never agrees with any number.
fn relative_error(a: f64, b: f64) -> f64 {
    let gap = (a - b).abs();
    if gap.is_nan() { f64::INFINITY } else { gap }
}

/// The largest error of a gradient along three directions, relative to its norm.
fn finite_difference_error(forward: &Graph, input: usize, gradient: &[f64], step: f64) -> Result<f64, ir::Error> {
    let inputs = samples(&forward.input_types());
    let outputs = forward.output_types();
    let cotangents: Vec<Literal> = outputs
        .iter()
        .filter(|ty| ty.dtype.is_float())
        .enumerate()
        .map(|(i, ty)| sample(ty, inputs.len() + i))
        .collect();
    let objective = |moved: Literal| -> Result<f64, ir::Error> {
        let mut inputs = inputs.clone();
        inputs[input] = moved;
        let outs = interp::run(forward, &inputs)?;
        let floats = outs.iter().filter(|out| out.ty().dtype.is_float());
        let products = floats
            .zip(&cotangents)
            .map(|(out, ct)| out.scalars().zip(ct.scalars()).map(|(a, b)| a.to_f64() * b.to_f64()).sum::<f64>());
        Ok(products.sum())
    };
    let length = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
    let mut worst = 0f64;
    for seed in 0..3 {
        let ty = inputs[input].ty().clone();
        let direction: Vec<f64> = sample(&ty, 1000 + seed).scalars().map(|s| s.to_f64()).collect();
        let size = direction.iter().map(|d| d * d).sum::<f64>().sqrt().max(1e-12);
        let at: Vec<f64> = inputs[input].scalars().map(|s| s.to_f64()).collect();
        let moved = |step: f64| {
            Literal::from_fn(ty.clone(), |i| Scalar::from_f64(ty.dtype, at[i] + step * direction[i] / size))
        };
        let slope = (objective(moved(step))? - objective(moved(-step))?) / (2.0 * step);
        let expected: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d / size).sum();
        worst = worst.max(relative_error(slope, expected) / length.max(1e-3));
    }
    Ok(worst)
}

/// Inputs with `@gradient(skip)` and parameters with `@frozen`.
fn skipped(program: &ModuleProgram, item: ItemRef) -> Vec<String> {
    let Some(view) = ModuleView::new(program, item) else {
        return Vec::new();
    };
    let marked = |notes: &[crate::ast::Annotation], name: &str| notes.iter().any(|note| note.name.name == name);
    let inputs = view.forward.inputs.iter().filter(|t| marked(&t.annotations, "gradient"));
    let inputs = inputs.map(|t| t.name.as_ref().map_or("in".to_string(), |n| n.name.clone()));
    let params = view.params.iter().filter(|p| marked(&p.annotations, "frozen"));
    let params = params.filter_map(|p| p.path.as_name()).map(|n| n.name.clone());
    inputs.chain(params).collect()
}

fn samples(types: &[Type]) -> Vec<Literal> {
    types.iter().enumerate().map(|(i, ty)| sample(ty, i)).collect()
}

/// Pseudo-random numbers between -0.5 and 0.5; token IDs are small.
fn sample(ty: &Type, seed: usize) -> Literal {
    Literal::from_fn(ty.clone(), |i| {
        let mixed =
            (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (seed as u64 + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
        let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40;
        match ty.dtype.is_int() {
            true => Scalar::from_i64(ty.dtype, (mixed % 7) as i64),
            false => Scalar::from_f64(ty.dtype, mixed as f64 / (1u64 << 24) as f64 - 0.5),
        }
    })
}
