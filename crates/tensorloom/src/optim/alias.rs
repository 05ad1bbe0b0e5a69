//! Optimisers by name, with the numbers that optax gives them.

use super::{
    Betas, GradientTransformation, Schedule, add_decayed_weights, chain, identity, scale_by_adadelta, scale_by_adam,
    scale_by_adamax, scale_by_adan, scale_by_amsgrad, scale_by_belief, scale_by_learning_rate, scale_by_lion,
    scale_by_novograd, scale_by_radam, scale_by_rms, scale_by_rss, scale_by_sign, scale_by_stddev,
    scale_by_trust_ratio, scale_by_yogi, trace,
};

/// Gradient descent, with momentum if given.
pub fn sgd(learning_rate: impl Into<Schedule>, momentum: Option<f64>, nesterov: bool) -> GradientTransformation {
    let first = momentum.map_or_else(identity, |m| trace(m, nesterov));
    chain([first, scale_by_learning_rate(learning_rate)])
}

/// Descent along the signs of gradients.
pub fn sign_sgd(learning_rate: impl Into<Schedule>) -> GradientTransformation {
    chain([scale_by_sign(), scale_by_learning_rate(learning_rate)])
}

/// Adam.
pub fn adam(learning_rate: impl Into<Schedule>) -> GradientTransformation {
    chain([scale_by_adam(Betas::default()), scale_by_learning_rate(learning_rate)])
}

/// Adam with Nesterov's momentum.
pub fn nadam(learning_rate: impl Into<Schedule>) -> GradientTransformation {
    chain([scale_by_adam(Betas { nesterov: true, ..Betas::default() }), scale_by_learning_rate(learning_rate)])
}

/// Adam with decoupled weight decay.
pub fn adamw(learning_rate: impl Into<Schedule>, weight_decay: f64) -> GradientTransformation {
    let adam = scale_by_adam(Betas::default());
    chain([adam, add_decayed_weights(weight_decay), scale_by_learning_rate(learning_rate)])
}

/// [`nadam`] with decoupled weight decay.
pub fn nadamw(learning_rate: impl Into<Schedule>, weight_decay: f64) -> GradientTransformation {
    let adam = scale_by_adam(Betas { nesterov: true, ..Betas::default() });
    chain([adam, add_decayed_weights(weight_decay), scale_by_learning_rate(learning_rate)])
}

/// Adamax.
pub fn adamax(learning_rate: impl Into<Schedule>) -> GradientTransformation {
    chain([scale_by_adamax(Betas::default()), scale_by_learning_rate(learning_rate)])
}

/// Adamax with decoupled weight decay.
pub fn adamaxw(learning_rate: impl Into<Schedule>, weight_decay: f64) -> GradientTransformation {
    let adamax = scale_by_adamax(Betas::default());
    chain([adamax, add_decayed_weights(weight_decay), scale_by_learning_rate(learning_rate)])
}

/// AMSGrad.
pub fn amsgrad(learning_rate: impl Into<Schedule>) -> GradientTransformation {
    chain([scale_by_amsgrad(Betas::default()), scale_by_learning_rate(learning_rate)])
}

/// AdaBelief.
pub fn adabelief(learning_rate: impl Into<Schedule>) -> GradientTransformation {
    let b = Betas { eps: 1e-16, eps_root: 1e-16, ..Betas::default() };
    chain([scale_by_belief(b), scale_by_learning_rate(learning_rate)])
}

/// Adadelta.
pub fn adadelta(learning_rate: impl Into<Schedule>) -> GradientTransformation {
    chain([scale_by_adadelta(0.9, 1e-6), scale_by_learning_rate(learning_rate)])
}

/// Adagrad.
pub fn adagrad(learning_rate: impl Into<Schedule>) -> GradientTransformation {
    chain([scale_by_rss(0.1, 1e-7), scale_by_learning_rate(learning_rate)])
}

/// Adan.
pub fn adan(learning_rate: impl Into<Schedule>) -> GradientTransformation {
    chain([scale_by_adan(0.98, 0.92, 0.99, 1e-8, 1e-8), scale_by_learning_rate(learning_rate)])
}

/// RMSProp, around the mean if `centered`, with momentum if given.
pub fn rmsprop(
    learning_rate: impl Into<Schedule>,
    decay: f64,
    centered: bool,
    momentum: Option<f64>,
) -> GradientTransformation {
    let first = if centered { scale_by_stddev(decay, 1e-8) } else { scale_by_rms(decay, 1e-8) };
    let last = momentum.map_or_else(identity, |m| trace(m, false));
    chain([first, scale_by_learning_rate(learning_rate), last])
}

/// Lion with decoupled weight decay.
pub fn lion(learning_rate: impl Into<Schedule>, weight_decay: f64) -> GradientTransformation {
    let lion = scale_by_lion(0.9, 0.99);
    chain([lion, add_decayed_weights(weight_decay), scale_by_learning_rate(learning_rate)])
}

/// LAMB: Adam with updates as large as their layers.
pub fn lamb(learning_rate: impl Into<Schedule>, weight_decay: f64) -> GradientTransformation {
    chain([
        scale_by_adam(Betas { eps: 1e-6, ..Betas::default() }),
        add_decayed_weights(weight_decay),
        scale_by_trust_ratio(1.0, 0.0),
        scale_by_learning_rate(learning_rate),
    ])
}

/// LARS: momentum with updates as large as their layers.
pub fn lars(learning_rate: impl Into<Schedule>, weight_decay: f64) -> GradientTransformation {
    chain([
        add_decayed_weights(weight_decay),
        scale_by_trust_ratio(0.001, 0.0),
        scale_by_learning_rate(learning_rate),
        trace(0.9, false),
    ])
}

/// RAdam.
pub fn radam(learning_rate: impl Into<Schedule>) -> GradientTransformation {
    chain([scale_by_radam(Betas::default(), 5.0), scale_by_learning_rate(learning_rate)])
}

/// Yogi.
pub fn yogi(learning_rate: impl Into<Schedule>) -> GradientTransformation {
    chain([scale_by_yogi(Betas { eps: 1e-3, ..Betas::default() }), scale_by_learning_rate(learning_rate)])
}

/// NovoGrad.
pub fn novograd(learning_rate: impl Into<Schedule>) -> GradientTransformation {
    chain([scale_by_novograd(0.9, 0.25, 1e-6, 0.0, 0.0), scale_by_learning_rate(learning_rate)])
}
