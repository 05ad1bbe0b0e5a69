/* Tensors in files, windows and pyramids over streams, lists of a program's values, data used where it lies, the version. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>

static vsla_tensor_t *vector(const double *data, uint64_t n) {
  vsla_tensor_t *t;
  OK(vsla_tensor_create(VSLA_F64, VSLA_MODEL_A, 1, &n, data, n * sizeof(double), &t));
  return t;
}

static void files(void) {
  char path[64], name[8];
  const double a[] = {1, 2, 0}, b[] = {3};
  vsla_tensor_t *t[2] = {vector(a, 3), vector(b, 1)}, *back;
  const char *names[2] = {"second", "first"};
  vsla_archive_t *archive;
  size_t count, needed;
  uint32_t equal;
  snprintf(path, sizeof path, "/tmp/vsla-files-%p.safetensors", (void *)path);
  OK(vsla_save(path, names, (const vsla_tensor_t *const *)t, 2));
  OK(vsla_load(path, &archive));
  OK(vsla_archive_count(archive, &count));
  HOLDS(count == 2);
  for (size_t i = 0; i < count; i++) {
    OK(vsla_archive_name(archive, i, name, sizeof name, &needed));
    HOLDS(needed == strlen(name) + 1 && (!strcmp(name, "first") || !strcmp(name, "second")));
  }
  OK(vsla_archive_tensor(archive, "second", &back));
  OK(vsla_tensor_equal(back, t[0], &equal));
  HOLDS(equal == 1);
  uint64_t shape;
  size_t rank;
  OK(vsla_tensor_shape(back, &rank, &shape, 1));
  HOLDS(rank == 1 && shape == 3); /* the logical shape, though the zero isn't stored */
  OK(vsla_tensor_destroy(back));
  BAD(vsla_archive_tensor(archive, "third", &back));
  HOLDS(strstr(vsla_get_last_error_string(), "first"));
  BAD(vsla_archive_name(archive, 2, name, sizeof name, &needed));
  BAD(vsla_load("/nowhere/at/all", &archive));
  BAD(vsla_load(NULL, &archive));
  BAD(vsla_save(path, NULL, (const vsla_tensor_t *const *)t, 2));
  BAD(vsla_save("/nowhere/at/all", names, (const vsla_tensor_t *const *)t, 2));
  OK(vsla_archive_destroy(archive));
  for (int i = 0; i < 2; i++) OK(vsla_tensor_destroy(t[i]));
  remove(path);
}

static void windows(void) {
  vsla_window_t *window;
  vsla_pyramid_t *pyramid;
  vsla_tensor_t *out, *levels[3];
  uint64_t sizes[3] = {2, 2, 2}, shape[4];
  size_t rank, count, made[3] = {0, 0, 0};
  BAD(vsla_window_create(0, 1, &window));
  OK(vsla_window_create(3, 2, &window));
  for (int i = 0; i < 7; i++) {
    double x = i;
    vsla_tensor_t *t = vector(&x, 1);
    OK(vsla_window_push(window, t, &out));
    HOLDS((out != NULL) == (i == 2 || i == 4 || i == 6));
    if (out) {
      OK(vsla_tensor_shape(out, &rank, shape, 4));
      HOLDS(rank == 2 && shape[0] == 3 && shape[1] == 1);
      double read[3];
      OK(vsla_tensor_read(out, read, sizeof read));
      HOLDS(read[0] == i - 2 && read[2] == i);
      OK(vsla_tensor_destroy(out));
    }
    OK(vsla_tensor_destroy(t));
  }
  OK(vsla_window_destroy(window));
  OK(vsla_pyramid_create(sizes, 3, &pyramid));
  for (int i = 0; i < 8; i++) {
    double x = i;
    vsla_tensor_t *t = vector(&x, 1);
    BAD(vsla_pyramid_push(pyramid, t, levels, 2, &count));
    OK(vsla_pyramid_push(pyramid, t, levels, 3, &count));
    for (size_t k = 0; k < count; k++) {
      OK(vsla_tensor_shape(levels[k], &rank, shape, 4));
      HOLDS(rank == k + 2);
      made[k]++;
      OK(vsla_tensor_destroy(levels[k]));
    }
    OK(vsla_tensor_destroy(t));
  }
  HOLDS(made[0] == 4 && made[1] == 2 && made[2] == 1);
  BAD(vsla_window_push((vsla_window_t *)pyramid, NULL, &out));
  OK(vsla_pyramid_destroy(pyramid));
}

