// Attention by blocks whose first warp group only loads: it feeds stages to the others, which multiply at their own pace. So while one of
// them turns scores into weights, another one's products keep the matrix units busy.
//
// A stage has two gates: `full` opens when what was loaded is there, `empty` when all who read it are done. Steps are counted from 0; step n
// uses stage n % S, and its gates open for the (n / S)th time.
#ifndef TENSORLOOM_ATTENTION_FED
#define TENSORLOOM_ATTENTION_FED

// Where the two gates of a step's stage are.
template <int S> D u32 full(u32 gates, i32 n) { return gates + n % S * 16; }
template <int S> D u32 empty(u32 gates, i32 n) { return gates + n % S * 16 + 8; }
template <int S> D void await_full(u32 gates, i32 n) { gate_wait(full<S>(gates, n), n / S & 1); }

template <int G, int S> D void set_gates(u32 gates) {
    // Whoever reads step n waits for step n + 1, of which is told when step n + 2 is loaded: into a stage that is free.
    static_assert(S >= 3, "stages");
    if (threadIdx.x == 0)
#pragma unroll
        for (i32 i = 0; i < S; i++) {
            gate_set(gates + i * 16, 128);
            gate_set(gates + i * 16 + 8, 4 * G);
        }
    __syncthreads();
}
// This thread's group, a number that a whole warp shares: the first one loads, the others are counted from 0.
D i32 own_group() { return __shfl_sync(0xffffffffu, (i32)threadIdx.x / 128, 0) - 1; }
// Like `load_rows` for one group, in few registers.
template <int P> D void feed_rows(u32 tiles, const u16* from, i32 rows, i32 width) {
    const i32 ROWS = 16 / P, row = (i32)threadIdx.x / (8 * P), panel = (i32)threadIdx.x / 8 % P, piece = (i32)threadIdx.x % 8;
    const u32 to = tiles + panel * TILE + row * 128 + ((piece ^ (row & 7)) << 4);
    const u16* p = from + row * width + panel * 64 + piece * 8;
    const i32 left = panel * 64 + piece * 8 < width ? rows - row : 0;
#pragma unroll
    for (i32 i = 0; i < 64 / ROWS; i++) {
        const bool valid = i * ROWS < left;
        copy16(to + i * ROWS * 128, valid ? p : from, valid);
        p += ROWS * width;
    }
}
// What the group that loads does: `load(n, stage)` starts copies, which are there before the gate opens.
template <int S, class Load> D void feed(u32 gates, i32 steps, const Load& load) {
    for (i32 n = 0; n < steps; n++) {
        if (n >= S) gate_wait(empty<S>(gates, n), n / S + 1 & 1);
        load(n, n % S);
        copies_given();
        if (n > 0) {
            copies_done<1>();
            shown_to_products();
            gate_pass(full<S>(gates, n - 1));
        }
    }
    if (steps > 0) {
        copies_done<0>();
        shown_to_products();
        gate_pass(full<S>(gates, steps - 1));
    }
}
// Steps from `n` to before `m` were read, or passed over. Whoever waits for step n + 2 has released step n: what was loaded is told of
// when the next load has begun.
template <int S> D void release(u32 gates, i32 n, i32 m) {
    for (; n < m; n++) {
        await_full<S>(gates, n);
        __syncwarp();
        if (threadIdx.x % 32 == 0) gate_pass(empty<S>(gates, n));
    }
}

