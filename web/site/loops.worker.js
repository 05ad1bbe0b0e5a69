import { breathe, jit, lax, numpy as np, optim, random, say, tasks, tree, valueAndGrad } from "./task.js";
import { generator } from "./tales.js";

const chance = generator(11);
const normal = () => Math.sqrt(-2 * Math.log(chance() + 1e-12)) * Math.cos(2 * Math.PI * chance());

// A position with a drifting speed, seen through a noisy sensor.
const length = 300;
const [truth, seen] = [[], []];
for (let t = 0, x = 0, v = 0; t < length; t++) {
  v += 0.05 * normal();
  x += v;
  truth.push(x);
  seen.push(x + 1.5 * normal());
}

/** The filter over all times: estimates, and the negative logarithm of the likelihood of what was seen. */
function filter(p, ys) {
  const [q, r] = [np.exp(p.q), np.exp(p.r)];
  const F = np.array([[1, 1], [0, 1]]);
  const H = np.array([[1, 0]]);
  const Q = np.array([[0, 0], [0, 1]]).mul(q);
  const step = ({ m, P, cost }, y) => {
    m = F.matmul(m);
    P = F.matmul(P).matmul(F.T).add(Q);
    const s = P.slice(0, 0).add(r);
    const e = y.sub(m.slice(0));
    const K = P.slice([], 0).div(s);
    m = m.add(K.mul(e));
    P = P.sub(np.outer(K, H.matmul(P).slice(0)));
    return [{ m, P, cost: cost.add(np.log(s).add(e.mul(e).div(s)).mul(0.5)) }, m.slice(0)];
  };
  const [{ cost }, path] = lax.scan(step, { m: np.zeros([2]), P: np.eye(2).mul(10), cost: np.array(0) }, ys);
  return [cost.div(length), path];
}

// A spiral, and a network that gives its direction.
const points = 60;
const dt = 0.1;
const spiral = Array.from({ length: points }, (_, i) => {
  const a = i * dt;
  return [2 * Math.exp(-0.12 * a) * Math.cos(1.2 * a), 2 * Math.exp(-0.12 * a) * Math.sin(1.2 * a)];
});
const slope = (p, z) => np.tanh(z.matmul(p.w1).add(p.b1)).matmul(p.w2);

function flow(p) {
  const step = (z) => {
    const k1 = slope(p, z);
    const k2 = slope(p, z.add(k1.mul(dt / 2)));
    const k3 = slope(p, z.add(k2.mul(dt / 2)));
    const k4 = slope(p, z.add(k3.mul(dt)));
    return [z.add(k1.add(k2.mul(2)).add(k3.mul(2)).add(k4).mul(dt / 6)), z];
  };
  return lax.scan(step, np.array(spiral[0]), null, { length: points })[1];
}

async function fit(loss, params, rate, steps, every, report) {
  const optimizer = optim.adam(rate);
  let state = optimizer.init(params);
  const step = jit((params, state) => {
    const [[value, path], grads] = valueAndGrad(loss, { hasAux: true })(params);
    const [updates, after] = optimizer.update(grads, state, params);
    return [optim.applyUpdates(params, updates), after, value, path];
  });
  const values = [];
  for (let i = 0; i <= steps; i++) {
    const [p, s, value, path] = step(params, state);
    values.push((await value.data())[0]);
    if (i % every === 0 || i === steps) {
      await report({ values, path: await path.jsAsync(), params, step: i, done: i === steps });
      await breathe();
    }
    tree.dispose([params, state, value, path]);
    [params, state] = [p, s];
  }
  tree.dispose([params, state]);
  step.dispose();
}

const kalman = (steps) => {
  const ys = np.array(seen);
  return fit((p) => filter(p, ys), { q: np.array(-2), r: np.array(-2) }, 0.15, steps, 5, async ({ values, path, params, step, done }) =>
    say("kalman", { seen, truth, filtered: path, values, process: Math.exp((await params.q.data())[0] / 2), sensor: Math.exp((await params.r.data())[0] / 2), step, done }),
  );
};
const ode = (steps) => {
  const target = np.array(spiral);
  const keys = random.split(random.key(2), 2);
  const params = { w1: random.normal(keys.slice(0), [2, 32]), b1: np.zeros([32]), w2: random.normal(keys.slice(1), [32, 2]).mul(0.15) };
  const loss = (p) => {
    const path = flow(p);
    return [np.mean(np.square(path.sub(target))), path];
  };
  return fit(loss, params, 0.01, steps, 10, ({ values, path, step, done }) => say("ode", { truth: spiral, path, losses: values, step, done }));
};

tasks({
  async show() {
    await kalman(0);
    await ode(0);
  },
  kalman: () => kalman(200),
  ode: () => ode(600),
});
