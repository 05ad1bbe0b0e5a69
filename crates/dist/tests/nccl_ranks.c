// NCCL's functions for ranks that are threads of one process: a stand-in for machines that have one GPU, or none. Without a GPU
// addresses are the host's; with SHIM_CUDA set they are the device's and go through the driver.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char b[128]; } id;
enum { MOST = 16, CALLS = 4096 };

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t turn;
    int ranks, here, gone;
    long round;
    char *slot[MOST];      // what each rank has brought
    size_t bytes[MOST];
    // Sends of a group call, by (from, to), in order.
    struct { int to; char *data; size_t bytes; } sent[MOST][CALLS];
    int count[MOST];
} room;

typedef struct { room *r; int me; } comm;

static pthread_mutex_t all = PTHREAD_MUTEX_INITIALIZER;
static struct { char name[128]; room *r; } rooms[256];
static int known, ids;

static int (*d2h)(void *, uint64_t, size_t);
static int (*h2d)(uint64_t, const void *, size_t);
static int (*settle)(void *);

static void begin(void) {
    static int done;
    pthread_mutex_lock(&all);
    if (!done && getenv("SHIM_CUDA")) {
        void *lib = dlopen("libcuda.so.1", RTLD_NOW);
        d2h = (int (*)(void *, uint64_t, size_t))dlsym(lib, "cuMemcpyDtoH_v2");
        h2d = (int (*)(uint64_t, const void *, size_t))dlsym(lib, "cuMemcpyHtoD_v2");
        settle = (int (*)(void *))dlsym(lib, "cuStreamSynchronize");
    }
    done = 1;
    pthread_mutex_unlock(&all);
}

static char *take(const void *from, size_t n, void *stream) {
    char *own = malloc(n ? n : 1);
    if (d2h) {
        if (settle(stream) || d2h(own, (uint64_t)from, n)) memset(own, 0x55, n);
    } else memcpy(own, from, n);
    return own;
}

static void give(void *to, const char *own, size_t n) {
    if (h2d) h2d((uint64_t)to, own, n);
    else memcpy(to, own, n);
}

int ncclGetUniqueId(id *out) {
    pthread_mutex_lock(&all);
    memset(out, 0, sizeof *out);
    snprintf(out->b, sizeof out->b, "group %d", ++ids);
    pthread_mutex_unlock(&all);
    return 0;
}

const char *ncclGetErrorString(int code) { return code == 7 ? "a rank is gone" : "a stand-in's error"; }

int ncclCommInitRank(void **out, int n, id name, int me) {
    begin();
    if (n > MOST || me >= n || !name.b[0]) return 4;
    pthread_mutex_lock(&all);
    room *r = 0;
    for (int i = 0; i < known; i++) if (!memcmp(rooms[i].name, name.b, 128)) r = rooms[i].r;
    if (!r && known < 256) {
        r = calloc(1, sizeof *r);
        pthread_mutex_init(&r->lock, 0);
        pthread_cond_init(&r->turn, 0);
        r->ranks = n;
        memcpy(rooms[known].name, name.b, 128);
        rooms[known++].r = r;
    }
    pthread_mutex_unlock(&all);
    if (!r || r->ranks != n) return 4;
    comm *c = malloc(sizeof *c);
    c->r = r;
    c->me = me;
    *out = c;
    return 0;
}

int ncclCommDestroy(void *c) { free(c); return 0; }

int ncclCommAbort(void *v) {
    comm *c = v;
    pthread_mutex_lock(&c->r->lock);
    c->r->gone = 1;
    pthread_cond_broadcast(&c->r->turn);
    pthread_mutex_unlock(&c->r->lock);
    return 0;
}

// Waits until all ranks are here.
static int meet(comm *c) {
    room *r = c->r;
    pthread_mutex_lock(&r->lock);
    long round = r->round;
    if (r->gone) {
        pthread_mutex_unlock(&r->lock);
        return 7;
    }
    if (++r->here == r->ranks) {
        r->here = 0;
        r->round++;
        pthread_cond_broadcast(&r->turn);
    }
    while (round == r->round && !r->gone) pthread_cond_wait(&r->turn, &r->lock);
    int gone = round == r->round;
    pthread_mutex_unlock(&r->lock);
    return gone ? 7 : 0;
}

static size_t size(int d) {
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return d < 10 ? sizes[d] : 0;
}

static float half(uint16_t h) {
    int e = h >> 10 & 31, m = h & 1023;
    float x = e == 0 ? m * 0x1p-24f : e == 31 ? (m ? 0.0f / 0.0f : 1.0f / 0.0f) : (1024 + m) * (float)(e > 25 ? (double)(1 << (e - 25)) : 1.0 / (1 << (25 - e)));
    return h >> 15 ? -x : x;
}

static uint16_t to_half(double x) {
    // To nearest, ties to even, by counting up from below.
    uint16_t sign = __builtin_signbit(x) ? 0x8000 : 0;
    double a = sign ? -x : x;
    if (x != x) return 0x7e00;
    if (a >= 65520) return sign | 0x7c00;
    uint16_t low = 0, high = 0x7bff;
    while (low < high) {
        uint16_t mid = low + (high - low + 1) / 2;
        if (half(mid) <= a) low = mid; else high = mid - 1;
    }
    double d = a - half(low), up = (low == 0x7bff ? 65536.0 : half(low + 1)) - a;
    if (d > up || (d == up && (low & 1))) low++;
    return sign | low;
}

static float brain(uint16_t h) { uint32_t u = (uint32_t)h << 16; float x; memcpy(&x, &u, 4); return x; }

