"""What people write in their first week, a call an entry, in names that both have: `J` is jax or tensorloom, `m` its `numpy`.

Each function gives a list of trees. `golden_programs.py` keeps what JAX gives. Left out is what JAX has as 32 bits because it has no others unless
told to, and what the README says is not there.
"""

import math
from functools import partial

import numpy as np

WEEK = {}


def day(f):
    WEEK[f.__name__] = f
    return f


def d(m, *shape):
    """Numbers that depend on nothing."""
    return m.sin(m.arange(int(np.prod(shape)), dtype="float32") * 1.3).reshape(shape)


def raises(f):
    """Whether a call fails with an exception of the ordinary kinds."""
    try:
        f()
    except (TypeError, ValueError, IndexError, AttributeError, KeyError, OverflowError, NotImplementedError):
        return True
    return False


@day
def einsum_forms(J, m):  # noqa: N803
    a, b = (d(m, 2, 3, 4), d(m, 4, 3))
    q = d(m, 2, 5, 3, 4)
    return [
        m.einsum('ijk,kl->ijl', a, b), m.einsum('...k,kl', a, b), m.einsum('ijk->i', a), m.einsum('iij->ij', d(m, 3, 3, 2)),
        m.einsum('ij,kl', d(m, 2, 2), d(m, 2, 2)), m.einsum('bqhd,bkhd->bhqk', q, q), m.einsum('i,i', d(m, 3), d(m, 3)), m.einsum('ij->ji', b),
        m.einsum('...ij,...jk->...ik', q, q.swapaxes(-1, -2)), m.einsum(a, [0, 1, 2], b, [2, 3], [0, 3]), m.einsum('ijk,kl,lm->im', a, b, d(m, 3, 2)),
        m.einsum(' i j k , k l -> i l', a, b), m.einsum('ij,ij,ij->', b, b, b), m.einsum('ii', d(m, 3, 3)),
        m.einsum('ab,ab->ab', b, b, optimize=True), m.einsum('ab,bc', b, b.T, precision='highest'),
        m.einsum('ab,bc->ac', b, b.T, preferred_element_type=m.float32),
    ]


@day
def at_forms(J, m):  # noqa: N803
    x = d(m, 4, 5)
    i = m.array([0, 2])
    return [
        x.at[0].set(1), x.at[:, 1].add(2.0), x.at[i].multiply(3), x.at[i, i].min(-1.0), x.at[..., 0].max(0.5), x.at[1:3, ::2].set(0),
        x.at[x > 0].set(0.0), x.at[i].get(), x.at[10].get(mode='fill', fill_value=7.0), x.at[-1].set(m.arange(5.0)), x.at[i].apply(m.exp),
        x.at[0, 0].power(2), x.at[0].divide(2.0), x.at[i[:, None], i].set(d(m, 2, 2)), x.at[None, 0].get(), x.at[m.array([0, 0])].add(1.0),
        x.at[0].subtract(1), x.at[i].mul(2), x.at[i].set(1.0, indices_are_sorted=True, unique_indices=True), x.at[50].set(1.0, mode='drop'),
        x.at[:2, :2].set(m.eye(2)),
    ]


@day
def tree_utils(J, m):  # noqa: N803
    t = {'b': [d(m, 2), (d(m, 1), None)], 'a': {'x': m.ones(3)}}
    l, td = J.tree.flatten(t)
    t2 = J.tree.unflatten(td, [x * 2 for x in l])
    return [
        t2, len(l), J.tree.reduce(lambda a, x: a + x.sum(), t, 0.0), J.tree.structure(t) == J.tree.structure(t2), J.tree.leaves(t),
        J.tree.all(J.tree.map(lambda x: bool((x < 5).all()), t)), J.tree_util.tree_map(lambda x, y: x + y, t, t2),
        J.tree.transpose(J.tree.structure({'a': 0, 'b': 0}), J.tree.structure([0, 0]), {'a': [m.ones(1), m.zeros(1)], 'b': [m.ones(2), m.zeros(2)]}),
        [(J.tree_util.keystr(k), v) for k, v in J.tree_util.tree_flatten_with_path(t)[0]],
        [J.tree_util.keystr(k) for k, v in J.tree.leaves_with_path(t)], J.tree.map_with_path(lambda k, v: v * len(k), t),
    ]


@day
def tree_is_leaf(J, m):  # noqa: N803
    t = {'a': (1, 2), 'b': [None, 3]}
    return [
        J.tree.map(lambda x: x, t, is_leaf=lambda x: isinstance(x, tuple)),
    ]


@day
def partial_fn(J, m):  # noqa: N803
    f = J.tree_util.Partial(lambda a, x: a * x, m.array(2.0))
    return [
        f(d(m, 3)), J.jit(lambda g, x: g(x))(f, d(m, 3)),
    ]


@day
def ravel(J, m):  # noqa: N803
    fu = J.flatten_util
    v, un = fu.ravel_pytree({'a': d(m, 2, 2), 'b': m.ones(3)})
    return [
        v, un(v * 2),
    ]


