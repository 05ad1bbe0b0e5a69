/* How programs run: in memory of the caller's, on streams, through the caller's functions, in a shared arena (§7.4, §10.2,
 * §11). */
#include "check.h"

#include <stdlib.h>

enum { N = 24, BATCH = 6 };

/* y = softmax(x w) w, with x of BATCH rows. */
struct model {
  vsla_program_t *program;
  uint32_t x, w, y;
};

static struct model model(void) {
  struct model m;
  vsla_graph_t *g;
  uint64_t rows[] = {BATCH, N}, square[] = {N, N};
  uint32_t a, b;
  OK(vsla_graph_create(&g));
  OK(vsla_graph_value(g, VSLA_TENSOR_INPUT, VSLA_F64, VSLA_MODEL_A, 2, rows, NULL, "x", &m.x));
  OK(vsla_graph_value(g, VSLA_TENSOR_PARAM, VSLA_F64, VSLA_MODEL_A, 2, square, NULL, "w", &m.w));
  OK(vsla_graph_node(g, VSLA_OP_MATMUL, (uint32_t[]){m.x, m.w}, 2, NULL, &a, 1));
  OK(vsla_graph_node(g, VSLA_OP_SOFTMAX, &a, 1, NULL, &b, 1));
  OK(vsla_graph_node(g, VSLA_OP_MATMUL, (uint32_t[]){b, m.w}, 2, NULL, &m.y, 1));
  OK(vsla_graph_output(g, m.y));
  OK(vsla_program_build(g, &m.program));
  OK(vsla_graph_destroy(g));
  return m;
}

static double data_x[BATCH * N], data_w[N * N], want[BATCH * N], grad_want[N * N], ones[BATCH * N];

static void fill(void) {
  for (int i = 0; i < BATCH * N; i++) data_x[i] = (i * 37 % 101) / 50.0 - 1.0, ones[i] = 1.0;
  for (int i = 0; i < N * N; i++) data_w[i] = (i * 53 % 89) / 45.0 - 1.0;
}

#define IO(id, at) ((vsla_io_t){1, &(id), (void *[]){at}, (size_t[]){sizeof(at)}})
static vsla_io_t both(const struct model *m) {
  static uint32_t ids[2];
  static void *data[2] = {data_x, data_w};
  static size_t bytes[2] = {sizeof data_x, sizeof data_w};
  ids[0] = m->x, ids[1] = m->w;
  return (vsla_io_t){2, ids, data, bytes};
}

/* What runs give in memory of the system. */
static void reference(const struct model *m, vsla_backend_t *backend, vsla_stream_t *stream) {
  vsla_plan_t *plan;
  vsla_bindings_t *b;
  vsla_backward_t *back;
  vsla_backward_plan_t *bp;
  vsla_ad_bindings_t *ad;
  vsla_io_t in = both(m), out = IO(m->y, want), seed = IO(m->y, ones), grads = IO(m->w, grad_want);
  OK(vsla_program_plan(m->program, backend, &plan));
  OK(vsla_program_bind(plan, NULL, &b));
  OK(vsla_program_execute(plan, b, &in, &out, stream));
  OK(vsla_autograd_build_backward(m->program, 0, &back));
  OK(vsla_autograd_plan_backward(back, backend, &bp));
  OK(vsla_autograd_bind(bp, NULL, &ad));
  OK(vsla_autograd_execute(bp, ad, &in, NULL, &seed, &grads, stream));
  OK(vsla_ad_bindings_destroy(ad));
  OK(vsla_backward_plan_destroy(bp));
  OK(vsla_backward_destroy(back));
  OK(vsla_bindings_destroy(b));
  OK(vsla_plan_destroy(plan));
}

/* A block from malloc, exactly as large as asked for: valgrind sees every byte beyond it. */
struct block {
  char *raw, *at;
};
static struct block block(size_t bytes) {
  struct block k;
  k.raw = malloc(bytes + 64);
  k.at = k.raw + (64 - (uintptr_t)k.raw % 64);
  return k;
}

