/* Variable-shape tensors: programs, plans, gradients.
 *
 * Made by cbindgen from crates/c; don't edit.
 *
 * Every function that can fail returns a vsla_error_t; vsla_get_last_error_string() has the message. Results go through
 * out-pointers, written on success alone. A pointer with a count must be good for so many elements, a plain pointer for
 * one; nothing else may use what they point at during the call (or, on an asynchronous stream, before it is synchronised). Handles are opaque: null, destroyed or mistaken ones are
 * VSLA_ERR_INVALID_ARG. Handles may be used from several threads; runs over one vsla_bindings_t take turns.
 */

#ifndef TENSORLOOM_VSLA_H
#define TENSORLOOM_VSLA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* The version of this header; vsla_version() is that of the library. C99 and C++11 take it. */
#define VSLA_VERSION "0.1.0"
#define VSLA_VERSION_MAJOR 0
#define VSLA_VERSION_MINOR 1
#define VSLA_VERSION_PATCH 0

// What a call came to.
typedef enum vsla_error_t {
  // It did what it says.
  VSLA_ERR_OK = 0,
  // Out of memory.
  VSLA_ERR_OOM,
  // An argument is null, freed, or out of range.
  VSLA_ERR_INVALID_ARG,
  // Shapes don't fit the operation.
  VSLA_ERR_INVALID_SHAPE,
  // The program breaks a rule of validation.
  VSLA_ERR_INVALID_PROGRAM,
  // No memory plan could be made.
  VSLA_ERR_PLANNING_FAILED,
  // The backend failed.
  VSLA_ERR_BACKEND_ERROR,
  // This backend can't do that.
  VSLA_ERR_NOT_IMPLEMENTED,
  // A fault of the library.
  VSLA_ERR_UNKNOWN,
} vsla_error_t;

// Element types.
typedef enum vsla_dtype_t {
  // 32-bit float.
  VSLA_F32 = 0,
  // 64-bit float.
  VSLA_F64,
  // 16-bit float with 10 bits of fraction.
  VSLA_F16,
  // 16-bit float with 7 bits of fraction.
  VSLA_BF16,
} vsla_dtype_t;

// Semirings.
typedef enum vsla_model_t {
  // Addition and convolution.
  VSLA_MODEL_A = 0,
  // Addition and Kronecker product.
  VSLA_MODEL_B,
} vsla_model_t;

// Operations. The comment says which attributes each reads.
typedef enum vsla_opkind_t {
  // a + b.
  VSLA_OP_ADD = 0,
  // a - b.
  VSLA_OP_SUB,
  // a * b, elementwise.
  VSLA_OP_HADAMARD,
  // Convolution along the last axis; model A.
  VSLA_OP_CONV1D,
  // Kronecker product; model B.
  VSLA_OP_KRONECKER,
  // Softmax along the last axis.
  VSLA_OP_SOFTMAX,
  // x, gamma, beta; `value` is epsilon.
  VSLA_OP_LAYERNORM,
  // x, gamma; `value` is epsilon.
  VSLA_OP_RMSNORM,
  // Product over the last two axes.
  VSLA_OP_MATMUL,
  // max(0, x).
  VSLA_OP_RELU,
  // Gaussian error linear unit; `form` 1 is the tanh approximation.
  VSLA_OP_GELU,
  // 1 / (1 + exp(-x)).
  VSLA_OP_SIGMOID,
  // Hyperbolic tangent.
  VSLA_OP_TANH,
  // `value` is the rate.
  VSLA_OP_DROPOUT,
  // `axis`.
  VSLA_OP_SUM,
  // `axis`.
  VSLA_OP_MEAN,
  // Any number of operands of one rank.
  VSLA_OP_STACK,
  // `size` and `stride`; one result for each window.
  VSLA_OP_WINDOW,
  // `list` is the new shape.
  VSLA_OP_RESHAPE,
  // `list` is the order of the axes.
  VSLA_OP_TRANSPOSE,
  // `list` and `list2` are start and limit on each axis.
  VSLA_OP_SLICE,
  // `list` holds indices into the first axis.
  VSLA_OP_GATHER,
  // `list` holds indices into a first axis of `size`.
  VSLA_OP_SCATTER,
  // x * m, where m is constant.
  VSLA_OP_MASK,
  // exp(x).
  VSLA_OP_EXP,
  // log(x).
  VSLA_OP_LOG,
  // By `value`; or, with a second operand of shape `[1]`, by that.
  VSLA_OP_MUL_SCALAR,
  // x stacked `size` times.
  VSLA_OP_REPEAT,
  // q, k, v of shape [tokens, width]; `size` is the number of heads, `list` the lengths of the packed sequences.
  VSLA_OP_ATTENTION,
} vsla_opkind_t;

