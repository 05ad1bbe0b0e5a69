/* Misuse of every kind: each error code is raised, nothing crashes, nothing leaks (§13). */
#include "check.h"

/* Memory functions of the caller: counted, and spoilt on demand. */
struct memory {
  int live, calls, copies, fail, skew;
};

static void *mem_alloc(size_t bytes, size_t alignment, void *ctx) {
  struct memory *m = ctx;
  m->calls++;
  if (m->fail) return NULL;
  m->live++;
  char *raw = malloc(bytes + alignment + 64 + sizeof(void *));
  char *at = raw + sizeof(void *);
  at += (alignment - (uintptr_t)at % alignment) % alignment;
  if (m->skew) at += 8;
  memcpy(at - sizeof(void *), &raw, sizeof raw);
  return at;
}
static void mem_free(void *ptr, void *ctx) {
  char *raw;
  memcpy(&raw, (char *)ptr - sizeof(void *), sizeof raw);
  free(raw);
  ((struct memory *)ctx)->live--;
}
static void mem_copy(void *dst, const void *src, size_t bytes, void *ctx) {
  ((struct memory *)ctx)->copies++;
  memcpy(dst, src, bytes);
}
static void mem_zero(void *dst, size_t bytes, void *ctx) {
  (void)ctx;
  memset(dst, 0, bytes);
}
static uint32_t replay(void *graph, size_t count, void *ctx) {
  (void)graph, (void)count, (void)ctx;
  return 0;
}

static vsla_program_t *doubler(uint64_t n, uint32_t *x, uint32_t *y) {
  vsla_graph_t *g;
  vsla_program_t *p = NULL;
  OK(vsla_graph_create(&g));
  OK(vsla_graph_value(g, VSLA_TENSOR_INPUT, VSLA_F32, VSLA_MODEL_A, 1, &n, NULL, "x", x));
  OK(vsla_graph_node(g, VSLA_OP_MUL_SCALAR, x, 1, &(vsla_attrs_t){.value = 2}, y, 1));
  OK(vsla_graph_output(g, *y));
  OK(vsla_program_build(g, &p));
  OK(vsla_graph_destroy(g));
  return p;
}

