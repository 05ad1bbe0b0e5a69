//! Optimisers that change parameters in place, by PyTorch's names and rules; learning rates that change by step.
//!
//! [`crate::optim`] has the other kind: chains of pure transforms. Use these with `backward`, outside of compiled regions or
//! inside: a step counts, and numbers that change from step to step are inputs of the compiled program.
//!
//! ```
//! use tensorloom::nn::{Layer, Linear, Module, mse_loss};
//! use tensorloom::optimizer::{AdamW, CosineAnnealingLr, Optimizer, Scheduler};
//! use tensorloom::{compile, ones, Tensor};
//!
//! let model = Linear::new(3, 1);
//! let optimizer = AdamW::new(model.parameters(), 0.1);
//! let mut scheduler = Scheduler::new(&optimizer, CosineAnnealingLr { steps: 100, min: 0.0 });
//! let step = compile(|x: Tensor| {
//!     let loss = mse_loss(&model.forward(&x), &ones(&[4, 1]));
//!     optimizer.zero_grad();
//!     loss.backward().unwrap();
//!     optimizer.step().unwrap();
//!     loss
//! });
//! let mut last = 0.0;
//! for _ in 0..100 {
//!     last = step.call(ones(&[4, 3]))?.item::<f32>()?;
//!     scheduler.step(&optimizer);
//! }
//! assert!(last < 1e-2);
//! # Ok::<(), tensorloom::Error>(())
//! ```

mod adam;
mod lion;
mod scaler;
mod schedule;
mod sgd;

pub use adam::{Adam, AdamW};
pub use lion::Lion;
pub use scaler::GradScaler;
pub use schedule::*;
pub use sgd::Sgd;

use crate::nn::StateDict;
use crate::{DType, Element, Literal, Result, Tensor, engine_of, no_grad, profile, record};
use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard};

/// Parameters that are trained with the same numbers.
#[derive(Clone, Debug)]
pub struct Group {
    /// The parameters.
    pub params: Vec<Tensor>,
    /// The learning rate.
    pub lr: f64,
    /// The weight decay.
    pub weight_decay: f64,
}

/// What a parameter has beside itself.
#[derive(Debug, Default)]
pub struct ParamState {
    /// Steps so far.
    steps: u64,
    /// Moments, in an order of the optimiser's own.
    tensors: Vec<Tensor>,
}

/// Groups and slots of an optimiser.
#[derive(Debug)]
pub struct State {
    groups: Vec<Group>,
    /// For all parameters of all groups, in order.
    slots: Vec<ParamState>,
}

/// What an optimiser keeps, behind a lock: steps are taken through shared references, so that a region can hold one.
#[derive(Debug)]
pub struct Shared(Mutex<State>);

