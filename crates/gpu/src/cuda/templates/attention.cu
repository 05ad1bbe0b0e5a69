// Attention by blocks (FlashAttention-2): scores are never in memory. Forward, and backward in two kernels, one for each side, so that
// no two blocks add to the same result.
#ifndef TENSORLOOM_ATTENTION
#define TENSORLOOM_ATTENTION

#define LOG2_E 1.44269504f
#define LN_2 0.693147181f

struct Attention {
    // Query heads in all, of a batch, of a key head; sizes.
    i32 heads, per, group, tq, tk, d, dv;
    // A query at position p sees keys from p - back to before p + ahead, and before its batch's length.
    i32 back, ahead;
    // So many batches share an entry; 0 if there is none.
    i32 offset_every, length_every;
    f32 scale, cap;
    const i32 *offsets, *lengths;
};
D i32 first_position(const Attention& z, i32 batch) {
    if (!z.offset_every) return z.tk - z.tq;
    const i32 o = z.offsets[batch / z.offset_every], most = 1 << 29;
    return o > most ? most : o < -most ? -most : o;
}
D i32 valid_keys(const Attention& z, i32 batch) {
    if (!z.length_every) return z.tk;
    const i32 n = z.lengths[batch / z.length_every];
    return n < 0 ? 0 : n > z.tk ? z.tk : n;
}

// Blocks of one head follow each other closely, so that what they share stays in the cache; the longest go first.
#define TOGETHER 32
struct Turn {
    i32 block, head;
};
D Turn turn(i32 x, i32 blocks, i32 heads) {
    const i32 part = x / (blocks * TOGETHER), rest = x - part * blocks * TOGETHER;
    const i32 here = heads - part * TOGETHER < TOGETHER ? heads - part * TOGETHER : TOGETHER;
    return {rest / here, part * TOGETHER + rest % here};
}

// What a score is before the exponential: bounded or not, in units of which `unit` are one power of 2.
template <bool CAP> D f32 capped(f32 s, const Attention& z) { return CAP ? z.cap * tanhf(s * z.scale / z.cap) : s; }
template <bool CAP> D f32 unit(const Attention& z) { return CAP ? LOG2_E : z.scale * LOG2_E; }