static void blocks(const struct model *m, vsla_backend_t *backend, vsla_stream_t *stream) {
  vsla_plan_t *plan;
  vsla_bindings_t *b, *shared;
  size_t bytes = 0, without = 0;
  double got[BATCH * N];
  vsla_io_t in = both(m), out = IO(m->y, got);
  OK(vsla_program_plan(m->program, backend, &plan));
  BAD(vsla_plan_memory_bytes(plan, 0, NULL));
  BAD(vsla_plan_memory_bytes(NULL, 0, &bytes));
  OK(vsla_plan_memory_bytes(plan, 0, &bytes));
  OK(vsla_plan_memory_bytes(plan, 1, &without));
  HOLDS(bytes == without + sizeof data_w);
  uint64_t sum = 0, one;
  for (uint32_t c = VSLA_ARENA_PARAMS; c <= VSLA_ARENA_EXTERNAL; c++) {
    OK(vsla_plan_arena_size(plan, c, &one));
    sum += one;
  }
  HOLDS(sum == bytes);

  struct block k = block(bytes), l = block(without);
  char need[32];
  snprintf(need, sizeof need, "%zu bytes are needed", bytes);
  BAD(vsla_program_bind_in(plan, NULL, k.at, bytes - 1, &b));
  HOLDS(strstr(vsla_get_last_error_string(), need) != NULL);
  BAD(vsla_program_bind_in(plan, NULL, NULL, bytes, &b));
  BAD(vsla_program_bind_in(plan, NULL, k.at + 8, bytes, &b));
  HOLDS(strstr(vsla_get_last_error_string(), "aligned to 64") != NULL);
  BAD(vsla_program_bind_in(NULL, NULL, k.at, bytes, &b));
  BAD(vsla_program_bind_in(plan, NULL, k.at, bytes, NULL));
  OK(vsla_program_bind_in(plan, NULL, k.at, bytes, &b));
  OK(vsla_program_execute(plan, b, &in, &out, stream));
  HOLDS(memcmp(got, want, sizeof got) == 0);
  OK(vsla_program_bind_in(plan, b, l.at, without, &shared));
  memset(got, 0, sizeof got);
  vsla_io_t only_x = IO(m->x, data_x);
  OK(vsla_program_execute(plan, shared, &only_x, &out, stream));
  HOLDS(memcmp(got, want, sizeof got) == 0);
  OK(vsla_bindings_destroy(shared));
  OK(vsla_bindings_destroy(b));
  free(l.raw);

  /* Training in one block: activations, gradients and workspace too. */
  vsla_backward_t *back;
  vsla_backward_plan_t *bp;
  vsla_ad_bindings_t *ad;
  double grad[N * N];
  vsla_io_t seed = IO(m->y, ones), grads = IO(m->w, grad);
  OK(vsla_autograd_build_backward(m->program, 0, &back));
  OK(vsla_autograd_plan_backward(back, backend, &bp));
  OK(vsla_autograd_memory_bytes(bp, 0, &bytes));
  BAD(vsla_autograd_memory_bytes(bp, 0, NULL));
  char text[4096];
  size_t needed;
  OK(vsla_autograd_report(bp, text, sizeof text, &needed));
  HOLDS(strstr(text, "GRADS") != NULL && needed < sizeof text);
  free(k.raw);
  k = block(bytes);
  BAD(vsla_autograd_bind_in(bp, NULL, k.at, bytes - 64, &ad));
  BAD(vsla_autograd_bind_in(bp, NULL, k.at + 1, bytes, &ad));
  OK(vsla_autograd_bind_in(bp, NULL, k.at, bytes, &ad));
  for (int i = 0; i < 3; i++) {
    memset(grad, 0, sizeof grad);
    OK(vsla_autograd_execute(bp, ad, &in, NULL, &seed, &grads, stream));
    HOLDS(memcmp(grad, grad_want, sizeof grad) == 0);
  }
  OK(vsla_ad_bindings_destroy(ad));
  free(k.raw);
  OK(vsla_backward_plan_destroy(bp));
  OK(vsla_backward_destroy(back));
  OK(vsla_plan_destroy(plan));
}