impl Shared {
    fn new(params: Vec<Tensor>, lr: f64, weight_decay: f64) -> Shared {
        let slots = params.iter().map(|_| ParamState::default()).collect();
        Shared(Mutex::new(State { groups: vec![Group { params, lr, weight_decay }], slots }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// One parameter's update.
pub struct Update<'a> {
    /// The parameter.
    pub param: &'a Tensor,
    /// Its gradient.
    pub grad: Tensor,
    /// The group's learning rate.
    pub lr: f64,
    /// The group's weight decay.
    pub weight_decay: f64,
    /// This step's number, from 1.
    pub step: u64,
    tensors: &'a mut Vec<Tensor>,
}

impl Update<'_> {
    /// The n-th moment, which begins with zeros. Ask in order.
    pub fn moment(&mut self, n: usize) -> Tensor {
        while self.tensors.len() <= n {
            let p = self.param;
            // A moment outlives any region, so it is made outside of it.
            let zeros = Literal::zeros(p.ty().clone());
            self.tensors.push(crate::trace::without_trace(|| engine_of(p).literal(&zeros)));
        }
        self.tensors[n].clone()
    }
}

/// Changes parameters by their gradients.
pub trait Optimizer {
    /// Groups and moments.
    fn shared(&self) -> &Shared;

    /// Changes one parameter. Gradients are not recorded here.
    fn update(&self, u: Update<'_>) -> Result<()>;

    /// Changes every parameter that has a gradient. Outside of a region the step is one of its own, so that the ops of an
    /// update are one kernel.
    #[track_caller]
    fn step(&self) -> Result<()> {
        let _here = record::here();
        let engine = self.shared().lock().groups.iter().flat_map(|g| &g.params).find_map(|p| p.engine().cloned());
        let Some(engine) = engine.filter(|_| !::engine::extension::is_tracing()) else {
            return self.step_by_op();
        };
        let failed = RefCell::new(None);
        let region = engine.compile(|()| {
            if let Err(e) = self.step_by_op() {
                failed.replace(Some(e));
            }
        });
        no_grad(|| profile::phase(profile::Phase::Optimizer, || region.call(())))?;
        failed.into_inner().map_or(Ok(()), Err)
    }

    /// [`Optimizer::step`], recorded op by op.
    #[track_caller]
    fn step_by_op(&self) -> Result<()> {
        let _here = record::here();
        let mut state = self.shared().lock();
        let State { groups, slots } = &mut *state;
        let mut slots = slots.iter_mut();
        let run = || {
            for g in groups.iter() {
                for (param, slot) in g.params.iter().zip(&mut slots) {
                    let Some(grad) = param.grad() else { continue };
                    slot.steps += 1;
                    let (lr, weight_decay, step) = (g.lr, g.weight_decay, slot.steps);
                    self.update(Update { param, grad, lr, weight_decay, step, tensors: &mut slot.tensors })?;
                }
            }
            Ok(())
        };
        no_grad(|| profile::phase(profile::Phase::Optimizer, run))
    }

    /// Takes the gradients of all parameters away.
    fn zero_grad(&self) {
        self.shared().lock().groups.iter().flat_map(|g| &g.params).for_each(Tensor::zero_grad);
    }

    /// More parameters, with numbers of their own.
    fn add_group(&self, group: Group) {
        let mut state = self.shared().lock();
        state.slots.extend(group.params.iter().map(|_| ParamState::default()));
        state.groups.push(group);
    }

    /// The learning rates of all groups.
    fn lrs(&self) -> Vec<f64> {
        self.shared().lock().groups.iter().map(|g| g.lr).collect()
    }

    /// Sets the learning rate of all groups.
    fn set_lr(&self, lr: f64) {
        self.shared().lock().groups.iter_mut().for_each(|g| g.lr = lr);
    }

    /// Sets the learning rate of each group.
    fn set_lrs(&self, lrs: &[f64]) {
        self.shared().lock().groups.iter_mut().zip(lrs).for_each(|(g, lr)| g.lr = *lr);
    }

    /// Steps and moments, by parameter number: `3.step`, `3.0`, `3.1`.
    fn state_dict(&self) -> Result<StateDict> {
        let state = self.shared().lock();
        let mut all = StateDict::new();
        for (i, slot) in state.slots.iter().enumerate().filter(|(_, s)| s.steps > 0) {
            all.insert(format!("{i}.step"), Literal::new(&[], &[slot.steps as i64]));
            for (k, t) in slot.tensors.iter().enumerate() {
                all.insert(format!("{i}.{k}"), t.to_literal()?);
            }
        }
        Ok(all)
    }

    /// Sets steps and moments. An error changes nothing.
    #[track_caller]
    fn load_state_dict(&self, saved: &StateDict) -> Result<()> {
        let _here = record::here();
        let mut state = self.shared().lock();
        let fail = |reason: String| record::error("load_state_dict", reason);
        let params: Vec<Tensor> = state.groups.iter().flat_map(|g| g.params.clone()).collect();
        let mut slots: Vec<ParamState> = params.iter().map(|_| ParamState::default()).collect();
        // Keys are in order, and moments of one parameter are few: `i.0`, `i.1`, .., then `i.step`.
        for (name, value) in saved {
            let (i, part) =
                name.split_once('.').ok_or_else(|| fail(format!("{name} is not the name of an optimizer state")))?;
            let i = i.parse::<usize>().ok().filter(|&i| i < params.len());
            let i = i.ok_or_else(|| fail(format!("there is no parameter for {name}")))?;
            if part == "step" {
                if value.ty().rank() != 0 || !value.ty().dtype.is_int() {
                    return Err(fail(format!("{name} is {}, not an integer", value.ty())));
                }
                slots[i].steps = u64::from_scalar(value.get(0).cast(DType::U64));
            } else if part.parse() == Ok(slots[i].tensors.len()) && value.ty() == params[i].ty() {
                slots[i].tensors.push(engine_of(&params[i]).literal(value));
            } else {
                return Err(fail(format!("{name} is {}, but the parameter is {}", value.ty(), params[i].ty())));
            }
        }
        state.slots = slots;
        Ok(())
    }
}
