/* A program in C99 that knows heed.h alone. program_test.cpp runs it. */
#include <heed/heed.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { b = 1, s = 5, h = 2, d = 8, elements = b * s * h * d };

static void fill(float* data, int seed) {
  for (int i = 0; i < elements; ++i) data[i] = (float)((i * 37 + seed * 11) % 29 - 14) / 7.0f;
}

static int differs(const float* o, const double* expected) {
  for (int i = 0; i < elements; ++i)
    if (!(fabs(o[i] - expected[i]) < 1e-5)) return 1;
  return 0;
}

/* Returns NULL when all went well, else what did not. */
const char* heed_c99_program(void) {
  static float q[elements], k[elements], v[elements], o[elements];
  static double expected[elements];
  static char message[1024];
  fill(q, 1);
  fill(k, 2);
  fill(v, 3);

  heed_forward_args args = {
      .struct_size = sizeof args,
      .q = {q, HEED_F32, 4, {b, s, h, d}, {s * h * d, h * d, d, 1}},
      .k = {k, HEED_F32, 4, {b, s, h, d}, {s * h * d, h * d, d, 1}},
      .v = {v, HEED_F32, 4, {b, s, h, d}, {s * h * d, h * d, d, 1}},
      .o = {o, HEED_F32, 4, {b, s, h, d}, {s * h * d, h * d, d, 1}},
      .mask = HEED_MASK_CAUSAL,
  };
  heed_forward_args reference = args;
  reference.o.data = expected;
  reference.o.type = HEED_F64;
  if (heed_oracle_forward(&reference, NULL) != HEED_OK) return heed_last_error();

  if (heed_forward(NULL, &args, NULL) != HEED_OK) return heed_last_error();
  if (differs(o, expected)) return "heed_forward differs from the oracle";

  memset(o, 0, sizeof o);
  heed_plan* plan = NULL;
  if (heed_plan_create(NULL, &args, NULL, &plan) != HEED_OK) return heed_last_error();
  const size_t bytes = heed_plan_workspace_bytes(plan);
  char* memory = malloc(bytes + 64); /* C99 has no aligned_alloc */
  char* workspace = memory + (64 - (uintptr_t)memory % 64);
  const heed_status status = heed_plan_run(plan, &args, workspace, bytes, NULL);
  heed_plan_destroy(plan);
  free(memory);
  if (status != HEED_OK) return heed_last_error();
  if (differs(o, expected)) return "heed_plan_run differs from the oracle";

  args.v.sizes[1] = s + 1;
  if (heed_forward(NULL, &args, NULL) != HEED_INVALID_ARGUMENT) return "a wrong shape was not refused";
  snprintf(message, sizeof message, "%s", heed_last_error());
  return strlen(message) > 0 ? NULL : "a refusal without a word";
}
