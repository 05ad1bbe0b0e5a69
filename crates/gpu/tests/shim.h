// CUDA's words for a host compiler: threads of a block are fibers that pass control at each barrier.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>

#define D static inline
#define __global__
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct Dim {
    unsigned x;
};
static Dim threadIdx, blockIdx, gridDim;

template <class To, class From> static inline To same_bits(From x) {
    To y;
    static_assert(sizeof x == sizeof y, "equal sizes");
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
static inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return same_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return same_bits<double>(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }

static double erfinv(double y) {
    if (y != y || fabs(y) > 1) return NAN;
    if (fabs(y) == 1) return y * INFINITY;
    if (y == 0) return y;
    const double pi = 3.14159265358979323846, a = 0.147;
    double ln = log1p(-y * y), t = 2 / (pi * a) + ln / 2;
    double x = copysign(sqrt(sqrt(t * t - ln / a) - t), y);
    for (int i = 0; i < 4; i++) {
        double err = fabs(y) > 0.5 ? copysign(1.0, y) * ((1 - fabs(y)) - erfc(fabs(x))) : erf(x) - y;
        double step = err / (2 / sqrt(pi) * exp(-x * x));
        x -= step / (1 + x * step);
    }
    return x;
}
static inline float erfinvf(float x) { return (float)erfinv((double)x); }

static std::vector<ucontext_t> fibers;
static std::vector<char> ended;
static std::vector<std::vector<char>> stacks;
static ucontext_t home;
static unsigned current;
static unsigned rounds;
static unsigned long long slots[4096];

static void pass() { swapcontext(&fibers[current], &home); }
static inline void __syncthreads() { pass(); }
static inline void __syncwarp() { pass(); }
template <class T> static T __shfl_sync(unsigned, T v, int lane) {
    memcpy(&slots[current], &v, sizeof v);
    pass();
    T r;
    memcpy(&r, &slots[current / 32 * 32 + lane], sizeof r);
    pass();
    return r;
}
template <class T> static T __shfl_up_sync(unsigned, T v, int d) {
    memcpy(&slots[current], &v, sizeof v);
    pass();
    T r = v;
    if ((int)(current % 32) >= d) memcpy(&r, &slots[current - d], sizeof r);
    pass();
    return r;
}
// The radix template's words.
static unsigned lanes_alike(unsigned x) {
    slots[current] = x;
    pass();
    unsigned mask = 0;
    for (unsigned i = 0; i < 32; i++) mask |= (unsigned)(slots[current / 32 * 32 + i] == x) << i;
    pass();
    return mask;
}
static inline void count_one(unsigned *p) { ++*p; }
template <class T> static T __shfl_xor_sync(unsigned, T v, int x) {
    memcpy(&slots[current], &v, sizeof v);
    pass();
    T r;
    memcpy(&r, &slots[current ^ x], sizeof r);
    pass();
    return r;
}

typedef void (*Entry)(unsigned char **, long long *);
static Entry entry;
static unsigned char **pointers;
static long long *given;

static void fiber() {
    entry(pointers, given);
    ended[current] = 1;
    swapcontext(&fibers[current], &home);
}

static void run_block(unsigned threads, bool waits) {
    if (!waits) {
        for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) entry(pointers, given);
        return;
    }
    fibers.resize(threads);
    stacks.resize(threads);
    ended.assign(threads, 0);
    for (unsigned t = 0; t < threads; t++) {
        stacks[t].resize(64 << 10);
        getcontext(&fibers[t]);
        fibers[t].uc_stack.ss_sp = stacks[t].data();
        fibers[t].uc_stack.ss_size = stacks[t].size();
        fibers[t].uc_link = &home;
        makecontext(&fibers[t], fiber, 0);
    }
    for (bool any = true; any;) {
        any = false;
        rounds++;
        for (unsigned t = 0; t < threads; t++)
            if (!ended[t]) {
                any = true;
                current = t;
                threadIdx.x = t;
                swapcontext(&home, &fibers[t]);
            }
    }
}

static long long number() {
    long long x;
    if (fread(&x, 8, 1, stdin) != 1) exit(2);
    return x;
}

// From stdin: how many launches; for each the kernel, threads, blocks, whether threads wait, sizes, regions with their bytes, and
// arguments as region and offset. To stdout: all regions as they are afterwards.
static int serve(const Entry *table) {
    for (long long n = number(); n > 0; n--) {
        entry = table[number()];
        unsigned threads = (unsigned)number();
        gridDim.x = (unsigned)number();
        bool waits = number() != 0;
        std::vector<long long> sizes((size_t)number());
        for (auto &s : sizes) s = number();
        std::vector<std::pair<unsigned char *, size_t>> regions((size_t)number());
        for (auto &r : regions) {
            r.second = (size_t)number();
            r.first = (unsigned char *)aligned_alloc(256, (r.second + 256) / 256 * 256);
            if (r.second && fread(r.first, 1, r.second, stdin) != r.second) return 2;
        }
        std::vector<unsigned char *> args((size_t)number());
        for (auto &a : args) {
            size_t region = (size_t)number();
            a = regions[region].first + number();
        }
        pointers = args.data();
        given = sizes.data();
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) run_block(threads, waits);
        for (auto &r : regions) {
            fwrite(r.first, 1, r.second, stdout);
            free(r.first);
        }
    }
    return 0;
}