static void streams(const struct model *m, vsla_backend_t *backend) {
  vsla_stream_t *s[2];
  vsla_event_t *event;
  vsla_plan_t *plan;
  vsla_bindings_t *b[2];
  static double got[2][BATCH * N], third[BATCH * N];
  BAD(vsla_backend_create_async_stream(NULL, &s[0]));
  BAD(vsla_backend_create_async_stream(backend, NULL));
  BAD(vsla_event_create(NULL));
  OK(vsla_event_create(&event));
  OK(vsla_program_plan(m->program, backend, &plan));
  vsla_io_t in = both(m), out[2] = {IO(m->y, got[0]), IO(m->y, got[1])};
  uint32_t happened = 9;
  for (int i = 0; i < 2; i++) {
    OK(vsla_backend_create_async_stream(backend, &s[i]));
    OK(vsla_program_bind(plan, NULL, &b[i]));
  }
  for (int round = 0; round < 20; round++) {
    memset(got, 0, sizeof got);
    for (int i = 0; i < 2; i++) OK(vsla_program_execute(plan, b[i], &in, &out[i], s[i]));
    for (int i = 0; i < 2; i++) OK(vsla_backend_synchronize(s[i]));
    for (int i = 0; i < 2; i++) HOLDS(memcmp(got[i], want, sizeof want) == 0);
  }
  /* The second stream's input is the first one's output: an event orders them. */
  OK(vsla_link(b[0], m->y, b[1], m->x));
  vsla_io_t last = IO(m->y, third);
  for (int round = 0; round < 5; round++) {
    OK(vsla_program_execute(plan, b[0], &in, NULL, s[0]));
    OK(vsla_event_record(event, s[0]));
    OK(vsla_stream_wait_event(s[1], event));
    OK(vsla_program_execute(plan, b[1], NULL, &last, s[1]));
    OK(vsla_event_synchronize(event));
    OK(vsla_event_query(event, &happened));
    HOLDS(happened == 1);
    OK(vsla_backend_synchronize(s[1]));
  }
  HOLDS(memcmp(third, want, sizeof want) != 0 && third[0] == third[0]);
  BAD(vsla_event_query(event, NULL));
  BAD(vsla_event_record(NULL, s[0]));
  BAD(vsla_event_record(event, NULL));
  BAD(vsla_stream_wait_event(s[0], (vsla_event_t *)plan));

  /* What is wrong with the call is said at once, what goes wrong later at the next synchronisation. */
  vsla_io_t wrong = {1, &m->x, (void *[]){data_x}, (size_t[]){8}};
  BAD(vsla_program_execute(plan, (vsla_bindings_t *)plan, &in, NULL, s[0]));
  BAD(vsla_program_execute(plan, b[0], &(vsla_io_t){1, NULL, NULL, NULL}, NULL, s[0]));
  OK(vsla_program_execute(plan, b[0], &wrong, NULL, s[0]));
  OK(vsla_program_execute(plan, b[0], &in, NULL, s[0]));
  BAD(vsla_backend_synchronize(s[0]));
  OK(vsla_backend_synchronize(s[0]));
  /* Handles may go before their runs; destroying a stream waits for it. */
  memset(got, 0, sizeof got);
  OK(vsla_program_execute(plan, b[0], &in, &out[0], s[0]));
  OK(vsla_bindings_destroy(b[0]));
  OK(vsla_bindings_destroy(b[1]));
  OK(vsla_plan_destroy(plan));
  OK(vsla_backend_destroy_stream(s[0]));
  HOLDS(memcmp(got[0], want, sizeof want) == 0);
  OK(vsla_backend_destroy_stream(s[1]));
  BAD(vsla_backend_synchronize(s[1]));
  OK(vsla_event_destroy(event));
}

