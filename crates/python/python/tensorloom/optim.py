"""Optimisers as chains of gradient transforms, by the names of optax.

>>> import tensorloom as tl, tensorloom.numpy as tnp
>>> optimizer = tl.optim.adam(0.1)
>>> params = {"w": tnp.ones(3)}
>>> state = optimizer.init(params)
>>> updates, state = optimizer.update(tl.grad(lambda p: (p["w"] ** 2).sum())(params), state, params)
>>> params = tl.optim.apply_updates(params, updates)

Learning rates are numbers, or functions of the step's number.
"""

import math as _math

from . import numpy as _n
from . import tree as _tree
from ._tensorloom import GradientTransformation, _chain, _optimizer


def _of(*links):
    return _optimizer([(name, [float(x) for x in numbers], rate) for name, numbers, rate in links])


def _rate(learning_rate):
    return ("scale_by_learning_rate", [], learning_rate)


def chain(*transforms):
    """One transform after another."""
    return _chain(list(transforms))


def apply_updates(params, updates):
    """Parameters with their updates added."""
    return _tree.map(lambda p, u: _n.asarray(p + u).astype(_n.asarray(p).dtype), params, updates)


def global_norm(tree):
    """The root of the sum of all squares."""
    return _n.sqrt(_tree.reduce(lambda s, x: s + _n.sum(_n.square(x)), tree, 0.0))


def sgd(learning_rate, momentum=None, nesterov=False):
    """Gradient descent, with momentum if given."""
    first = ("identity", [], None) if momentum is None else ("trace", [momentum, nesterov], None)
    return _of(first, _rate(learning_rate))


def adam(learning_rate, b1=0.9, b2=0.999, eps=1e-8, eps_root=0.0, nesterov=False):
    """Adam."""
    return _of(("scale_by_adam", [b1, b2, eps, eps_root, nesterov], None), _rate(learning_rate))


def nadam(learning_rate, b1=0.9, b2=0.999, eps=1e-8, eps_root=0.0):
    """Adam with Nesterov's momentum."""
    return adam(learning_rate, b1, b2, eps, eps_root, True)


def adamw(learning_rate, b1=0.9, b2=0.999, eps=1e-8, eps_root=0.0, weight_decay=1e-4, nesterov=False):
    """Adam with decoupled weight decay."""
    return _of(
        ("scale_by_adam", [b1, b2, eps, eps_root, nesterov], None), ("add_decayed_weights", [weight_decay], None), _rate(learning_rate))


def adamax(learning_rate, b1=0.9, b2=0.999, eps=1e-8):
    """Adamax."""
    return _of(("scale_by_adamax", [b1, b2, eps, 0.0, False], None), _rate(learning_rate))


def amsgrad(learning_rate, b1=0.9, b2=0.999, eps=1e-8, eps_root=0.0):
    """AMSGrad."""
    return _of(("scale_by_amsgrad", [b1, b2, eps, eps_root, False], None), _rate(learning_rate))


def adabelief(learning_rate, b1=0.9, b2=0.999, eps=1e-16, eps_root=1e-16):
    """AdaBelief."""
    return _of(("scale_by_belief", [b1, b2, eps, eps_root, False], None), _rate(learning_rate))


def yogi(learning_rate, b1=0.9, b2=0.999, eps=1e-3):
    """Yogi."""
    return _of(("scale_by_yogi", [b1, b2, eps, 0.0, False], None), _rate(learning_rate))


def radam(learning_rate, b1=0.9, b2=0.999, eps=1e-8, eps_root=0.0, threshold=5.0):
    """Rectified Adam."""
    return _of(("scale_by_radam", [b1, b2, eps, eps_root, False, threshold], None), _rate(learning_rate))


def adagrad(learning_rate, initial_accumulator_value=0.1, eps=1e-7):
    """Adagrad."""
    return _of(("scale_by_rss", [initial_accumulator_value, eps], None), _rate(learning_rate))


def adadelta(learning_rate=1.0, rho=0.9, eps=1e-6):
    """Adadelta."""
    return _of(("scale_by_adadelta", [rho, eps], None), _rate(learning_rate))


def rmsprop(learning_rate, decay=0.9, eps=1e-8, centered=False, momentum=None, nesterov=False):
    """RMSProp."""
    links = [("scale_by_stddev" if centered else "scale_by_rms", [decay, eps], None), _rate(learning_rate)]
    return _of(*links, *([] if momentum is None else [("trace", [momentum, nesterov], None)]))


def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=1e-3):
    """Lion."""
    return _of(("scale_by_lion", [b1, b2], None), ("add_decayed_weights", [weight_decay], None), _rate(learning_rate))


