/* Compiled models from C: load a program, give it memory, run it.
 *
 *   loom_program *p;
 *   if (loom_program_open("story.loom", 0, &p)) puts(loom_last_error());
 *   const void *in[] = {ids};
 *   void *out[] = {logits};
 *   loom_program_run(p, in, out, NULL, 0);
 *   loom_program_free(p);
 *
 * Every function that can fail returns a loom_status; loom_last_error() has the message of this thread's last failure. A program
 * doesn't change: several threads may run it at once, each with memory of its own. C99 and C++11 take this header.
 *
 * A pointer must be valid for what the function reads or writes there, and nothing else may use that memory during the call. A program
 * must come from loom_program_load or loom_program_open and not have been freed. NULL and misaligned pointers are LOOM_ERR_ARGUMENT.
 */
#ifndef TENSORLOOM_H
#define TENSORLOOM_H

#include <stddef.h>
#include <stdint.h>

/* The version of this header; loom_version() is that of the library. Below 1.0 they go together if the minor versions agree. */
#define LOOM_VERSION "0.1.0"
#define LOOM_VERSION_MAJOR 0
#define LOOM_VERSION_MINOR 1
#define LOOM_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loom_program loom_program;

typedef enum loom_status {
  LOOM_OK = 0,
  LOOM_ERR_ARGUMENT, /* a null or misaligned pointer, an index beyond the last, too little memory given */
  LOOM_ERR_FILE,     /* no file, no program, a damaged one, one of another version, or one that might leave its memory */
  LOOM_ERR_MEMORY,   /* the system has no more memory */
  LOOM_ERR_RUN       /* the run failed; the message says where */
} loom_status;

typedef enum loom_dtype {
  LOOM_BOOL = 0, LOOM_I8, LOOM_I16, LOOM_I32, LOOM_I64, LOOM_U8, LOOM_U16, LOOM_U32, LOOM_U64, LOOM_F16, LOOM_BF16, LOOM_F32,
  LOOM_F64, LOOM_OTHER
} loom_dtype;

/* What an input or output is: dense, in row-major order. `shape` lives as long as the program. */
typedef struct loom_type {
  loom_dtype dtype;
  size_t rank;
  const uint64_t *shape;
  size_t bytes;
} loom_type;

/* A program from bytes, which are copied, or from a file. `threads` is the number of threads that runs use; 0 takes all cores. */
loom_status loom_program_load(const void *data, size_t bytes, uint32_t threads, loom_program **out);
loom_status loom_program_open(const char *path, uint32_t threads, loom_program **out);
/* Frees a program that nobody runs; NULL is nothing to free. */
void loom_program_free(loom_program *program);

/* How many inputs and outputs there are, and what they are. */
size_t loom_program_inputs(const loom_program *program);
size_t loom_program_outputs(const loom_program *program);
loom_status loom_program_input(const loom_program *program, size_t index, loom_type *out);
loom_status loom_program_output(const loom_program *program, size_t index, loom_type *out);

/* Bytes that a run needs beside its inputs and outputs. */
size_t loom_program_arena(const loom_program *program);
/* Runs it: reads the inputs and writes the outputs where they lie. `arena` is memory for what lies between, from an address that is
 * a multiple of 64; if it is NULL, the library keeps its own from run to run. */
loom_status loom_program_run(const loom_program *program, const void *const *inputs, void *const *outputs, void *arena,
                             size_t arena_bytes);

/* The message of this thread's last failure; it stays until the next one. */
const char *loom_last_error(void);
const char *loom_version(void);

#ifdef __cplusplus
}
#endif

#endif /* TENSORLOOM_H */
