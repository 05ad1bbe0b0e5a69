//! Loss scaling for narrow floats, around an optimiser.

use super::Optimizer;
use crate::nn::StateDict;
use crate::{Element, Error, Literal, Result, Tensor, engine, record};
use std::sync::Mutex;

/// Scales losses so that narrow gradients don't vanish, and skips steps whose gradients overflowed: PyTorch's `GradScaler`.
///
/// ```
/// use tensorloom::prelude::*;
///
/// let model = nn::Linear::new(2, 1);
/// let optimizer = optimizer::Sgd::new(model.parameters(), 0.1);
/// let scaler = GradScaler::new();
/// for _ in 0..3 {
///     let loss = autocast(DType::BF16, || nn::mse_loss(&model.forward(&ones((4, 2))), &zeros((4, 1))));
///     optimizer.zero_grad();
///     scaler.scale(&loss).backward()?;
///     scaler.unscale_(&optimizer)?; // only if gradients are looked at before the step
///     nn::clip_grad_norm_(&model.parameters(), 1.0);
///     assert!(scaler.step(&optimizer)?); // false where it was skipped
///     scaler.update();
/// }
/// assert_eq!(scaler.get_scale(), 65536.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub struct GradScaler {
    settings: Settings,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    growth: f64,
    backoff: f64,
    interval: u64,
}

#[derive(Clone, Copy, Debug)]
struct State {
    scale: f64,
    /// Good steps since the scale changed.
    good: u64,
    /// Whether gradients were finite, once they were unscaled in this step.
    finite: Option<bool>,
    /// Whether a step was taken since the last update.
    stepped: bool,
}

impl Default for GradScaler {
    fn default() -> GradScaler {
        GradScaler::new()
    }
}

impl GradScaler {
    /// Begins at 2¹⁶, doubles after 2000 good steps, halves after a bad one.
    pub fn new() -> GradScaler {
        GradScaler::with(65536.0, 2.0, 0.5, 2000)
    }

    /// With a first scale, factors of growth and retreat, and good steps between growths.
    pub fn with(scale: f64, growth: f64, backoff: f64, interval: u64) -> GradScaler {
        let state = State { scale, good: 0, finite: None, stepped: false };
        GradScaler { settings: Settings { growth, backoff, interval }, state: Mutex::new(state) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The loss times the scale.
    #[track_caller]
    pub fn scale(&self, loss: &Tensor) -> Tensor {
        let _here = record::here();
        loss * self.lock().scale
    }

    /// The scale now.
    pub fn get_scale(&self) -> f64 {
        self.lock().scale
    }

    /// Divides the gradients of an optimiser's parameters by the scale; gives whether all of them are finite, which it reads.
    /// [`GradScaler::step`] does it unless it was done.
    #[track_caller]
    pub fn unscale_(&self, optimizer: &(impl Optimizer + ?Sized)) -> Result<bool> {
        let _here = record::here();
        if ::engine::extension::is_tracing() {
            let reason = "it reads whether gradients are finite, which a function that is being staged can't; compile the \
                          forward and backward pass, and scale and step outside";
            return Err(record::error("GradScaler", reason));
        }
        if let Some(finite) = self.lock().finite {
            return Ok(finite);
        }
        let params: Vec<Tensor> = optimizer.shared().lock().groups.iter().flat_map(|g| g.params.clone()).collect();
        let owner = params.iter().find_map(|p| p.engine()).unwrap_or(engine());
        let scale = self.lock().scale;
        let finite = ::engine::GradScaler::with_options(owner, scale, 1.0, 1.0, 1).unscale_(&params)?.item::<bool>()?;
        self.lock().finite = Some(finite);
        Ok(finite)
    }

    /// The optimiser's step with unscaled gradients, unless some are not finite. Gives whether it was taken.
    #[track_caller]
    pub fn step(&self, optimizer: &(impl Optimizer + ?Sized)) -> Result<bool> {
        let _here = record::here();
        if self.lock().stepped {
            return Err(record::error("GradScaler", "step() was called twice without update() in between"));
        }
        let finite = self.unscale_(optimizer)?;
        if finite {
            optimizer.step()?;
        }
        self.lock().stepped = true;
        Ok(finite)
    }

    /// Adjusts the scale after a step.
    pub fn update(&self) {
        let mut state = self.lock();
        match state.finite.take() {
            Some(true) => {
                state.good += 1;
                if state.good >= self.settings.interval {
                    (state.scale, state.good) = (state.scale * self.settings.growth, 0);
                }
            }
            Some(false) => (state.scale, state.good) = (state.scale * self.settings.backoff, 0),
            None => {}
        }
        state.stepped = false;
    }

    /// The scale and the count of good steps: `scale`, `growth_tracker`.
    pub fn state_dict(&self) -> StateDict {
        let state = self.lock();
        let scale = Literal::new(&[], &[state.scale]);
        [("growth_tracker".into(), Literal::new(&[], &[state.good as i64])), ("scale".into(), scale)].into()
    }

    /// Sets the scale and the count of good steps. An error changes nothing.
    #[track_caller]
    pub fn load_state_dict(&self, saved: &StateDict) -> Result<()> {
        let _here = record::here();
        let number = |name: &str| -> Result<f64> {
            let fail = |reason: String| -> Error { record::error("load_state_dict", reason) };
            let value = saved.get(name).ok_or_else(|| fail(format!("there is no {name} in the state")))?;
            if value.ty().numel() != 1 {
                return Err(fail(format!("{name} is {}, not a number", value.ty())));
            }
            Ok(f64::from_scalar(value.get(0).cast(crate::DType::F64)))
        };
        let (scale, good) = (number("scale")?, number("growth_tracker")?);
        if !(scale.is_finite() && scale > 0.0 && good >= 0.0) {
            return Err(record::error("load_state_dict", format!("a scale of {scale} after {good} steps is invalid")));
        }
        *self.lock() = State { scale, good: good as u64, finite: None, stepped: false };
        Ok(())
    }
}