// What a value is to its program.
typedef enum vsla_valuetag_t {
  // A weight.
  VSLA_TENSOR_PARAM = 0,
  // Given for each run.
  VSLA_TENSOR_INPUT,
  // What a run gives, for `vsla_program_values`.
  VSLA_TENSOR_OUTPUT,
} vsla_valuetag_t;

// Classes of memory.
typedef enum vsla_arenaclass_t {
  // Weights.
  VSLA_ARENA_PARAMS = 0,
  // Values inside a forward run, and what it keeps for backward.
  VSLA_ARENA_ACTIVATIONS,
  // Scratch of kernels, products and routines, and the addresses of values.
  VSLA_ARENA_WORKSPACE,
  // Gradients.
  VSLA_ARENA_GRADS,
  // Inputs and outputs.
  VSLA_ARENA_EXTERNAL,
} vsla_arenaclass_t;

// How a convolution is computed.
typedef enum vsla_convpath_t {
  // The cheaper way for the lengths.
  VSLA_CONV_AUTO = 0,
  // Sums of products.
  VSLA_CONV_DIRECT,
  // Through a Fourier transform.
  VSLA_CONV_FFT,
} vsla_convpath_t;

// Memory that runs of a backward plan read and write.
typedef struct vsla_ad_bindings_t vsla_ad_bindings_t;

// The tensors of a file, in the order of their names.
typedef struct vsla_archive_t vsla_archive_t;

// Where programs run.
typedef struct vsla_backend_t vsla_backend_t;

// A planned backward program.
typedef struct vsla_backward_plan_t vsla_backward_plan_t;

// A backward program.
typedef struct vsla_backward_t vsla_backward_t;

// Memory that runs of a plan read and write.
typedef struct vsla_bindings_t vsla_bindings_t;

// A mark in a stream that others wait for.
typedef struct vsla_event_t vsla_event_t;

// A program under description.
typedef struct vsla_graph_t vsla_graph_t;

// A program's schedule and memory on a backend.
typedef struct vsla_plan_t vsla_plan_t;

// A program planned and bound for one family of shapes.
typedef struct vsla_profile_t vsla_profile_t;

// A validated program.
typedef struct vsla_program_t vsla_program_t;

// Windows over windows.
typedef struct vsla_pyramid_t vsla_pyramid_t;

// Memory of programs that run in a fixed order.
typedef struct vsla_shared_arena_t vsla_shared_arena_t;

// An order of execution.
typedef struct vsla_stream_t vsla_stream_t;

// An array up to trailing zeros. It doesn't change once it is made.
typedef struct vsla_tensor_t vsla_tensor_t;

// A window over a stream of tensors.
typedef struct vsla_window_t vsla_window_t;

// Dense row-major data of several values. `data[i]` holds `bytes[i]` bytes of value `values[i]`.
typedef struct vsla_io_t {
  // How many.
  size_t count;
  // Which values.
  const uint32_t *values;
  // Where their data is.
  void *const *data;
  // Sizes of the data.
  const size_t *bytes;
} vsla_io_t;

// A segment of a schedule: a fused kernel, a product, a routine, a copy.
typedef struct vsla_segment_t {
  // Its place in the schedule.
  size_t index;
  // Segments of the schedule.
  size_t count;
  // 1 if it is a generated kernel.
  uint32_t fused;
  // What it is, for people; ended by a zero, cut where it is too long.
  char name[64];
} vsla_segment_t;