D f32 row_max(f32 x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
D f32 row_sum(f32 x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// d (+)= a bᵀ over P tiles' width.
template <class E, int P> D void scores(f32 (&d)[32], u32 a_tiles, u32 b_tiles) {
#pragma unroll
    for (i32 k = 0; k < P * 4; k++)
        E::tiles(d, operand(a_tiles + k / 4 * TILE) + COLUMNS_ON(k % 4), operand(b_tiles + k / 4 * TILE) + COLUMNS_ON(k % 4), k);
}
// d += a b: a in registers, 64 x 64, b P tiles side by side.
template <class E, int P> D void collect(f32 (&d)[P][32], const u32 (&a)[4][4], u32 b_tiles) {
#pragma unroll
    for (i32 k = 0; k < 4; k++)
#pragma unroll
        for (i32 p = 0; p < P; p++) E::columns(d[p], a[k], operand(b_tiles + p * TILE) + ROWS_ON(k), 1);
}
template <class E> D void rounded(u32 (&a)[4][4], const f32 (&d)[32]) {
#pragma unroll
    for (i32 k = 0; k < 4; k++)
#pragma unroll
        for (i32 i = 0; i < 4; i++) a[k][i] = E::pair(d[8 * k + 4 * (i >> 1) + 2 * (i & 1)], d[8 * k + 4 * (i >> 1) + 2 * (i & 1) + 1]);
}
template <int P> D void clear(f32 (&d)[P][32]) {
#pragma unroll
    for (i32 p = 0; p < P; p++)
#pragma unroll
        for (i32 i = 0; i < 32; i++) d[p][i] = 0.0f;
}

// A block: 64 G queries of a head against all keys that they see, 64 at a time.
template <class E, int P, int PV, int G, bool CAP>
D void attention_forward(const u16* q, const u16* k, const u16* v, u16* out, f32* lse, const Attention& z) {
    SHARED_MEMORY(shared);
    const i32 THREADS = 128 * G, STAGE = (P + PV) * TILE;
    const i32 t = threadIdx.x & 127, own = (i32)threadIdx.x / 128 * 64;
    const i32 blocks = (z.tq + 64 * G - 1) / (64 * G);
    const Turn x = turn((i32)blockIdx.x, blocks, z.heads);
    const i32 start = (blocks - 1 - x.block) * 64 * G, kv = x.head / z.group;
    const i32 batch = x.head / z.per;
    const i32 first = first_position(z, batch), length = valid_keys(z, batch);
    q += (i64)x.head * z.tq * z.d;
    k += (i64)kv * z.tk * z.d;
    v += (i64)kv * z.tk * z.dv;
    const u32 base = shared_at(shared), queries = base + 2 * STAGE;

    const i32 last = (start + 64 * G < z.tq ? start + 64 * G : z.tq) - 1;
    i32 from = first + start - z.back, to = first + last + z.ahead;
    from = from < 0 ? 0 : from / 64;
    to = to > length ? length : to;
    to = to < 0 ? 0 : (to + 63) / 64;

#pragma unroll
    for (i32 g = 0; g < G; g++)
        load_rows<P, THREADS>(queries + g * P * TILE, q + (start + g * 64) * z.d, z.tq - start - g * 64, z.d);
    if (from < to) {
        load_rows<P, THREADS>(base, k + from * 64 * z.d, length - from * 64, z.d);
        load_rows<PV, THREADS>(base + P * TILE, v + from * 64 * z.dv, length - from * 64, z.dv);
    }
    copies_given();

    f32 o[PV][32];
    clear<PV>(o);
    const f32 u = unit<CAP>(z), lowest = -real(0x7f800000u);
    f32 most[2] = {lowest, lowest}, sum[2] = {0.0f, 0.0f};
    const i32 row = start + own + t / 32 * 16 + t % 32 / 4;
    for (i32 j = from; j < to; j++) {
        const u32 here = base + (j - from & 1) * STAGE, there = base + (j - from + 1 & 1) * STAGE;
        copies_done<0>();
        shown_to_products();
        __syncthreads();
        if (j + 1 < to) {
            load_rows<P, THREADS>(there, k + (j + 1) * 64 * z.d, length - (j + 1) * 64, z.d);
            load_rows<PV, THREADS>(there + P * TILE, v + (j + 1) * 64 * z.dv, length - (j + 1) * 64, z.dv);
        }
        copies_given();
        f32 s[32];
        products_begin();
        scores<E, P>(s, queries + own / 64 * P * TILE, here);
        products_given();
        products_done<0>();
        if (CAP)
#pragma unroll
            for (i32 i = 0; i < 32; i++) s[i] = capped<CAP>(s[i], z);
        const i32 key = j * 64;
        if (key < first + last - z.back || key + 64 > first + start + z.ahead || key + 64 > length) {
#pragma unroll
            for (i32 i = 0; i < 32; i++) {
                const i32 c = key + i / 4 * 8 + t % 4 * 2 + (i & 1), p = first + row + (i >> 1 & 1) * 8;
                if (c < p - z.back || c >= p + z.ahead || c >= length) s[i] = lowest;
            }
        }
        f32 factor[2];
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            f32 m = most[h];
#pragma unroll
            for (i32 i = 0; i < 32; i += 4) m = fmaxf(m, fmaxf(s[i + 2 * h], s[i + 2 * h + 1]));
            m = row_max(m);
            // A row that has seen nothing yet.
            const f32 below = m == lowest ? 0.0f : m * u;
            factor[h] = power_of_2(fmaf(most[h], u, -below));
            most[h] = m;
            f32 added = 0.0f;
#pragma unroll
            for (i32 i = 0; i < 32; i += 4) {
                s[i + 2 * h] = power_of_2(fmaf(s[i + 2 * h], u, -below));
                s[i + 2 * h + 1] = power_of_2(fmaf(s[i + 2 * h + 1], u, -below));
                added += s[i + 2 * h] + s[i + 2 * h + 1];
            }
            sum[h] = fmaf(sum[h], factor[h], added);
        }
#pragma unroll
        for (i32 p = 0; p < PV; p++)
#pragma unroll
            for (i32 i = 0; i < 32; i++) o[p][i] *= factor[i >> 1 & 1];
        u32 weights[4][4];
        rounded<E>(weights, s);
        products_begin();
        collect<E, PV>(o, weights, here + P * TILE);
        products_given();
        products_done<0>();
    }
    f32 inverse[2];
#pragma unroll
    for (i32 h = 0; h < 2; h++) {
        sum[h] = row_sum(sum[h]);
        const bool empty = most[h] == lowest;
        inverse[h] = empty ? 0.0f : 1.0f / sum[h];
        const i32 r = row + 8 * h;
        if (t % 4 == 0 && r < z.tq)
            lse[(i64)x.head * z.tq + r] = empty ? lowest : fmaf(most[h], u, log2f(sum[h])) * LN_2;
    }
    out += ((i64)x.head * z.tq + start + own) * z.dv;
    store_rows<E, PV>(out, o, inverse[0], inverse[1], z.tq - start - own, z.dv);
}

// What each query's scores lose: dlse - Σ dout·out; then, behind all of these, what its exponents add: -lse in powers of 2. 8 threads a
// row, 8 elements at a time.
template <class E> D void attention_rows(const u16* out, const u16* dout, const f32* lse, const f32* dlse, f32* rows, i64 count, i32 width) {
    const i64 row = (i64)blockIdx.x * 32 + threadIdx.x / 8, here = row < count ? row : count - 1;
    f32 sum = 0.0f;
    for (i32 c = threadIdx.x % 8 * 8; c < width; c += 64) {
        const Vec<u32, 4> a = *(const Vec<u32, 4>*)(out + here * width + c), b = *(const Vec<u32, 4>*)(dout + here * width + c);
#pragma unroll
        for (i32 i = 0; i < 4; i++) {
            sum = fmaf(E::low(a.at[i]), E::low(b.at[i]), sum);
            sum = fmaf(E::high(a.at[i]), E::high(b.at[i]), sum);
        }
    }
#pragma unroll
    for (i32 x = 4; x > 0; x /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, x);
    if (threadIdx.x % 8 == 0 && row < count) {
        // A row that saw nothing gives and takes nothing.
        const bool empty = lse[row] == -real(0x7f800000u);
        rows[row] = empty ? 0.0f : dlse[row] - sum;
        rows[count + row] = empty ? 0.0f : -lse[row] * LOG2_E;
    }
}

// A block: 64 G queries of a head, what they owe to all keys that they see.
template <class E, int P, int PV, int G, bool CAP>
D void attention_dq(const u16* q, const u16* k, const u16* v, const u16* dout, const f32* rows, u16* dq, const Attention& z) {
    SHARED_MEMORY(shared);
    const i32 THREADS = 128 * G, STAGE = (P + PV) * TILE;
    const i32 t = threadIdx.x & 127, own = (i32)threadIdx.x / 128 * 64;
    const i32 blocks = (z.tq + 64 * G - 1) / (64 * G);
    const Turn x = turn((i32)blockIdx.x, blocks, z.heads);
    const i32 start = (blocks - 1 - x.block) * 64 * G, kv = x.head / z.group;
    const i32 batch = x.head / z.per;
    const i32 first = first_position(z, batch), length = valid_keys(z, batch);
    q += (i64)x.head * z.tq * z.d;
    dout += (i64)x.head * z.tq * z.dv;
    k += (i64)kv * z.tk * z.d;
    v += (i64)kv * z.tk * z.dv;
    const u32 base = shared_at(shared), queries = base + 2 * STAGE, grads = queries + G * P * TILE;

    const i32 last = (start + 64 * G < z.tq ? start + 64 * G : z.tq) - 1;
    i32 from = first + start - z.back, to = first + last + z.ahead;
    from = from < 0 ? 0 : from / 64;
    to = to > length ? length : to;
    to = to < 0 ? 0 : (to + 63) / 64;

#pragma unroll
    for (i32 g = 0; g < G; g++) {
        load_rows<P, THREADS>(queries + g * P * TILE, q + (start + g * 64) * z.d, z.tq - start - g * 64, z.d);
        load_rows<PV, THREADS>(grads + g * PV * TILE, dout + (start + g * 64) * z.dv, z.tq - start - g * 64, z.dv);
    }
    if (from < to) {
        load_rows<P, THREADS>(base, k + from * 64 * z.d, length - from * 64, z.d);
        load_rows<PV, THREADS>(base + P * TILE, v + from * 64 * z.dv, length - from * 64, z.dv);
    }
    copies_given();

    const f32 u = unit<CAP>(z);
    const i32 row = start + own + t / 32 * 16 + t % 32 / 4;
    f32 added[2], less[2];
#pragma unroll
    for (i32 h = 0; h < 2; h++) {
        const i32 r = row + 8 * h;
        const f32* numbers = rows + (i64)x.head * z.tq + r;
        added[h] = r < z.tq ? numbers[(i64)z.heads * z.tq] : 0.0f;
        less[h] = r < z.tq ? numbers[0] : 0.0f;
    }
    f32 sum[P][32];
    clear<P>(sum);
    for (i32 j = from; j < to; j++) {
        const u32 here = base + (j - from & 1) * STAGE, there = base + (j - from + 1 & 1) * STAGE;
        copies_done<0>();
        shown_to_products();
        __syncthreads();
        if (j + 1 < to) {
            load_rows<P, THREADS>(there, k + (j + 1) * 64 * z.d, length - (j + 1) * 64, z.d);
            load_rows<PV, THREADS>(there + P * TILE, v + (j + 1) * 64 * z.dv, length - (j + 1) * 64, z.dv);
        }
        copies_given();
        f32 s[32], dp[32];
        products_begin();
        scores<E, P>(s, queries + own / 64 * P * TILE, here);
        products_given();
        scores<E, PV>(dp, grads + own / 64 * PV * TILE, here + P * TILE);
        products_given();
        products_done<1>();
        const i32 key = j * 64;
#pragma unroll
        for (i32 i = 0; i < 32; i++) {
            f32 slope = 1.0f;
            if (CAP) {
                const f32 th = tanhf(s[i] * z.scale / z.cap);
                s[i] = z.cap * th;
                slope = fmaf(-th, th, 1.0f);
            }
            s[i] = power_of_2(fmaf(s[i], u, added[i >> 1 & 1]));
            if (CAP) s[i] *= slope;
        }
        if (key < first + last - z.back || key + 64 > first + start + z.ahead || key + 64 > length) {
#pragma unroll
            for (i32 i = 0; i < 32; i++) {
                const i32 c = key + i / 4 * 8 + t % 4 * 2 + (i & 1), p = first + row + (i >> 1 & 1) * 8;
                if (c < p - z.back || c >= p + z.ahead || c >= length) s[i] = 0.0f;
            }
        }
        products_done<0>();
#pragma unroll
        for (i32 i = 0; i < 32; i++) s[i] *= dp[i] + less[i >> 1 & 1];
        u32 ds[4][4];
        rounded<E>(ds, s);
        products_begin();
        collect<E, P>(sum, ds, here);
        products_given();
        products_done<0>();
    }
    dq += ((i64)x.head * z.tq + start + own) * z.d;
    store_rows<E, P>(dq, sum, z.scale, z.scale, z.tq - start - own, z.d);
}

// A block: 64 G keys of a key head, what all queries that see them owe to them and to their values.
template <class E, int P, int PV, int G, bool CAP>
D void attention_dkv(const u16* q, const u16* k, const u16* v, const u16* dout, const f32* rows, u16* dk, u16* dv, const Attention& z) {
    SHARED_MEMORY(shared);
    // Two stages of queries, what comes back, and two numbers a query; then keys and values.
    const i32 THREADS = 128 * G, STAGE = (P + PV) * TILE + 1024;
    const i32 t = threadIdx.x & 127, own = (i32)threadIdx.x / 128 * 64;
    const i32 kv_heads = z.heads / z.group, blocks = (z.tk + 64 * G - 1) / (64 * G);
    const Turn x = turn((i32)blockIdx.x, blocks, kv_heads);
    const i32 start = x.block * 64 * G, batch = x.head / (z.per / z.group);
    const i32 first = first_position(z, batch), length = valid_keys(z, batch);
    k += ((i64)x.head * z.tk + start) * z.d;
    v += ((i64)x.head * z.tk + start) * z.dv;
    const u32 base = shared_at(shared), keys = base + 2 * STAGE, values = keys + G * P * TILE;

    const i32 end = start + 64 * G < length ? start + 64 * G : length;
    i32 from = start - first - z.ahead + 1, to = end - first + z.back;
    from = from < 0 ? 0 : from / 64;
    to = to > z.tq ? z.tq : to;
    to = to < 0 || end <= start ? 0 : (to + 63) / 64;
    const i32 each = to > from ? to - from : 0, steps = each * z.group;

#pragma unroll
    for (i32 g = 0; g < G; g++) {
        load_rows<P, THREADS>(keys + g * P * TILE, k + g * 64 * z.d, length - start - g * 64, z.d);
        load_rows<PV, THREADS>(values + g * PV * TILE, v + g * 64 * z.dv, length - start - g * 64, z.dv);
    }
    // What is loaded next: 64 queries of a head of the group.
    i32 next = from;
    i64 line = (i64)x.head * z.group * z.tq;
    rows += threadIdx.x < 64 ? (i64)z.heads * z.tq : 0;
    auto load = [&](u32 stage) {
        const i32 r = next * 64, left = z.tq - r;
        load_rows<P, THREADS>(stage, q + (line + r) * z.d, left, z.d);
        load_rows<PV, THREADS>(stage + P * TILE, dout + (line + r) * z.dv, left, z.dv);
        if (threadIdx.x < 128) {
            const i32 c = threadIdx.x & 63;
            copy4(stage + (P + PV) * TILE + threadIdx.x * 4, rows + line + (c < left ? r + c : r), c < left);
        }
        if (++next == to) {
            next = from;
            line += z.tq;
        }
    };
    if (steps > 0) load(base);
    copies_given();

    const f32 u = unit<CAP>(z);
    const i32 row = start + own + t / 32 * 16 + t % 32 / 4;
    f32 sum_k[P][32], sum_v[PV][32];
    clear<P>(sum_k);
    clear<PV>(sum_v);
    i32 now = from;
    for (i32 n = 0; n < steps; n++) {
        const u32 here = base + (n & 1) * STAGE, there = base + (n + 1 & 1) * STAGE;
        copies_done<0>();
        shown_to_products();
        __syncthreads();
        if (n + 1 < steps) load(there);
        copies_given();
        f32 s[32], dp[32];
        products_begin();
        scores<E, P>(s, keys + own / 64 * P * TILE, here);
        products_given();
        scores<E, PV>(dp, values + own / 64 * PV * TILE, here + P * TILE);
        products_given();
        products_done<1>();
        const f32* numbers = (const f32*)(shared + (here - base) + (P + PV) * TILE);
        const i32 query = now * 64, p0 = first + query;
        now = now + 1 == to ? from : now + 1;
        f32 slope[CAP ? 32 : 1];
#pragma unroll
        for (i32 j = 0; j < 8; j++) {
            const Vec<f32, 2> l = *(const Vec<f32, 2>*)(numbers + 8 * j + t % 4 * 2);
#pragma unroll
            for (i32 e = 0; e < 4; e++) {
                const i32 i = 4 * j + e;
                if (CAP) {
                    const f32 th = tanhf(s[i] * z.scale / z.cap);
                    s[i] = z.cap * th;
                    slope[i] = fmaf(-th, th, 1.0f);
                }
                s[i] = power_of_2(fmaf(s[i], u, l.at[e & 1]));
            }
        }
        if (start < p0 + 63 - z.back || start + 64 * G > p0 + z.ahead || start + 64 * G > length || query + 64 > z.tq) {
#pragma unroll
            for (i32 i = 0; i < 32; i++) {
                const i32 c = i / 4 * 8 + t % 4 * 2 + (i & 1), key = row + (i >> 1 & 1) * 8, p = p0 + c;
                if (key < p - z.back || key >= p + z.ahead || key >= length || query + c >= z.tq) s[i] = 0.0f;
            }
        }
        u32 weights[4][4];
        rounded<E>(weights, s);
        products_done<0>();
        products_begin();
        collect<E, PV>(sum_v, weights, here + P * TILE);
        products_given();
#pragma unroll
        for (i32 j = 0; j < 8; j++) {
            const Vec<f32, 2> l = *(const Vec<f32, 2>*)(numbers + 64 + 8 * j + t % 4 * 2);
#pragma unroll
            for (i32 e = 0; e < 4; e++) {
                const i32 i = 4 * j + e;
                dp[i] = s[i] * (dp[i] + l.at[e & 1]);
                if (CAP) dp[i] *= slope[i];
            }
        }
        u32 ds[4][4];
        rounded<E>(ds, dp);
        products_begin();
        collect<E, P>(sum_k, ds, here);
        products_given();
        products_done<0>();
    }
    dk += ((i64)x.head * z.tk + start + own) * z.d;
    dv += ((i64)x.head * z.tk + start + own) * z.dv;
    store_rows<E, P>(dk, sum_k, z.scale, z.scale, z.tk - start - own, z.d);
    store_rows<E, PV>(dv, sum_v, 1.0f, 1.0f, z.tk - start - own, z.dv);
}

#endif