// A block: 64 G queries of a head against all keys that they see, 64 at a time.
template <class E, int P, int PV, int G, int S, bool CAP>
D void fed_forward(const u16* q, const u16* k, const u16* v, u16* out, f32* lse, const Attention& z) {
    SHARED_MEMORY(shared);
    const i32 STAGE = (P + PV) * TILE;
    const i32 t = threadIdx.x & 127, who = own_group(), own = who * 64;
    const i32 blocks = (z.tq + 64 * G - 1) / (64 * G);
    const Turn x = turn((i32)blockIdx.x, blocks, z.heads);
    const i32 start = (blocks - 1 - x.block) * 64 * G, kv = x.head / z.group;
    const i32 batch = x.head / z.per;
    const i32 first = first_position(z, batch), length = valid_keys(z, batch);
    const u32 base = shared_at(shared), queries = base + S * STAGE, gates = queries + G * P * TILE;

    // Steps of 64 keys that queries from `a` to before `b` see.
    auto from_of = [&](i32 a) {
        const i32 n = first + a - z.back;
        return n < 0 ? 0 : n / 64;
    };
    auto to_of = [&](i32 b) {
        i32 n = first + (b < z.tq ? b : z.tq) - 1 + z.ahead;
        n = n > length ? length : n;
        return n < 0 ? 0 : (n + 63) / 64;
    };
    const i32 from = from_of(start), to = to_of(start + 64 * G), steps = to > from ? to - from : 0;
    set_gates<G, S>(gates);
    if (who < 0) {
        fewer_registers<G>();
        q += (i64)x.head * z.tq * z.d;
        k += (i64)kv * z.tk * z.d;
        v += (i64)kv * z.tk * z.dv;
#pragma unroll
        for (i32 g = 0; g < G; g++) feed_rows<P>(queries + g * P * TILE, q + (start + g * 64) * z.d, z.tq - start - g * 64, z.d);
        feed<S>(gates, steps, [&](i32 n, i32 stage) {
            const i32 r = (from + n) * 64;
            feed_rows<P>(base + stage * STAGE, k + r * z.d, length - r, z.d);
            feed_rows<PV>(base + stage * STAGE + P * TILE, v + r * z.dv, length - r, z.dv);
        });
    } else {
        more_registers<G>();
        const u32 mine = queries + who * P * TILE;
        f32 o[PV][32], s[32];
        clear<PV>(o);
        const f32 u = unit<CAP>(z), lowest = -real(0x7f800000u);
        f32 most[2] = {lowest, lowest}, sum[2] = {0.0f, 0.0f};
        const i32 row = start + own + t / 32 * 16 + t % 32 / 4, last = start + own + 63;
        i32 n = from_of(start + own) - from, end = to_of(start + own + 64) - from;
        if (start + own >= z.tq || n >= end) n = end = 0;
        u32 weights[4][4];
        auto weigh = [&]() {
            if (CAP)
#pragma unroll
                for (i32 i = 0; i < 32; i++) s[i] = capped<CAP>(s[i], z);
            const i32 key = (from + n) * 64;
            if (key < first + last - z.back || key + 64 > first + start + own + z.ahead || key + 64 > length) {
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
            rounded<E>(weights, s);
        };
        if (n < end) {
            release<S>(gates, 0, n);
            await_full<S>(gates, n);
            products_begin();
            scores<E, P>(s, mine, base + n % S * STAGE);
            products_given();
            products_done<0>();
            weigh();
            while (n + 1 < end) {
                await_full<S>(gates, n + 1);
                products_begin();
                collect<E, PV>(o, weights, base + n % S * STAGE + P * TILE);
                scores<E, P>(s, mine, base + (n + 1) % S * STAGE);
                products_given();
                products_done<0>();
                release<S>(gates, n, n + 1);
                n++;
                weigh();
            }
            products_begin();
            collect<E, PV>(o, weights, base + n % S * STAGE + P * TILE);
            products_given();
            products_done<0>();
        }
        release<S>(gates, n, steps);
        f32 inverse[2];
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            sum[h] = row_sum(sum[h]);
            const bool none = most[h] == lowest;
            inverse[h] = none ? 0.0f : 1.0f / sum[h];
            const i32 r = row + 8 * h;
            if (t % 4 == 0 && r < z.tq)
                lse[(i64)x.head * z.tq + r] = none ? lowest : fmaf(most[h], u, log2f(sum[h])) * LN_2;
        }
        out += ((i64)x.head * z.tq + start + own) * z.dv;
        store_rows<E, PV>(out, o, inverse[0], inverse[1], z.tq - start - own, z.dv);
    }
}

#endif