// Functions of a caller's own backend. Each gets `ctx` last, and may be called from any thread; those that return a
// number return a `vsla_error_t`.
//
// The first five supply memory that the processor can address: all of them, or none for memory of the system. The others
// may be null. Segments are compiled for the processor: `launch_segment` and `replay_graph` decide when they run, and run
// them by `vsla_segment_run`, every segment once and in order. They must not touch the bindings or the profile that is
// running, which would wait for itself.
typedef struct vsla_backend_vtable_t {
  // Memory of so many bytes at this alignment, or null.
  void *(*alloc)(size_t bytes, size_t alignment, void *ctx);
  // Gives memory back.
  void (*free)(void *ptr, void *ctx);
  // Copies from the host.
  void (*memcpy_h2d)(void *dst, const void *src, size_t bytes, void *ctx);
  // Copies to the host.
  void (*memcpy_d2h)(void *dst, const void *src, size_t bytes, void *ctx);
  // Fills with zeros.
  void (*memset_zero)(void *dst, size_t bytes, void *ctx);
  // Runs a segment, by `vsla_segment_run(segment->index)`.
  uint32_t (*launch_segment)(const struct vsla_segment_t *segment, void *ctx);
  // Called when a stream has nothing left to do.
  uint32_t (*synchronize)(void *ctx);
  // Records a schedule, for `vsla_profile_record`; `graph` gets what `replay_graph` is given. Goes with `replay_graph`.
  uint32_t (*record_graph)(const struct vsla_segment_t *segments, size_t count, void **graph, void *ctx);
  // Runs all segments of a schedule that was recorded, by `vsla_segment_run`.
  uint32_t (*replay_graph)(void *graph, size_t count, void *ctx);
  // A recorded schedule that won't be replayed again.
  void (*destroy_graph)(void *graph, void *ctx);
} vsla_backend_vtable_t;

// Attributes of operations; those that an operation doesn't read may be anything. A null pointer is all zeros.
typedef struct vsla_attrs_t {
  // An axis; negative ones count from the back.
  int64_t axis;
  // A number.
  double value;
  // A size.
  uint64_t size;
  // A stride.
  uint64_t stride;
  // A list.
  const uint64_t *list;
  // Its length.
  size_t list_len;
  // A second list.
  const uint64_t *list2;
  // Its length.
  size_t list2_len;
  // A variant.
  uint32_t form;
} vsla_attrs_t;

// An output of one program that is an input of a later one.
typedef struct vsla_stage_link_t {
  // Position of the source in the order of execution.
  size_t from;
  // Position of the destination, later than the source.
  size_t to;
  // Output of the source.
  uint32_t source;
  // Input of the destination.
  uint32_t destination;
} vsla_stage_link_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Writes tensors under their names into a safetensors file: minimal representatives, with their logical shapes and models
// in the metadata.
enum vsla_error_t vsla_save(const char *file,
                            const char *const *names,
                            const struct vsla_tensor_t *const *tensors,
                            size_t count);

// Reads a safetensors file.
enum vsla_error_t vsla_load(const char *file, struct vsla_archive_t **out);

// Writes how many tensors a file has.
enum vsla_error_t vsla_archive_count(const struct vsla_archive_t *archive, size_t *count);

// Writes the name of a tensor, as `vsla_plan_report` writes its text.
enum vsla_error_t vsla_archive_name(const struct vsla_archive_t *archive,
                                    size_t index,
                                    char *name,
                                    size_t room,
                                    size_t *needed);

// The tensor of a name.
enum vsla_error_t vsla_archive_tensor(const struct vsla_archive_t *archive,
                                      const char *name,
                                      struct vsla_tensor_t **out);

// Differentiates a program with respect to its parameters and, if `inputs` isn't 0, its inputs.
enum vsla_error_t vsla_autograd_build_backward(const struct vsla_program_t *program,
                                               uint32_t inputs,
                                               struct vsla_backward_t **out);

// Plans a backward program.
enum vsla_error_t vsla_autograd_plan_backward(const struct vsla_backward_t *backward,
                                              const struct vsla_backend_t *backend,
                                              struct vsla_backward_plan_t **out);

// Memory for forward, backward and gradients. With `params`, parameters are those of the forward program's bindings.
enum vsla_error_t vsla_autograd_bind(const struct vsla_backward_plan_t *plan,
                                     const struct vsla_bindings_t *params,
                                     struct vsla_ad_bindings_t **out);

// The bytes of one block for all that forward and backward touch, gradients too. With `sharing`, the parameters are those
// of other bindings and not counted.
enum vsla_error_t vsla_autograd_memory_bytes(const struct vsla_backward_plan_t *plan,
                                             uint32_t sharing,
                                             size_t *bytes);