@day
def random_numbers(J, m):  # noqa: N803
    k = J.random.key(0) if False else J.random.PRNGKey(42)
    k1, k2 = J.random.split(k)
    return [
        J.random.normal(k1, (3,)), J.random.uniform(k2, (2, 2), minval=-1, maxval=1), J.random.randint(k1, (4,), 0, 10), J.random.permutation(k1, 5),
        J.random.permutation(k1, d(m, 4, 2)), J.random.choice(k2, 5, (3,)), J.random.choice(k2, d(m, 6), (3,), replace=False),
        J.random.categorical(k1, d(m, 3, 4)), J.random.bernoulli(k1, 0.3, (5,)), J.random.exponential(k1, (3,)), J.random.gumbel(k1, (3,)),
        J.random.truncated_normal(k1, -2, 2, (3,)), J.random.fold_in(k, 3), J.random.laplace(k1, (2,)), J.random.normal(k1),
        J.random.uniform(k1, shape=(2,), dtype=m.float32), J.random.choice(k1, m.arange(4), (5,), p=m.array([0.1, 0.2, 0.3, 0.4])),
        J.random.bits(k1, (3,)), J.random.multivariate_normal(k1, m.zeros(2), m.eye(2)), J.random.dirichlet(k1, m.ones(3)).sum(),
    ]


@day
def keys(J, m):  # noqa: N803
    k = J.random.key(7)
    ks = J.random.split(k, 3)
    return [
        J.random.key_data(k), J.vmap(lambda k: J.random.normal(k, (2,)))(ks), J.random.normal(ks[0], (2,)), J.random.key_data(ks),
        [J.random.uniform(kk) for kk in ks],
    ]


@day
def matrices(J, m):  # noqa: N803
    a = d(m, 4, 4) + 3 * m.eye(4)
    s = a @ a.T
    b = d(m, 4)
    L = m.linalg.cholesky(s)
    q, r = m.linalg.qr(a)
    u, sv, vt = m.linalg.svd(a, full_matrices=False)
    w, v = m.linalg.eigh(s)
    return [
        m.linalg.solve(a, b), m.linalg.inv(a), m.linalg.det(a), L, q @ r, u * sv @ vt, w, m.linalg.norm(a), m.linalg.norm(a, axis=1),
        m.linalg.norm(a, ord=2), m.linalg.norm(b, 1), m.linalg.norm(b, m.inf), m.linalg.slogdet(a), m.linalg.pinv(d(m, 4, 2)),
        m.linalg.matrix_rank(a), m.linalg.lstsq(d(m, 4, 2), b)[0], m.linalg.matrix_power(a, 3), m.linalg.cond(a), m.linalg.eigvalsh(s),
        m.linalg.multi_dot([a, a, b]), m.linalg.norm(a, 'fro'), m.linalg.norm(a, 'nuc'), m.linalg.svd(a, compute_uv=False), m.linalg.svdvals(a),
        m.linalg.vector_norm(a), m.linalg.matrix_norm(a), m.linalg.cross(d(m, 3), m.ones(3)), m.linalg.outer(b, b), m.linalg.trace(a),
        m.linalg.diagonal(a), m.linalg.tensorsolve(d(m, 2, 2, 2, 2) + m.eye(4).reshape(2, 2, 2, 2) * 2, m.ones((2, 2))), m.linalg.matrix_transpose(a),
        m.linalg.vecdot(a, b),
    ]


@day
def gradients_of_matrices(J, m):  # noqa: N803
    a = d(m, 3, 3) + 2 * m.eye(3)
    return [
        J.grad(lambda a: m.linalg.svd(a, compute_uv=False).sum())(a), J.grad(lambda a: m.linalg.slogdet(a)[1])(a),
        J.grad(lambda a: m.linalg.inv(a).sum())(a), J.grad(lambda a: m.linalg.norm(a))(a), J.grad(lambda a: m.linalg.cholesky(a @ a.T).sum())(a),
    ]


@day
def scipy_linalg(J, m):  # noqa: N803
    a = d(m, 3, 3) + 3 * m.eye(3)
    s = a @ a.T
    sl = J.scipy.linalg
    c_ = sl.cho_factor(s)
    lu = sl.lu_factor(a)
    return [
        sl.solve_triangular(m.tril(a), m.ones(3), lower=True), sl.cho_solve(c_, m.ones(3)), sl.lu_solve(lu, m.ones(3)), sl.expm(a * 0.1),
        sl.block_diag(a, m.ones((1, 1))), sl.solve(a, m.ones(3)), sl.cholesky(s, lower=True), sl.eigh(s, eigvals_only=True),
        sl.toeplitz(m.arange(3.0)), sl.inv(a), sl.det(a), sl.svd(a, compute_uv=False),
    ]


@day
def scipy_misc(J, m):  # noqa: N803
    sp = J.scipy
    return [
        sp.special.logsumexp(d(m, 4)), sp.special.expit(d(m, 3)), sp.special.erf(d(m, 3)), sp.special.gammaln(d(m, 3) + 2),
        sp.special.logit(m.array([0.2, 0.4])), sp.stats.norm.logpdf(d(m, 3)), sp.stats.norm.pdf(d(m, 3), 0.0, 2.0), sp.stats.norm.cdf(d(m, 3)),
        sp.special.xlogy(m.array([0.0, 1.0]), m.array([0.0, 2.0])), sp.special.softmax(d(m, 3)), sp.special.log_softmax(d(m, 3)),
        sp.special.entr(m.array([0.3])), sp.special.i0(d(m, 3)), sp.special.betaln(2.0, 3.0), sp.special.ndtri(m.array([0.3])),
    ]


