//! How the optimisers are run for a line: four steps, with gradients `0.5 p + (k + 1) g`.

use crate::line::Line;
use tensorloom::optim::{self, Betas, GradientTransformation, Schedule};
use tensorloom::{DType, Tensor, np};

const LR: f64 = 0.1;

fn steps(o: GradientTransformation, x: &[Tensor]) -> Vec<Tensor> {
    let (p, g) = x.split_at(x.len() / 2);
    let mut p = p.to_vec();
    let mut state = o.init(&p);
    for k in 0..4 {
        let grads: Vec<Tensor> = p.iter().zip(g).map(|(a, b)| a * 0.5 + b * (k + 1) as f64).collect();
        let (updates, next) = o.update(&grads, &state, &p);
        p = optim::apply_updates(&p, &updates);
        state = next;
    }
    p
}

/// A transform followed by a small step.
fn alone(o: GradientTransformation, x: &[Tensor]) -> Vec<Tensor> {
    steps(optim::chain([o, optim::scale(-0.05)]), x)
}

fn values(s: Schedule) -> Vec<Tensor> {
    let all: Vec<Tensor> = (0..14).map(|k| s.at(&np::full(&[], k as f64, DType::F64))).collect();
    vec![Tensor::stack(&all.iter().collect::<Vec<_>>(), 0)]
}

