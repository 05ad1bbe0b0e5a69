"""Makes Python functions of the table of functions: names, keywords and defaults as in NumPy and JAX."""

from . import _tensorloom as _core

# Other names for arguments, and what they are if they are left away.
_NAMES = {"axes": "axis"}
_REQUIRED = object()
_DEFAULTS = {
    "impl Into<ReduceAxes>": None,
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
# The arguments' names in NumPy, in order, where they are not the table's.
_NUMPYS = {
    **{n: "a" for n in (
        "argmax argmin around average count_nonzero cumprod cumsum fill_diagonal median nanargmax nanargmin nancumprod nancumsum nanmax nanmean "
        "nanmedian nanmin nanprod nanstd nansum nanvar ndim ptp round size").split()},
    **{n: "M" for n in "bartlett blackman hamming hanning kaiser".split()},
    **{n: "tup" for n in "column_stack dstack hstack vstack".split()},
    **{n: "m" for n in "flip fliplr flipud".split()},
    **{n: "v" for n in "diag diagflat".split()},
    **{n: "a1 a2" for n in "array_equal array_equiv polyadd polymul polysub".split()},
    **{n: "arr" for n in "diag_indices_from put_along_axis take_along_axis tril_indices_from triu_indices_from".split()},
    **{n: "start stop num" for n in "geomspace logspace".split()},
    "append": "arr values", "broadcast_to": "array", "convolve": "a v", "delete": "arr obj", "diagonal": "a offset axis1 axis2", "diff": "a",
    "histogram": "a", "histogram_bin_edges": "a", "iinfo": "int_type", "insert": "arr obj", "isclose": "a b", "isin": "element test_elements",
    "permute_dims": "a axes", "place": "arr mask vals", "poly": "seq_of_zeros", "polyfit": "x y deg", "promote_types": "type1 type2", "resize": "a new_shape",
    "ravel_multi_index": "multi_index dims", "select": "condlist choicelist", "swapaxes": "a axis1 axis2", "transpose": "a axes",
    "unravel_index": "indices", "vander": "x N",
}
_NUMPYS_FFT = {
    **{n: "a n" for n in "fft ifft rfft irfft hfft ihfft".split()}, **{n: "a s" for n in "fft2 ifft2 rfft2 irfft2".split()},
    **{n: "a s axes" for n in "fftn ifftn rfftn irfftn".split()}, **{n: "x axes" for n in "fftshift ifftshift".split()},
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


def named(module, name, i, arg):
    """What an argument of the table is called in Python."""
    names = {"np": _NUMPYS, "fft": _NUMPYS_FFT}.get(module, {}).get(name, "").split()
    return names[i] if i < len(names) else _NAMES.get(arg, arg)


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
    keep = name in _REDUCTIONS and any(kind == "impl Into<ReduceAxes>" for _, kind in args)
    env = {"_call": _core._call}
    operands = []
    for i, (arg, kind) in enumerate(args):
        shown = named(module, name, i, arg)
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
        operands += [shown] if kind == "impl Into<Operand>" else []
        passed.append(f"({shown}, keepdims)" if keep and name not in _DROP and kind == "impl Into<ReduceAxes>" else shown)
    if keep:
        parameters.append("keepdims=False")
    call = ", ".join([str(id_), *passed])
    result = f"_call({call})"
    if keep and name in _DROP:
        env["_kept"] = _kept
        result = f"_kept({passed[0]}, axis, _call({call})) if keepdims else _call({call})"
    body = ""
    if len(operands) > 1 and module != "random":
        # Numbers alone: the first is a tensor, of the type that it has by itself.
        env["_numbers"], env["_asarray"] = (int, float), _core.asarray
        body = f"    if {' and '.join(f'isinstance({o}, _numbers)' for o in operands)}:\n        {operands[0]} = _asarray({operands[0]})\n"
    exec(f"def {public if public.isidentifier() else name}({', '.join(parameters)}):\n{body}    return {result}", env)
    f = env[public if public.isidentifier() else name]
    f.__doc__ = doc
    f.__module__ = "tensorloom." + {"np": "numpy"}.get(module, module)
    return f