@day
def broadcasting(J, m):  # noqa: N803
    a = d(m, 3, 1)
    b = d(m, 4)
    return [
        a + b, m.maximum(a, b), m.broadcast_to(b, (2, 4)), a[:, :, None] * b, m.where(a > 0, b, 0), (a < b).sum(), m.add(a, 1), m.atleast_2d(b),
        m.expand_dims(b, (0, 2)).shape, m.broadcast_shapes((3, 1), (1, 4)), m.zeros((0, 3)).sum(0), m.ones((3, 0)).sum(), m.zeros((0,)).shape,
        m.ones((2, 0)) @ m.ones((0, 3)), m.array(3.0) + m.ones(2), m.array([[]]).shape, m.max(m.zeros((0, 2)), axis=0, initial=-1.0),
        m.sum(m.ones((2, 3)), where=m.array([True, False, True])),
    ]


@day
def scan_dicts(J, m):  # noqa: N803
    def f(cr, x):
        return ({'h': cr['h'] * 0.9 + x['u'], 'n': cr['n'] + 1}, {'y': cr['h'].sum(), 'z': x['v']})
    c0 = {'h': m.zeros(3), 'n': 0}
    xs = {'u': d(m, 5, 3), 'v': m.arange(5)}
    return [
        J.lax.scan(f, c0, xs), J.jit(lambda c: J.lax.scan(f, c, xs))(c0), J.vmap(lambda h: J.lax.scan(f, {'h': h, 'n': 0}, xs))(d(m, 2, 3)),
        J.lax.scan(lambda c, _: (c + 1, c), 0, length=3),
    ]


@day
def vmap_axes(J, m):  # noqa: N803
    f = lambda a, b, k: a @ b * k
    a, b = (d(m, 3, 4, 2), d(m, 4, 3))
    return [
        J.vmap(lambda a, b: a @ b, in_axes=(2, None), out_axes=1)(a, b),
        J.vmap(lambda p, x: p['w'] * x + p['b'], in_axes=({'w': 0, 'b': None}, 0))({'w': d(m, 3), 'b': 1.0}, d(m, 3)),
        J.vmap(lambda x: (x, x.sum()), out_axes=(1, 0))(b),
        J.vmap(J.vmap(lambda x, y: x * y, in_axes=(None, 0)), in_axes=(0, None))(d(m, 2), d(m, 3)),
        J.vmap(lambda x, y: x + y, in_axes=(0, 0), axis_size=4)(b, b), J.vmap(lambda x: {'a': x}, out_axes={'a': -1})(b),
        J.vmap(lambda x, n: x * n, in_axes=(-1, None))(b, 3), J.vmap(lambda x: J.lax.dynamic_slice(b[0], (x,), (2,)))(m.array([0, 1])),
        J.vmap(lambda x, *, y: x + y)(b, y=b),
    ]


@day
def derivatives(J, m):  # noqa: N803
    f = lambda x: m.sum(m.sin(x) * x ** 2)
    g = lambda p: {'u': p['a'] * p['b'].sum(), 'v': p['b'] ** 2}
    x = d(m, 3)
    return [
        J.hessian(f)(x), J.jacfwd(J.jacrev(f))(x), J.jacrev(g)({'a': 2.0, 'b': x}), J.jacfwd(g)({'a': m.array(2.0), 'b': x}),
        J.grad(J.grad(lambda x: x ** 3))(2.0), J.jacrev(lambda x, y: x * y, argnums=(0, 1))(x, x),
        J.hessian(lambda p: (p['a'] ** 2 * p['b']).sum())({'a': x, 'b': x}), J.jvp(f, (x,), (m.ones(3),)), J.vjp(f, x)[1](1.0),
        J.linearize(m.sin, x)[1](x), J.jvp(lambda a, b: a * b, (2.0, 3.0), (1.0, 0.0)),
    ]


@day
def gradients_with_more(J, m):  # noqa: N803
    def f(p, x):
        y = p['w'] * x
        return (y.sum(), {'y': y, 'n': x.shape[0]})
    (v, aux), g = J.value_and_grad(f, has_aux=True)({'w': d(m, 3)}, m.ones(3))
    g2, aux2 = J.grad(f, has_aux=True)({'w': d(m, 3)}, m.ones(3))
    return [
        v, aux, g, g2, aux2, J.jit(J.value_and_grad(f, has_aux=True))({'w': d(m, 3)}, m.ones(3)),
        J.vjp(f, {'w': d(m, 3)}, m.ones(3), has_aux=True)[2], J.jacrev(lambda x: (x ** 2, x), has_aux=True)(d(m, 2)),
        J.value_and_grad(lambda x, y: (x * y).sum(), argnums=(0, 1))(d(m, 2), m.ones(2)), J.grad(lambda x, flag: x if flag else -x)(1.0, True),
        J.grad(lambda x, *, k: x * k)(1.0, k=3.0),
    ]


@day
def numpy_interop(J, m):  # noqa: N803
    x = d(m, 3)
    return [
        np.sum(x), np.asarray(x) + 1, np.mean(x), np.stack([x, x]), np.concatenate([x, x]), float(x[0]), int(m.array(3)), x.item(0), x.tolist(),
        np.array(x, dtype=np.float64), bool(m.array(True)), len(x), [float(v) for v in x], np.dot(np.ones(3, np.float32), x),
        x @ np.ones(3, np.float32), np.ones(3, np.float32) @ x, f'{x[0]:.3f}', math.sqrt(m.array(4.0)), range(5)[m.array(2)],
        [10, 20, 30][m.array(1)], '%d' % m.array(3), x.itemsize, x.size, x.ndim, x.dtype == np.float32, x.dtype == m.float32, x.dtype == 'float32',
        np.issubdtype(np.dtype(x.dtype), np.floating), m.issubdtype(x.dtype, m.floating),
    ]


