/* One visible key: every row of the result is that key's row of v. */
#include <heed/heed.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { kQueries = 3, kKeys = 1, kHeads = 2, kDim = 4 };

static heed_tensor dense(float* data, int64_t rows, int64_t heads) {
  heed_tensor view = {data, HEED_F32, 4, {1, rows, heads, kDim}, {rows * heads * kDim, heads * kDim, kDim, 1}};
  return view;
}

int main(void) {
  float q[kQueries * kHeads * kDim] = {0}, k[kKeys * kHeads * kDim] = {0}, v[kKeys * kHeads * kDim],
                              o[kQueries * kHeads * kDim];
  const int values = kKeys * kHeads * kDim;
  for (int i = 0; i < values; ++i) v[i] = (float)i;
  memset(o, 0xff, sizeof o); /* NaN */

  heed_forward_args args = {.struct_size = sizeof args};
  args.q = dense(q, kQueries, kHeads);
  args.k = dense(k, kKeys, kHeads);
  args.v = dense(v, kKeys, kHeads);
  args.o = dense(o, kQueries, kHeads);
  if (heed_forward(NULL, &args, NULL) != HEED_OK) {
    printf("heed_forward: %s\n", heed_last_error());
    return 1;
  }
  for (int i = 0; i < kQueries * kHeads * kDim; ++i) {
    if (!(fabsf(o[i] - v[i % values]) <= 1e-5f)) {
      printf("o[%d] is %g, wanted %g\n", i, o[i], v[i % values]);
      return 1;
    }
  }

  /* An error comes back as a status with a text. */
  args.k.data = NULL;
  if (heed_forward(NULL, &args, NULL) != HEED_INVALID_ARGUMENT || strlen(heed_last_error()) == 0) {
    puts("a k without memory was accepted");
    return 1;
  }
  printf("heed %s from C: right\n", heed_version());
  return strcmp(heed_version(), HEED_VERSION_STRING) != 0;
}
