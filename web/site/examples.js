// Programs of the playground.
export const examples = {
  "A gradient": `const f = (x) => np.sum(np.sin(x).mul(np.exp(x.neg())));
const x = np.linspace(0, 3, 7);

print("x", x);
print("f(x)", f(x));
print("its gradient", grad(f)(x));
show(grad(f), x);`,
  "A softmax, fused": `const x = random.normal(random.key(0), [64, 256]);
const f = (x) => nn.softmax(x);
print("rows sum to", np.sum(f(x), 1).slice([0, 5]));
show(f, x);`,
  "A loop": `// x' = a x (1 - x), a thousand times, for many a at once.
const a = np.linspace(2.8, 4, 9);
const step = (x) => [a.mul(x).mul(np.subtract(1, x)), x];
const [last, path] = lax.scan(step, np.full([9], 0.5), null, { length: 1000 });
print("a", a);
print("after 1000 steps", last);
show((x) => lax.scan(step, x, null, { length: 1000 })[0], np.full([9], 0.5));`,
  "Newton's method": `// The minimum of Rosenbrock's function, by its second derivatives.
const f = (x) => {
  const [a, b] = [x.slice(0), x.slice(1)];
  return np.square(np.subtract(1, a)).add(np.square(b.sub(np.square(a))).mul(100));
};
const step = jit((x) => x.sub(linalg.solve(hessian(f)(x), grad(f)(x))));
let x = np.array([-1.2, 1]);
for (let i = 0; i < 8; i++) {
  print(i, x, f(x));
  x = step(x);
}
show(step, x);`,
  "A matrix product": `const a = random.normal(random.key(0), [256, 256]);
const f = (a) => np.tanh(a.matmul(a).mul(0.05)).sum();
print(f(a));
show(f, a);
show(grad(f), a);`,
};