static uint16_t to_brain(float x) {
    uint32_t u; memcpy(&u, &x, 4);
    if (x != x) return 0x7fc0;
    return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

#define FOLD(T, GET, PUT) { for (size_t i = 0; i < n; i++) { \
    double x = 0; \
    for (int k = 0; k < r->ranks; k++) { double y = GET(((T *)r->slot[k])[at + i]); \
        x = k == 0 ? y : op == 0 ? x + y : op == 2 ? (y > x || y != y ? y : x) : (y < x || y != y ? y : x); } \
    ((T *)out)[i] = PUT(x); } return; }
#define WHOLE(T) { for (size_t i = 0; i < n; i++) { \
    T x = ((T *)r->slot[0])[at + i]; \
    for (int k = 1; k < r->ranks; k++) { T y = ((T *)r->slot[k])[at + i]; \
        x = op == 0 ? (T)(x + y) : op == 2 ? (y > x ? y : x) : (y < x ? y : x); } \
    ((T *)out)[i] = x; } return; }
#define SAME(x) (x)

static void fold(room *r, size_t at, size_t n, int d, int op, char *out) {
    switch (d) {
        case 0: WHOLE(int8_t)
        case 1: WHOLE(uint8_t)
        case 2: WHOLE(int32_t)
        case 3: WHOLE(uint32_t)
        case 4: WHOLE(int64_t)
        case 5: WHOLE(uint64_t)
        case 6: FOLD(uint16_t, half, to_half)
        case 7: FOLD(float, SAME, SAME)
        case 8: FOLD(double, SAME, SAME)
        case 9: FOLD(uint16_t, brain, to_brain)
    }
}

static int together(comm *c, const void *from, size_t bytes, void *stream) {
    c->r->slot[c->me] = take(from, bytes, stream);
    return meet(c);
}

static int apart(comm *c) {
    int code = meet(c);
    free(c->r->slot[c->me]);
    return code;
}

int ncclAllReduce(const void *f, void *t, size_t n, int d, int o, void *v, void *s) {
    comm *c = v;
    if (together(c, f, n * size(d), s)) return 7;
    char *own = malloc(n * size(d) + 1);
    fold(c->r, 0, n, d, o, own);
    give(t, own, n * size(d));
    free(own);
    return apart(c);
}

int ncclReduceScatter(const void *f, void *t, size_t n, int d, int o, void *v, void *s) {
    comm *c = v;
    if (together(c, f, n * c->r->ranks * size(d), s)) return 7;
    char *own = malloc(n * size(d) + 1);
    fold(c->r, n * c->me, n, d, o, own);
    give(t, own, n * size(d));
    free(own);
    return apart(c);
}

int ncclAllGather(const void *f, void *t, size_t n, int d, void *v, void *s) {
    comm *c = v;
    size_t bytes = n * size(d);
    if (together(c, f, bytes, s)) return 7;
    for (int k = 0; k < c->r->ranks; k++) give((char *)t + k * bytes, c->r->slot[k], bytes);
    return apart(c);
}

// Sends and receives of a group call meet at its end.
static __thread struct { void *to; size_t bytes; int peer; } wanted[CALLS];
static __thread int wants, depth;
static __thread comm *talking;

int ncclGroupStart(void) { depth++; return 0; }

int ncclSend(const void *f, size_t n, int d, int peer, void *v, void *s) {
    comm *c = v;
    room *r = c->r;
    char *data = take(f, n * size(d), s);
    pthread_mutex_lock(&r->lock);
    int k = r->count[c->me];
    if (k < CALLS && depth) {
        r->sent[c->me][k].to = peer;
        r->sent[c->me][k].bytes = n * size(d);
        r->sent[c->me][k].data = data;
        r->count[c->me]++;
    }
    pthread_mutex_unlock(&r->lock);
    talking = c;
    return k < CALLS && depth ? 0 : 4;
}

int ncclRecv(void *t, size_t n, int d, int peer, void *v, void *s) {
    // What was given to the stream before may still use the memory.
    if (settle) settle(s);
    if (wants == CALLS || !depth) return 4;
    wanted[wants].to = t;
    wanted[wants].bytes = n * size(d);
    wanted[wants++].peer = peer;
    talking = v;
    return 0;
}

// Ranks that neither send nor receive take no part, so a sender waits for nobody: what was sent lies here until it is taken.
int ncclGroupEnd(void) {
    comm *c = talking;
    depth--;
    if (!c) return 0;
    talking = 0;
    room *r = c->r;
    pthread_mutex_lock(&r->lock);
    pthread_cond_broadcast(&r->turn);
    for (int w = 0; w < wants; w++) {
        for (;;) {
            int peer = wanted[w].peer, k = 0;
            while (k < r->count[peer] && r->sent[peer][k].to != c->me) k++;
            if (k < r->count[peer]) {
                if (r->sent[peer][k].bytes != wanted[w].bytes) { pthread_mutex_unlock(&r->lock); return 4; }
                give(wanted[w].to, r->sent[peer][k].data, wanted[w].bytes);
                free(r->sent[peer][k].data);
                memmove(&r->sent[peer][k], &r->sent[peer][k + 1], (r->count[peer] - k - 1) * sizeof r->sent[peer][k]);
                r->count[peer]--;
                break;
            }
            if (r->gone) { wants = 0; pthread_mutex_unlock(&r->lock); return 7; }
            pthread_cond_wait(&r->turn, &r->lock);
        }
    }
    wants = 0;
    pthread_mutex_unlock(&r->lock);
    return 0;
}
