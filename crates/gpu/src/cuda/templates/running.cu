// Running sums of lines that lie side by side: totals of tiles, what stands before each tile, then the sums themselves. Everything is
// added in an order that the sizes decide.
#ifndef TENSORLOOM_RUNNING
#define TENSORLOOM_RUNNING

#define RUNNING_THREADS 256
#define RUNNING_EACH 16
#define RUNNING_TILE (RUNNING_THREADS * RUNNING_EACH)

// The sum over the lanes before this one; `upto` is that with its own. Nothing is taken away again: infinities stay where they are.
template <class A> D A lanes_before(A own, A& upto) {
    const i32 lane = threadIdx.x % 32;
    upto = own;
#pragma unroll
    for (i32 d = 1; d < 32; d *= 2) {
        const A other = __shfl_up_sync(0xffffffffu, upto, d);
        if (lane >= d) upto = other + upto;
    }
    const A before = __shfl_up_sync(0xffffffffu, upto, 1);
    return lane == 0 ? A(0) : before;
}

// A block: the sum of a tile, each thread that of its neighbours.
template <class E> D void running_totals(const typename E::T* x, typename E::A* totals, i64 n, i64 tiles, i64 reverse) {
    typedef typename E::A A;
    __shared__ A sums[8];
    const i32 t = threadIdx.x;
    const i64 line = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    A sum = 0;
#pragma unroll
    for (i32 e = 0; e < RUNNING_EACH; e++) {
        const i64 i = tile * RUNNING_TILE + e * RUNNING_THREADS + t;
        if (i < n) sum += E::wide(x[line * n + (reverse ? n - 1 - i : i)]);
    }
#pragma unroll
    for (i32 d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (t % 32 == 0) sums[t / 32] = sum;
    __syncthreads();
    if (t == 0) {
        A all = 0;
        for (i32 w = 0; w < 8; w++) all += sums[w];
        totals[blockIdx.x] = all;
    }
}

// A block: what stands before each tile of a line.
template <class A> D void running_before(A* totals, i64 tiles) {
    __shared__ A sums[8];
    const i32 t = threadIdx.x;
    A* own = totals + blockIdx.x * tiles;
    A before = 0;
    for (i64 base = 0; base < tiles; base += 4 * RUNNING_THREADS) {
        A x[4], all = 0;
#pragma unroll
        for (i32 k = 0; k < 4; k++) {
            const i64 i = base + 4 * t + k;
            x[k] = i < tiles ? own[i] : A(0);
            all += x[k];
        }
        A upto;
        const A here = lanes_before(all, upto);
        if (t % 32 == 31) sums[t / 32] = upto;
        __syncthreads();
        A sofar = before;
        for (i32 w = 0; w < 8; w++) {
            if (w < t / 32) sofar += sums[w];
            before += sums[w];
        }
        sofar += here;
#pragma unroll
        for (i32 k = 0; k < 4; k++) {
            const i64 i = base + 4 * t + k;
            if (i < tiles) own[i] = sofar;
            sofar += x[k];
        }
        __syncthreads();
    }
}

// A block: the running sums of a tile. Elements pass through shared memory, so that threads have neighbours and memory sees rows.
template <class E>
D void running_sums(const typename E::T* x, const typename E::A* before, typename E::T* out, i64 n, i64 tiles, i64 reverse) {
    typedef typename E::A A;
    __shared__ typename E::T tile_of[RUNNING_TILE + RUNNING_THREADS];
    __shared__ A sums[8];
    const i32 t = threadIdx.x;
    const i64 line = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    const A start = tiles == 1 ? A(0) : before[blockIdx.x];
#pragma unroll
    for (i32 e = 0; e < RUNNING_EACH; e++) {
        const i32 at = e * RUNNING_THREADS + t;
        const i64 i = tile * RUNNING_TILE + at;
        tile_of[at + at / RUNNING_EACH] = i < n ? x[line * n + (reverse ? n - 1 - i : i)] : typename E::T(0);
    }
    __syncthreads();
    A sum = 0;
#pragma unroll
    for (i32 e = 0; e < RUNNING_EACH; e++) sum += E::wide(tile_of[t * (RUNNING_EACH + 1) + e]);
    A upto;
    const A here = lanes_before(sum, upto);
    if (t % 32 == 31) sums[t / 32] = upto;
    __syncthreads();
    A sofar = start;
    for (i32 w = 0; w < t / 32; w++) sofar += sums[w];
    sofar += here;
#pragma unroll
    for (i32 e = 0; e < RUNNING_EACH; e++) {
        sofar += E::wide(tile_of[t * (RUNNING_EACH + 1) + e]);
        tile_of[t * (RUNNING_EACH + 1) + e] = E::narrow(sofar);
    }
    __syncthreads();
#pragma unroll
    for (i32 e = 0; e < RUNNING_EACH; e++) {
        const i32 at = e * RUNNING_THREADS + t;
        const i64 i = tile * RUNNING_TILE + at;
        if (i < n) out[line * n + (reverse ? n - 1 - i : i)] = tile_of[at + at / RUNNING_EACH];
    }
}
#endif
