// Hopper's words for a host compiler (see src/cuda/templates/hopper.cu): copies happen at once, products read shared memory by their
// descriptors, as the instruction set describes them.

#define SHARED_MEMORY(name) static u8 *const name = dynamic_memory
alignas(1024) static u8 dynamic_memory[232448];

static inline u32 shared_at(const void *p) { return (u32)((const u8 *)p - dynamic_memory); }
static inline void copy16(u32 to, const void *from, bool valid) {
    if (to % 16 || to + 16 > sizeof dynamic_memory || (uintptr_t)from % 16) abort();
    if (valid)
        memcpy(dynamic_memory + to, from, 16);
    else
        memset(dynamic_memory + to, 0, 16);
}
static inline void copy4(u32 to, const void *from, bool valid) {
    if (valid)
        memcpy(dynamic_memory + to, from, 4);
    else
        memset(dynamic_memory + to, 0, 4);
}
static inline void copies_given() {}
template <int N> static void copies_done() {}
static inline void shown_to_products() {}
static inline void products_begin() {}
static inline void products_given() {}
template <int N> static void products_done() {}
// A gate's passes and openings; whoever waits lets the others run. All threads of a round see what the rounds before it left, so those of a
// group stay together.
struct Gate {
    u32 count, passed, openings, round;
};
static inline Gate *gate(u32 at) {
    static Gate gates[64];
    return &gates[at / 8 % 64];
}
static inline void gate_set(u32 at, u32 count) { *gate(at) = {count, 0, 0, 0}; }
static inline void gate_pass(u32 at) {
    Gate *g = gate(at);
    if (++g->passed == g->count) *g = {g->count, 0, g->openings + 1, rounds};
}
static inline void gate_wait(u32 at, u32 parity) {
    // Nobody may be two openings behind.
    for (;; pass()) {
        Gate *g = gate(at);
        u32 seen = g->openings - (g->openings > 0 && g->round == rounds);
        if (seen % 2 != parity) return;
    }
}
template <int G> static void fewer_registers() {}
template <int G> static void more_registers() {}
static inline f32 power_of_2(f32 x) { return exp2f(x); }

// An element of an operand in shared memory: `i` along rows or columns of the result, `k` along the sum.
static u16 element(u64 descriptor, i32 i, i32 k, bool across) {
    u32 start = (u32)(descriptor & 0x3fff) << 4, wide = (u32)(descriptor >> 32 & 0x3fff) << 4;
    if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0) abort();
    u32 at = across ? start + (u32)(k / 8) * wide + (u32)(k % 8) * 128 + (u32)i * 2
                    : start + (u32)(i / 8) * wide + (u32)(i % 8) * 128 + (u32)k * 2;
    at ^= (at >> 7 & 7) << 4;
    u16 x;
    if (at + 2 > sizeof dynamic_memory) abort();
    memcpy(&x, dynamic_memory + at, 2);
    return x;
}

static u32 left[4096][4];

template <class E> struct Products {
    static void sum(f32 (&d)[32], f32 (*a)(i32, i32), u64 at, u64 b, bool across, i32 add) {
        i32 t = current & 127, row = t / 32 * 16 + t % 32 / 4;
        for (i32 i = 0; i < 32; i++) {
            i32 r = row + (i >> 1 & 1) * 8, c = i / 4 * 8 + t % 4 * 2 + (i & 1);
            double s = add ? d[i] : 0.0;
            for (i32 k = 0; k < 16; k++) {
                f32 x = a ? a(r, k) : E::number(element(at, r, k, false));
                s += (double)x * E::number(element(b, c, k, across));
            }
            d[i] = (f32)s;
        }
    }
    static f32 given(i32 r, i32 k) {
        i32 thread = (i32)(current / 128 * 128) + r / 16 * 32 + r % 8 * 4 + k % 8 / 2;
        u32 x = left[thread][(k >= 8) * 2 + (r % 16 >= 8)];
        return E::number((u16)(x >> k % 2 * 16));
    }
    static void tiles(f32 (&d)[32], u64 a, u64 b, i32 add) { sum(d, nullptr, a, b, false, add); }
    static void registers(f32 (&d)[32], const u32 *a, u64 b, bool across, i32 add) {
        memcpy(left[current], a, 16);
        pass();
        sum(d, given, 0, b, across, add);
        pass();
    }
    static void columns(f32 (&d)[32], const u32 *a, u64 b, i32 add) { registers(d, a, b, true, add); }
};

struct Bf16 : Products<Bf16> {
    static f32 number(u16 x) { return bf16_f32(x); }
    static u32 pair(f32 low, f32 high) { return f32_bf16(low) | (u32)f32_bf16(high) << 16; }
    static f32 low(u32 x) { return bf16_f32((u16)x); }
    static f32 high(u32 x) { return bf16_f32((u16)(x >> 16)); }
};
struct Half : Products<Half> {
    static f32 number(u16 x) { return f16_f32(x); }
    static u32 pair(f32 low, f32 high) { return f32_f16(low) | (u32)f32_f16(high) << 16; }
    static f32 low(u32 x) { return f16_f32((u16)x); }
    static f32 high(u32 x) { return f16_f32((u16)(x >> 16)); }
};