static void values(void) {
  vsla_graph_t *g;
  vsla_program_t *p;
  vsla_backend_t *backend;
  vsla_stream_t *stream;
  vsla_plan_t *plan;
  vsla_bindings_t *bound;
  uint64_t n = 5;
  uint32_t x, w, y, ids[4], dtype, kind;
  size_t count, needed;
  char name[4];
  OK(vsla_graph_create(&g));
  OK(vsla_graph_value(g, VSLA_TENSOR_INPUT, VSLA_F32, VSLA_MODEL_A, 1, &n, NULL, "data", &x));
  OK(vsla_graph_value(g, VSLA_TENSOR_PARAM, VSLA_F32, VSLA_MODEL_A, 1, &n, NULL, NULL, &w));
  OK(vsla_graph_node(g, VSLA_OP_HADAMARD, (uint32_t[]){x, w}, 2, NULL, &y, 1));
  OK(vsla_graph_output(g, y));
  OK(vsla_program_build(g, &p));
  OK(vsla_graph_destroy(g));
  OK(vsla_program_values(p, VSLA_TENSOR_INPUT, ids, 4, &count));
  HOLDS(count == 1 && ids[0] == x);
  OK(vsla_program_values(p, VSLA_TENSOR_PARAM, ids, 4, &count));
  HOLDS(count == 1 && ids[0] == w);
  OK(vsla_program_values(p, VSLA_TENSOR_OUTPUT, ids, 4, &count));
  HOLDS(count == 1 && ids[0] == y);
  OK(vsla_program_values(p, VSLA_TENSOR_OUTPUT, NULL, 0, &count));
  BAD(vsla_program_values(p, 3, ids, 4, &count));
  OK(vsla_program_value_name(p, x, name, sizeof name, &needed));
  HOLDS(needed == 5 && !strcmp(name, "dat"));
  OK(vsla_program_value_kind(p, y, &dtype, &kind));
  HOLDS(dtype == VSLA_F32 && kind == VSLA_MODEL_A);

  /* Data is used where it lies; an output over its input is copied. */
  OK(vsla_backend_create_cpu(1, &backend));
  OK(vsla_backend_create_stream(backend, &stream));
  OK(vsla_program_plan(p, backend, &plan));
  OK(vsla_program_bind(plan, NULL, &bound));
  float weights[5] = {1, 2, 3, 4, 5}, data[5] = {1, 1, 1, 1, 1}, result[5], again[5];
  OK(vsla_bindings_write(bound, w, weights, sizeof weights));
  vsla_io_t in = {1, &x, (void *[]){data}, (size_t[]){sizeof data}};
  vsla_io_t out = {1, &y, (void *[]){result}, (size_t[]){sizeof result}};
  vsla_io_t over = {1, &y, (void *[]){data}, (size_t[]){sizeof data}};
  OK(vsla_program_execute(plan, bound, &in, &out, stream));
  HOLDS(result[4] == 5);
  BAD(vsla_program_execute(plan, bound, NULL, &out, stream)); /* the input was lent to one run */
  BAD(vsla_bindings_read(bound, y, again, sizeof again));         /* and the output written elsewhere */
  OK(vsla_program_execute(plan, bound, &in, &over, stream));
  HOLDS(data[0] == 1 && data[4] == 5);
  OK(vsla_program_execute(plan, bound, &in, &over, stream));
  HOLDS(data[3] == 16 && data[4] == 25);
  OK(vsla_bindings_write(bound, x, weights, sizeof weights));
  OK(vsla_program_execute(plan, bound, NULL, NULL, stream));
  OK(vsla_bindings_read(bound, y, again, sizeof again));
  HOLDS(again[2] == 9);
  OK(vsla_bindings_destroy(bound));
  OK(vsla_plan_destroy(plan));
  OK(vsla_backend_destroy_stream(stream));
  OK(vsla_backend_destroy(backend));
  OK(vsla_program_destroy(p));
}

int main(void) {
  HOLDS(!strcmp(vsla_version(), VSLA_VERSION));
  files();
  windows();
  values();
  OK(vsla_ops_clear());
  HOLDS(vsla_live_handles() == 0);
  printf("%d failures\n", failures);
  return failures != 0;
}
