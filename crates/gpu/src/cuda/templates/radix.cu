// Lines in order by their keys, 8 bits of them at a time, the lowest first. Each pass keeps the order of equal digits, so equal keys stay
// in their order; where an element goes follows from counts alone, never from time.
#ifndef TENSORLOOM_RADIX
#define TENSORLOOM_RADIX

#define RADIX_THREADS 256
#define RADIX_EACH 16
#define RADIX_TILE (RADIX_THREADS * RADIX_EACH)

#ifdef __CUDA_ARCH__
// The lanes that have the same number.
D u32 lanes_alike(u32 x) {
    u32 r;
    asm volatile("match.any.sync.b32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(x));
    return r;
}
D void count_one(u32* p) { asm volatile("red.shared.add.u32 [%0], 1;" ::"r"((u32)__cvta_generic_to_shared(p)) : "memory"); }
#endif

// Integers in the order of numbers: zeros are equal, what is no number is above all.
D u32 ordered(f32 x) {
    if (x != x) return 0xffffffffu;
    if (x == 0.0f) return 0x80000000u;
    const u32 b = bits(x);
    return b >> 31 ? ~b : b | 0x80000000u;
}
D u32 ordered(i32 x) { return (u32)x ^ 0x80000000u; }
D u32 ordered(u32 x) { return x; }
// 16 bits of a float, whose infinity is `most`.
D u32 ordered(u16 x, u32 most) {
    const u32 size = x & 0x7fffu;
    if (size > most) return 0xffffu;
    if (size == 0) return 0x8000u;
    return x >> 15 ? 0xffffu & ~(u32)x : x | 0x8000u;
}
struct AsF32 { typedef f32 T; D u32 key(f32 x) { return ordered(x); } };
struct AsI32 { typedef i32 T; D u32 key(i32 x) { return ordered(x); } };
struct AsU32 { typedef u32 T; D u32 key(u32 x) { return ordered(x); } };
struct AsBf16 { typedef u16 T; D u32 key(u16 x) { return ordered(x, 0x7f80u); } };
struct AsF16 { typedef u16 T; D u32 key(u16 x) { return ordered(x, 0x7c00u); } };

// What the first pass reads: elements in their places; and what the others do.
template <class E> struct Fresh {
    const typename E::T* x;
    u32 flipped;
    D u32 key(const Fresh& s, i64 at) { return E::key(s.x[at]) ^ s.flipped; }
    D i32 place(const Fresh& s, i64 at, i32 i) { return i; }
};
struct Sorted {
    const u32* keys;
    const i32* places;
    D u32 key(const Sorted& s, i64 at) { return s.keys[at]; }
    D i32 place(const Sorted& s, i64 at, i32 i) { return s.places[at]; }
};

// A block: how often each digit is in a tile.
template <class S> D void radix_count(const S& s, u32* counts, i32 n, i32 tiles, i32 shift) {
    __shared__ u32 seen[256];
    const i32 t = threadIdx.x, line = (i32)blockIdx.x / tiles, tile = (i32)blockIdx.x % tiles;
    seen[t] = 0;
    __syncthreads();
#pragma unroll
    for (i32 e = 0; e < RADIX_EACH; e++) {
        const i32 i = tile * RADIX_TILE + e * RADIX_THREADS + t;
        if (i < n) count_one(&seen[S::key(s, (i64)line * n + i) >> shift & 255u]);
    }
    __syncthreads();
    counts[((i64)line * 256 + t) * tiles + tile] = seen[t];
}

// A warp: of one digit of a line, how many there are before each tile, and in all.
D void radix_before(u32* counts, u32* totals, i32 digits, i32 tiles) {
    const i32 lane = threadIdx.x % 32, digit = (i32)blockIdx.x * 8 + (i32)threadIdx.x / 32;
    if (digit >= digits) return;
    // Each lane takes neighbours, so that all its loads are under way at once.
    const i32 each = (tiles + 31) / 32, first = lane * each, last = first + each < tiles ? first + each : tiles;
    u32* row = counts + (i64)digit * tiles;
    u32 own = 0;
#pragma unroll 8
    for (i32 i = first; i < last; i++) own += row[i];
    u32 sum = own;
#pragma unroll
    for (i32 d = 1; d < 32; d *= 2) {
        const u32 other = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) totals[digit] = sum;
    u32 before = sum - own;
#pragma unroll 8
    for (i32 i = first; i < last; i++) {
        const u32 here = row[i];
        row[i] = before;
        before += here;
    }
}

// A block: where the elements of a tile go. Warps take neighbours, 32 at a time, so that order is kept; then the tile is put in order in
// shared memory, so that those of a digit are written side by side.
template <class S, bool LAST>
D void radix_move(const S& s, const u32* before, const u32* totals, u32* keys, i32* places, i32 n, i32 tiles, i32 shift) {
    __shared__ u32 counters[8][256], starts[256], sums[8], held[RADIX_TILE];
    __shared__ i32 placed[RADIX_TILE];
    const i32 t = threadIdx.x, warp = t / 32, lane = t % 32, line = (i32)blockIdx.x / tiles, tile = (i32)blockIdx.x % tiles;
#pragma unroll
    for (i32 w = 0; w < 8; w++) counters[w][t] = 0;
    // Where each digit's elements begin in the line.
    const u32 own = totals[line * 256 + t];
    u32 sum = own;
#pragma unroll
    for (i32 d = 1; d < 32; d *= 2) {
        const u32 other = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    u32 start = sum - own;
    for (i32 w = 0; w < warp; w++) start += sums[w];
    starts[t] = start + before[((i64)line * 256 + t) * tiles + tile];

    u32 key[RADIX_EACH], rank[RADIX_EACH];
    i32 place[RADIX_EACH];
#pragma unroll
    for (i32 e = 0; e < RADIX_EACH; e++) {
        const i32 i = tile * RADIX_TILE + warp * 32 * RADIX_EACH + e * 32 + lane;
        key[e] = i < n ? S::key(s, (i64)line * n + i) : 0;
        place[e] = i < n ? S::place(s, (i64)line * n + i, i) : 0;
    }
#pragma unroll
    for (i32 e = 0; e < RADIX_EACH; e++) {
        const bool there = tile * RADIX_TILE + warp * 32 * RADIX_EACH + e * 32 + lane < n;
        const u32 digit = key[e] >> shift & 255u, alike = lanes_alike(there ? digit : 256u);
        const u32 earlier = __popc(alike & ((1u << lane) - 1u));
        rank[e] = counters[warp][digit] + earlier;
        __syncwarp();
        if (there && earlier == 0) counters[warp][digit] += __popc(alike);
        __syncwarp();
    }
    __syncthreads();
    // Before this digit in the tile: in warps before, and as smaller digits.
    u32 here[8], all = 0;
#pragma unroll
    for (i32 w = 0; w < 8; w++) {
        here[w] = counters[w][t];
        all += here[w];
    }
    u32 upto = all;
#pragma unroll
    for (i32 d = 1; d < 32; d *= 2) {
        const u32 other = __shfl_up_sync(0xffffffffu, upto, d);
        if (lane >= d) upto += other;
    }
    if (lane == 31) sums[warp] = upto;
    __syncthreads();
    u32 sofar = upto - all;
    for (i32 w = 0; w < warp; w++) sofar += sums[w];
    // From its place in the tile an element of this digit goes so much further.
    starts[t] -= sofar;
#pragma unroll
    for (i32 w = 0; w < 8; w++) {
        counters[w][t] = sofar;
        sofar += here[w];
    }
    __syncthreads();
#pragma unroll
    for (i32 e = 0; e < RADIX_EACH; e++) {
        if (tile * RADIX_TILE + warp * 32 * RADIX_EACH + e * 32 + lane >= n) continue;
        const u32 at = counters[warp][key[e] >> shift & 255u] + rank[e];
        held[at] = key[e];
        placed[at] = place[e];
    }
    __syncthreads();
#pragma unroll
    for (i32 e = 0; e < RADIX_EACH; e++) {
        const i32 at = e * RADIX_THREADS + t;
        if (tile * RADIX_TILE + at >= n) continue;
        const u32 own_key = held[at];
        const i64 to = (i64)line * n + (starts[own_key >> shift & 255u] + (u32)at);
        if (!LAST) keys[to] = own_key;
        places[to] = placed[at];
    }
}

// The first `take` elements of each line in order.
template <class T> D void radix_fetch(const T* x, const i32* places, T* out, i64 lines, i32 n, i32 take) {
    for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < lines * take; i += (i64)gridDim.x * 256) {
        const i64 line = i / take;
        out[i] = x[line * n + places[line * n + i % take]];
    }
}
D void radix_places(const i32* places, i32* out, i64 lines, i32 n, i32 take) {
    for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < lines * take; i += (i64)gridDim.x * 256) out[i] = places[i / take * n + i % take];
}
#endif