def lamb(learning_rate, b1=0.9, b2=0.999, eps=1e-6, eps_root=0.0, weight_decay=0.0):
    """LAMB."""
    return _of(
        ("scale_by_adam", [b1, b2, eps, eps_root, False], None), ("add_decayed_weights", [weight_decay], None),
        ("scale_by_trust_ratio", [1.0, 0.0], None), _rate(learning_rate))


def adafactor(learning_rate):
    """Adafactor, with the numbers that optax gives it."""
    return _of(("adafactor", [], learning_rate))


def muon(learning_rate):
    """Muon."""
    return _of(("muon", [], learning_rate))


def sign_sgd(learning_rate):
    """Descent along the signs of gradients."""
    return _of(("scale_by_sign", [], None), _rate(learning_rate))


def identity():
    """Updates as they are."""
    return _of(("identity", [], None))


def scale(step_size):
    """Updates times a number."""
    return _of(("scale", [step_size], None))


def scale_by_schedule(step_size_fn):
    """Updates times what a schedule gives."""
    return _of(("scale_by_schedule", [], step_size_fn))


def scale_by_learning_rate(learning_rate):
    """Updates times a learning rate, downhill."""
    return _of(_rate(learning_rate))


def clip(max_delta):
    """Updates moved into a range."""
    return _of(("clip", [max_delta], None))


def clip_by_global_norm(max_norm):
    """Updates scaled down to a norm of all of them."""
    return _of(("clip_by_global_norm", [max_norm], None))


def add_decayed_weights(weight_decay=0.0):
    """Updates with a part of the parameters added."""
    return _of(("add_decayed_weights", [weight_decay], None))


def trace(decay, nesterov=False):
    """Momentum."""
    return _of(("trace", [decay, nesterov], None))


def ema(decay, debias=True):
    """The running mean of updates."""
    return _of(("ema", [decay, debias], None))


def zero_nans():
    """Zeros in place of NaN."""
    return _of(("zero_nans", [], None))


def constant_schedule(value):
    """The same number always."""
    return lambda count: _n.asarray(count) * 0 + value


def polynomial_schedule(init_value, end_value, power, transition_steps, transition_begin=0):
    """From one number to another along a power of the distance."""
    def run(count):
        done = _n.clip(_n.asarray(count, "float64") - transition_begin, 0, transition_steps)
        return (init_value - end_value) * (1 - done / transition_steps) ** power + end_value

    return run


def linear_schedule(init_value, end_value, transition_steps, transition_begin=0):
    """From one number to another along a line."""
    return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin)


def exponential_decay(init_value, transition_steps, decay_rate, transition_begin=0, staircase=False, end_value=None):
    """A number times a power of the rate."""
    def run(count):
        p = _n.maximum(_n.asarray(count, "float64") - transition_begin, 0.0) / transition_steps
        y = init_value * decay_rate ** (_n.floor(p) if staircase else p)
        if end_value is None:
            return y
        return _n.maximum(y, end_value) if decay_rate < 1 else _n.minimum(y, end_value)

    return run


def cosine_decay_schedule(init_value, decay_steps, alpha=0.0, exponent=1.0):
    """From a number to a part of it, along half a wave."""
    def run(count):
        done = _n.minimum(_n.asarray(count, "float64"), float(decay_steps)) / decay_steps
        wave = 0.5 * (1 + _n.cos(_math.pi * done))
        return init_value * ((1 - alpha) * wave**exponent + alpha)

    return run


def join_schedules(schedules, boundaries):
    """One schedule after another, each counted from its own begin."""
    def run(count):
        count = _n.asarray(count, "float64")
        y = schedules[0](count)
        for begin, s in zip(boundaries, schedules[1:]):
            y = _n.where(count < begin, y, s(count - begin))
        return y

    return run


def warmup_cosine_decay_schedule(init_value, peak_value, warmup_steps, decay_steps, end_value=0.0, exponent=1.0):
    """A line up, then half a wave down; `decay_steps` counts both."""
    alpha = 0.0 if peak_value == 0 else end_value / peak_value
    return join_schedules(
        [linear_schedule(init_value, peak_value, warmup_steps), cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent)],
        [warmup_steps])


def warmup_constant_schedule(init_value, peak_value, warmup_steps):
    """A line up, and on."""
    return linear_schedule(init_value, peak_value, warmup_steps)


def piecewise_constant_schedule(init_value, boundaries_and_scales=None):
    """A number that is multiplied at some steps."""
    def run(count):
        count = _n.asarray(count, "float64")
        y = count * 0 + init_value
        for at, factor in sorted((boundaries_and_scales or {}).items()):
            y = _n.where(count >= at, y * factor, y)
        return y

    return run
