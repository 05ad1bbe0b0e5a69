//! Optimisers: chains of gradient transforms over trees of Python, put together in `optim.py`.

use crate::transform::{PyFn, raise_pending};
use crate::tree::{Node, TreeRole};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use tensorloom::optim::{self, Betas, OptState, Schedule};
use tensorloom::{Tensor, Tree};

/// A chain of gradient transforms. Made by the functions of `tensorloom.optim`.
#[pyclass(module = "tensorloom.optim", frozen)]
pub(crate) struct GradientTransformation {
    links: Vec<optim::GradientTransformation>,
    /// How each link was made, so that chains can be joined.
    recipe: Vec<(String, Vec<f64>, Option<Py<PyAny>>)>,
    /// The schedules that links call.
    schedules: Vec<PyFn>,
}

fn make_transformation(
    name: &str,
    n: &[f64],
    rate: Option<&Bound<'_, PyAny>>,
    schedules: &mut Vec<PyFn>,
) -> PyResult<optim::GradientTransformation> {
    let at = |i: usize| n.get(i).copied().unwrap_or(0.0);
    let betas = || Betas { b1: at(0), b2: at(1), eps: at(2), eps_root: at(3), nesterov: at(4) != 0.0 };
    let rate = &mut || -> PyResult<Schedule> {
        let Some(r) = rate else { return Err(PyTypeError::new_err(format!("{name} needs a learning rate"))) };
        if let Ok(x) = r.extract::<f64>() {
            return Ok(x.into());
        }
        let f = PyFn::new(r)?;
        schedules.push(f.clone());
        Ok(Schedule::of(move |count| f.scalar(&[Node::Leaf(count.clone())], &[], "a schedule")))
    };
    Ok(match name {
        "scale_by_adam" => optim::scale_by_adam(betas()),
        "scale_by_amsgrad" => optim::scale_by_amsgrad(betas()),
        "scale_by_adamax" => optim::scale_by_adamax(betas()),
        "scale_by_belief" => optim::scale_by_belief(betas()),
        "scale_by_yogi" => optim::scale_by_yogi(betas()),
        "scale_by_radam" => optim::scale_by_radam(betas(), at(5)),
        "scale_by_lion" => optim::scale_by_lion(at(0), at(1)),
        "scale_by_rms" => optim::scale_by_rms(at(0), at(1)),
        "scale_by_stddev" => optim::scale_by_stddev(at(0), at(1)),
        "scale_by_rss" => optim::scale_by_rss(at(0), at(1)),
        "scale_by_adadelta" => optim::scale_by_adadelta(at(0), at(1)),
        "trace" => optim::trace(at(0), at(1) != 0.0),
        "ema" => optim::ema(at(0), at(1) != 0.0),
        "add_decayed_weights" => optim::add_decayed_weights(at(0)),
        "scale_by_trust_ratio" => optim::scale_by_trust_ratio(at(0), at(1)),
        "scale" => optim::scale(at(0)),
        "clip" => optim::clip(at(0)),
        "clip_by_global_norm" => optim::clip_by_global_norm(at(0)),
        "scale_by_sign" => optim::scale_by_sign(),
        "identity" => optim::identity(),
        "set_to_zero" => optim::set_to_zero(),
        "centralize" => optim::centralize(),
        "zero_nans" => optim::zero_nans(),
        "keep_params_nonnegative" => optim::keep_params_nonnegative(),
        "scale_by_learning_rate" => optim::scale_by_learning_rate(rate()?),
        "scale_by_schedule" => optim::scale_by_schedule(rate()?),
        "adafactor" => optim::adafactor(rate()?),
        "muon" => optim::muon(rate()?),
        _ => return Err(PyValueError::new_err(format!("unknown optimizer {name}"))),
    })
}

/// The state as Python has it: for each link, a list of tensors for each of its transforms.
fn state_to_node(state: Vec<OptState>) -> Node {
    let list = |v: Vec<Tensor>| Node::List(v.into_iter().map(Node::Leaf).collect());
    let part = |s: OptState| Node::List(s.parts.into_iter().map(list).collect());
    Node::List(state.into_iter().map(part).collect())
}

fn state_from_node(state: Node) -> Vec<OptState> {
    let list = |n: Node| n.leaves();
    let part = |n: Node| OptState { parts: n.items().into_iter().map(list).collect() };
    state.items().into_iter().map(part).collect()
}

#[pymethods]
impl GradientTransformation {
    /// The state before the first step.
    fn init<'py>(&self, py: Python<'py>, params: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let params = Node::read(params, TreeRole::Argument)?;
        state_to_node(self.links.iter().map(|l| l.init(&params)).collect()).write(py)
    }

    /// A schedule often refers to the object that holds the optimiser.
    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        self.recipe.iter().filter_map(|(_, _, rate)| rate.as_ref()).try_for_each(|r| visit.call(r))?;
        self.schedules.iter().try_for_each(|f| f.traverse(&visit))
    }

    /// By how it was made.
    fn __reduce__(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, (Py<PyAny>,))> {
        let make = py.import("tensorloom._tensorloom")?.getattr("_optimizer")?.unbind();
        let recipe = self.recipe.iter().map(|(n, v, r)| (n, v, r.as_ref().map(|r| r.clone_ref(py))));
        Ok((make, (PyList::new(py, recipe.collect::<Vec<_>>())?.into_any().unbind(),)))
    }

    /// Updates for gradients, and the state after this step.
    #[pyo3(signature = (updates, state, params=None))]
    fn update<'py>(
        &self,
        py: Python<'py>,
        updates: &Bound<'py, PyAny>,
        state: &Bound<'py, PyAny>,
        params: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let mut updates = Node::read(updates, TreeRole::Argument)?;
        let params = match params.filter(|p| !p.is_none()) {
            Some(p) => Node::read(p, TreeRole::Argument)?,
            None => updates.clone(),
        };
        let state = state_from_node(Node::read(state, TreeRole::Argument)?);
        if state.len() != self.links.len() {
            return Err(PyValueError::new_err("the state belongs to another optimizer"));
        }
        let mut next = Vec::with_capacity(state.len());
        for (link, s) in self.links.iter().zip(&state) {
            let (u, s) = link.update(&updates, s, &params);
            updates = u;
            next.push(s);
        }
        raise_pending(())?;
        Ok((updates.write(py)?, state_to_node(next).write(py)?))
    }
}

/// A chain of these links: name, numbers, learning rate.
#[pyfunction]
fn _optimizer(py: Python<'_>, links: Vec<(String, Vec<f64>, Option<Py<PyAny>>)>) -> PyResult<GradientTransformation> {
    let mut schedules = Vec::new();
    let made = links
        .iter()
        .map(|(name, n, rate)| make_transformation(name, n, rate.as_ref().map(|r| r.bind(py)), &mut schedules));
    let made = made.collect::<PyResult<_>>()?;
    Ok(GradientTransformation { links: made, recipe: links, schedules })
}

/// The links of chains, for a longer one.
#[pyfunction]
fn _chain(py: Python<'_>, chains: &Bound<'_, PyList>) -> PyResult<GradientTransformation> {
    let mut links = Vec::new();
    for c in chains.iter() {
        let c = c.cast::<GradientTransformation>()?.get();
        links.extend(c.recipe.iter().map(|(n, v, r)| (n.clone(), v.clone(), r.as_ref().map(|r| r.clone_ref(py)))));
    }
    _optimizer(py, links)
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<GradientTransformation>()?;
    m.add_function(wrap_pyfunction!(_optimizer, m)?)?;
    m.add_function(wrap_pyfunction!(_chain, m)?)
}