static void graphs(void) {
  vsla_graph_t *g;
  vsla_program_t *p;
  uint64_t two[] = {2, 2};
  uint32_t a, b, c;
  BAD(vsla_graph_create(NULL));
  OK(vsla_graph_create(&g));
  BAD(vsla_graph_value(NULL, 0, VSLA_F32, VSLA_MODEL_A, 1, two, NULL, NULL, &a));
  BAD(vsla_graph_value(g, 0, VSLA_F32, VSLA_MODEL_A, 1, two, NULL, NULL, NULL));
  BAD(vsla_graph_value(g, 0, VSLA_F32, VSLA_MODEL_A, 1, NULL, NULL, NULL, &a));
  BAD(vsla_graph_value(g, 7, VSLA_F32, VSLA_MODEL_A, 1, two, NULL, NULL, &a));
  BAD(vsla_graph_value(g, 0, 99, VSLA_MODEL_A, 1, two, NULL, NULL, &a));
  BAD(vsla_graph_value(g, 0, VSLA_F32, 5, 1, two, NULL, NULL, &a));
  BAD(vsla_graph_value(g, 0, VSLA_F32, VSLA_MODEL_A, 1, two, NULL, "\xff\xfe", &a));
  OK(vsla_graph_value(g, VSLA_TENSOR_INPUT, VSLA_F32, VSLA_MODEL_A, 1, two, NULL, "a", &a));
  OK(vsla_graph_value(g, VSLA_TENSOR_INPUT, VSLA_F32, VSLA_MODEL_B, 1, two, NULL, "b", &b));
  BAD(vsla_graph_node(g, 1000, &a, 1, NULL, &c, 1));
  BAD(vsla_graph_node(g, VSLA_OP_RELU, NULL, 1, NULL, &c, 1));
  BAD(vsla_graph_node(g, VSLA_OP_RELU, &a, 1, NULL, NULL, 1));
  BAD(vsla_graph_node(g, VSLA_OP_RESHAPE, &a, 1, &(vsla_attrs_t){.list_len = 3}, &c, 1));
  BAD(vsla_graph_checkpoint(g, 77));
  /* No outputs; then mixed models; both break the rules of programs. */
  EXPECT(VSLA_ERR_INVALID_PROGRAM, vsla_program_build(g, &p));
  OK(vsla_graph_node(g, VSLA_OP_ADD, (uint32_t[]){a, b}, 2, NULL, &c, 1));
  OK(vsla_graph_output(g, c));
  EXPECT(VSLA_ERR_INVALID_PROGRAM, vsla_program_build(g, &p));
  OK(vsla_graph_destroy(g));
  BAD(vsla_graph_destroy(g));
  BAD(vsla_program_build(g, &p));

  /* A cycle, an id that names nothing, dtypes that differ, a capacity below the shape. */
  OK(vsla_graph_create(&g));
  OK(vsla_graph_value(g, VSLA_TENSOR_INPUT, VSLA_F32, VSLA_MODEL_A, 1, two, NULL, "a", &a));
  OK(vsla_graph_node(g, VSLA_OP_ADD, (uint32_t[]){a, a + 2}, 2, NULL, &b, 1));
  OK(vsla_graph_node(g, VSLA_OP_RELU, &b, 1, NULL, &c, 1));
  OK(vsla_graph_output(g, c));
  EXPECT(VSLA_ERR_INVALID_PROGRAM, vsla_program_build(g, &p));
  if (strstr(vsla_get_last_error_string(), "cycle") == NULL) failures++;
  OK(vsla_graph_destroy(g));
  OK(vsla_graph_create(&g));
  OK(vsla_graph_value(g, VSLA_TENSOR_INPUT, VSLA_F32, VSLA_MODEL_A, 1, two, NULL, "a", &a));
  OK(vsla_graph_node(g, VSLA_OP_ADD, (uint32_t[]){a, 41}, 2, NULL, &b, 1));
  OK(vsla_graph_output(g, b));
  EXPECT(VSLA_ERR_INVALID_PROGRAM, vsla_program_build(g, &p));
  OK(vsla_graph_destroy(g));
  OK(vsla_graph_create(&g));
  OK(vsla_graph_value(g, VSLA_TENSOR_INPUT, VSLA_F32, VSLA_MODEL_A, 1, two, NULL, "a", &a));
  OK(vsla_graph_value(g, VSLA_TENSOR_INPUT, VSLA_F64, VSLA_MODEL_A, 1, two, NULL, "b", &b));
  OK(vsla_graph_node(g, VSLA_OP_ADD, (uint32_t[]){a, b}, 2, NULL, &c, 1));
  OK(vsla_graph_output(g, c));
  EXPECT(VSLA_ERR_INVALID_PROGRAM, vsla_program_build(g, &p));
  OK(vsla_graph_destroy(g));
  OK(vsla_graph_create(&g));
  BAD(vsla_graph_numerics(g, 0, 3));
  BAD(vsla_graph_numerics(NULL, 0, 0));
  OK(vsla_graph_numerics(g, 1, VSLA_CONV_FFT));
  OK(vsla_graph_value(g, VSLA_TENSOR_INPUT, VSLA_F32, VSLA_MODEL_A, 1, two, (uint64_t[]){1}, "a", &a));
  OK(vsla_graph_output(g, a));
  EXPECT(VSLA_ERR_INVALID_PROGRAM, vsla_program_build(g, &p));
  OK(vsla_graph_destroy(g));

  /* Ranks that don't fit. */
  OK(vsla_graph_create(&g));
  OK(vsla_graph_value(g, VSLA_TENSOR_INPUT, VSLA_F32, VSLA_MODEL_A, 1, two, NULL, "a", &a));
  OK(vsla_graph_value(g, VSLA_TENSOR_INPUT, VSLA_F32, VSLA_MODEL_A, 2, two, NULL, "b", &b));
  OK(vsla_graph_node(g, VSLA_OP_ADD, (uint32_t[]){a, b}, 2, NULL, &c, 1));
  OK(vsla_graph_output(g, c));
  EXPECT(VSLA_ERR_INVALID_SHAPE, vsla_program_build(g, &p));
  BAD(vsla_program_build(g, NULL));
  OK(vsla_graph_destroy(g));

  /* Sizes that overflow, and rank 0. */
  uint64_t huge[] = {1ull << 62, 1ull << 62};
  OK(vsla_graph_create(&g));
  OK(vsla_graph_value(g, VSLA_TENSOR_INPUT, VSLA_F64, VSLA_MODEL_A, 2, huge, NULL, "a", &a));
  OK(vsla_graph_output(g, a));
  EXPECT(VSLA_ERR_INVALID_PROGRAM, vsla_program_build(g, &p));
  OK(vsla_graph_destroy(g));
  OK(vsla_graph_create(&g));
  OK(vsla_graph_value(g, VSLA_TENSOR_INPUT, VSLA_F64, VSLA_MODEL_A, 0, NULL, NULL, "a", &a));
  OK(vsla_graph_output(g, a));
  EXPECT(VSLA_ERR_INVALID_PROGRAM, vsla_program_build(g, &p));
  OK(vsla_graph_destroy(g));
}