// Binds a backward plan in one block of the caller's, as `vsla_program_bind_in` does.
enum vsla_error_t vsla_autograd_bind_in(const struct vsla_backward_plan_t *plan,
                                        const struct vsla_bindings_t *params,
                                        void *block,
                                        size_t bytes,
                                        struct vsla_ad_bindings_t **out);

// Seeds the random operations of the next runs: forward and backward of one run have the same masks.
enum vsla_error_t vsla_ad_bindings_seed(const struct vsla_ad_bindings_t *bindings, uint64_t seed);

// Writes the memory report of forward and backward, as `vsla_plan_report` does.
enum vsla_error_t vsla_autograd_report(const struct vsla_backward_plan_t *plan,
                                       char *text,
                                       size_t room,
                                       size_t *needed);

// Sets inputs and parameters, runs forward, copies outputs, sets the outputs' cotangents, runs backward, copies the
// gradients of the values listed. Any list may be null: what was set before stays. Allocates nothing.
enum vsla_error_t vsla_autograd_execute(const struct vsla_backward_plan_t *plan,
                                        const struct vsla_ad_bindings_t *bindings,
                                        const struct vsla_io_t *inputs,
                                        const struct vsla_io_t *outputs,
                                        const struct vsla_io_t *loss_grads,
                                        const struct vsla_io_t *param_grads,
                                        const struct vsla_stream_t *stream);

// The processor with so many threads; 0 takes one for each core. Results don't depend on the number.
enum vsla_error_t vsla_backend_create_cpu(uint32_t threads, struct vsla_backend_t **out);

// The processor with the caller's functions for memory and runs, which get `ctx` as their last argument.
enum vsla_error_t vsla_backend_create_custom(const struct vsla_backend_vtable_t *table,
                                             void *ctx,
                                             uint32_t threads,
                                             struct vsla_backend_t **out);

// Runs a segment of the run that `launch_segment` or `replay_graph` was called for. For use inside of those functions, on
// the thread that called them.
enum vsla_error_t vsla_segment_run(size_t index);

// The message of the last failure on the calling thread; empty if there was none. It is valid until the next failing
// call on the same thread.
const char *vsla_get_last_error_string(void);

// An empty graph.
enum vsla_error_t vsla_graph_create(struct vsla_graph_t **out);

// Declares a parameter or an input. `capacity` may be null; `name` may be null.
enum vsla_error_t vsla_graph_value(const struct vsla_graph_t *graph,
                                   uint32_t tag,
                                   uint32_t dtype_,
                                   uint32_t model_,
                                   size_t rank,
                                   const uint64_t *shape,
                                   const uint64_t *capacity,
                                   const char *name,
                                   uint32_t *id);

// Adds an operation. Writes the ids of its results, which exist from then on. Shapes are inferred when the program is
// built.
enum vsla_error_t vsla_graph_node(const struct vsla_graph_t *graph,
                                  uint32_t kind,
                                  const uint32_t *inputs,
                                  size_t ninputs,
                                  const struct vsla_attrs_t *attrs,
                                  uint32_t *outputs,
                                  size_t noutputs);

// Marks a value as an output of the program.
enum vsla_error_t vsla_graph_output(const struct vsla_graph_t *graph, uint32_t id);

// Marks a value to be kept for backward; then values without a mark are computed again.
enum vsla_error_t vsla_graph_checkpoint(const struct vsla_graph_t *graph, uint32_t id);

// Sets how the programs of a graph compute: whether products of matrices and attention of narrower types accumulate in 32
// bits (`narrow_products` isn't 0) instead of 64, which is several times as fast, and by which `vsla_convpath_t`
// convolutions go.
enum vsla_error_t vsla_graph_numerics(const struct vsla_graph_t *graph,
                                      uint32_t narrow_products,
                                      uint32_t conv);

// Validates a graph and freezes it as a program. The graph stays as it is.
enum vsla_error_t vsla_program_build(const struct vsla_graph_t *graph, struct vsla_program_t **out);

