/* The C interface: structs are zeroed and filled, functions return a status, heed_last_error() says why. What works
 * here works from every language that can call C. */
#include <heed/heed.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBatch = 1, kRows = 32, kHeads = 4, kKvHeads = 2, kDim = 16 };

static heed_tensor dense(float* data, int64_t heads) {
  heed_tensor view = {data,
                      HEED_F32,
                      4,
                      {kBatch, kRows, heads, kDim},
                      {kRows * heads * kDim, heads * kDim, kDim, 1}}; /* strides in elements */
  return view;
}

/* From -1 to 1. */
static float some_number(int i) { return (float)(i * 37 % 101) / 50.0F - 1.0F; }

static int fail(const char* what) {
  printf("WRONG  %s: %s\n", what, heed_last_error());
  return 1;
}

int main(void) {
  static float q[kBatch * kRows * kHeads * kDim], k[kBatch * kRows * kKvHeads * kDim],
      v[kBatch * kRows * kKvHeads * kDim], o[kBatch * kRows * kHeads * kDim], reference[kBatch * kRows * kHeads * kDim];
  for (int i = 0; i < (int)(sizeof q / sizeof *q); ++i) q[i] = some_number(i);
  for (int i = 0; i < (int)(sizeof k / sizeof *k); ++i) k[i] = some_number(3 * i), v[i] = some_number(7 * i);

  /* struct_size lets the struct grow: an old program goes on working with a new library. */
  heed_forward_args args = {.struct_size = sizeof args, .mask = HEED_MASK_CAUSAL};
  args.q = dense(q, kHeads);
  args.k = dense(k, kKvHeads);
  args.v = dense(v, kKvHeads);
  args.o = dense(o, kHeads);
  if (heed_forward(NULL, &args, NULL) != HEED_OK) return fail("heed_forward");

  /* The fp64 reference takes the same arguments. */
  args.o.data = reference;
  if (heed_oracle_forward(&args, NULL) != HEED_OK) return fail("heed_oracle_forward");
  float worst = 0;
  for (int i = 0; i < (int)(sizeof o / sizeof *o); ++i) {
    const float error = o[i] > reference[i] ? o[i] - reference[i] : reference[i] - o[i];
    if (!(error <= 1e-5F)) return fail("the result differs from the oracle"); /* also when it is NaN */
    if (error > worst) worst = error;
  }
  printf("right  %s: largest difference from the oracle %.1e\n", heed_version(), (double)worst);

  /* Decide once, run often: the plan says how much workspace it needs, and a run allocates nothing. */
  heed_plan* plan = NULL;
  if (heed_plan_create(NULL, &args, NULL, &plan) != HEED_OK) return fail("heed_plan_create");
  const size_t bytes = (heed_plan_workspace_bytes(plan) + 63) / 64 * 64;
  void* workspace = aligned_alloc(64, bytes == 0 ? 64 : bytes);
  const heed_status status = heed_plan_run(plan, &args, workspace, bytes, NULL);
  printf("%s  a plan on %s\n", status == HEED_OK ? "right" : "WRONG", heed_plan_kernel(plan));
  heed_plan_destroy(plan);
  free(workspace);
  if (status != HEED_OK) return fail("heed_plan_run");
  if (memcmp(o, reference, sizeof o) != 0) return fail("the plan gives other bits than heed_forward");

  /* A refusal says what was passed, the rule, and what would work. */
  args.k = dense(k, 3);
  args.v = dense(v, 3);
  if (heed_forward(NULL, &args, NULL) != HEED_INVALID_ARGUMENT) return fail("4 heads on 3 were accepted");
  printf("right  refused: %s\n", heed_last_error());
  return 0;
}
