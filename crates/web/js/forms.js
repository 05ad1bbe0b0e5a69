// Forms of calls that NumPy and JAX have beside those of the program's list: sizes that are left open, fewer arguments, other orders,
// reductions that keep their axes.

/**
 * Completes the namespaces. `kit` has them, `Tensor`, and what `index.js` has for trees and calls.
 */
export function completeForms(kit) {
  const { numpy, lax, nn, random, linalg, fft, optim, scipySpecial, tree } = kit;
  const { Tensor, LoomError, array, isTensor, isPlain, list, parts, build, special } = kit;
  const method = (name, f) => {
    Tensor.prototype[name] = function (...rest) {
      return f(this, ...rest);
    };
  };
  const bad = (text) => {
    throw new LoomError(text);
  };

  for (const [short, long] of [["mul", "multiply"], ["sub", "subtract"], ["div", "divide"], ["neg", "negative"], ["pow", "power"], ["mod", "remainder"]]) {
    if (numpy[long]) method(short, numpy[long]);
  }
  for (const [name, same] of [["mod", "remainder"], ["var_", "var"]]) numpy[name] ??= numpy[same];
  numpy.bool = "bool";
  numpy.eulerGamma = 0.5772156649015329;

  // One size may be -1: what is left.
  const plain = numpy.reshape;
  const reshape = (x, shape) => {
    const sizes = list(shape);
    const open = sizes.indexOf(-1);
    if (open < 0) return plain(x, sizes);
    const t = isTensor(x) ? x : array(x);
    const rest = sizes.reduce((n, s, i) => (i === open ? n : n * s), 1);
    if (sizes.lastIndexOf(-1) !== open) bad(`np.reshape: only one size can be -1, not several of [${sizes}]`);
    if (rest === 0 || t.size % rest !== 0) bad(`np.reshape: the ${t.size} elements of ${t.dtype}[${t.shape}] don't fill a shape [${sizes}]`);
    return plain(t, sizes.map((s, i) => (i === open ? t.size / rest : s)));
  };
  numpy.reshape = reshape;
  Tensor.prototype.reshape = function (...shape) {
    return reshape(this, shape.length === 1 ? shape[0] : shape);
  };
  method("flatten", numpy.ravel ?? ((x) => reshape(x, [-1])));

  const transpose = numpy.transpose;
  numpy.matrixTransposeAll = (x) => {
    const t = isTensor(x) ? x : array(x);
    return transpose(t, Array.from({ length: t.ndim }, (_, i) => t.ndim - 1 - i));
  };
  numpy.transpose = (x, axes) => (axes === undefined || axes === null ? numpy.matrixTransposeAll(x) : transpose(x, axes));
  method("transpose", numpy.transpose);

  const arange = numpy.arange;
  numpy.arange = (...given) => {
    const { dtype } = isPlain(given.at(-1)) ? given.pop() : {};
    const [start, stop, step = 1] = given.length === 1 ? [0, given[0]] : given;
    const whole = [start, stop, step].every(Number.isInteger);
    const t = arange(start, stop, step);
    const want = dtype ?? (whole ? "int32" : "float32");
    if (t.dtype === want) return t;
    const cast = t.astype(want);
    t.dispose();
    return cast;
  };
  for (const name of ["eye", "tri"]) {
    const f = numpy[name];
    if (!f) continue;
    numpy[name] = (n, ...rest) => {
      const { k, m, dtype } = isPlain(rest.at(-1)) ? rest.pop() : {};
      return f(n, rest[0] ?? m ?? n, rest[1] ?? k ?? 0, rest[2] ?? dtype);
    };
  }
  const convolve = numpy.convolve;
  numpy.convolve = (x, y, mode = "full") => convolve(x, y, mode);

  // Operands one after the other, or in a list.
  const einsum = numpy.einsum;
  numpy.einsum = (spec, ...xs) => einsum(spec, xs.length === 1 && Array.isArray(xs[0]) && xs[0].every((x) => isTensor(x) || Array.isArray(x)) ? xs[0] : xs);
  const meshgrid = numpy.meshgrid;
  numpy.meshgrid = (...xs) => {
    const options = isPlain(xs.at(-1)) && !Array.isArray(xs.at(-1)) ? xs.pop() : typeof xs.at(-1) === "string" ? { indexing: xs.pop() } : {};
    const lines = xs.length === 1 && Array.isArray(xs[0]) && typeof xs[0][0] !== "number" ? xs[0] : xs;
    return meshgrid(lines, options.indexing ?? "xy");
  };
  for (const name of ["concatenate", "stack", "vstack", "hstack", "dstack", "columnStack"]) {
    const f = numpy[name];
    if (f) numpy[name] = (xs, ...rest) => (Array.isArray(xs) && xs.length === 0 ? bad(`np.${name}: a list without tensors`) : f(xs, ...rest));
  }

  // Windows by place, as in JAX, or by name.
  const conv = lax.convGeneralDilated;
  lax.convGeneralDilated = (lhs, rhs, strides, padding, options) => {
    if (padding === undefined && (strides === undefined || !Array.isArray(strides))) return conv(lhs, rhs, strides);
    return conv(lhs, rhs, { strides, padding, ...options });
  };
  lax.conv = (lhs, rhs, strides, padding) => conv(lhs, rhs, { strides, padding });
  lax.convWithGeneralPadding = (lhs, rhs, strides, padding, lhsDilation, rhsDilation) => conv(lhs, rhs, { strides, padding, lhsDilation, rhsDilation });
  lax.erf ??= scipySpecial.erf;
  lax.erfc ??= scipySpecial.erfc;
  Object.assign(lax.linalg, {
    cholesky: linalg.cholesky,
    triangularSolve: (a, b, { leftSide = true, lower = false, transposeA = false } = {}) => linalg.triangularSolve(a, b, leftSide, lower, transposeA),
    lu: linalg.lu,
  });
  numpy.linalg = linalg;
  numpy.fft = fft;
  random.PRNGKey = random.key;
  const bernoulli = random.bernoulli;
  random.bernoulli = (key, p = 0.5, shape = []) => bernoulli(key, { p, shape });
  lax.stopGradient = (x) => tree.map((t) => t.detach(), x);
  optim.applyUpdates = (params, updates) => {
    const [leaves, structure] = parts(params);
    return build(structure, special("applyUpdates", leaves, parts(updates)[0]));
  };
  optim.globalNorm = (x) => special("globalNorm", parts(x)[0]);
}

/** A reduction's result with the axes that it went along, of one element each; an error if that is not what it did. */
export function keepAxes(name, x, along, result, { numpy, LoomError }) {
  const { shape } = x;
  const axes = along === null || along === undefined ? shape.map((_, i) => i) : [along].flat();
  const gone = new Set(axes.map((a) => (a < 0 ? a + shape.length : a)));
  const rest = shape.filter((_, i) => !gone.has(i));
  if (!result.shape || `${result.shape}` !== `${rest}`) throw new LoomError(`${name}: keepdims is for reductions, and this is none`);
  const kept = numpy.reshape(result, shape.map((n, i) => (gone.has(i) ? 1 : n)));
  result.dispose();
  return kept;
}