// Writes how many parameters (`VSLA_TENSOR_PARAM`), inputs (`VSLA_TENSOR_INPUT`) or outputs (`VSLA_TENSOR_OUTPUT`) a
// program has and, where there is room for them, their ids.
enum vsla_error_t vsla_program_values(const struct vsla_program_t *program,
                                      uint32_t tag,
                                      uint32_t *ids,
                                      size_t room,
                                      size_t *count);

// Writes the name that a value was declared with, as `vsla_plan_report` writes its text; it may be empty.
enum vsla_error_t vsla_program_value_name(const struct vsla_program_t *program,
                                          uint32_t id,
                                          char *name,
                                          size_t room,
                                          size_t *needed);

// Writes the `vsla_dtype_t` and the `vsla_model_t` of a value.
enum vsla_error_t vsla_program_value_kind(const struct vsla_program_t *program,
                                          uint32_t id,
                                          uint32_t *dtype_,
                                          uint32_t *model_);

// Writes the rank of a value and, where there is room for it, its shape.
enum vsla_error_t vsla_program_shape(const struct vsla_program_t *program,
                                     uint32_t id,
                                     size_t *rank,
                                     uint64_t *shape,
                                     size_t room);

// Destroys any handle. What others still use lives on until they are destroyed too. Null is fine; a handle that was
// destroyed before is `VSLA_ERR_INVALID_ARG`.
enum vsla_error_t vsla_destroy(void *handle);

// How many handles are alive, for leak checks.
size_t vsla_live_handles(void);

// Plans a program for a backend.
enum vsla_error_t vsla_program_plan(const struct vsla_program_t *program,
                                    const struct vsla_backend_t *backend,
                                    struct vsla_plan_t **out);

// The bytes of one arena.
enum vsla_error_t vsla_plan_arena_size(const struct vsla_plan_t *plan, uint32_t class_, uint64_t *bytes);

// Writes where an input, parameter or output lies: its arena, the offset inside of it, and its bytes.
enum vsla_error_t vsla_plan_value(const struct vsla_plan_t *plan,
                                  uint32_t id,
                                  uint32_t *class_,
                                  uint64_t *offset,
                                  uint64_t *bytes);

// Writes a segment of the schedule; its `count` is that of all segments.
enum vsla_error_t vsla_plan_segment(const struct vsla_plan_t *plan, size_t index, struct vsla_segment_t *out);

// Writes the memory report as text: `needed` gets its length with the final zero; `text` gets as much as there is room
// for, always ended by a zero.
enum vsla_error_t vsla_plan_report(const struct vsla_plan_t *plan, char *text, size_t room, size_t *needed);

// The bytes of one block for all that runs of a plan touch: parameters, inputs, outputs, activations and workspace. With
// `sharing`, the parameters are those of other bindings and not counted.
enum vsla_error_t vsla_plan_memory_bytes(const struct vsla_plan_t *plan,
                                         uint32_t sharing,
                                         size_t *bytes);

// Binds a plan in one block of the caller's: `vsla_plan_memory_bytes` at least, from an address that is a multiple of 64.
// The block becomes all zero; it must stay, and nothing else may use it, until the bindings and what is linked to them
// or shares their parameters is destroyed.
enum vsla_error_t vsla_program_bind_in(const struct vsla_plan_t *plan,
                                       const struct vsla_bindings_t *params,
                                       void *block,
                                       size_t bytes,
                                       struct vsla_bindings_t **out);

// Memory for all that runs of a plan touch, all zero, from the backend. With `params`, parameters are those of other bindings
// of a program that declares the same ones.
enum vsla_error_t vsla_program_bind(const struct vsla_plan_t *plan,
                                    const struct vsla_bindings_t *params,
                                    struct vsla_bindings_t **out);

// Sets an input or parameter from dense data of exactly its size.
enum vsla_error_t vsla_bindings_write(const struct vsla_bindings_t *bindings,
                                      uint32_t id,
                                      const void *data,
                                      size_t bytes);

// Copies an input, parameter or output to dense data of exactly its size.
enum vsla_error_t vsla_bindings_read(const struct vsla_bindings_t *bindings, uint32_t id, void *data, size_t bytes);

// Seeds the random operations of the next runs.
enum vsla_error_t vsla_bindings_seed(const struct vsla_bindings_t *bindings, uint64_t seed);