static void planning(vsla_backend_t *backend) {
  /* Five values of 2^46 bytes: each can be addressed, their arena can't. */
  vsla_graph_t *g;
  vsla_program_t *p;
  vsla_plan_t *plan;
  uint64_t huge = 1ull << 43;
  uint32_t x, y[5];
  OK(vsla_graph_create(&g));
  for (int i = 0; i < 5; i++) {
    OK(vsla_graph_value(g, VSLA_TENSOR_INPUT, VSLA_F64, VSLA_MODEL_A, 1, &huge, NULL, NULL, &x));
    OK(vsla_graph_node(g, VSLA_OP_SLICE, &x, 1,
                       &(vsla_attrs_t){.list = (uint64_t[]){0}, .list_len = 1, .list2 = (uint64_t[]){1}, .list2_len = 1},
                       &y[i], 1));
    OK(vsla_graph_output(g, y[i]));
  }
  OK(vsla_program_build(g, &p));
  EXPECT(VSLA_ERR_PLANNING_FAILED, vsla_program_plan(p, backend, &plan));
  OK(vsla_program_destroy(p));
  OK(vsla_graph_destroy(g));

  /* One of them can be planned, but not had. */
  uint32_t v, w;
  vsla_bindings_t *b;
  p = doubler(15ull << 40, &v, &w);
  OK(vsla_program_plan(p, backend, &plan));
  EXPECT(VSLA_ERR_OOM, vsla_program_bind(plan, NULL, &b));
  OK(vsla_plan_destroy(plan));
  OK(vsla_program_destroy(p));
}