@day
def creation(J, m):  # noqa: N803
    return [
        m.arange(5), m.arange(2, 8, 2), m.arange(0, 1, 0.25), m.linspace(0, 1, 5), m.linspace(0, 1, 5, endpoint=False),
        m.linspace(0, 10, 3, dtype=int), m.linspace(0, 1, 5, retstep=True), m.logspace(0, 2, 3), m.geomspace(1, 8, 4), m.eye(3, k=1), m.identity(2),
        m.zeros(3, int), m.ones((2, 2), bool), m.full((2,), 7), m.full((2, 3), m.arange(3)), m.ones_like(3.0), m.array([[1, 2], [3, 4]]), m.array(2),
        m.array([1, 2], dtype=float), m.array([1.5], dtype='int32'), m.asarray([True]), m.diag(m.arange(3)), m.diagflat(m.arange(2)), m.tri(3),
        m.vander(m.arange(3.0), 3), m.meshgrid(m.arange(2), m.arange(3)), m.meshgrid(m.arange(2), m.arange(3), indexing='ij'), m.mgrid[0:2, 0:3],
        m.ogrid[0:2, 0:3], m.r_[1:4, 0, 4], m.c_[m.arange(3), m.arange(3)], m.fromfunction(lambda i, j: i + j, (2, 3)), m.indices((2, 2)),
        m.array([m.array(1.0), m.array(2.0)]), m.array([m.ones(2), m.zeros(2)]), m.array((1, 2.0)), m.empty((0, 2)), m.arange(5.0),
        m.arange(3, dtype=m.float32), m.array(range(3)), m.array([np.float32(1.0)]), m.array(np.arange(3)), m.arange(5, 0, -2),
        m.linspace(m.array([0.0, 1.0]), m.array([1.0, 2.0]), 3), m.linspace(0.0, 1.0, 3, axis=0), m.hamming(4), m.hanning(4), m.blackman(4),
        m.bartlett(4), m.kaiser(4, 2.0), m.tril_indices(3), m.triu_indices(3, 1), m.diag_indices(2), m.frombuffer(b'abcd', dtype=m.uint8),
        m.ones(()).shape, m.array('3' and 3), m.copy(m.ones(2)), m.full_like(m.ones(2), 3, dtype=int),
    ]


@day
def shapes(J, m):  # noqa: N803
    x = d(m, 2, 3, 4)
    return [
        x.reshape(6, 4), x.reshape((3, -1)), x.reshape(-1), x.ravel(), x.flatten(), x.T, x.transpose(2, 0, 1), x.transpose((0, 2, 1)),
        x.swapaxes(0, 2), m.moveaxis(x, 0, -1), m.rollaxis(x, 2), x[None].squeeze(), x[:, None].squeeze(1), m.squeeze(x[None], axis=(0,)),
        m.expand_dims(x, 0).shape, m.concatenate([x, x], axis=1), m.concatenate([x, x], -1), m.stack([x, x], axis=-1), m.vstack([x[0], x[0]]),
        m.hstack([x[0], x[0]]), m.dstack([x[0], x[0]]), m.column_stack([x[0, 0], x[0, 1]]), m.split(x, 2, axis=-1), m.split(x, [1, 3], axis=2),
        m.array_split(m.arange(7), 3), m.hsplit(x, 3), m.vsplit(x, 2), m.tile(x[0], (2, 1)), m.repeat(x[0], 2, axis=0),
        m.repeat(m.arange(3), m.array([1, 2, 0]), total_repeat_length=3), m.flip(x), m.flip(x, 1), m.fliplr(x[0]), m.flipud(x[0]), m.rot90(x[0]),
        m.roll(x, 1), m.roll(x, (1, 2), (0, 1)), m.pad(x[0], 1), m.pad(x[0], ((0, 1), (2, 0))), m.pad(x[0], ((1, 1), (1, 1)), mode='edge'),
        m.pad(x[0], 1, mode='reflect'), m.pad(x[0], 1, mode='wrap'), m.pad(x[0], 1, constant_values=9.0), m.pad(x[0, 0], (1, 2)),
        m.pad(x[0], [(1, 0), (0, 0)], mode='constant', constant_values=-1), m.broadcast_to(x[0], (2, 3, 4)), m.atleast_1d(3.0),
        m.atleast_3d(x[0]).shape, m.append(m.arange(3), 5), m.insert(m.arange(3), 1, 9), m.delete(m.arange(4), 1), m.resize(m.arange(3), (2, 3)),
        m.ravel(x, order='F'), x.reshape(4, 6, order='F'), m.matrix_transpose(x), x.mT, m.permute_dims(x, (2, 1, 0)), m.unstack(x),
        m.block([[m.ones((2, 2)), m.zeros((2, 1))]]), m.concat([x, x]), m.trim_zeros(m.array([0, 1, 2, 0])), m.apply_along_axis(m.sum, 1, x[0]),
        m.swapaxes(x, 0, -1), m.reshape(x, (4, 6)), m.reshape(x, -1), m.astype(x, int), m.ndim(x), m.size(x), m.size(x, 1), m.shape(x),
        m.iscomplexobj(x),
    ]


