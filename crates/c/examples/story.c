/* Lets a model write: story PROGRAM COUNT ID.. continues the ids by the most probable ones and prints them.
 *
 * The program goes from ids [1, T] to logits [1, T, vocabulary]; `loom compile DIR --emit c-library` writes it. What stands behind
 * the last id doesn't matter, since positions see those before them alone. */
#include <stdio.h>
#include <stdlib.h>

#include "tensorloom.h"

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, loom_last_error());
  return 1;
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: %s PROGRAM COUNT ID..\n", argv[0]);
    return 2;
  }
  loom_program *program;
  if (loom_program_open(argv[1], 1, &program)) return fail(argv[1]);
  loom_type ids_type, logits_type;
  if (loom_program_input(program, 0, &ids_type) || loom_program_output(program, 0, &logits_type)) return fail("types");
  if (ids_type.dtype != LOOM_I32 || ids_type.rank != 2 || logits_type.dtype != LOOM_F32 || logits_type.rank != 3) {
    fprintf(stderr, "not a language model\n");
    return 1;
  }
  size_t room = ids_type.shape[1], vocabulary = logits_type.shape[2], count = (size_t)argc - 3;
  size_t end = count + strtoul(argv[2], NULL, 10);
  if (end > room) end = room;

  int32_t *ids = calloc(room, sizeof *ids);
  float *logits = malloc(logits_type.bytes);
  size_t arena_bytes = (loom_program_arena(program) + 63) / 64 * 64;
  void *arena = aligned_alloc(64, arena_bytes ? arena_bytes : 64);
  for (size_t i = 0; i < count && i < room; i++) ids[i] = atoi(argv[3 + i]);

  const void *in[] = {ids};
  void *out[] = {logits};
  for (; count < end; count++) {
    if (loom_program_run(program, in, out, arena, arena_bytes)) return fail("run");
    const float *row = logits + (count - 1) * vocabulary;
    size_t best = 0;
    for (size_t v = 1; v < vocabulary; v++)
      if (row[v] > row[best]) best = v;
    ids[count] = (int32_t)best;
    printf("%zu\n", best);
  }

  free(arena);
  free(logits);
  free(ids);
  loom_program_free(program);
  return 0;
}