static void running(vsla_backend_t *backend, vsla_stream_t *stream) {
  uint32_t x, y, x2, y2;
  vsla_program_t *p = doubler(3, &x, &y), *q = doubler(4, &x2, &y2);
  vsla_plan_t *plan, *other;
  vsla_bindings_t *b, *ob;
  BAD(vsla_program_plan(NULL, backend, &plan));
  BAD(vsla_program_plan(p, NULL, &plan));
  BAD(vsla_program_plan(p, (vsla_backend_t *)p, &plan)); /* a handle of another kind */
  BAD(vsla_program_plan(p, backend, NULL));
  OK(vsla_program_plan(p, backend, &plan));
  OK(vsla_program_plan(q, backend, &other));
  OK(vsla_program_bind(plan, NULL, &b));
  OK(vsla_program_bind(other, NULL, &ob));
  float in[4] = {1, 2, 3, 4}, out[4] = {0};
  BAD(vsla_bindings_write(b, x, in, sizeof in));
  BAD(vsla_bindings_write(b, 55, in, 12));
  BAD(vsla_bindings_write(b, x, NULL, 12));
  BAD(vsla_bindings_read(b, y, out, 4));
  BAD(vsla_bindings_seed(b, 1));
  BAD(vsla_program_execute(plan, ob, NULL, NULL, stream)); /* bindings of another plan */
  BAD(vsla_program_execute(plan, b, NULL, NULL, NULL));
  vsla_io_t lists = {1, NULL, NULL, NULL};
  BAD(vsla_program_execute(plan, b, &lists, NULL, stream));
  BAD(vsla_link(b, y, b, x));
  EXPECT(VSLA_ERR_INVALID_SHAPE, vsla_link(b, y, ob, x2));
  BAD(vsla_link(b, x, ob, x2));
  BAD(vsla_program_bind(plan, (vsla_bindings_t *)plan, &ob));
  uint64_t bytes;
  size_t rank, needed;
  BAD(vsla_plan_arena_size(plan, 9, &bytes));
  OK(vsla_plan_arena_size(plan, VSLA_ARENA_EXTERNAL, &bytes));
  uint32_t class;
  uint64_t offset;
  vsla_segment_t segment;
  OK(vsla_plan_value(plan, y, &class, &offset, &bytes));
  if (class != VSLA_ARENA_EXTERNAL || offset != 64 || bytes != 12) failures++;
  BAD(vsla_plan_value(plan, 99, &class, &offset, &bytes));
  BAD(vsla_plan_value(plan, y, NULL, &offset, &bytes));
  OK(vsla_plan_segment(plan, 0, &segment));
  if (segment.count != 1 || segment.fused != 1 || strncmp(segment.name, "kernel", 6) != 0) failures++;
  BAD(vsla_plan_segment(plan, 1, &segment));
  BAD(vsla_plan_segment(plan, 0, NULL));
  OK(vsla_plan_arena_size(plan, VSLA_ARENA_EXTERNAL, &bytes));
  BAD(vsla_program_shape(p, 99, &rank, NULL, 0));
  OK(vsla_program_shape(p, y, &rank, NULL, 0));
  char text[40];
  OK(vsla_plan_report(plan, text, sizeof text, &needed));
  if (rank != 1 || bytes != 128 || needed < 100 || strlen(text) != 39) failures++;

  vsla_io_t i = {1, &x, (void *[]){in}, (size_t[]){12}}, o = {1, &y, (void *[]){out}, (size_t[]){12}};
  OK(vsla_program_execute(plan, b, &i, &o, stream));
  if (out[0] != 2 || out[2] != 6) failures++;

  /* Data of another profile's size. */
  vsla_profile_t *small, *large;
  OK(vsla_profile_compile(p, backend, NULL, &small));
  OK(vsla_profile_compile(q, backend, small, &large));
  vsla_io_t i4 = {1, &x2, (void *[]){in}, (size_t[]){16}}, o4 = {1, &y2, (void *[]){out}, (size_t[]){16}};
  BAD(vsla_profile_run(small, &i4, NULL, stream));
  EXPECT(VSLA_ERR_NOT_IMPLEMENTED, vsla_profile_record(small)); /* the processor records nothing */
  BAD(vsla_profile_record(NULL));
  BAD(vsla_profile_seed(small, 1)); /* nothing random in it */
  BAD(vsla_ad_bindings_seed((vsla_ad_bindings_t *)small, 1));
  OK(vsla_profile_run(large, &i4, &o4, stream));
  BAD(vsla_profile_run((vsla_profile_t *)plan, NULL, NULL, stream));
  if (out[3] != 8) failures++;

  /* Routing: the smallest that takes the data, which is promoted to its shape. */
  const vsla_profile_t *profiles[] = {small, large};
  uint64_t two = 2, four = 4, five = 5, huge = UINT64_MAX;
  size_t at = 9;
  OK(vsla_profile_route(profiles, 2, x, 1, &two, &at));
  if (at != 0) failures++;
  OK(vsla_profile_route(profiles, 2, x, 1, &four, &at));
  if (at != 1) failures++;
  EXPECT(VSLA_ERR_INVALID_SHAPE, vsla_profile_route(profiles, 2, x, 1, &five, &at));
  EXPECT(VSLA_ERR_INVALID_SHAPE, vsla_profile_route(profiles, 2, 77, 1, &two, &at));
  EXPECT(VSLA_ERR_INVALID_SHAPE, vsla_profile_route(profiles, 2, x, 1, &huge, &at));
  EXPECT(VSLA_ERR_INVALID_SHAPE, vsla_profile_route(NULL, 0, x, 1, &two, &at));
  BAD(vsla_profile_route(NULL, 2, x, 1, &two, &at));
  BAD(vsla_profile_route(profiles, 2, x, 1, NULL, &at));
  BAD(vsla_profile_route(profiles, 2, x, 1, &two, NULL));
  BAD(vsla_profile_route(profiles, 2, x, 17, (uint64_t[17]){0}, &at));
  BAD(vsla_profile_write(large, x2, 1, &two, in, 4));
  BAD(vsla_profile_write(large, 77, 1, &two, in, 8));
  EXPECT(VSLA_ERR_INVALID_SHAPE, vsla_profile_write(large, x2, 1, &five, in, 20));
  OK(vsla_profile_write(large, x2, 1, &two, in, 8));
  OK(vsla_profile_run(large, NULL, &o4, stream));
  if (out[1] != 4 || out[2] != 0 || out[3] != 0) failures++;
  OK(vsla_profile_run(large, &i4, &o4, stream));
  OK(vsla_profile_destroy(small));
  OK(vsla_profile_run(large, &i4, &o4, stream)); /* what it shared lives on */
  OK(vsla_profile_destroy(large));

  /* Gradients of nothing; freed handles. */
  vsla_backward_t *back;
  BAD(vsla_autograd_build_backward(p, 0, &back));
  OK(vsla_autograd_build_backward(p, 1, &back));
  BAD(vsla_autograd_execute((vsla_backward_plan_t *)back, NULL, NULL, NULL, NULL, NULL, stream));
  OK(vsla_backward_destroy(back));
  OK(vsla_program_destroy(p));
  OK(vsla_program_execute(plan, b, &i, &o, stream)); /* a plan keeps its program */
  OK(vsla_plan_destroy(plan));
  BAD(vsla_program_execute(plan, b, &i, &o, stream));
  BAD(vsla_plan_destroy(plan));
  BAD(vsla_plan_destroy((vsla_plan_t *)in)); /* no handle at all */
  OK(vsla_plan_destroy(NULL));
  OK(vsla_bindings_destroy(b));
  OK(vsla_bindings_destroy(ob));
  OK(vsla_plan_destroy(other));
  OK(vsla_program_destroy(q));
}