@day
def indexing(J, m):  # noqa: N803
    x = d(m, 4, 5)
    i = m.array([0, 2])
    b = x[:, 0] > 0
    n = np.array([1, 3])
    return [
        x[0], x[-1], x[1:3], x[::-1], x[:, ::2], x[..., 0], x[None, :], x[i], x[i, i], x[i][:, i], x[i[:, None], i], x[b], x[x > 0], x[n],
        x[[0, 1], [2, 3]], x[0, i], x[:, i], x[1:, i], x[m.ix_(i, i)], x[-1, -1], x[m.newaxis, ..., 1], x[i, 1:3], x[:, 0][b], x[m.array(1)],
        x[m.int32(1)], x[np.int64(1)], x[slice(0, 2)], x[0, 1], x[0][1], x[m.array([[0, 1], [2, 3]])], x[m.array([True, False, True, False])],
        x[b, 0], m.take(x, i, axis=1), m.take_along_axis(x, m.argsort(x, axis=1), axis=1),
        m.choose(m.array([0, 1]), [m.array([1, 2]), m.array([3, 4])]), m.where(x > 0), m.nonzero(x > 0), m.argwhere(x > 0), m.flatnonzero(x > 0),
        m.extract(x > 0, x), m.compress(b, x, axis=0), m.put_along_axis(x, m.array([[0]]), 9.0, axis=1, inplace=False),
        m.select([x > 0, x < -0.5], [x, -x], 0.0), m.piecewise(x, [x < 0, x >= 0], [lambda v: -v, lambda v: v]),
        m.searchsorted(m.array([1, 3, 5]), m.array([2, 5])), m.digitize(m.array([0.5, 2.5]), m.array([1.0, 2.0])), m.unravel_index(7, (3, 4)),
        m.ravel_multi_index((1, 2), (3, 4)), m.diagonal(x), x.diagonal(1), m.diag(x), m.fill_diagonal(x, 0.0, inplace=False), x[100:], x[2:1].shape,
        x[..., None].shape, x[:, None, :].shape, x[True].shape, x[()].shape,
    ]


@day
def calls_that_fail(J, m):  # noqa: N803
    x = m.ones((2, 3))
    return [
        raises(lambda: x @ x), raises(lambda: x + m.ones(4)), raises(lambda: x.reshape(5)), raises(lambda: x[0, 0, 0]),
        raises(lambda: m.concatenate([x, m.ones((3, 2))])), raises(lambda: m.dot(x, x)), raises(lambda: J.grad(lambda x: x)(x)),
        raises(lambda: J.grad(lambda x: x.sum())(m.array([1, 2]))), raises(lambda: J.jit(lambda x: 1 if x > 0 else 2)(m.array(1.0))),
        raises(lambda: J.jit(lambda x: float(x))(1.0)), raises(lambda: J.jit(lambda n: m.arange(n))(3)),
        raises(lambda: J.lax.scan(lambda c, x: (m.ones(3), x), m.zeros(2), m.ones(4))),
        raises(lambda: J.vmap(lambda x, y: x + y)(m.ones(2), m.ones(3))), raises(lambda: m.zeros((2, -1))), raises(lambda: bool(x)),
        raises(lambda: float(x)), raises(lambda: m.einsum('ij,jk', x, x)), raises(lambda: m.array([[1], [1, 2]])), raises(lambda: x.foo),
        raises(lambda: m.stack([m.ones(2), m.ones(3)])), raises(lambda: J.lax.cond(True, lambda: 1, lambda: 2.0)),
        raises(lambda: J.tree.map(lambda a, b: a, {'a': 1}, {'b': 1})), raises(lambda: m.array('hello')),
        raises(lambda: m.linalg.cholesky(m.ones((2, 3)))), raises(lambda: x.sum(axis=5)), raises(lambda: m.ones(3, dtype='foo')),
        raises(lambda: m.full((2,), 'a')), raises(lambda: J.random.normal((3,))), raises(lambda: x.at[0].set(m.ones(5))),
        raises(lambda: J.value_and_grad(lambda x: (x.sum(), 1))(x)), raises(lambda: J.jit(lambda x: x, static_argnums=0)([1])),
        raises(lambda: len(m.array(1))), raises(lambda: list(m.array(1))), raises(lambda: int(m.array([1, 2]))),
        raises(lambda: m.split(m.arange(5), 2)), raises(lambda: J.lax.fori_loop(0, 3, lambda i, x: (x, x), 1.0)), raises(lambda: m.squeeze(x, 0)),
        raises(lambda: m.argmax(m.zeros((0,)))), raises(lambda: x[1.0]), raises(lambda: x['a']), raises(lambda: J.vmap(lambda x: x)(3.0)),
        raises(lambda: J.grad(lambda x: x ** 2)('a')), raises(lambda: J.vmap(lambda x: x, in_axes=1)(m.ones(3))),
        raises(lambda: m.broadcast_to(x, (3, 2))), raises(lambda: J.jit(3)), raises(lambda: J.grad(3)(2.0)),
    ]