// Runs a program. Inputs listed are read where they lie and outputs listed are written there, for this run alone, if their
// data is aligned to its elements and overlaps nothing else; else they are copied. Parameters listed are copied, and stay.
// What isn't listed is what `vsla_bindings_write` set, or a link; an input that was only lent to an earlier run is
// `VSLA_ERR_INVALID_ARG`. Either list may be null. On an asynchronous stream that happens later. Allocates nothing.
enum vsla_error_t vsla_program_execute(const struct vsla_plan_t *plan,
                                       const struct vsla_bindings_t *bindings,
                                       const struct vsla_io_t *inputs,
                                       const struct vsla_io_t *outputs,
                                       const struct vsla_stream_t *stream);

// Makes an input of one program the output of another: nothing is copied. The caller runs the source first, on one stream
// or on two with an event between them; runs of both at once would be a race.
enum vsla_error_t vsla_link(const struct vsla_bindings_t *source,
                            uint32_t source_value,
                            const struct vsla_bindings_t *destination,
                            uint32_t destination_value);

// Plans and binds a program for repeated runs. With `params`, parameters are those of another profile.
enum vsla_error_t vsla_profile_compile(const struct vsla_program_t *program,
                                       const struct vsla_backend_t *backend,
                                       const struct vsla_profile_t *params,
                                       struct vsla_profile_t **out);

// Writes the index of the first of some profiles whose input `id` takes data of this shape: order them by size. None is
// `VSLA_ERR_INVALID_SHAPE`. Allocates nothing.
enum vsla_error_t vsla_profile_route(const struct vsla_profile_t *const *profiles,
                                     size_t count,
                                     uint32_t id,
                                     size_t rank,
                                     const uint64_t *shape,
                                     size_t *index);

// Sets an input or parameter of a profile from dense data of a shape that its own holds; the rest becomes zero.
// Allocates nothing.
enum vsla_error_t vsla_profile_write(const struct vsla_profile_t *profile,
                                     uint32_t id,
                                     size_t rank,
                                     const uint64_t *shape,
                                     const void *data,
                                     size_t bytes);

// Runs a profile on the values listed, as `vsla_program_execute` does. Allocates nothing.
// Data of another profile's size is `VSLA_ERR_INVALID_ARG`.
enum vsla_error_t vsla_profile_run(const struct vsla_profile_t *profile,
                                   const struct vsla_io_t *inputs,
                                   const struct vsla_io_t *outputs,
                                   const struct vsla_stream_t *stream);

// Seeds the random operations of the next runs of a profile.
enum vsla_error_t vsla_profile_seed(const struct vsla_profile_t *profile, uint64_t seed);

// Lets the backend's `record_graph` record the schedule of a profile; its runs then go through `replay_graph`. Without
// those functions it is `VSLA_ERR_NOT_IMPLEMENTED`: a plan on the processor already is a schedule with every address
// known, and there is nothing to gain.
enum vsla_error_t vsla_profile_record(const struct vsla_profile_t *profile);

// Plans one arena for programs in the order they will run. What doesn't live together shares memory: activations and
// workspace of different programs, inputs once their program has run, linked values once their last reader has.
// Write the inputs of a round before its first program runs, run the programs in order and never two at once, and read
// the outputs before the next round.
enum vsla_error_t vsla_shared_arena_create(const struct vsla_plan_t *const *plans,
                                           size_t count,
                                           const struct vsla_stage_link_t *links,
                                           size_t nlinks,
                                           struct vsla_shared_arena_t **out);

// The bytes of a shared arena.
enum vsla_error_t vsla_shared_arena_bytes(const struct vsla_shared_arena_t *arena, size_t *bytes);

// Binds every program, with memory from a backend; `out` has room for as many bindings as there are programs.
enum vsla_error_t vsla_shared_arena_bind(const struct vsla_shared_arena_t *arena,
                                         const struct vsla_backend_t *backend,
                                         struct vsla_bindings_t **out,
                                         size_t count);

// Binds every program in one block of the caller's, as `vsla_program_bind_in` does.
enum vsla_error_t vsla_shared_arena_bind_in(const struct vsla_shared_arena_t *arena,
                                            void *block,
                                            size_t bytes,
                                            struct vsla_bindings_t **out,
                                            size_t count);

// A stream whose runs have ended when a call returns.
enum vsla_error_t vsla_backend_create_stream(const struct vsla_backend_t *backend, struct vsla_stream_t **out);

