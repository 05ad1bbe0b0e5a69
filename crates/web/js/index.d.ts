// Types of the package. Functions of the namespaces are filled in from docs/functions.json by `cargo xtask web`.

export type DType =
  | "bool" | "int8" | "int16" | "int32" | "int64" | "uint8" | "uint16" | "uint32" | "uint64"
  | "float8_e4m3fn" | "float8_e5m2" | "float16" | "bfloat16" | "float32" | "float64";
export type TypedArray =
  | Float32Array | Float64Array | Int8Array | Int16Array | Int32Array | BigInt64Array
  | Uint8Array | Uint8ClampedArray | Uint16Array | Uint32Array | BigUint64Array;
export type Nested = number | boolean | Nested[];
/** What may stand for a tensor. */
export type ArrayLike = Tensor | Nested | TypedArray;
/** A number for each axis, `[start, end, step]`, `null` for a new axis, `"..."`, or integers. */
export type Pick = number | [(number | null)?, (number | null)?, number?] | null | "..." | Tensor;
/** The axes of a reduction; `null` for all. */
export type Axes = number | number[] | null;
/** Options of reductions: along which axes, and whether those stay, with one element each. */
export interface ReduceAxes { axis?: Axes; axes?: Axes; keepdims?: boolean }
/** Plain objects and lists whose leaves are tensors. */
export type Tree = any;
export type Padding = "VALID" | "SAME" | [number, number][];
export type ScanPath = "compiled-loop" | "preencoded-routine" | "fallback";
export interface Complex { re: Tensor; im: Tensor }
export interface Betas { b1?: number; b2?: number; eps?: number; epsRoot?: number; nesterov?: boolean }
/** A number for each step. */
export interface Schedule { dispose(): void }
/** An optimiser. */
export interface Chain {
  init(params: Tree): Tree;
  update(grads: Tree, state: Tree, params?: Tree): [Tree, Tree];
  dispose(): void;
}

export class LoomError extends Error {}

export interface Tensor extends TensorMethods {}
export class Tensor {
  readonly shape: number[];
  readonly dtype: DType;
  readonly ndim: number;
  readonly size: number;
  readonly disposed: boolean;
  /** Where it lives. */
  readonly device: Device;
  /** The same tensor on another device; itself if it lives there. */
  to(device: Device): Promise<Tensor>;
  readonly ref: this;
  readonly T: Tensor;
  /** The elements in row-major order, when they are computed. */
  data<A extends TypedArray = Float32Array>(): Promise<A>;
  /** The elements at once; not possible for what is on `webgpu`. */
  dataSync<A extends TypedArray = Float32Array>(): A;
  /** The elements as nested lists; a number for a tensor without axes. */
  js(): any;
  jsAsync(): Promise<any>;
  /** The only element: a number, or true or false (`item<boolean>()`). */
  item<N extends number | boolean = number>(): N;
  astype(dtype: DType): Tensor;
  slice(...picks: Pick[]): Tensor;
  reshape(...shape: (number | number[])[]): Tensor;
  detach(): Tensor;
  blockUntilReady(): Promise<this>;
  dispose(): void;
  [Symbol.dispose](): void;
  [Symbol.toPrimitive](hint: string): string;
}

declare global {
  // For compilers whose library doesn't have it.
  interface SymbolConstructor {
    readonly dispose: unique symbol;
  }
}

/** NumPy's functions of a tensor, as methods. */
export interface TensorMethods {
  add(y: ArrayLike): Tensor;
  sub(y: ArrayLike): Tensor;
  mul(y: ArrayLike): Tensor;
  div(y: ArrayLike): Tensor;
  neg(): Tensor;
  pow(y: ArrayLike): Tensor;
  sum(axis?: Axes | ReduceAxes, options?: ReduceAxes): Tensor;
  mean(axis?: Axes | ReduceAxes, options?: ReduceAxes): Tensor;
  max(axis?: Axes | ReduceAxes, options?: ReduceAxes): Tensor;
  min(axis?: Axes | ReduceAxes, options?: ReduceAxes): Tensor;
  matmul(y: ArrayLike): Tensor;
  transpose(axes?: number[]): Tensor;
  flatten(): Tensor;
  [method: string]: any;
}

/** What computes: WebAssembly, or the GPU through WebGPU. */
export type Device = "wasm" | "webgpu";
type Source = string | URL | BufferSource | WebAssembly.Module;
/**
 * Loads the program; await it before anything else. Gives the devices that there are. `device`: where tensors are made; `"webgpu"` fails
 * where there is none, `"auto"` doesn't.
 */
export function init(options?: Source | { source?: Source; device?: Device | "auto" }): Promise<Device[]>;

type Fn = (...args: any[]) => any;
type Disposable_<F> = F & { dispose(): void; [Symbol.dispose]?(): void };
/**
 * Compiles a function. Arguments are tensors, numbers, and lists and objects of them; anything else has to be named in `staticArgnums`, and
 * the function is compiled for each of its values.
 */
