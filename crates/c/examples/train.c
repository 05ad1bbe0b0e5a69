/* Learns a filter: finds w such that conv(x, w) is the signal that an unknown filter made of x.
 *
 *   cc -I include examples/train.c -ltensorloom_vsla -lm -o train && ./train
 */
#include "tensorloom_vsla.h"

#include <math.h>
#include <stdio.h>

#define CHECK(call)                                                                       \
  do {                                                                                    \
    vsla_error_t e = (call);                                                              \
    if (e != VSLA_ERR_OK) {                                                               \
      fprintf(stderr, "%s: %d: %s\n", #call, (int)e, vsla_get_last_error_string());       \
      return 1;                                                                           \
    }                                                                                     \
  } while (0)

enum { N = 48, TAPS = 5, M = N + TAPS - 1 };

int main(void) {
  /* The program: loss = sum((conv(x, w) - t)^2). */
  vsla_graph_t *graph;
  CHECK(vsla_graph_create(&graph));
  uint64_t n[] = {N}, m[] = {M}, taps[] = {TAPS};
  uint32_t x, t, w, y, gap, square, loss;
  CHECK(vsla_graph_value(graph, VSLA_TENSOR_INPUT, VSLA_F64, VSLA_MODEL_A, 1, n, NULL, "x", &x));
  CHECK(vsla_graph_value(graph, VSLA_TENSOR_INPUT, VSLA_F64, VSLA_MODEL_A, 1, m, NULL, "t", &t));
  CHECK(vsla_graph_value(graph, VSLA_TENSOR_PARAM, VSLA_F64, VSLA_MODEL_A, 1, taps, NULL, "w", &w));
  CHECK(vsla_graph_node(graph, VSLA_OP_CONV1D, (uint32_t[]){x, w}, 2, NULL, &y, 1));
  CHECK(vsla_graph_node(graph, VSLA_OP_SUB, (uint32_t[]){y, t}, 2, NULL, &gap, 1));
  CHECK(vsla_graph_node(graph, VSLA_OP_HADAMARD, (uint32_t[]){gap, gap}, 2, NULL, &square, 1));
  CHECK(vsla_graph_node(graph, VSLA_OP_SUM, (uint32_t[]){square}, 1, &(vsla_attrs_t){.axis = 0}, &loss, 1));
  CHECK(vsla_graph_output(graph, loss));
  vsla_program_t *program;
  CHECK(vsla_program_build(graph, &program));

  /* Forward and backward, planned once. */
  vsla_backend_t *backend;
  vsla_stream_t *stream;
  vsla_backward_t *backward;
  vsla_backward_plan_t *plan;
  vsla_ad_bindings_t *bindings;
  CHECK(vsla_backend_create_cpu(2, &backend));
  CHECK(vsla_backend_create_stream(backend, &stream));
  CHECK(vsla_autograd_build_backward(program, 0, &backward));
  CHECK(vsla_autograd_plan_backward(backward, backend, &plan));
  CHECK(vsla_autograd_bind(plan, NULL, &bindings));

  /* Data: a signal, and what the filter to be found makes of it. */
  const double truth[TAPS] = {0.5, -1.0, 0.25, 0.0, 0.125};
  double signal[N], target[M] = {0}, filter[TAPS] = {0}, grad[TAPS], value, one = 1.0;
  for (int i = 0; i < N; i++) signal[i] = sin(0.7 * i) + 0.5 * cos(2.1 * i * i);
  for (int i = 0; i < N; i++)
    for (int j = 0; j < TAPS; j++) target[i + j] += signal[i] * truth[j];

  vsla_io_t in = {3, (uint32_t[]){x, t, w}, (void *[]){signal, target, filter}, (size_t[]){sizeof signal, sizeof target, sizeof filter}};
  vsla_io_t out = {1, &loss, (void *[]){&value}, (size_t[]){sizeof value}};
  vsla_io_t seed = {1, &loss, (void *[]){&one}, (size_t[]){sizeof one}};
  vsla_io_t grads = {1, &w, (void *[]){grad}, (size_t[]){sizeof grad}};
  for (int step = 0; step <= 500; step++) {
    CHECK(vsla_autograd_execute(plan, bindings, &in, &out, &seed, &grads, stream));
    if (step % 100 == 0) printf("step %3d  loss %.3e\n", step, value);
    for (int j = 0; j < TAPS; j++) filter[j] -= 0.008 * grad[j];
  }
  CHECK(vsla_backend_synchronize(stream));

  double worst = 0;
  for (int j = 0; j < TAPS; j++) worst = fmax(worst, fabs(filter[j] - truth[j]));
  printf("filter found within %.1e\n", worst);

  CHECK(vsla_ad_bindings_destroy(bindings));
  CHECK(vsla_backward_plan_destroy(plan));
  CHECK(vsla_backward_destroy(backward));
  CHECK(vsla_program_destroy(program));
  CHECK(vsla_graph_destroy(graph));
  CHECK(vsla_backend_destroy_stream(stream));
  CHECK(vsla_backend_destroy(backend));
  printf("%zu handles left\n", vsla_live_handles());
  return worst < 1e-6 && vsla_live_handles() == 0 ? 0 : 1;
}
