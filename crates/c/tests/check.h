/* Counts calls that don't give the code they should. */
#include "tensorloom_vsla.h"
#include "tensorloom_vsla.h" /* Twice is once. */

#include <stdio.h>
#include <string.h>

static int failures = 0;

#define EXPECT(code, call)                                                                            \
  do {                                                                                                \
    vsla_error_t got = (call);                                                                        \
    if (got != (code)) {                                                                              \
      printf("line %d: %s gave %d, expected %d (%s)\n", __LINE__, #call, (int)got, (int)(code),       \
             vsla_get_last_error_string());                                                           \
      failures++;                                                                                     \
    } else if (got != VSLA_ERR_OK && strlen(vsla_get_last_error_string()) < 10) {                     \
      printf("line %d: no message\n", __LINE__);                                                      \
      failures++;                                                                                     \
    }                                                                                                 \
  } while (0)
#define OK(call) EXPECT(VSLA_ERR_OK, call)
#define BAD(call) EXPECT(VSLA_ERR_INVALID_ARG, call)
#define HOLDS(fact)                                      \
  do {                                                   \
    if (!(fact)) {                                       \
      printf("line %d: not %s\n", __LINE__, #fact);      \
      failures++;                                        \
    }                                                    \
  } while (0)