@day
def reductions(J, m):  # noqa: N803
    x = d(m, 3, 4)
    n = m.array([1.0, m.nan, 3.0])
    return [
        x.sum(), x.sum(0), x.sum(-1, keepdims=True), x.mean((0, 1)), x.std(), x.var(ddof=1), x.max(1), x.min(), x.argmax(), x.argmax(1),
        x.argmin(axis=0), x.prod(), x.any(), x.all(0), m.cumsum(x, 1), m.cumprod(x, 0), m.nansum(n), m.nanmean(n), m.nanmax(n), m.nanmin(n),
        m.nanstd(n), m.nanargmax(n), m.median(x), m.median(x, axis=0), m.percentile(x, 30), m.percentile(x, m.array([10, 90]), axis=1),
        m.quantile(x, 0.4), m.ptp(x), m.average(x, weights=m.arange(4.0), axis=1), m.average(x), m.count_nonzero(x > 0), m.sum(x, where=x > 0),
        m.mean(x, where=x > 0), m.max(x, initial=5.0), m.logaddexp(1.0, 2.0), m.cov(x), m.corrcoef(x), m.bincount(m.array([0, 1, 1, 3])),
        m.bincount(m.array([0, 1]), weights=m.array([0.5, 1.0]), minlength=4), m.diff(x), m.diff(x, n=2, axis=0), m.ediff1d(m.arange(3)),
        m.gradient(m.arange(5.0) ** 2), m.gradient(x), m.trapezoid(m.arange(4.0)), m.trapezoid(m.arange(4.0), dx=0.5),
        m.convolve(m.arange(3.0), m.ones(2)), m.correlate(m.arange(3.0), m.ones(2)), m.interp(m.array([0.5]), m.arange(3.0), m.arange(3.0) * 2),
        m.cross(m.array([1.0, 0, 0]), m.array([0, 1.0, 0])), m.dot(x, x.T), m.vdot(x, x), m.inner(x, x), m.outer(x[0], x[0]),
        m.kron(m.eye(2), m.ones((1, 2))), m.tensordot(x, x, axes=([1], [1])), m.matmul(x, x.T), m.trace(x), m.sort(x), m.sort(x, axis=0),
        m.sort(x)[:, ::-1], m.sort(x, descending=True), m.argsort(x), m.argsort(-x), m.lexsort((x[0], x[1])), m.partition(x[0], 2)[2],
        m.unique(m.array([3, 1, 1])), m.unique(m.array([3, 1, 1]), return_counts=True), m.unique(m.array([3, 1, 1]), size=3, fill_value=0),
        m.unique(m.array([[1, 2], [1, 2]]), axis=0), m.isin(m.array([1, 2]), m.array([2])), m.intersect1d(m.array([1, 2]), m.array([2, 3])),
        m.union1d(m.array([1, 2]), m.array([2, 3])), m.setdiff1d(m.array([1, 2]), m.array([2])), m.array_equal(x, x), m.allclose(x, x),
        m.isclose(x, x), m.round(x, 2), x.round(1), m.clip(x, -0.5, 0.5), x.clip(0), m.clip(x, max=0.1), m.sign(x), m.fmod(x, 0.3), m.divmod(x, 0.3),
        m.modf(x), m.frexp(x), m.ldexp(x, 2), m.nan_to_num(n), m.isnan(n), m.cbrt(x), m.hypot(x, x), m.deg2rad(x), m.sinc(x), m.heaviside(x, 0.5),
        m.copysign(x, -1.0), m.nextafter(x, 1.0), m.maximum(x, 0), m.fmax(n, 0.0), m.float_power(m.abs(x), 2.0),
        m.polyfit(m.arange(4.0), m.arange(4.0) ** 2, 2), m.polyval(m.array([1.0, 2.0]), 3.0), m.polymul(m.ones(2), m.ones(2)), m.nanmedian(n),
        m.nanpercentile(n, 50), m.argpartition(x[0], 1)[1], m.std(x, axis=1, keepdims=True), m.cumulative_sum(x[0]), m.permute_dims(x, (1, 0)),
        m.vecdot(x, x), m.logspace(0, 1, 3), m.mean(m.array([1, 2, 3])), m.sum(m.array([True, True])), m.i0(x), m.unwrap(x[0]), m.rint(x), m.trunc(x),
        m.exp2(x), m.log1p(m.abs(x)), m.gcd(4, 6), m.lcm(4, 6), m.bitwise_and(5, 3), m.invert(5), m.left_shift(1, 3), m.bitwise_count(m.array([7])),
        m.packbits(m.array([1, 0, 1, 1], dtype=bool)), m.real(x), m.conj(x), m.angle(x), m.absolute(x), m.positive(x), m.reciprocal(x + 2),
        m.true_divide(x, 2), m.logical_xor(x > 0, x < 1), m.signbit(x), m.isinf(x), m.isposinf(x), m.square(x), m.argwhere(x > 0, size=3),
        m.nonzero(x > 0, size=3, fill_value=-1), m.where(x > 0, size=2), m.digitize(x, m.array([0.0])), m.apply_over_axes(m.sum, x, (0, 1)),
        m.cumulative_prod(x[0]), m.pow(x, 2), m.acos(x), m.isdtype(x.dtype, 'real floating'),
    ]


@day
def methods(J, m):  # noqa: N803
    x = d(m, 3, 4)
    i = m.array([3, 1, 2])
    return [
        x.sum(axis=0), x.astype('int32'), x.astype(int), x.astype(bool), x.copy(), x.take(i, axis=1), i.argsort(), i.sort(), x.dot(x.T), x.trace(),
        x.cumsum(0), x.cumprod(1), x.repeat(2, 0), x.conj(), x.real, x.imag, x.nonzero(), x.ptp(), x.view(m.int32), x.std(0), x.var(1),
        x.compress(m.array([1, 0, 1]), axis=0), x.diagonal(), x.swapaxes(0, 1), x.squeeze(), x.round(2), x.item(3), x.item(1, 2), x.tolist(),
        x.block_until_ready(), x.argpartition(1)[:, 1].shape, x.mT, x.T, x.max(axis=1, keepdims=True), x.mean(1, keepdims=True), x.any(axis=0),
        x.clip(-0.1, 0.1), x.clip(max=0), x.flatten(), x.ravel(), x.transpose(), x.reshape(2, -1), x.prod(0), x.min(0), x.argmin(1), x.all(),
        x.__array__().shape, x.at[0, 0].get(), str(x.dtype), x.dtype.name, x.dtype.itemsize, x.dtype.kind, x.conjugate(), +x, -x, abs(x), x ** 2,
        2 ** x, x // 0.3, x % 0.3, divmod(x, 0.3), x @ x.T, ~(x > 0), x == x, x != x, (x > 0) | (x < 0), (x > 0) & (x < 0), (x > 0) ^ (x < 0), i << 1,
        i >> 1, -i, i ** 2, i / 2, 1 / i, 5 - i, 5 // i, 5 % i, round(m.array(2.567), 2), round(m.array(2.5)), math.floor(m.array(2.5)),
        math.ceil(m.array(2.5)), int(m.array(2.7)), 3 in i, list(reversed(i)), max(i), min(i), sum(i), sorted(i.tolist()),
        any(i > 2), i.tolist().index(2), [*i], dict(a=x)['a'], tuple(i), enumerate(i).__next__()[1], list(zip(i, i))[0][1], np.array_equal(i, i),
        np.shape(x), np.ndim(x),
    ]