/* A caller's backend that counts. */
struct device {
  size_t live, bytes, launched, replays, graphs, synchronized;
  int refuse, skip, disorder;
};

static void *take(size_t bytes, size_t alignment, void *ctx) {
  struct device *d = ctx;
  char *raw = malloc(bytes + alignment + sizeof(void *) + sizeof(size_t));
  char *at = raw + sizeof(void *) + sizeof(size_t);
  at += (alignment - (uintptr_t)at % alignment) % alignment;
  memcpy(at - sizeof(void *), &raw, sizeof raw);
  memcpy(at - sizeof(void *) - sizeof(size_t), &bytes, sizeof bytes);
  d->live++;
  d->bytes += bytes;
  return at;
}
static void give(void *ptr, void *ctx) {
  struct device *d = ctx;
  char *raw;
  size_t bytes;
  memcpy(&raw, (char *)ptr - sizeof(void *), sizeof raw);
  memcpy(&bytes, (char *)ptr - sizeof(void *) - sizeof(size_t), sizeof bytes);
  free(raw);
  d->live--;
  d->bytes -= bytes;
}
static void copy(void *dst, const void *src, size_t bytes, void *ctx) {
  (void)ctx;
  memcpy(dst, src, bytes);
}
static void zero(void *dst, size_t bytes, void *ctx) {
  (void)ctx;
  memset(dst, 0, bytes);
}
static uint32_t launch(const vsla_segment_t *segment, void *ctx) {
  struct device *d = ctx;
  d->launched++;
  if (d->refuse) return VSLA_ERR_BACKEND_ERROR;
  if (d->skip && segment->index == 1) return VSLA_ERR_OK;
  if (segment->index >= segment->count || strlen(segment->name) == 0) failures++;
  if (d->disorder) return vsla_segment_run(segment->index + 1);
  return vsla_segment_run(segment->index);
}
static uint32_t finished(void *ctx) {
  ((struct device *)ctx)->synchronized++;
  return VSLA_ERR_OK;
}
static uint32_t record(const vsla_segment_t *segments, size_t count, void **graph, void *ctx) {
  struct device *d = ctx;
  if (d->refuse) return VSLA_ERR_OOM;
  d->graphs++;
  size_t *g = malloc(sizeof *g);
  *g = count == segments[count - 1].count ? count : 0;
  *graph = g;
  return VSLA_ERR_OK;
}
static uint32_t replay(void *graph, size_t count, void *ctx) {
  struct device *d = ctx;
  d->replays++;
  if (*(size_t *)graph != count) return VSLA_ERR_UNKNOWN;
  for (size_t i = 0; i < count - (d->skip ? 1 : 0); i++) {
    vsla_error_t e = vsla_segment_run(i);
    if (e != VSLA_ERR_OK) return e;
  }
  return VSLA_ERR_OK;
}
static void forget(void *graph, void *ctx) {
  ((struct device *)ctx)->graphs--;
  free(graph);
}