export function jit<F extends Fn>(f: F, options?: { staticArgnums?: number | number[]; device?: Device; donateArgnums?: number | number[] }): Disposable_<F>;
export function grad(f: Fn, options?: { argnums?: number | number[]; hasAux?: boolean }): Fn;
export function valueAndGrad(f: Fn, options?: { argnums?: number | number[]; hasAux?: boolean }): Fn;
/** A function with a reverse rule of its own: `forward` gives `[results, kept]`, `backward` gets `(kept, cotangents)` and gives one for each argument. */
export function customVjp<F extends Fn>(f: F): F & { defvjp(forward: Fn, backward: (kept: any, cotangents: any) => (Tree | null)[]): F };
/** A function with a forward rule of its own: it gets `(primals, tangents)` and gives `[results, their tangents]`. */
export function customJvp<F extends Fn>(f: F): F & { defjvp(rule: (primals: any[], tangents: any[]) => [Tree, Tree]): F };
export function vjp(f: Fn, primals: Tree[], options?: { hasAux?: boolean }): [Tree, Disposable_<(cotangents: Tree) => Tree[]>, Tree?];
export function jvp(f: Fn, primals: Tree[], tangents: Tree[], options?: { hasAux?: boolean }): [Tree, Tree, Tree?];
/** Results and the linear function of tangents; behind the primals may come `{ hasAux: true }`, and the results' aux is the third. */
export function linearize(f: Fn, ...primals: [...Tree[], { hasAux: boolean }]): [Tree, Disposable_<Fn>, Tree?];
export function linearize(f: Fn, ...primals: Tree[]): [Tree, Disposable_<Fn>];
export function vmap(f: Fn, inAxes?: any, outAxes?: number | null, options?: { axisSize?: number }): Fn;
/** Jacobian by forward mode: for each tensor of the result the tree of the argument (`argnums`, the first one if not given). */
export function jacfwd(f: Fn, options?: { argnums?: number | number[]; hasAux?: boolean }): Fn;
/** Jacobian by reverse mode. */
export function jacrev(f: Fn, options?: { argnums?: number | number[]; hasAux?: boolean }): Fn;
export function jacobian(f: Fn, options?: { argnums?: number | number[]; hasAux?: boolean }): Fn;
/** Second derivatives. */
export function hessian(f: Fn, options?: { argnums?: number | number[]; hasAux?: boolean }): Fn;
export function checkpoint<F extends Fn>(f: F): F;
export function makeJaxpr(f: Fn): (...args: any[]) => string;
export function explain(f: Fn): (...args: any[]) => { graph: string; program: string; kernels: string; timings: string };

export const tree: {
  flatten(x: Tree): [Tensor[], any];
  unflatten(structure: any, leaves: Tensor[]): Tree;
  leaves(x: Tree): Tensor[];
  structure(x: Tree): string;
  map(f: (...leaves: Tensor[]) => any, x: Tree, ...more: Tree[]): Tree;
  dispose(x: Tree): void;
  ref(x: Tree): Tree;
};

