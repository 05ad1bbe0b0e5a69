"""Makes Python functions of the table of functions: names, keywords and defaults as in NumPy and JAX."""

from . import _tensorloom as _core

# Other names for arguments, and what they are if they are left away.
_NAMES = {"axes": "axis"}
_REQUIRED = object()
_DEFAULTS = {
    "impl Into<Along>": None,
    "Option<usize>": None, "Option<f64>": None, "Option<&Tensor>": None, "Option<Operand>": None,
    "Option<&[usize]>": None, "Option<(f64, f64)>": None,
    "DType": "float32", "bool": False, "Norm": None, "impl Into<Norm>": None,
}
_BY_NAME = {
    "ddof": 0, "k": 0, "rtol": 1e-5, "atol": 1e-8, "decimals": 0, "indexing": "xy", "mode": "full", "dx": 1.0, "base": 10.0,
    "endpoint": True,
}
# Arguments with a default of their own in one function.
_OWN = {
    ("np", "diff"): {"n": 1, "axis": -1}, ("np", "concatenate"): {"axis": 0}, ("np", "stack"): {"axis": 0},
    ("np", "unstack"): {"axis": 0}, ("np", "split"): {"axis": 0}, ("np", "array_split"): {"axis": 0},
    ("np", "split_at"): {"axis": 0}, ("np", "sort"): {"axis": -1}, ("np", "argsort"): {"axis": -1},
    ("np", "diagonal"): {"k": 0, "a": 0, "b": 1}, ("np", "rot90"): {"k": 1, "a": 0, "b": 1},
    ("np", "vecdot"): {"axis": -1}, ("np", "trapezoid"): {"axis": -1}, ("np", "unwrap"): {"axis": -1},
    ("np", "gradient"): {"step": 1.0, "axis": 0}, ("np", "lexsort"): {"axis": -1}, ("np", "linspace"): {"n": 50},
    ("np", "logspace"): {"n": 50}, ("np", "geomspace"): {"n": 50}, ("np", "polyder"): {"m": 1}, ("np", "polyint"): {"m": 1},
    ("np", "pad"): {"mode": "constant"}, ("np", "histogram"): {"bins": 10}, ("np", "histogram_bin_edges"): {"bins": 10},
    ("np", "cov"): {"ddof": 1}, ("np", "trace"): {"k": 0}, ("np", "select"): {"default": 0}, ("np", "correlate"): {"mode": "valid"},
    **{("fft", n): {"axis": -1} for n in "fft ifft rfft irfft hfft ihfft".split()},
    ("fft", "fftfreq"): {"d": 1.0}, ("fft", "rfftfreq"): {"d": 1.0},
    ("special", "softmax"): {"axis": -1}, ("special", "log_softmax"): {"axis": -1},
    ("nn", "softmax"): {"axis": -1}, ("nn", "log_softmax"): {"axis": -1},
}
# What stays even if it is 1: reductions that take `keepdims`.
_REDUCTIONS = {
    "all", "any", "argmax", "argmin", "count_nonzero", "max", "mean", "median", "min", "nanargmax", "nanargmin", "nanmax",
    "nanmean", "nanmedian", "nanmin", "nanprod", "nanstd", "nansum", "nanvar", "prod", "ptp", "std", "sum", "var", "average",
    "percentile", "quantile", "nanpercentile", "nanquantile",
}
# Those that take one axis and drop it; it is put back here.
_DROP = {
    "argmax", "argmin", "nanargmax", "nanargmin", "median", "nanmedian", "percentile", "quantile", "nanpercentile", "nanquantile",
}


def _kept(x, axis, y):
    x = _core.asarray(x)
    shape = [1 if axis is None or k == axis % x.ndim else n for k, n in enumerate(x.shape)]
    return y.reshape(shape)


def _default(module, name, arg, kind):
    own = _OWN.get((module, name), {})
    if arg in own:
        return own[arg]
    if arg in _BY_NAME and kind in ("usize", "isize", "i64", "i32", "f64", "bool", "&str"):
        return _BY_NAME[arg]
    return _DEFAULTS.get(kind, _REQUIRED)


def fill(module, namespace):
    """Puts the functions of a module into a namespace."""
    for id_, (where, name, args, _, doc) in enumerate(_core._table()):
        if where != module:
            continue
        public = name[:-1] if name.endswith("_") else name
        namespace[public] = _make(id_, module, name, public, args, doc)


def _make(id_, module, name, public, args, doc):
    parameters, passed, late = [], [], False
    keep = name in _REDUCTIONS and any(kind == "impl Into<Along>" for _, kind in args)
    env = {"_call": _core._call}
    for i, (arg, kind) in enumerate(args):
        shown = _NAMES.get(arg, arg)
        shown = shown if shown.isidentifier() and shown not in ("lambda", "in", "from", "is", "not") else shown + "_"
        default = _default(module, name, arg, kind)
        if default is _REQUIRED and late:
            # An argument without a default behind one that has it: then none before it has one.
            parameters = [p.partition("=")[0] for p in parameters]
            late = False
        if default is _REQUIRED:
            parameters.append(shown)
        else:
            late = True
            env[f"_d{i}"] = default
            parameters.append(f"{shown}=_d{i}")
        passed.append(f"({shown}, keepdims)" if keep and name not in _DROP and kind == "impl Into<Along>" else shown)
    if keep:
        parameters.append("keepdims=False")
    call = ", ".join([str(id_), *passed])
    result = f"_call({call})"
    if keep and name in _DROP:
        env["_kept"] = _kept
        result = f"_kept({passed[0]}, axis, _call({call})) if keepdims else _call({call})"
    exec(f"def {public if public.isidentifier() else name}({', '.join(parameters)}):\n    return {result}", env)
    f = env[public if public.isidentifier() else name]
    f.__doc__ = doc
    f.__module__ = "tensorloom." + {"np": "numpy"}.get(module, module)
    return f