static void memory(void) {
  struct memory m = {0};
  vsla_backend_vtable_t t = {.alloc = mem_alloc, .free = mem_free, .memcpy_h2d = mem_copy, .memcpy_d2h = mem_copy,
                             .memset_zero = mem_zero};
  vsla_backend_t *backend;
  vsla_stream_t *stream;
  vsla_plan_t *plan;
  vsla_bindings_t *b;
  uint32_t x, y;
  BAD(vsla_backend_create_cpu(1, NULL));
  BAD(vsla_backend_create_cpu(1u << 30, &backend));
  BAD(vsla_backend_create_custom(NULL, &m, 1, &backend));
  vsla_backend_vtable_t part = t;
  part.memcpy_d2h = NULL;
  BAD(vsla_backend_create_custom(&part, &m, 1, &backend));
  part = t;
  part.replay_graph = replay; /* without record_graph */
  BAD(vsla_backend_create_custom(&part, &m, 1, &backend));
  BAD(vsla_segment_run(0)); /* outside of a run */
  OK(vsla_backend_create_custom(&t, &m, 1, &backend));
  OK(vsla_backend_create_stream(backend, &stream));
  vsla_program_t *p = doubler(3, &x, &y);
  OK(vsla_program_plan(p, backend, &plan));
  m.fail = 1;
  EXPECT(VSLA_ERR_OOM, vsla_program_bind(plan, NULL, &b));
  m.fail = 0;
  m.skew = 1;
  EXPECT(VSLA_ERR_BACKEND_ERROR, vsla_program_bind(plan, NULL, &b));
  m.skew = 0;
  if (m.live != 0) failures++;
  OK(vsla_program_bind(plan, NULL, &b));
  float in[3] = {1, 2, 3}, out[3] = {0};
  vsla_io_t i = {1, &x, (void *[]){in}, (size_t[]){12}}, o = {1, &y, (void *[]){out}, (size_t[]){12}};
  int calls = m.calls;
  OK(vsla_program_execute(plan, b, &i, &o, stream));
  if (out[1] != 4 || m.calls != calls || m.copies != 2 || m.live == 0) failures++;
  OK(vsla_bindings_destroy(b));
  OK(vsla_plan_destroy(plan));
  OK(vsla_program_destroy(p));
  OK(vsla_backend_destroy_stream(stream));
  OK(vsla_backend_destroy(backend));
  if (m.live != 0) failures++;
}