export interface Numpy {
  array(value: ArrayLike, options?: { dtype?: DType; shape?: number | number[]; device?: Device }): Tensor;
  asarray(value: ArrayLike, options?: { dtype?: DType; shape?: number | number[]; device?: Device }): Tensor;
  pi: number;
  e: number;
  inf: number;
  nan: number;
  newaxis: null;
  eulerGamma: number;
  linalg: Linalg;
  fft: Fft;
  arange(stop: number, options?: { dtype?: DType }): Tensor;
  arange(start: number, stop: number, options?: { dtype?: DType }): Tensor;
  arange(start: number, stop: number, step: number, options: { dtype?: DType }): Tensor;
  eye(n: number, m?: number | null, options?: { k?: number; dtype?: DType }): Tensor;
  eye(n: number, options: { m?: number; k?: number; dtype?: DType }): Tensor;
  tri(n: number, m?: number | null, options?: { k?: number; dtype?: DType }): Tensor;
  transpose(x: ArrayLike): Tensor;
  convolve(x: ArrayLike, y: ArrayLike, mode?: "full" | "same" | "valid"): Tensor;
  einsum(spec: string, ...xs: ArrayLike[]): Tensor;
  meshgrid(...xs: ArrayLike[]): Tensor[];
  meshgrid(xs: ArrayLike[], options?: { indexing?: "xy" | "ij" }): Tensor[];
  mod(x: ArrayLike, y: ArrayLike): Tensor;
  var_(x: ArrayLike, axis?: Axes | (ReduceAxes & { ddof?: number }), options?: ReduceAxes & { ddof?: number }): Tensor;
  // functions of np
  [name: string]: any;
}
export interface Lax {
  scan(
    f: (carry: Tree, x: Tree) => [Tree, Tree], init: Tree, xs?: Tree,
    options?: { length?: number; reverse?: boolean; checkpoint?: boolean | number; acceptPath?: ScanPath | ScanPath[] },
  ): [Tree, Tree];
  fori(lower: number, upper: number, f: (i: Tensor, value: Tree) => Tree, init: Tree): Tree;
  foriLoop(lower: number, upper: number, f: (i: Tensor, value: Tree) => Tree, init: Tree): Tree;
  while(test: (value: Tree) => Tensor, body: (value: Tree) => Tree, init: Tree): Tree;
  whileLoop(test: (value: Tree) => Tensor, body: (value: Tree) => Tree, init: Tree): Tree;
  cond(pred: Tensor | boolean, onTrue: Fn, onFalse: Fn, ...operands: Tree[]): Tree;
  switch(index: Tensor | number, branches: Fn[], ...operands: Tree[]): Tree;
  map(f: (x: Tree) => Tree, xs: Tree): Tree;
  associativeScan(f: (a: Tree, b: Tree) => Tree, elems: Tree, options?: { reverse?: boolean; axis?: number }): Tree;
  stopGradient(x: Tree): Tree;
  conv(lhs: ArrayLike, rhs: ArrayLike, windowStrides: number[], padding: Padding): Tensor;
  convWithGeneralPadding(
    lhs: ArrayLike, rhs: ArrayLike, windowStrides: number[], padding: Padding, lhsDilation?: number[], rhsDilation?: number[],
  ): Tensor;
  convGeneralDilated(
    lhs: ArrayLike, rhs: ArrayLike, windowStrides: number[], padding: Padding,
    options?: { lhsDilation?: number[]; rhsDilation?: number[]; featureGroupCount?: number },
  ): Tensor;
  erf(x: ArrayLike): Tensor;
  erfc(x: ArrayLike): Tensor;
  linalg: {
    cholesky(a: ArrayLike): Tensor;
    triangularSolve(a: ArrayLike, b: ArrayLike, options?: { leftSide?: boolean; lower?: boolean; transposeA?: boolean }): Tensor;
    lu(a: ArrayLike): any;
  };
  // functions of lax
  [name: string]: any;
}
export interface Nn {
  // functions of nn
  [name: string]: any;
}
export interface Random {
  PRNGKey(seed: number): Tensor;
  bernoulli(key: ArrayLike, p?: ArrayLike, shape?: number[]): Tensor;
  // functions of random
  [name: string]: any;
}
export interface Linalg {
  // functions of linalg
  [name: string]: any;
}
export interface Fft {
  // functions of fft
  [name: string]: any;
}
export interface Special {
  // functions of special
  [name: string]: any;
}
export interface Optim {
  applyUpdates(params: Tree, updates: Tree): Tree;
  globalNorm(x: Tree): Tensor;
  // functions of optim
  [name: string]: any;
}
export const numpy: Numpy;
export const lax: Lax;
export const nn: Nn;
export const random: Random;
export const linalg: Linalg;
export const fft: Fft;
export const scipySpecial: Special;
export const optim: Optim;

export function fromBytes(bytes: Uint8Array, dtype: DType, shape: number[]): Tensor;
export function toBytes(t: Tensor): Uint8Array;
export const safetensors: {
  parse(buffer: ArrayBuffer | Uint8Array): Record<string, Tensor>;
  serialize(tensors: Record<string, Tensor>): Uint8Array;
  load(from: Blob | string | URL): Promise<Record<string, Tensor>>;
};

export function devices(): Device[];
/** Where tensors are made; with a name, from now on. */
export function defaultDevice(name?: Device): Device;
/** Runs `f`, which can't be async; tensors that it makes live on a device. */
export function withDevice<R>(name: Device, f: () => R): R;
/** A tree on a device. */
export function devicePut<T>(x: T, device?: Device): Promise<T>;
/** Computes a tree, and waits until it is there. */
export function blockUntilReady<T>(x: T): Promise<T>;
/** Why there is no WebGPU, if there is none. */
export function whyNoGpu(): string | null;
/** The name of the GPU, if there is one. */
export function gpuName(): string | null;
/** Whether that is a program on the CPU, as the adapter says. */
export function gpuIsSoftware(): boolean;
export function getBackend(): { type: Device; slotCount(): number };
/** Bytes of the program's memory, or those in use on the GPU. */
export function memoryBytes(device?: Device): number;
/**
 * Prints every program that is compiled from now on: 0 nothing, 1 graphs, 2 graphs after each pass, 3 steps and buffers, 4 loops, 5 code. At
 * the start it is the environment variable `LOOM_DEBUG` (Node.js), or the global variable `LOOM_DEBUG`.
 */
export function setDebug(level: number): void;
export const checkLeaks: {
  start(): void;
  stop(): { leaked: number; details: string[]; summary: string };
};
