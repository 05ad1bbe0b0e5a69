// Attention of few queries to many keys, as when a token is decoded: keys and values are read once, for all queries that share them.
#ifndef TENSORLOOM_ATTENTION_FEW
#define TENSORLOOM_ATTENTION_FEW

// A block: R queries (of all heads that share a key head) against every `splits`-th chunk of its keys. L threads share a key, 8
// elements each, and go through their keys alone, four at a time; what they found is joined at the end. Gives for each query the sum
// of values by weights, the largest score and the sum of weights.
template <class E, int R, int L, bool CAP>
D void attention_part(const u16* q, const u16* k, const u16* v, f32* parts, const Attention& z, i32 splits) {
    const i32 KEYS = 128 / L, EACH = 4, CHUNK = KEYS * EACH;
    __shared__ f32 sums[4][R][L * 8], tops[4][R], totals[4][R];
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
    Vec<u32, 4> kw[EACH], vw[EACH], queries[R];
    auto fetch = [&](Vec<u32, 4> (&to)[EACH], const u16* from, i32 c, i32 width, bool mine) {
#pragma unroll
        for (i32 e = 0; e < EACH; e++) {
            const i32 key = c * CHUNK + e * KEYS + own;
            to[e] = mine && key < length ? stream16(from + (i64)key * width + column) : Vec<u32, 4>{};
        }
    };
    fetch(kw, k, from + split, z.d, keys && from + split < to);
    fetch(vw, v, from + split, z.dv, values && from + split < to);
#pragma unroll
    for (i32 r = 0; r < R; r++) queries[r] = keys ? *(const Vec<u32, 4>*)(q + r * z.d + column) : Vec<u32, 4>{};
    const f32 u = unit<CAP>(z), lowest = -real(0x7f800000u);
    f32 o[R][8], most[R], sum[R];
#pragma unroll
    for (i32 r = 0; r < R; r++) {
        most[r] = lowest, sum[r] = 0.0f;
#pragma unroll
        for (i32 i = 0; i < 8; i++) o[r][i] = 0.0f;
    }
    for (i32 c = from + split; c < to; c += splits) {
        f32 s[R][EACH];
#pragma unroll
        for (i32 e = 0; e < EACH; e++)
#pragma unroll
            for (i32 r = 0; r < R; r++) {
                f32 x = 0.0f;
#pragma unroll
                for (i32 i = 0; i < 4; i++) {
                    x = fmaf(E::low(queries[r].at[i]), E::low(kw[e].at[i]), x);
                    x = fmaf(E::high(queries[r].at[i]), E::high(kw[e].at[i]), x);
                }
                s[r][e] = x;
            }
        // The next keys come while these become weights, the next values while they are added up.
        fetch(kw, k, c + splits, z.d, keys && c + splits < to);
#pragma unroll
        for (i32 r = 0; r < R; r++) {
            const i32 p = first + r % z.tq;
            f32 top = most[r];
#pragma unroll
            for (i32 e = 0; e < EACH; e++) {
#pragma unroll
                for (i32 x = 1; x < L; x *= 2) s[r][e] += __shfl_xor_sync(0xffffffffu, s[r][e], x);
                const i32 key = c * CHUNK + e * KEYS + own;
                const bool seen = key >= p - z.back && key < p + z.ahead && key < length;
                s[r][e] = seen ? capped<CAP>(s[r][e], z) : lowest;
                top = fmaxf(top, s[r][e]);
            }
            // A query that has seen nothing yet.
            const f32 below = top == lowest ? 0.0f : top * u, factor = power_of_2(fmaf(most[r], u, -below));
            most[r] = top;
            sum[r] *= factor;
#pragma unroll
            for (i32 i = 0; i < 8; i++) o[r][i] *= factor;
#pragma unroll
            for (i32 e = 0; e < EACH; e++) {
                s[r][e] = power_of_2(fmaf(s[r][e], u, -below));
                sum[r] += s[r][e];
            }
        }
#pragma unroll
        for (i32 e = 0; e < EACH; e++)
#pragma unroll
            for (i32 r = 0; r < R; r++)
#pragma unroll
                for (i32 i = 0; i < 4; i++) {
                    o[r][2 * i] = fmaf(s[r][e], E::low(vw[e].at[i]), o[r][2 * i]);
                    o[r][2 * i + 1] = fmaf(s[r][e], E::high(vw[e].at[i]), o[r][2 * i + 1]);
                }
        fetch(vw, v, c + splits, z.dv, values && c + splits < to);
    }
    // Those of a warp, then the warps.
#pragma unroll
    for (i32 r = 0; r < R; r++) {
        f32 top = most[r];
#pragma unroll
        for (i32 x = L; x < 32; x *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, x));
        const f32 factor = top == lowest ? 0.0f : power_of_2(fmaf(most[r], u, -top * u));
        f32 all = sum[r] * factor;
#pragma unroll
        for (i32 x = L; x < 32; x *= 2) all += __shfl_xor_sync(0xffffffffu, all, x);
#pragma unroll
        for (i32 i = 0; i < 8; i++) {
            f32 x = o[r][i] * factor;
#pragma unroll
            for (i32 d = L; d < 32; d *= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
            if (lane < L) sums[warp][r][column + i] = x;
        }
        if (lane == 0) tops[warp][r] = top, totals[warp][r] = all;
    }
    __syncthreads();
    for (i32 x = threadIdx.x; x < R * (z.dv + 1); x += 128) {
        const i32 r = x / (z.dv + 1), i = x % (z.dv + 1);
        f32 top = tops[0][r];
#pragma unroll
        for (i32 w = 1; w < 4; w++) top = fmaxf(top, tops[w][r]);
        f32 total = 0.0f;
#pragma unroll
        for (i32 w = 0; w < 4; w++) {
            const f32 factor = tops[w][r] == lowest ? 0.0f : power_of_2(fmaf(tops[w][r], u, -top * u));
            total = fmaf(i < z.dv ? sums[w][r][i] : totals[w][r], factor, total);
        }
        parts[r * (z.dv + 2) + (i < z.dv ? i : z.dv + 1)] = total;
        if (i == z.dv) parts[r * (z.dv + 2) + z.dv] = top;
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