// A stream with a thread of its own: runs return at once and are done later, in order, beside the host and beside other
// streams. Until the stream is synchronised, the data that a run was given must stay, and outputs are not there yet; lists
// of values are copied (more than 16 of them on the heap). A run that fails is told by `vsla_backend_synchronize`, and
// runs after it are left out until then.
enum vsla_error_t vsla_backend_create_async_stream(const struct vsla_backend_t *backend,
                                                   struct vsla_stream_t **out);

// Returns when all that was started on the stream has ended; with the first failure since the last call, if there was
// one.
enum vsla_error_t vsla_backend_synchronize(const struct vsla_stream_t *stream);

// An event. Before it is recorded, nobody waits for it.
enum vsla_error_t vsla_event_create(struct vsla_event_t **out);

// Marks a place in a stream: the event has happened when all before it is done.
enum vsla_error_t vsla_event_record(const struct vsla_event_t *event, const struct vsla_stream_t *stream);

// What is started on a stream from now on waits for the last mark of an event.
enum vsla_error_t vsla_stream_wait_event(const struct vsla_stream_t *stream, const struct vsla_event_t *event);

// Returns when all before the last mark of an event is done.
enum vsla_error_t vsla_event_synchronize(const struct vsla_event_t *event);

// Writes 1 if all before the last mark of an event is done, else 0.
enum vsla_error_t vsla_event_query(const struct vsla_event_t *event, uint32_t *happened);

// A tensor from dense row-major data; null data is all zeros.
enum vsla_error_t vsla_tensor_create(uint32_t dtype_,
                                     uint32_t model_,
                                     size_t rank,
                                     const uint64_t *shape,
                                     const void *data,
                                     size_t bytes,
                                     struct vsla_tensor_t **out);

// Writes the rank of a tensor and, where there is room for it, its logical shape.
enum vsla_error_t vsla_tensor_shape(const struct vsla_tensor_t *tensor, size_t *rank, uint64_t *shape, size_t room);

// Writes the capacity of a tensor where there is room for it: the sizes that it can grow to where it lies.
enum vsla_error_t vsla_tensor_capacity(const struct vsla_tensor_t *tensor, uint64_t *capacity, size_t room);

// Writes the `vsla_dtype_t` and the `vsla_model_t` of a tensor.
enum vsla_error_t vsla_tensor_kind(const struct vsla_tensor_t *tensor, uint32_t *dtype_, uint32_t *model_);

// Copies the elements, dense in row-major order; `bytes` must be exactly their size.
enum vsla_error_t vsla_tensor_read(const struct vsla_tensor_t *tensor, void *data, size_t bytes);

// Whether two tensors are of one class: writes 1 or 0.
enum vsla_error_t vsla_tensor_equal(const struct vsla_tensor_t *a, const struct vsla_tensor_t *b, uint32_t *equal);

// a + b in the ambient shape.
enum vsla_error_t vsla_add(const struct vsla_tensor_t *a, const struct vsla_tensor_t *b, struct vsla_tensor_t **out);

// a - b in the ambient shape.
enum vsla_error_t vsla_sub(const struct vsla_tensor_t *a, const struct vsla_tensor_t *b, struct vsla_tensor_t **out);

// a * b, elementwise, in the ambient shape.
enum vsla_error_t vsla_hadamard(const struct vsla_tensor_t *a,
                                const struct vsla_tensor_t *b,
                                struct vsla_tensor_t **out);

// Convolution along the last axis; model A.
enum vsla_error_t vsla_conv(const struct vsla_tensor_t *a, const struct vsla_tensor_t *b, struct vsla_tensor_t **out);

// Kronecker product; model B.
enum vsla_error_t vsla_kron(const struct vsla_tensor_t *a, const struct vsla_tensor_t *b, struct vsla_tensor_t **out);

// Product over the last two axes.
enum vsla_error_t vsla_matmul(const struct vsla_tensor_t *a, const struct vsla_tensor_t *b, struct vsla_tensor_t **out);

// Tensors of one rank along a new first axis.
enum vsla_error_t vsla_stack(const struct vsla_tensor_t *const *parts, size_t count, struct vsla_tensor_t **out);

