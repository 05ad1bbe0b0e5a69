// Attention of few queries to many keys, as when a token is decoded: keys and values are read once, for all queries that share them.
#ifndef TENSORLOOM_ATTENTION_FEW
#define TENSORLOOM_ATTENTION_FEW

// A block: R queries (of all heads that share a key head) against every `splits`-th chunk of its keys. L threads share a key, 8
// elements each. Gives for each query the sum of values by weights, the largest score and the sum of weights.
template <class E, int R, int L, bool CAP>
D void attention_part(const u16* q, const u16* k, const u16* v, f32* parts, const Attention& z, i32 splits) {
    const i32 KEYS = 128 / L, EACH = 4, CHUNK = KEYS * EACH;
    __shared__ f32 weights[R][CHUNK], factors[R], sums[4][R][L * 8];
    const i32 head = (i32)blockIdx.x / splits, split = (i32)blockIdx.x % splits, batch = head / (z.per / z.group);
    const i32 first = first_position(z, batch), length = valid_keys(z, batch);
    i32 from = first - z.back, to = first + z.tq - 1 + z.ahead;
    from = from < 0 ? 0 : from / CHUNK;
    to = to > length ? length : to;
    to = to < 0 ? 0 : (to + CHUNK - 1) / CHUNK;
    q += (i64)head * R * z.d;
    k += (i64)head * z.tk * z.d;
    v += (i64)head * z.tk * z.dv;
    parts += (i64)blockIdx.x * R * (z.dv + 2);

    const i32 warp = (i32)threadIdx.x / 32, lane = (i32)threadIdx.x % 32, column = (i32)threadIdx.x % L * 8, own = (i32)threadIdx.x / L;
    const bool keys = column < z.d, values = column < z.dv;
    Vec<u32, 4> queries[R];
#pragma unroll
    for (i32 r = 0; r < R; r++) queries[r] = keys ? *(const Vec<u32, 4>*)(q + r * z.d + column) : Vec<u32, 4>{};
    f32 o[R][8];
#pragma unroll
    for (i32 r = 0; r < R; r++)
#pragma unroll
        for (i32 i = 0; i < 8; i++) o[r][i] = 0.0f;
    const f32 u = unit<CAP>(z), lowest = -real(0x7f800000u);
    // Of the queries that this warp weighs.
    const i32 MINE = (R + 3) / 4;
    f32 most[MINE], sum[MINE];
#pragma unroll
    for (i32 m = 0; m < MINE; m++) most[m] = lowest, sum[m] = 0.0f;

    for (i32 c = from + split; c < to; c += splits) {
        Vec<u32, 4> kw[EACH], vw[EACH];
#pragma unroll
        for (i32 e = 0; e < EACH; e++) {
            const i32 key = c * CHUNK + e * KEYS + own;
            kw[e] = keys && key < length ? stream16(k + (i64)key * z.d + column) : Vec<u32, 4>{};
        }
#pragma unroll
        for (i32 e = 0; e < EACH; e++) {
            const i32 key = c * CHUNK + e * KEYS + own;
            vw[e] = values && key < length ? stream16(v + (i64)key * z.dv + column) : Vec<u32, 4>{};
        }
#pragma unroll
        for (i32 r = 0; r < R; r++)
#pragma unroll
            for (i32 e = 0; e < EACH; e++) {
                f32 s = 0.0f;
#pragma unroll
                for (i32 i = 0; i < 4; i++) {
                    s = fmaf(E::low(queries[r].at[i]), E::low(kw[e].at[i]), s);
                    s = fmaf(E::high(queries[r].at[i]), E::high(kw[e].at[i]), s);
                }
#pragma unroll
                for (i32 x = 1; x < L; x *= 2) s += __shfl_xor_sync(0xffffffffu, s, x);
                const i32 key = c * CHUNK + e * KEYS + own, p = first + r % z.tq;
                const bool seen = key >= p - z.back && key < p + z.ahead && key < length;
                if (column == 0) weights[r][e * KEYS + own] = seen ? capped<CAP>(s, z) : lowest;
            }
        __syncthreads();
#pragma unroll
        for (i32 m = 0; m < MINE; m++) {
            const i32 r = m * 4 + warp;
            // Warps without a query go along.
            const i32 count = r < R ? CHUNK : 0;
            f32 top = most[m];
            for (i32 i = lane; i < count; i += 32) top = fmaxf(top, weights[r][i]);
#pragma unroll
            for (i32 x = 16; x > 0; x /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, x));
            // A query that has seen nothing yet.
            const f32 below = top == lowest ? 0.0f : top * u, factor = power_of_2(fmaf(most[m], u, -below));
            f32 added = 0.0f;
            for (i32 i = lane; i < count; i += 32) {
                const f32 w = power_of_2(fmaf(weights[r][i], u, -below));
                weights[r][i] = w;
                added += w;
            }
#pragma unroll
            for (i32 x = 16; x > 0; x /= 2) added += __shfl_xor_sync(0xffffffffu, added, x);
            sum[m] = fmaf(sum[m], factor, added);
            most[m] = top;
            if (lane == 0 && r < R) factors[r] = factor;
        }
        __syncthreads();
#pragma unroll
        for (i32 r = 0; r < R; r++) {
            const f32 factor = factors[r];
#pragma unroll
            for (i32 i = 0; i < 8; i++) o[r][i] *= factor;
        }
#pragma unroll
        for (i32 e = 0; e < EACH; e++)
#pragma unroll
            for (i32 r = 0; r < R; r++) {
                const f32 w = weights[r][e * KEYS + own];
#pragma unroll
                for (i32 i = 0; i < 4; i++) {
                    o[r][2 * i] = fmaf(w, E::low(vw[e].at[i]), o[r][2 * i]);
                    o[r][2 * i + 1] = fmaf(w, E::high(vw[e].at[i]), o[r][2 * i + 1]);
                }
            }
        __syncthreads();
    }
