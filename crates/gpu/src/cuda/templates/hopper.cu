// Hopper's matrix instructions and asynchronous copies.
//
// A *tile* is 64 rows of 64 elements of 16 bits in shared memory, 8 KiB, from an address that is a multiple of 1024: piece c (of 16
// bytes) of row r stands at piece c ^ (r & 7). That is the layout that `wgmma` calls a swizzle of 128 bytes, and reads both ways:
// along rows (the sum runs over a row's elements) and across (it runs over rows). Wider matrices are several tiles side by side.
//
// A warp group (128 threads) multiplies 64 rows. Thread t holds, of a 64 x 64 result, rows 16 (t / 32) + t % 32 / 4 and 8 below, and
// columns 8 j + 2 (t % 4) and the next: d[4 j], d[4 j + 1] of the first row, d[4 j + 2], d[4 j + 3] of the second. Left operands in
// registers have the same places, so a result becomes the next product's operand where it is.
#ifndef TENSORLOOM_HOPPER
#define TENSORLOOM_HOPPER

#define TILE 8192

// The address as the instructions want it.
#ifdef __CUDA_ARCH__
#define SHARED_MEMORY(name) extern __shared__ __align__(1024) u8 name[]
D u32 shared_at(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// 16 bytes to shared memory, or zeros.
D void copy16(u32 to, const void* from, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
D void copy4(u32 to, const void* from, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid ? 4 : 0) : "memory");
}
D void copies_given() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the last N groups of this thread's copies are there.
template <int N> D void copies_done() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
// What ordinary writes wrote is seen by matrix instructions after the next barrier.
D void shown_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

D void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
D void products_given() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> D void products_done() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

// Gates (`mbarrier`): `count` passes open one, then it counts anew; whoever waits names the parity of the opening.
D void gate_set(u32 at, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory"); }
D void gate_pass(u32 at) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
D void gate_wait(u32 at, u32 parity) {
    asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}" ::"r"(at), "r"(parity)
                 : "memory");
}
// Registers go from the group that loads to the G groups that multiply.
template <int G> D void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(G == 2 ? 24 : 32)); }
template <int G> D void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(G == 2 ? 240 : 160)); }

D f32 power_of_2(f32 x) {
    f32 r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

#define RESULTS(d)                                                                                                               \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),      \
        "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]),     \
        "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),     \
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define RESULT_NAMES                                                                                                             \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, " \
    "%26, %27, %28, %29, %30, %31}"
// d = a b (+ d): 64 x 16 times 16 x 64. `tiles`: both from tiles, along rows. `columns`: a from registers, b's
// tile across.
#define PRODUCTS(TYPE)                                                                                                           \
    D void tiles(f32 (&d)[32], u64 a, u64 b, i32 add) {                                                                   \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE       \
                     " " RESULT_NAMES ", %32, %33, p, 1, 1, 0, 0;\n}"                                                            \
                     : RESULTS(d)                                                                                                \
                     : "l"(a), "l"(b), "r"(add));                                                                                \
    }                                                                                                                            \
    D void columns(f32 (&d)[32], const u32* a, u64 b, i32 add) {                                                          \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE       \
                     " " RESULT_NAMES ", {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"                                              \
                     : RESULTS(d)                                                                                                \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                                            \
    }

struct Bf16 {
    D u32 pair(f32 low, f32 high) {
        u32 r;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
        return r;
    }
    D f32 low(u32 x) { return real(x << 16); }
    D f32 high(u32 x) { return real(x & 0xffff0000u); }
    PRODUCTS("bf16")
};
struct Half {
    D u32 pair(f32 low, f32 high) {
        u32 r;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
        return r;
    }
    D f32 low(u32 x) { return f16_f32((u16)x); }
    D f32 high(u32 x) { return f16_f32((u16)(x >> 16)); }
    PRODUCTS("f16")
};
#endif

// A tile for an operand: 16 columns of its rows from `at`, or, across, 16 of its rows. 8 rows are 1024 bytes.
D u64 operand(u32 at) { return (u64)(at & 0x3ffff) >> 4 | (u64)64 << 16 | (u64)64 << 32 | (u64)1 << 62; }
// The next 16 columns, the next 16 rows.
#define COLUMNS_ON(k) ((k) * 2)
#define ROWS_ON(k) ((k) * 128)

// Rows of `width` elements, a multiple of 8, to P tiles side by side; what is beyond `rows` or `width` is 0.
template <int P, int THREADS> D void load_rows(u32 tiles, const u16* from, i32 rows, i32 width) {
#pragma unroll
    for (i32 i = 0; i < (64 * 8 * P + THREADS - 1) / THREADS; i++) {
        const i32 c = i * THREADS + (i32)threadIdx.x;
        if (64 * 8 * P % THREADS != 0 && c >= 64 * 8 * P) break;
        const i32 row = c / (8 * P), panel = c / 8 % P, piece = c % 8, column = panel * 64 + piece * 8;
        const bool valid = row < rows && column < width;
        copy16(tiles + panel * TILE + row * 128 + ((piece ^ (row & 7)) << 4), valid ? from + row * width + column : from, valid);
    }
}

// A warp group's result, P tiles wide, rounded; pieces of 16 bytes are put together by neighbours.
template <class E, int P> D void store_rows(u16* to, const f32 (&d)[P][32], f32 first, f32 second, i32 rows, i32 width) {
    const i32 t = threadIdx.x & 127, row = t / 32 * 16 + t % 32 / 4, q = t % 4;
#pragma unroll
    for (i32 p = 0; p < P; p++)
#pragma unroll
        for (i32 half = 0; half < 2; half++)
#pragma unroll
            for (i32 j = 0; j < 8; j += 4) {
                const f32 factor = half ? second : first;
                u32 own[4], all[4];
#pragma unroll
                for (i32 i = 0; i < 4; i++) {
                    const f32 x = d[p][4 * (j + i) + 2 * half], y = d[p][4 * (j + i) + 2 * half + 1];
                    own[i] = E::pair(x * factor, y * factor);
                }
                // Thread q gathers piece j + q: in round s it gives away what neighbour q ^ s wants.
#pragma unroll
                for (i32 s = 0; s < 4; s++) {
                    const i32 w = q ^ s;
                    const u32 given = w == 0 ? own[0] : w == 1 ? own[1] : w == 2 ? own[2] : own[3];
                    const u32 got = s == 0 ? given : __shfl_xor_sync(0xffffffffu, given, s);
                    if (w == 0) all[0] = got;
                    if (w == 1) all[1] = got;
                    if (w == 2) all[2] = got;
                    if (w == 3) all[3] = got;
                }
                const i32 r = row + 8 * half, column = p * 64 + (j + q) * 8;
                if (r < rows && column < width) *(Vec<u32, 4>*)(to + r * width + column) = {{all[0], all[1], all[2], all[3]}};
            }
}

#endif
