// A program in TypeScript, checked in strict mode against the package's types where there is `tsc`.
import { init, numpy as np, lax, nn, random, linalg, fft, optim, jit, grad, valueAndGrad, vjp, jvp, linearize, vmap, jacfwd, hessian, tree, checkLeaks, Tensor, LoomError, type DType } from "tensorloom";

interface Params { w: Tensor; b: Tensor }

async function main(): Promise<void> {
  const devices = await init();
  console.log(devices);
  const x: Tensor = np.arange(6).reshape(2, 3).astype("float32");
  const s: number = np.sum(x).item();
  if (s < 20) console.log("sum", s + 1);
  const kept = np.sum(x, { axis: 0, keepdims: true });
  const kept2 = np.mean(x, -1, { keepdims: true });
  const z = np.zeros([2, 3], { dtype: "int32" });
  const one = np.ones([2]);
  const eye = np.eye(3);
  const a5 = np.arange(5), a25 = np.arange(2, 5), af = np.arange(0, 1, 0.25);
  const e = np.einsum("ij,kj->ik", x, x);
  const [gx, gy] = np.meshgrid(np.linspace(0, 1, 3), np.linspace(0, 1, 4));
  const data = await x.data();
  const first: number = data[0]! + 1;
  const ints: Int32Array = z.dataSync<Int32Array>();
  const flag: boolean = np.all(np.greater(x, -1)).item<boolean>();
  const params: Params = { w: random.normal(random.key(0), [3, 1]), b: np.zeros([1]) };
  const loss = (p: Params, x: Tensor): Tensor => np.mean(np.square(x.matmul(p.w).add(p.b)));
  const step = jit((p: Params, x: Tensor): [Params, Tensor] => {
    const [value, g]: [Tensor, Params] = valueAndGrad(loss)(p, x);
    return [tree.map((a, b) => a.sub(b.mul(0.1)), p, g), value];
  });
  const [next, value] = step(params, x);
  console.log(value.item().toFixed(4), next.w.shape, first, ints.length, flag, kept.shape, kept2.shape, one.shape, eye.shape, a5.shape, a25.shape, af.shape, e.shape, gx!.shape, gy!.shape);
  const adam = optim.adam(1e-3);
  const state = adam.init(params);
  const [updates, state2] = adam.update(grad(loss)(params, x), state, params);
  console.log(optim.applyUpdates(params, updates).w.shape, typeof state2);
  const [c, ys] = lax.scan((c: Tensor, x: Tensor) => [c.add(x), c], np.array(0), np.arange(4).astype("float32"));
  console.log(c.item(), ys.js());
  const [y, back] = vjp((x: Tensor) => np.sin(x), [np.array([1, 2])]);
  console.log(back(y)[0].js());
  back.dispose();
  const [, dy] = jvp((x: Tensor) => np.sin(x), [np.array([1])], [np.array([1])]);
  console.log(dy.js(), vmap((x: Tensor) => np.sum(x))(x).js(), jacfwd((x: Tensor) => x.mul(2))(np.ones([2])).js(), hessian((x: Tensor) => np.sum(x.mul(x)))(np.ones([2])).js());
  const [at, push] = linearize((x: Tensor) => np.sin(x), np.ones([2]));
  const [, along, aux] = linearize((x: Tensor) => [np.sin(x), { x }], np.ones([2]), { hasAux: true });
  console.log(at.js(), push(at).js(), along(at).js(), aux.x.js());
  const dtype: DType = x.dtype;
  const conv = lax.conv(np.ones([1, 1, 4, 4]), np.ones([1, 1, 2, 2]), [1, 1], "VALID");
  console.log(dtype, conv.shape, nn.softmax(x).shape, nn.softmax(x, 0).shape, nn.softmax(x, { axis: 0 }).shape, linalg.inv(eye).shape, fft.rfft(np.ones([8])).re.shape);
  try {
    np.matmul(x, x);
  } catch (error) {
    if (error instanceof LoomError) console.log(error.message);
    else throw error;
  }
  {
    using t = np.ones([3]);
    console.log(t.sum().item());
  }
  checkLeaks.start();
  const leak = np.ones([2]);
  console.log(checkLeaks.stop().leaked, leak.disposed);
  const u = random.uniform(random.key(1), [2], { minval: -1 });
  const cat = np.concatenate([x, x], 1), st = np.stack([x, x]), tr = np.transpose(x), cl = np.clip(x, 0, 1), wh = np.where(np.greater(x, 1), x, 0);
  console.log(u.shape, cat.shape, st.shape, tr.shape, cl.shape, wh.shape, np.var(x, { axis: 1, ddof: 1 }).shape, np.std(x).item(), np.argmax(x, 1).js(), np.cumsum(x, 0).shape, np.full([2], 3).js(), np.sort([3, 1, 2]).js(), np.take(x, [0, 1], 1).shape, x.T.shape);
}
await main();
