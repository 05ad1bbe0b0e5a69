"""Cases of `optim`: parameters after four steps of each optimiser or transform, and values of schedules, by optax.

The gradients at step k are `0.5 p + (k + 1) g` for parameters p and the given g.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from make import given, positive, signed

LR = 0.1


def write(w):
    # optax computes these in f32 whatever it is given.
    narrow = ("adafactor", "scale_by_schedule", "scale_by_factored_rms")

    def steps(name, tx, *inputs, **params):
        def f(*x):
            half = len(x) // 2
            p, g = list(x[:half]), list(x[half:])
            state = tx.init(p)
            for k in range(4):
                grads = [0.5 * a + (k + 1) * b for a, b in zip(p, g)]
                updates, state = tx.update(grads, state, p)
                p = optax.apply_updates(p, updates)
            return p

        inputs = inputs or (signed(3, 2), signed(3, seed=2), signed(3, 2, seed=3), signed(3, seed=4))
        w.case(f"optim.{name}", f, *inputs, grad=False, floats=("f32",) if name in narrow else ("f32", "f64"), **params)

    steps("sgd", optax.sgd(LR))
    steps("sgd", optax.sgd(LR, 0.9), momentum=0.9)
    steps("sgd", optax.sgd(LR, 0.9, nesterov=True), momentum=0.9, nesterov=1)
    for name in "sign_sgd adam nadam adamax amsgrad adabelief adadelta adagrad adan radam yogi novograd adafactor".split():
        steps(name, getattr(optax, name)(LR))
    for name in "adamw nadamw adamaxw lion lamb lars".split():
        steps(name, getattr(optax, name)(LR, weight_decay=0.01), decay=0.01)
    steps("rmsprop", optax.rmsprop(LR))
    steps("rmsprop", optax.rmsprop(LR, centered=True), centered=1)
    steps("rmsprop", optax.rmsprop(LR, momentum=0.8), momentum=0.8)
    steps("muon", optax.contrib.muon(LR, weight_decay=0.0), loose=16)
    plain = lambda u: jax.tree.map(lambda _: optax.contrib.MuonDimensionNumbers(0, 1), u)
    matrices = signed(3, 4), signed(4, 2, seed=2), signed(3, 4, seed=3), signed(4, 2, seed=4)
    steps("scale_by_muon", optax.contrib.scale_by_muon(weight_dimension_numbers=plain), *matrices, loose=16)
    chains = {
        "identity": optax.identity(),
        "set_to_zero": optax.set_to_zero(),
        "scale": optax.scale(-0.3),
        "scale_by_sign": optax.scale_by_sign(),
        "scale_by_learning_rate": optax.scale_by_learning_rate(0.2),
        "scale_by_schedule": optax.scale_by_schedule(optax.linear_schedule(-0.1, -0.2, 3)),
        "trace": optax.trace(0.8),
        "ema": optax.ema(0.8, True),
        "add_decayed_weights": optax.add_decayed_weights(0.1),
        "scale_by_trust_ratio": optax.scale_by_trust_ratio(trust_coefficient=0.01, eps=0.1),
        "scale_by_param_block_rms": optax.scale_by_param_block_rms(0.5),
        "centralize": optax.centralize(),
        "zero_nans": optax.zero_nans(),
        "keep_params_nonnegative": optax.keep_params_nonnegative(),
        "clip": optax.clip(0.5),
        "clip_by_global_norm": optax.clip_by_global_norm(0.75),
        "clip_by_block_rms": optax.clip_by_block_rms(0.4),
        "adaptive_grad_clip": optax.adaptive_grad_clip(0.2),
        "scale_by_adam": optax.scale_by_adam(0.8, 0.95, 1e-6, 1e-5),
        "scale_by_amsgrad": optax.scale_by_amsgrad(0.8, 0.95),
        "scale_by_adamax": optax.scale_by_adamax(0.8, 0.95),
        "scale_by_belief": optax.scale_by_belief(0.8, 0.95, nesterov=True),
        "scale_by_yogi": optax.scale_by_yogi(0.8, 0.95),
        "scale_by_radam": optax.scale_by_radam(0.8, 0.5, threshold=1.0),
        "scale_by_lion": optax.scale_by_lion(0.8, 0.95),
        "scale_by_rms": optax.scale_by_rms(0.8, 1e-4),
        "scale_by_stddev": optax.scale_by_stddev(0.8, 1e-4),
        "scale_by_rss": optax.scale_by_rss(0.2, 1e-4),
        "scale_by_adadelta": optax.scale_by_adadelta(0.8, 1e-4),
        "scale_by_adan": optax.scale_by_adan(),
        "scale_by_novograd": optax.scale_by_novograd(0.8, 0.3, 1e-4, 1e-5, 0.01),
        "scale_by_factored_rms": optax.scale_by_factored_rms(True, 0.8, 0, 2, 1e-4),
    }
    for name, tx in chains.items():
        steps(name, optax.chain(tx, optax.scale(-0.05)))
    steps("chain", optax.chain(optax.clip(0.5), optax.adamw(LR, weight_decay=0.02)))
    steps("adam", optax.adam(optax.cosine_decay_schedule(0.2, 3)), schedule=1)
    w.case("optim.global_norm", lambda a, b: optax.global_norm([a, b]), signed(3, 2), signed(3, seed=2))
    w.case("optim.apply_updates", lambda a, b: optax.apply_updates(a, b), signed(3), signed(3, seed=2))

    def schedule(name, s):
        w.case(f"optim.{name}", lambda: np.array([float(s(np.float64(k))) for k in range(14)]), floats=("f64",), loose=1e4)

    schedule("constant_schedule", optax.constant_schedule(0.3))
    schedule("linear_schedule", optax.linear_schedule(0.1, 1.0, 8))
    schedule("polynomial_schedule", optax.polynomial_schedule(1.0, 0.1, 2.0, 8, 3))
    schedule("exponential_decay", optax.exponential_decay(1.0, 4, 0.5, 2))
    schedule("cosine_decay_schedule", optax.cosine_decay_schedule(1.0, 10, 0.1))
    schedule("piecewise_constant_schedule", optax.piecewise_constant_schedule(1.0, {4: 0.5, 9: 0.1}))
    schedule("join_schedules", optax.join_schedules([optax.constant_schedule(1.0), optax.linear_schedule(2.0, 1.0, 4)], [5]))
    schedule("warmup_constant_schedule", optax.warmup_constant_schedule(0.0, 1.0, 5))
    schedule("warmup_cosine_decay_schedule", optax.warmup_cosine_decay_schedule(0.0, 1.0, 4, 12, 0.1))
    schedule("warmup_exponential_decay_schedule", optax.warmup_exponential_decay_schedule(0.0, 1.0, 4, 3, 0.5))
    schedule("cosine_onecycle_schedule", optax.cosine_onecycle_schedule(10, 1.0))