#pragma unroll
    for (i32 r = 0; r < R; r++)
#pragma unroll
        for (i32 i = 0; i < 8; i++) {
            f32 s = o[r][i];
#pragma unroll
            for (i32 x = L; x < 32; x *= 2) s += __shfl_xor_sync(0xffffffffu, s, x);
            if (lane < L) sums[warp][r][column + i] = s;
        }
#pragma unroll
    for (i32 m = 0; m < MINE; m++)
        if (lane == 0 && m * 4 + warp < R) {
            parts[(m * 4 + warp) * (z.dv + 2) + z.dv] = most[m];
            parts[(m * 4 + warp) * (z.dv + 2) + z.dv + 1] = sum[m];
        }
    __syncthreads();
    for (i32 x = threadIdx.x; x < R * z.dv; x += 128) {
        const i32 r = x / z.dv, i = x % z.dv;
        parts[r * (z.dv + 2) + i] = (sums[0][r][i] + sums[1][r][i]) + (sums[2][r][i] + sums[3][r][i]);
    }
}

// A warp: what the parts of one query are together.
template <class E, int R, bool CAP> D void attention_join(const f32* parts, u16* out, f32* lse, const Attention& z, i32 splits, i32 rows) {
    const i32 lane = threadIdx.x % 32, row = (i32)blockIdx.x * 4 + (i32)threadIdx.x / 32, width = z.dv + 2;
    if (row >= rows) return;
    const f32* own = parts + ((i64)(row / R) * splits * R + row % R) * width;
    const f32 u = unit<CAP>(z), lowest = -real(0x7f800000u);
    f32 top = lowest, total = 0.0f;
    for (i32 s = lane; s < splits; s += 32) top = fmaxf(top, own[s * R * width + z.dv]);
#pragma unroll
    for (i32 x = 16; x > 0; x /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, x));
    const bool empty = top == lowest;
    const f32 below = empty ? 0.0f : top * u;
    f32 o[8];
#pragma unroll
    for (i32 i = 0; i < 8; i++) o[i] = 0.0f;
    // 32 parts at a time: each lane has the weight of one.
    for (i32 base = 0; base < splits; base += 32) {
        const i32 here = splits - base < 32 ? splits - base : 32;
        const f32* part = own + (i64)base * R * width;
        const f32 weight = lane < here ? power_of_2(fmaf(part[lane * R * width + z.dv], u, -below)) : 0.0f;
        f32 added = lane < here ? weight * part[lane * R * width + z.dv + 1] : 0.0f;
#pragma unroll
        for (i32 x = 16; x > 0; x /= 2) added += __shfl_xor_sync(0xffffffffu, added, x);
        total += added;
#pragma unroll 8
        for (i32 s = 0; s < here; s++) {
            const f32 w = __shfl_sync(0xffffffffu, weight, s);
#pragma unroll
            for (i32 i = 0; i < 4; i++) {
                const i32 c = i * 64 + lane * 2;
                if (c < z.dv) {
                    const Vec<f32, 2> x = *(const Vec<f32, 2>*)(part + s * R * width + c);
                    o[2 * i] = fmaf(w, x.at[0], o[2 * i]);
                    o[2 * i + 1] = fmaf(w, x.at[1], o[2 * i + 1]);
                }
            }
        }
    }
    const f32 inverse = empty ? 0.0f : 1.0f / total;
#pragma unroll
    for (i32 i = 0; i < 4; i++) {
        const i32 c = i * 64 + lane * 2;
        if (c < z.dv) *(u32*)(out + (i64)row * z.dv + c) = E::pair(o[2 * i] * inverse, o[2 * i + 1] * inverse);
    }
    if (lane == 0) lse[row] = empty ? lowest : fmaf(top, u, log2f(total)) * LN_2;
}
#endif