static void devices(const struct model *m) {
  struct device d = {0};
  vsla_backend_vtable_t t = {take, give, copy, copy, zero, launch, finished, record, replay, forget};
  vsla_backend_t *backend;
  vsla_stream_t *stream;
  vsla_plan_t *plan;
  vsla_bindings_t *b;
  vsla_profile_t *profile;
  double got[BATCH * N] = {0};
  vsla_io_t in = both(m), out = IO(m->y, got);
  OK(vsla_backend_create_custom(&t, &d, 2, &backend));
  OK(vsla_backend_create_async_stream(backend, &stream));
  OK(vsla_program_plan(m->program, backend, &plan));
  OK(vsla_program_bind(plan, NULL, &b));
  size_t bytes, segments;
  vsla_segment_t first;
  OK(vsla_plan_memory_bytes(plan, 0, &bytes));
  OK(vsla_plan_segment(plan, 0, &first));
  segments = first.count;
  HOLDS(segments > 1);
  /* All memory of the bindings came through the table: parameters, data, activations, workspace. */
  HOLDS(d.bytes >= bytes && d.bytes <= bytes + 4 * 64);
  size_t live = d.live;
  OK(vsla_program_execute(plan, b, &in, &out, stream));
  OK(vsla_backend_synchronize(stream));
  HOLDS(memcmp(got, want, sizeof want) == 0 && d.launched == segments && d.synchronized == 1 && d.live == live);
  d.refuse = 1;
  OK(vsla_program_execute(plan, b, &in, &out, stream));
  EXPECT(VSLA_ERR_BACKEND_ERROR, vsla_backend_synchronize(stream));
  d.refuse = 0, d.skip = 1;
  OK(vsla_program_execute(plan, b, &in, &out, stream));
  EXPECT(VSLA_ERR_BACKEND_ERROR, vsla_backend_synchronize(stream));
  d.skip = 0, d.disorder = 1;
  OK(vsla_program_execute(plan, b, &in, &out, stream));
  EXPECT(VSLA_ERR_BACKEND_ERROR, vsla_backend_synchronize(stream));
  d.disorder = 0;

  /* A recorded profile is replayed. */
  OK(vsla_profile_compile(m->program, backend, NULL, &profile));
  d.refuse = 1;
  EXPECT(VSLA_ERR_BACKEND_ERROR, vsla_profile_record(profile));
  d.refuse = 0;
  OK(vsla_profile_record(profile));
  d.launched = 0;
  for (int i = 0; i < 3; i++) {
    memset(got, 0, sizeof got);
    OK(vsla_profile_run(profile, &in, &out, stream));
    OK(vsla_backend_synchronize(stream));
    HOLDS(memcmp(got, want, sizeof want) == 0);
  }
  HOLDS(d.replays == 3 && d.launched == 0 && d.graphs == 1);
  d.skip = 1;
  OK(vsla_profile_run(profile, &in, &out, stream));
  EXPECT(VSLA_ERR_BACKEND_ERROR, vsla_backend_synchronize(stream));
  OK(vsla_profile_destroy(profile));
  OK(vsla_bindings_destroy(b));
  OK(vsla_plan_destroy(plan));
  OK(vsla_backend_destroy_stream(stream));
  OK(vsla_backend_destroy(backend));
  HOLDS(d.graphs == 0 && d.live == 0 && d.bytes == 0);

  /* Runs of the caller's in memory of the system. */
  vsla_backend_vtable_t only = {.launch_segment = launch};
  d.skip = 0;
  OK(vsla_backend_create_custom(&only, &d, 1, &backend));
  OK(vsla_backend_create_stream(backend, &stream));
  OK(vsla_program_plan(m->program, backend, &plan));
  OK(vsla_program_bind(plan, NULL, &b));
  OK(vsla_program_execute(plan, b, &in, &out, stream));
  HOLDS(memcmp(got, want, sizeof want) == 0 && d.launched == segments);
  OK(vsla_bindings_destroy(b));
  OK(vsla_plan_destroy(plan));
  OK(vsla_backend_destroy_stream(stream));
  OK(vsla_backend_destroy(backend));
}