// Any operation on tensors, as a program of that operation alone, which is planned once for its shapes and kept. `seed`
// is for random operations. Writes as many results as the operation has; `noutputs` must be their number.
enum vsla_error_t vsla_tensor_op(uint32_t kind,
                                 const struct vsla_tensor_t *const *inputs,
                                 size_t ninputs,
                                 const struct vsla_attrs_t *attrs,
                                 uint64_t seed,
                                 struct vsla_tensor_t **outputs,
                                 size_t noutputs);

// Forgets the programs of operations on tensors that are kept, and gives their memory back. What runs goes on.
enum vsla_error_t vsla_ops_clear(void);

// The minimal representative. Nothing else shrinks.
enum vsla_error_t vsla_shrink(const struct vsla_tensor_t *tensor, struct vsla_tensor_t **out);

// The version of the library that runs, as "major.minor.patch". `VSLA_VERSION` is that of the header; libraries of one
// major version (below 1.0, of one minor version) go with each other's headers, and the library's SONAME has that number.
const char *vsla_version(void);

// A window of `size` tensors that moves on by `stride`.
enum vsla_error_t vsla_window_create(size_t size, size_t stride, struct vsla_window_t **out);

// Gives a window the next tensor of its stream. `out` gets the stack if the window is full, else null. A tensor that doesn't
// stack with those before is refused, and the window is as it was.
enum vsla_error_t vsla_window_push(const struct vsla_window_t *window,
                                   const struct vsla_tensor_t *tensor,
                                   struct vsla_tensor_t **out);

// A pyramid with so many levels, each a window without overlap of the size given for it.
enum vsla_error_t vsla_pyramid_create(const uint64_t *window_sizes, size_t levels, struct vsla_pyramid_t **out);

// Gives a pyramid the next tensor of its stream. `outs` needs room for a tensor of each level; the first `count` of them get
// what the levels from the lowest on completed.
enum vsla_error_t vsla_pyramid_push(const struct vsla_pyramid_t *pyramid,
                                    const struct vsla_tensor_t *tensor,
                                    struct vsla_tensor_t **outs,
                                    size_t room,
                                    size_t *count);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TENSORLOOM_VSLA_H */

#ifndef TENSORLOOM_VSLA_NAMES_H
#define TENSORLOOM_VSLA_NAMES_H
/* Typed names for vsla_destroy. */
static inline vsla_error_t vsla_backend_destroy(vsla_backend_t *x) { return vsla_destroy(x); }
static inline vsla_error_t vsla_backend_destroy_stream(vsla_stream_t *x) { return vsla_destroy(x); }
static inline vsla_error_t vsla_event_destroy(vsla_event_t *x) { return vsla_destroy(x); }
static inline vsla_error_t vsla_shared_arena_destroy(vsla_shared_arena_t *x) { return vsla_destroy(x); }
static inline vsla_error_t vsla_graph_destroy(vsla_graph_t *x) { return vsla_destroy(x); }
static inline vsla_error_t vsla_program_destroy(vsla_program_t *x) { return vsla_destroy(x); }
static inline vsla_error_t vsla_plan_destroy(vsla_plan_t *x) { return vsla_destroy(x); }
static inline vsla_error_t vsla_bindings_destroy(vsla_bindings_t *x) { return vsla_destroy(x); }
static inline vsla_error_t vsla_profile_destroy(vsla_profile_t *x) { return vsla_destroy(x); }
static inline vsla_error_t vsla_backward_destroy(vsla_backward_t *x) { return vsla_destroy(x); }
static inline vsla_error_t vsla_backward_plan_destroy(vsla_backward_plan_t *x) { return vsla_destroy(x); }
static inline vsla_error_t vsla_ad_bindings_destroy(vsla_ad_bindings_t *x) { return vsla_destroy(x); }
static inline vsla_error_t vsla_archive_destroy(vsla_archive_t *x) { return vsla_destroy(x); }
static inline vsla_error_t vsla_window_destroy(vsla_window_t *x) { return vsla_destroy(x); }
static inline vsla_error_t vsla_pyramid_destroy(vsla_pyramid_t *x) { return vsla_destroy(x); }
static inline vsla_error_t vsla_tensor_destroy(vsla_tensor_t *x) { return vsla_destroy(x); }
#endif  /* TENSORLOOM_VSLA_NAMES_H */