@day
def jit_usage(J, m):  # noqa: N803
    x = d(m, 4)
    @J.jit
    def f(x, y=2.0):
        return x * y
    @partial(J.jit, static_argnames=('n',))
    def g(x, n=2):
        return x ** n
    @partial(J.jit, static_argnums=(1,))
    def h(x, n):
        return sum((x * i for i in range(n)))
    @J.jit
    def k(d):
        return {kk: v * 2 for kk, v in d.items()}
    @J.jit
    def tup(x):
        a, b = x
        return (b, a)
    class M:
    
        @partial(J.jit, static_argnums=0)
        def __call__(self, x):
            return x + 1
    return [
        f(x), f(x, 3.0), f(x, y=4.0), g(x), g(x, n=3), g(x, 3), h(x, 3), k({'a': x, 'b': 1.0}), tup((x, 1)), M()(x),
        J.jit(lambda *a: a[0] + a[1])(x, x), J.jit(lambda **k: k['a'])(a=x), J.jit(lambda x: [x, (x, {'a': x})])(x), J.jit(lambda x: x.shape[0])(x),
        J.jit(lambda x: x.shape)(x), f.__name__, f.__wrapped__(x), J.jit(m.sin)(x), J.jit(J.grad(lambda x: (x ** 2).sum()))(x),
        J.jit(J.vmap(lambda x: x * 2))(x), J.jit(partial(lambda a, x: a * x, 2.0))(x), J.jit(lambda x: x, inline=True)(x),
        J.jit(lambda x, y: x + y, donate_argnums=(0,))(m.ones(4), x), J.jit(lambda x: m.where(x > 0, x, 0))(x), J.jit(lambda x: 3)(x),
        J.jit(lambda x: 'a' and x)(x), J.jit(lambda: m.ones(2))(), f.lower(x).compile()(x),
        J.jit(lambda x, flag: x if flag else -x, static_argnums=1)(x, False), J.jit(lambda x: x[::-1])(np.arange(3)), J.jit(lambda n: n + 1)(3),
        J.jit(lambda t: t[0])([x, x]), J.jit(lambda x: x, device=None)(x), J.jit(lambda x: x, backend='cpu')(x), J.jit(lambda x: x.at[1].set(0))(x),
        J.jit(lambda x, i: x[i])(x, 2), J.jit(lambda x, i: J.lax.dynamic_index_in_dim(x, i, keepdims=False))(x, 1), J.jit(lambda x: (x > 0).sum())(x),
        J.jit(lambda m_: m_['a']['b'])({'a': {'b': x}}), J.jit(lambda x: m.sort(x)[:2])(x), J.jit(lambda x: x.astype(m.int32))(x),
        J.jit(lambda x: J.lax.stop_gradient(x))(x), J.jit(lambda b: m.logical_not(b))(True),
    ]


@day
def names_of_the_package(J, m):  # noqa: N803
    x = d(m, 3)
    return [
        J.device_get(x), J.device_put(x), J.eval_shape(lambda x: x @ x, x).shape, J.ShapeDtypeStruct((2,), m.float32).shape, J.checkpoint(m.sin)(x),
        J.remat(m.sin)(x), J.named_call(m.sin, name='a')(x), J.linear_transpose(lambda x: x * 2, x)(x),
        J.custom_gradient(lambda x: (x ** 2, lambda g: (g * 10 * x,)))(x),
        J.grad(lambda x: J.custom_gradient(lambda x: (x ** 2, lambda g: (g * 10 * x,)))(x).sum())(x), J.typeof(x).shape, J.nn.relu(x),
        J.ops.segment_sum(x, m.array([0, 1, 0]), num_segments=2), J.image.resize(m.ones((2, 2)), (4, 4), 'nearest'), J.jvp(m.sin, (x,), (x,)),
        J.flatten_util.ravel_pytree([x, x])[0], J.vjp(m.sin, x)[1](x), J.linearize(m.sin, x)[0], J.hessian(lambda x: (x ** 3).sum())(x),
        J.jacfwd(m.sin)(x), J.scipy.special.expit(x),
    ]


