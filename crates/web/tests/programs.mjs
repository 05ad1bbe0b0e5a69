// Small programs of the kind that people write: each takes the package and gives a tree of numbers, which golden/web/programs.py
// computes with JAX.

/** `n` numbers without a pattern, the same in Python. */
const noise = (np, shape, seed = 0) => {
  const n = shape.reduce((a, b) => a * b, 1);
  return np.array(Float32Array.from({ length: n }, (_, i) => Math.sin(12.9898 * (i + 1) + 78.233 * seed)), { shape });
};

export const programs = {
  "linear regression by gradient descent": ({ numpy: np, jit, valueAndGrad }) => {
    const x = noise(np, [50, 3]);
    const y = np.matmul(x, np.array([1, -2, 0.5])).add(0.3);
    const loss = ({ w, b }) => np.mean(np.square(np.matmul(x, w).add(b).sub(y)));
    const step = jit((p) => {
      const [value, g] = valueAndGrad(loss)(p);
      return [{ w: p.w.sub(g.w.mul(0.5)), b: p.b.sub(g.b.mul(0.5)) }, value];
    });
    let p = { w: np.zeros([3]), b: np.array(0) };
    const losses = [];
    for (let i = 0; i < 20; i++) {
      let value;
      [p, value] = step(p);
      losses.push(value);
    }
    return { p, losses };
  },
  "logistic regression by Newton's method": ({ numpy: np, nn, linalg, grad, hessian }) => {
    const x = noise(np, [40, 2], 1);
    const y = np.greater(x.slice([], 0).add(x.slice([], 1).mul(0.5)), 0.1).astype("float32");
    const loss = (w) => np.mean(nn.softplus(np.matmul(x, w)).sub(np.matmul(x, w).mul(y))).add(np.sum(np.square(w)).mul(0.05));
    let w = np.zeros([2]);
    for (let i = 0; i < 4; i++) w = w.sub(linalg.solve(hessian(loss)(w), grad(loss)(w)));
    return [w, loss(w)];
  },
  "two layers with Adam": ({ numpy: np, nn, optim, jit, valueAndGrad }) => {
    const [x, labels] = [noise(np, [16, 4], 2), np.mod(np.arange(16), 3)];
    let params = { l1: { w: noise(np, [4, 8], 3).mul(0.5), b: np.zeros([8]) }, l2: [noise(np, [8, 3], 4).mul(0.5), np.zeros([3])] };
    const logits = ({ l1, l2 }) => nn.gelu(np.matmul(x, l1.w).add(l1.b)).matmul(l2[0]).add(l2[1]);
    const loss = (p) => np.negative(np.mean(np.sum(nn.logSoftmax(logits(p), -1).mul(nn.oneHot(labels, 3)), -1)));
    const adam = optim.adam(0.05);
    let state = adam.init(params);
    const step = jit((p, s) => {
      const [value, g] = valueAndGrad(loss)(p);
      const [updates, next] = adam.update(g, s, p);
      return [optim.applyUpdates(p, updates), next, value];
    });
    const losses = [];
    for (let i = 0; i < 10; i++) {
      let value;
      [params, state, value] = step(params, state);
      losses.push(value);
    }
    return losses;
  },
  "a recurrent network through time": ({ numpy: np, lax, grad, jit }) => {
    const [w, u, xs] = [noise(np, [5, 5], 5).mul(0.4), noise(np, [2, 5], 6), noise(np, [12, 3, 2], 7)];
    const loss = (w, u) => {
      const [h, ys] = lax.scan((h, x) => {
        const next = np.tanh(np.matmul(h, w).add(np.matmul(x, u)));
        return [next, np.sum(next)];
      }, np.zeros([3, 5]), xs);
      return np.mean(np.square(ys)).add(np.sum(h));
    };
    return jit(grad(loss, { argnums: [0, 1] }))(w, u);
  },
  "a Kalman filter": ({ numpy: np, lax, jit, grad }) => {
    const zs = noise(np, [30], 8).add(np.linspace(0, 3, 30));
    const likelihood = (q) => {
      const f = ([m, v], z) => {
        const predicted = v.add(q);
        const s = predicted.add(0.5);
        const k = predicted.div(s);
        const r = z.sub(m);
        return [[m.add(k.mul(r)), predicted.mul(np.subtract(1, k))], np.log(s).add(r.mul(r).div(s))];
      };
      return np.sum(lax.scan(f, [np.array(0), np.array(1)], zs)[1]).mul(0.5);
    };
    return [jit(likelihood)(np.array(0.1)), grad(likelihood)(np.array(0.1)), grad(grad(likelihood))(np.array(0.1))];
  },
  "a differential equation, and its gradient": ({ numpy: np, lax, vjp }) => {
    const solve = (k, y0) => lax.foriLoop(0, 50, (i, [y, v]) => [y.add(v.mul(0.05)), v.sub(y.mul(k).mul(0.05))], [y0, np.zeros([2])])[0];
    const scanned = (k, y0) => lax.scan(([y, v]) => [[y.add(v.mul(0.05)), v.sub(y.mul(k).mul(0.05))], y], [y0, np.zeros([2])], null, { length: 50 })[0][0];
    const [y, back] = vjp(scanned, [np.array(2), np.array([1, 0.5])]);
    return [solve(np.array(2), np.array([1, 0.5])), y, back(np.ones([2]))];
  },
  "causal attention": ({ numpy: np, nn, grad, vmap }) => {
    const [q, k, v] = [1, 2, 3].map((s) => noise(np, [2, 6, 4], s));
    const mask = np.tril(np.ones([6, 6]));
    const head = (q, k, v) => nn.softmax(np.where(np.greater(mask, 0), np.matmul(q, k.T).div(2), -1e9), -1).matmul(v);
    const all = vmap(head);
    return [all(q, k, v), grad((q) => np.sum(np.square(all(q, k, v))))(q)];
  },
  "gradients of each example": ({ numpy: np, grad, vmap, jit }) => {
    const [x, y, w] = [noise(np, [5, 3], 1), noise(np, [5], 2), noise(np, [3], 3)];
    const loss = (w, x, y) => np.square(np.dot(x, w).sub(y));
    const each = jit(vmap(grad(loss), [null, 0, 0]))(w, x, y);
    return [each, np.linalg.norm(each, { axis: 1 })];
  },
  "Hessian times a vector, three ways": ({ numpy: np, grad, jvp, hessian, linearize }) => {
    const f = (x) => np.sum(np.sin(x).mul(np.roll(x, 1)).mul(x));
    const [x, v] = [noise(np, [4], 4), noise(np, [4], 5)];
    const [, tangent] = linearize(grad(f), x);
    return [jvp(grad(f), [x], [v])[1], np.matmul(hessian(f)(x), v), tangent(v)];
  },
  "Newton's root in a loop": ({ numpy: np, lax, vmap }) => {
    const root = (a) => lax.whileLoop(([x]) => np.greater(np.abs(x.mul(x).sub(a)), 1e-4), ([x, n]) => [x.add(a.div(x)).mul(0.5), n.add(1)], [a, np.array(0, { dtype: "int32" })]);
    return vmap((a) => root(a)[0])(np.array([2, 9, 50]));
  },
  "the Mandelbrot set": ({ numpy: np, lax, jit }) => {
    const [re, im] = np.meshgrid(np.linspace(-2, 0.5, 11), np.linspace(-1, 1, 7));
    const count = jit((cr, ci) => lax.foriLoop(0, 20, (i, [x, y, n]) => {
      const inside = np.less(x.mul(x).add(y.mul(y)), 4);
      const [nx, ny] = [x.mul(x).sub(y.mul(y)).add(cr), x.mul(y).mul(2).add(ci)];
      return [np.where(inside, nx, x), np.where(inside, ny, y), n.add(inside.astype("int32"))];
    }, [np.zeros([7, 11]), np.zeros([7, 11]), np.zeros([7, 11], { dtype: "int32" })])[2]);
    return count(re, im);
  },
  "the game of life": ({ numpy: np, lax, jit }) => {
    const board = np.greater(noise(np, [8, 8], 6), 0.2).astype("int32");
    const next = (b) => {
      const around = [-1, 0, 1].flatMap((i) => [-1, 0, 1].map((j) => (i === 0 && j === 0 ? null : np.roll(np.roll(b, i, 0), j, 1)))).filter(Boolean);
      const n = around.reduce((a, c) => a.add(c));
      return np.logicalOr(np.equal(n, 3), np.logicalAnd(np.equal(b, 1), np.equal(n, 2))).astype("int32");
    };
    return jit((b) => lax.scan((b) => [next(b), np.sum(b)], b, null, { length: 6 }))(board);
  },
  "k-means": ({ numpy: np, nn, lax }) => {
    const x = noise(np, [30, 2], 7);
    const step = (c) => {
      const d = np.sum(np.square(np.expandDims(x, 1).sub(np.expandDims(c, 0))), { axis: -1 });
      const one = nn.oneHot(np.argmin(d, 1), 3);
      return np.matmul(one.T, x).div(np.maximum(np.sum(one, 0, { keepdims: false }).reshape(3, 1), 1));
    };
    return lax.foriLoop(0, 5, (i, c) => step(c), x.slice([0, 3]));
  },
  "principal axes": ({ numpy: np, linalg }) => {
    const x = np.exp(noise(np, [20, 4], 8).mul(3));
    const centred = x.sub(np.mean(x, { axis: 0, keepdims: true }));
    const [u, s, vt] = linalg.svd(centred);
    const [values] = linalg.eigh(np.matmul(centred.T, centred));
    return [s, np.sort(np.sqrt(values)), np.abs(np.matmul(centred, vt.T)), u.shape];
  },
  "a low-pass filter": ({ numpy: np, fft }) => {
    const x = noise(np, [33], 9);
    const { re, im } = fft.rfft(x);
    const keep = np.less(np.arange(17), 5).astype("float32");
    return fft.irfft({ re: re.mul(keep), im: im.mul(keep) }, 33);
  },
  "a hidden Markov model": ({ numpy: np, nn, lax, grad }) => {
    const seen = [0, 1, 1, 2, 0, 2, 1];
    const loss = ({ move, show }) => {
      const [a, b] = [nn.logSoftmax(move, -1), nn.logSoftmax(show, -1)];
      const f = (alpha, o) => [nn.logsumexp(np.expandDims(alpha, 1).add(a), 0).add(np.take(b, o, 1)), null];
      const [last] = lax.scan(f, np.zeros([3]), np.array(seen, { dtype: "int32" }));
      return nn.logsumexp(last).neg();
    };
    const params = { move: noise(np, [3, 3], 1), show: noise(np, [3, 3], 2) };
    return [loss(params), grad(loss)(params)];
  },
  "optimal transport by Sinkhorn's steps": ({ numpy: np, nn, lax, jit, grad }) => {
    const cost = np.square(noise(np, [4, 1], 3).sub(noise(np, [1, 5], 4)));
    const distance = jit((cost) => {
      const f = ([u, v]) => {
        const nu = np.full([4], -Math.log(4)).sub(nn.logsumexp(np.expandDims(v, 0).sub(cost.mul(5)), 1));
        return [[nu, np.full([5], -Math.log(5)).sub(nn.logsumexp(np.expandDims(nu, 1).sub(cost.mul(5)), 0))], null];
      };
      const [[u, v]] = lax.scan(f, [np.zeros([4]), np.zeros([5])], null, { length: 30 });
      return np.sum(np.exp(np.expandDims(u, 1).add(np.expandDims(v, 0)).sub(cost.mul(5))).mul(cost));
    });
    return [distance(cost), grad(distance)(cost)];
  },
  "a convolution with pooling": ({ numpy: np, nn, lax, grad }) => {
    const [x, k] = [noise(np, [2, 3, 8, 8], 5), noise(np, [4, 3, 3, 3], 6)];
    const f = (k) => lax.conv(x, k, [1, 1], "SAME");
    const pooled = (k) => np.max(nn.relu(f(k)).reshape(2, 4, 4, 2, 4, 2), { axis: [3, 5] });
    return [np.sum(pooled(k)), np.sum(grad((k) => np.sum(pooled(k)))(k), { axis: [1, 2, 3] })];
  },
  "layer normalisation of odd shapes": ({ numpy: np, grad, vmap }) => {
    const norm = (x, g) => x.sub(np.mean(x, -1, { keepdims: true })).div(np.sqrt(np.var(x, -1, { keepdims: true }).add(1e-5))).mul(g);
    const [x, g] = [noise(np, [3, 1, 7], 7), noise(np, [7], 8)];
    const twice = vmap(vmap((x) => norm(x, g)));
    return [norm(x, g), twice(x), grad((x) => np.sum(norm(x, g).mul(x)))(x), np.sum(np.zeros([0, 3]), 0), np.concatenate([np.zeros([0, 2]), np.ones([1, 2])])];
  },
  "Jacobians of trees": ({ numpy: np, jacfwd, jacrev, hessian }) => {
    const f = ({ a, b }, c) => ({ s: a.mul(b).add(c), t: [np.sum(np.sin(a)).mul(c)] });
    const args = [{ a: noise(np, [2], 1), b: noise(np, [2], 2) }, noise(np, [2], 3)];
    return [jacfwd(f)(...args), jacrev(f, { argnums: [0, 1] })(...args), jacfwd(f, { argnums: 1 })(...args), hessian((t) => np.sum(t.a.mul(t.a).mul(t.b)))(args[0])];
  },
  "a clipped gradient of one's own": ({ numpy: np, customVjp, grad, jit, vmap }) => {
    const clip = customVjp((x) => x).defvjp((x) => [x, null], (_, ct) => [np.clip(ct, -0.1, 0.1)]);
    const f = (x) => np.sum(np.square(clip(x)));
    return [grad(f)(np.array([0.01, 3])), jit(vmap(grad(f)))(noise(np, [2, 3], 4))];
  },
  "a beam of samples": ({ numpy: np, nn, lax, random }) => {
    const p = nn.softmax(noise(np, [10], 5).mul(3));
    const [values, places] = lax.topK(p, 3);
    const total = np.cumsum(np.flip(np.sort(p)));
    return [values, places, np.argmax(np.greater(total, 0.7)), random.categorical(random.key(3), np.log(p)), random.uniform(random.key(7), [2, 2])];
  },
  "a cumulative product by pairs": ({ numpy: np, lax, grad }) => {
    const [a, b] = [noise(np, [9], 6), noise(np, [9], 7)];
    const run = (a, b) => lax.associativeScan(([p, q], [r, s]) => [p.mul(r), q.mul(r).add(s)], [a, b])[1];
    return [run(a, b), grad((a) => np.sum(run(a, b)))(a)];
  },
};