/* Four programs in a chain, in one arena. */
static void shared_arenas(const struct model *m, vsla_backend_t *backend, vsla_stream_t *stream) {
  enum { STAGES = 4 };
  vsla_plan_t *plan;
  vsla_shared_arena_t *arena;
  vsla_bindings_t *b[STAGES], *alone[STAGES];
  vsla_stage_link_t links[STAGES - 1];
  const vsla_plan_t *plans[STAGES];
  OK(vsla_program_plan(m->program, backend, &plan));
  for (int i = 0; i < STAGES; i++) plans[i] = plan;
  for (int i = 0; i + 1 < STAGES; i++) links[i] = (vsla_stage_link_t){(size_t)i, (size_t)i + 1, m->y, m->x};
  BAD(vsla_shared_arena_create(plans, STAGES, links, 3, NULL));
  BAD(vsla_shared_arena_create(NULL, STAGES, links, 3, &arena));
  BAD(vsla_shared_arena_create((const vsla_plan_t *[]){plan, NULL}, 2, NULL, 0, &arena));
  BAD(vsla_shared_arena_create(plans, STAGES, &(vsla_stage_link_t){2, 1, m->y, m->x}, 1, &arena));
  BAD(vsla_shared_arena_create(plans, STAGES, &(vsla_stage_link_t){0, 9, m->y, m->x}, 1, &arena));
  BAD(vsla_shared_arena_create(plans, STAGES, &(vsla_stage_link_t){0, 1, m->x, m->y}, 1, &arena));
  OK(vsla_shared_arena_create(plans, STAGES, links, STAGES - 1, &arena));
  size_t bytes = 0, one = 0;
  uint64_t params, external;
  OK(vsla_shared_arena_bytes(arena, &bytes));
  OK(vsla_plan_memory_bytes(plan, 0, &one));
  OK(vsla_plan_arena_size(plan, VSLA_ARENA_PARAMS, &params));
  OK(vsla_plan_arena_size(plan, VSLA_ARENA_EXTERNAL, &external));
  HOLDS(bytes == one + (STAGES - 1) * params); /* parameters of all, the rest of one */
  BAD(vsla_shared_arena_bind(arena, backend, b, STAGES - 1));
  BAD(vsla_shared_arena_bind(arena, NULL, b, STAGES));
  struct block k = block(bytes);
  BAD(vsla_shared_arena_bind_in(arena, k.at, bytes - 1, b, STAGES));
  BAD(vsla_shared_arena_bind_in(arena, k.at + 16, bytes, b, STAGES));
  for (int where = 0; where < 2; where++) {
    if (where == 0) OK(vsla_shared_arena_bind(arena, backend, b, STAGES));
    else OK(vsla_shared_arena_bind_in(arena, k.at, bytes, b, STAGES));
    double got[BATCH * N], expected[BATCH * N];
    vsla_io_t first = IO(m->x, data_x), next = IO(m->x, expected), keep = IO(m->y, expected), out = IO(m->y, got);
    for (int i = 0; i < STAGES; i++) {
      OK(vsla_program_bind(plan, NULL, &alone[i]));
      OK(vsla_bindings_write(b[i], m->w, data_w, sizeof data_w));
      OK(vsla_bindings_write(alone[i], m->w, data_w, sizeof data_w));
    }
    for (int round = 0; round < 3; round++) {
      for (int i = 0; i < STAGES; i++) {
        OK(vsla_program_execute(plan, b[i], i == 0 ? &first : NULL, i + 1 == STAGES ? &out : NULL, stream));
        OK(vsla_program_execute(plan, alone[i], i == 0 ? &first : &next, &keep, stream));
      }
      HOLDS(memcmp(got, expected, sizeof got) == 0);
    }
    for (int i = 0; i < STAGES; i++) {
      OK(vsla_bindings_destroy(b[i]));
      OK(vsla_bindings_destroy(alone[i]));
    }
  }
  free(k.raw);
  OK(vsla_shared_arena_destroy(arena));
  OK(vsla_plan_destroy(plan));
}

int main(void) {
  vsla_backend_t *backend;
  vsla_stream_t *stream;
  OK(vsla_backend_create_cpu(2, &backend));
  OK(vsla_backend_create_stream(backend, &stream));
  struct model m = model();
  fill();
  reference(&m, backend, stream);
  blocks(&m, backend, stream);
  streams(&m, backend);
  devices(&m);
  shared_arenas(&m, backend, stream);
  OK(vsla_program_destroy(m.program));
  OK(vsla_backend_destroy_stream(stream));
  OK(vsla_backend_destroy(backend));
  if (vsla_live_handles() != 0) failures++;
  printf("%d failures\n", failures);
  return failures != 0;
}