pub(crate) fn call(l: &Line, x: &[Tensor]) -> Option<Vec<Tensor>> {
    let b = Betas { b1: 0.8, b2: 0.95, ..Betas::default() };
    let decay = l.number("decay").unwrap_or(0.0);
    let momentum = l.number("momentum");
    Some(match l.name.strip_prefix("optim.")? {
        "sgd" => steps(optim::sgd(LR, momentum, l.flag("nesterov")), x),
        "adam" if l.flag("schedule") => steps(optim::adam(optim::cosine_decay_schedule(0.2, 3, 0.0)), x),
        "adam" => steps(optim::adam(LR), x),
        "sign_sgd" => steps(optim::sign_sgd(LR), x),
        "nadam" => steps(optim::nadam(LR), x),
        "adamax" => steps(optim::adamax(LR), x),
        "amsgrad" => steps(optim::amsgrad(LR), x),
        "adabelief" => steps(optim::adabelief(LR), x),
        "adadelta" => steps(optim::adadelta(LR), x),
        "adagrad" => steps(optim::adagrad(LR), x),
        "adan" => steps(optim::adan(LR), x),
        "radam" => steps(optim::radam(LR), x),
        "yogi" => steps(optim::yogi(LR), x),
        "novograd" => steps(optim::novograd(LR), x),
        "adafactor" => steps(optim::adafactor(LR), x),
        "adamw" => steps(optim::adamw(LR, decay), x),
        "nadamw" => steps(optim::nadamw(LR, decay), x),
        "adamaxw" => steps(optim::adamaxw(LR, decay), x),
        "lion" => steps(optim::lion(LR, decay), x),
        "lamb" => steps(optim::lamb(LR, decay), x),
        "lars" => steps(optim::lars(LR, decay), x),
        "rmsprop" => steps(optim::rmsprop(LR, 0.9, l.flag("centered"), momentum), x),
        "muon" => steps(optim::muon(LR), x),
        "chain" => steps(optim::chain([optim::clip(0.5), optim::adamw(LR, 0.02)]), x),
        "scale_by_muon" => steps(optim::scale_by_muon(0.95), x),
        "identity" => alone(optim::identity(), x),
        "set_to_zero" => alone(optim::set_to_zero(), x),
        "scale" => alone(optim::scale(-0.3), x),
        "scale_by_sign" => alone(optim::scale_by_sign(), x),
        "scale_by_learning_rate" => alone(optim::scale_by_learning_rate(0.2), x),
        "scale_by_schedule" => alone(optim::scale_by_schedule(optim::linear_schedule(-0.1, -0.2, 3)), x),
        "trace" => alone(optim::trace(0.8, false), x),
        "ema" => alone(optim::ema(0.8, true), x),
        "add_decayed_weights" => alone(optim::add_decayed_weights(0.1), x),
        "scale_by_trust_ratio" => alone(optim::scale_by_trust_ratio(0.01, 0.1), x),
        "scale_by_param_block_rms" => alone(optim::scale_by_param_block_rms(0.5), x),
        "centralize" => alone(optim::centralize(), x),
        "zero_nans" => alone(optim::zero_nans(), x),
        "keep_params_nonnegative" => alone(optim::keep_params_nonnegative(), x),
        "clip" => alone(optim::clip(0.5), x),
        "clip_by_global_norm" => alone(optim::clip_by_global_norm(0.75), x),
        "clip_by_block_rms" => alone(optim::clip_by_block_rms(0.4), x),
        "adaptive_grad_clip" => alone(optim::adaptive_grad_clip(0.2, 1e-3), x),
        "scale_by_adam" => alone(optim::scale_by_adam(Betas { eps: 1e-6, eps_root: 1e-5, ..b }), x),
        "scale_by_amsgrad" => alone(optim::scale_by_amsgrad(b), x),
        "scale_by_adamax" => alone(optim::scale_by_adamax(b), x),
        "scale_by_belief" => {
            let b = Betas { eps: 1e-16, eps_root: 1e-16, nesterov: true, ..b };
            alone(optim::scale_by_belief(b), x)
        }
        "scale_by_yogi" => alone(optim::scale_by_yogi(Betas { eps: 1e-3, ..b }), x),
        "scale_by_radam" => alone(optim::scale_by_radam(Betas { b2: 0.5, ..b }, 1.0), x),
        "scale_by_lion" => alone(optim::scale_by_lion(0.8, 0.95), x),
        "scale_by_rms" => alone(optim::scale_by_rms(0.8, 1e-4), x),
        "scale_by_stddev" => alone(optim::scale_by_stddev(0.8, 1e-4), x),
        "scale_by_rss" => alone(optim::scale_by_rss(0.2, 1e-4), x),
        "scale_by_adadelta" => alone(optim::scale_by_adadelta(0.8, 1e-4), x),
        "scale_by_adan" => alone(optim::scale_by_adan(0.98, 0.92, 0.99, 1e-8, 0.0), x),
        "scale_by_novograd" => alone(optim::scale_by_novograd(0.8, 0.3, 1e-4, 1e-5, 0.01), x),
        "scale_by_factored_rms" => alone(optim::scale_by_factored_rms(0.8, 2, 1e-4), x),
        "global_norm" => vec![optim::global_norm(&x.to_vec())],
        "apply_updates" => vec![optim::apply_updates(&x[0], &x[1])],
        "constant_schedule" => values(optim::constant_schedule(0.3)),
        "linear_schedule" => values(optim::linear_schedule(0.1, 1.0, 8)),
        "polynomial_schedule" => values(optim::polynomial_schedule(1.0, 0.1, 2.0, 8, 3)),
        "exponential_decay" => values(optim::exponential_decay(1.0, 4, 0.5, 2, false)),
        "cosine_decay_schedule" => values(optim::cosine_decay_schedule(1.0, 10, 0.1)),
        "piecewise_constant_schedule" => values(optim::piecewise_constant_schedule(1.0, &[(4, 0.5), (9, 0.1)])),
        "join_schedules" => {
            let parts = [optim::constant_schedule(1.0), optim::linear_schedule(2.0, 1.0, 4)];
            values(optim::join_schedules(&parts, &[5]))
        }
        "warmup_constant_schedule" => values(optim::warmup_constant_schedule(0.0, 1.0, 5)),
        "warmup_cosine_decay_schedule" => values(optim::warmup_cosine_decay_schedule(0.0, 1.0, 4, 12, 0.1)),
        "warmup_exponential_decay_schedule" => values(optim::warmup_exponential_decay_schedule(0.0, 1.0, 4, 3, 0.5)),
        "cosine_onecycle_schedule" => values(optim::cosine_onecycle_schedule(10, 1.0)),
        _ => return None,
    })
}