static void tensors(void) {
  vsla_tensor_t *a, *b, *k, *c = NULL, *d;
  uint64_t three = 3, two = 2, huge = 15ull << 40;
  double av[] = {1, 2, 3}, bv[] = {4, 5}, cv[3];
  OK(vsla_tensor_create(VSLA_F64, VSLA_MODEL_A, 1, &three, av, sizeof av, &a));
  OK(vsla_tensor_create(VSLA_F64, VSLA_MODEL_A, 1, &two, bv, sizeof bv, &b));
  OK(vsla_tensor_create(VSLA_F64, VSLA_MODEL_B, 1, &two, bv, sizeof bv, &k));
  BAD(vsla_tensor_create(VSLA_F64, VSLA_MODEL_A, 1, &two, av, sizeof av, &c));
  BAD(vsla_tensor_create(VSLA_F64, VSLA_MODEL_A, 1, &two, NULL, 16, &c));
  EXPECT(VSLA_ERR_OOM, vsla_tensor_create(VSLA_F64, VSLA_MODEL_A, 1, &huge, NULL, 0, &c));
  EXPECT(VSLA_ERR_INVALID_PROGRAM, vsla_add(a, k, &c)); /* mixed models */
  EXPECT(VSLA_ERR_INVALID_PROGRAM, vsla_kron(a, b, &c));
  EXPECT(VSLA_ERR_INVALID_PROGRAM, vsla_conv(k, k, &c));
  EXPECT(VSLA_ERR_INVALID_SHAPE, vsla_matmul(a, b, &c));
  BAD(vsla_add(a, NULL, &c));
  BAD(vsla_add(a, b, NULL));
  BAD(vsla_stack((const vsla_tensor_t *[]){a, NULL}, 2, &c));
  EXPECT(VSLA_ERR_INVALID_PROGRAM, vsla_stack(NULL, 0, &c));
  if (c != NULL) failures++; /* results are written on success alone */
  OK(vsla_add(a, b, &c));
  BAD(vsla_tensor_read(c, cv, 8));
  OK(vsla_tensor_read(c, cv, sizeof cv));
  if (cv[0] != 5 || cv[1] != 7 || cv[2] != 3) failures++;
  OK(vsla_sub(c, c, &d));
  vsla_tensor_t *s;
  OK(vsla_shrink(d, &s));
  uint64_t shape[1] = {9};
  size_t rank = 0;
  uint32_t equal = 0;
  OK(vsla_tensor_shape(s, &rank, shape, 1));
  OK(vsla_tensor_equal(d, s, &equal));
  if (rank != 1 || shape[0] != 0 || equal != 1) failures++;
  /* Any operation by its number: windows of two over three vectors, and dropout by its seed. */
  const vsla_tensor_t *three_of[] = {a, b, a};
  vsla_tensor_t *windows[2], *dropped[2];
  vsla_attrs_t by = {.size = 2, .stride = 1};
  BAD(vsla_tensor_op(999, three_of, 3, NULL, 0, windows, 2));
  BAD(vsla_tensor_op(VSLA_OP_WINDOW, three_of, 3, &by, 0, windows, 1));
  BAD(vsla_tensor_op(VSLA_OP_WINDOW, NULL, 3, &by, 0, windows, 2));
  BAD(vsla_tensor_op(VSLA_OP_WINDOW, three_of, 3, &by, 0, NULL, 2));
  EXPECT(VSLA_ERR_INVALID_PROGRAM, vsla_tensor_op(VSLA_OP_ADD, three_of, 3, NULL, 0, windows, 1));
  OK(vsla_tensor_op(VSLA_OP_WINDOW, three_of, 3, &by, 0, windows, 2));
  uint64_t sizes[2] = {0, 0}, capacity[2] = {0, 0};
  uint32_t dtype = 9, model = 9;
  OK(vsla_tensor_shape(windows[1], &rank, sizes, 2));
  OK(vsla_tensor_capacity(windows[1], capacity, 2));
  BAD(vsla_tensor_capacity(windows[1], capacity, 1));
  OK(vsla_tensor_kind(k, &dtype, &model));
  BAD(vsla_tensor_kind(k, &dtype, NULL));
  if (rank != 2 || sizes[0] != 2 || sizes[1] != 3 || capacity[1] != 4 || dtype != VSLA_F64 || model != VSLA_MODEL_B) failures++;
  vsla_attrs_t rate = {.value = 0.5};
  for (int i = 0; i < 2; i++) OK(vsla_tensor_op(VSLA_OP_DROPOUT, three_of, 1, &rate, 7, &dropped[i], 1));
  OK(vsla_tensor_equal(dropped[0], dropped[1], &equal));
  if (equal != 1) failures++;
  vsla_tensor_t *all[] = {a, b, k, c, d, s, windows[0], windows[1], dropped[0], dropped[1]};
  for (int i = 0; i < 10; i++) OK(vsla_tensor_destroy(all[i]));
  BAD(vsla_add(a, b, &c));
}

int main(void) {
  vsla_backend_t *backend;
  vsla_stream_t *stream;
  OK(vsla_backend_create_cpu(2, &backend));
  BAD(vsla_backend_create_stream(NULL, &stream));
  OK(vsla_backend_create_stream(backend, &stream));
  BAD(vsla_backend_synchronize(NULL));
  graphs();
  planning(backend);
  running(backend, stream);
  memory();
  tensors();
  OK(vsla_backend_destroy_stream(stream));
  OK(vsla_backend_destroy(backend));
  if (vsla_live_handles() != 0) failures++;
  printf("%d failures\n", failures);
  return failures != 0;
}