@day
def functions_of_networks(J, m):  # noqa: N803
    x = d(m, 3, 4)
    n = J.nn
    k = J.random.PRNGKey(0)
    return [
        n.relu(x), n.relu6(x), n.gelu(x), n.gelu(x, approximate=False), n.silu(x), n.swish(x), n.sigmoid(x), n.softplus(x), n.softmax(x),
        n.softmax(x, axis=0), n.log_softmax(x, axis=-1), n.log_sigmoid(x), n.elu(x), n.selu(x), n.celu(x), n.leaky_relu(x), n.leaky_relu(x, 0.2),
        n.hard_tanh(x), n.hard_sigmoid(x), n.hard_swish(x), n.glu(x), n.one_hot(m.array([0, 2]), 3), n.one_hot(m.array([0, 5]), 3),
        n.logsumexp(x, axis=1), n.standardize(x), n.soft_sign(x), n.mish(x), n.initializers.glorot_uniform()(k, (3, 4)),
        n.initializers.he_normal()(k, (3, 4)), n.initializers.zeros(k, (2,)), n.initializers.normal(0.02)(k, (2,)),
        n.initializers.lecun_normal()(k, (3, 4), m.float32), n.dot_product_attention(d(m, 1, 3, 2, 4), d(m, 1, 3, 2, 4), d(m, 1, 3, 2, 4)),
        n.dot_product_attention(d(m, 1, 3, 2, 4), d(m, 1, 3, 2, 4), d(m, 1, 3, 2, 4), is_causal=True), n.identity(x), n.sparse_plus(x),
        n.log1mexp(m.abs(x) + 0.1), n.squareplus(x), n.initializers.truncated_normal()(k, (2,)), n.initializers.constant(3.0)(k, (2,)),
        n.initializers.variance_scaling(1.0, 'fan_in', 'normal')(k, (3, 4)), n.softmax(x, where=x > 0, axis=-1), n.logmeanexp(x),
    ]


@day
def functions_of_lax(J, m):  # noqa: N803
    x = d(m, 3, 4)
    L = J.lax
    return [
        L.add(x, x), L.select(x > 0, x, -x), L.dynamic_slice(x, (1, 1), (2, 2)), L.dynamic_slice_in_dim(x, 1, 2, axis=0),
        L.dynamic_update_slice(x, m.zeros((1, 1)), (1, 1)), L.dynamic_update_index_in_dim(x, m.zeros(4), 1, 0), L.slice(x, (0, 1), (2, 3)),
        L.slice_in_dim(x, 0, 2), L.top_k(x, 2), L.sort(x), L.argmax(x, 1, m.int32), L.cumsum(x, 1), L.cummax(x, 0), L.dot(x, x.T),
        L.dot_general(x, x, (((1,), (1,)), ((), ()))), L.batch_matmul(x[None], x.T[None]), L.conv(d(m, 1, 2, 6, 6), d(m, 3, 2, 3, 3), (1, 1), 'SAME'),
        L.conv_general_dilated(d(m, 1, 6, 6, 2), d(m, 3, 3, 2, 3), (2, 2), 'VALID', dimension_numbers=('NHWC', 'HWIO', 'NHWC')),
        L.conv_transpose(d(m, 1, 4, 4, 2), d(m, 3, 3, 2, 3), (2, 2), 'SAME'),
        L.reduce_window(d(m, 1, 4, 4, 1), -m.inf, L.max, (1, 2, 2, 1), (1, 2, 2, 1), 'VALID'),
        L.reduce_window(d(m, 1, 4, 4, 1), 0.0, L.add, (1, 2, 2, 1), (1, 2, 2, 1), 'SAME'), L.associative_scan(m.add, x),
        L.associative_scan(m.add, x, axis=1, reverse=True), L.map(lambda r: r.sum(), x), L.rsqrt(x + 2), L.clamp(-0.5, x, 0.5), L.iota(m.int32, 4),
        L.broadcasted_iota(m.int32, (2, 3), 1), L.broadcast(x, (2,)), L.broadcast_in_dim(x[0], (3, 4), (1,)), L.expand_dims(x, (0,)),
        L.squeeze(x[None], (0,)), L.transpose(x, (1, 0)), L.rev(x, (0,)), L.pad(x, 0.0, ((1, 1, 0), (0, 0, 1))), L.concatenate([x, x], 0),
        L.reshape(x, (4, 3)), L.convert_element_type(x, m.int32), L.reduce(x, 0.0, L.add, (0,)), L.erf(x), L.lgamma(x + 2), L.stop_gradient(x),
        L.switch(1, [lambda: 1.0, lambda: 2.0]), L.cond(x[0, 0] > 0, lambda x: x, lambda x: -x, x), L.while_loop(lambda c: c < 5, lambda c: c + 2, 0),
        L.fori_loop(0, 3, lambda i, c: c + i, 0), L.scan(lambda c, x: (c + x, c), m.zeros(4), x), L.sort_key_val(x[0], x[1]), L.integer_pow(x, 3),
        L.nextafter(x, x), L.reduce_max(x, (1,)), L.full((2,), 3.0), L.full_like(x, 1.0), L.collapse(x, 0, 2), L.select_n(x > 0, x, -x), L.sign(x),
        L.is_finite(x), L.logistic(x), L.exp2(x), L.square(x), L.tan(x), L.max(x, x), L.rem(x, 0.3 * m.ones_like(x)),
        L.shift_left(m.array([1]), m.array([2])), L.index_in_dim(x, 1), L.dynamic_index_in_dim(x, 1), L.cumlogsumexp(x, 0),
        L.approx_max_k(x[0], 2)[0], L.conv_general_dilated_patches(d(m, 1, 2, 4, 4), (2, 2), (1, 1), 'VALID'), L.reduce_precision(x, 8, 7),
        L.optimization_barrier(x), L.tile(x, (2, 1)), L.split(x, (1, 2), axis=0),
    ]
