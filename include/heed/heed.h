/*
 * heed.h: fused multi-head attention, the interface for C and for every language that can call C.
 *
 *   #include <heed/heed.h>
 *
 *   heed_forward_args args = {
 *       .struct_size = sizeof args,
 *       .q = {q, HEED_BF16, 4, {b, s, h, d}, {s * h * d, h * d, d, 1}},
 *       .k = {k, HEED_BF16, 4, {b, s, h, d}, {s * h * d, h * d, d, 1}},
 *       .v = {v, HEED_BF16, 4, {b, s, h, d}, {s * h * d, h * d, d, 1}},
 *       .o = {o, HEED_BF16, 4, {b, s, h, d}, {s * h * d, h * d, d, 1}},
 *       .mask = HEED_MASK_CAUSAL,
 *   };
 *   if (heed_forward(NULL, &args, NULL) != HEED_OK) fprintf(stderr, "heed: %s\n", heed_last_error());
 *
 * Whoever calls it a million times decides once, and runs without allocating:
 *
 *   heed_plan *plan;
 *   heed_plan_create(NULL, &args, NULL, &plan);
 *   void *workspace;
 *   posix_memalign(&workspace, 64, heed_plan_workspace_bytes(plan));
 *   heed_plan_run(plan, &args, workspace, heed_plan_workspace_bytes(plan), NULL);
 *   heed_plan_destroy(plan);
 *
 * Conventions
 *   - A function that can fail returns a heed_status; heed_last_error() then says what was passed, which rule it broke
 * and what would be accepted. When it fails it has written nothing.
 *   - Structs are zeroed, then filled: zero is the default of every field. A struct whose first field is struct_size is
 *     told its own size, so that it can grow: a program built with an older header runs with a newer library.
 *   - heed_context *: NULL is the default context. Options: NULL is all defaults. char ** texts are freed by
 *     heed_string_free. All functions may be called from several threads at once, but for the destruction of what
 * another call is using.
 */
#ifndef HEED_HEED_H
#define HEED_HEED_H

#include <heed/export.h>
#include <heed/version.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum heed_status {
  HEED_OK = 0,
  HEED_INVALID_ARGUMENT = 1, /* a rule of the contract is broken */
  HEED_UNSUPPORTED = 2,      /* it makes sense, but no kernel here computes it; the message names each and its reason */
  HEED_OUT_OF_MEMORY = 3,
  HEED_INTERNAL = 4,     /* a defect in heed */
  HEED_DEVICE_FAILED = 5 /* a GPU or its driver failed; the message says whether this process can go on */
} heed_status;

/* Why the last call of this thread that failed did so. Valid until the next one that fails. Never NULL. */
HEED_API const char* heed_last_error(void);

/* "0.1.0": of the library, where HEED_VERSION_STRING is the header's. */
HEED_API const char* heed_version(void);

/* ---- tensors ---- */

typedef enum heed_type {
  HEED_F32 = 0,
  HEED_F16 = 1,
  HEED_BF16 = 2,
  HEED_FP8_E4M3 = 3,
  HEED_FP8_E5M2 = 4,
  HEED_INT8 = 5,
  HEED_INT4 = 6,
  HEED_F64 = 7, /* results of the oracle only */
  HEED_I32 = 8,
  HEED_I64 = 9,
  HEED_U8 = 10, /* a boolean: zero is false */
  HEED_U16 = 11
} heed_type;

/* A view over memory the caller owns. rank 0 and no data: not given. Strides are in elements. heed writes only into
 * outputs. */
typedef struct heed_tensor {
  void* data;
  int32_t type; /* a heed_type */
  int32_t rank; /* at most 4 */
  int64_t sizes[4];
  int64_t strides[4];
} heed_tensor;

/* ---- masks ---- */

typedef enum heed_mask_kind {
  HEED_MASK_NONE = 0,
  HEED_MASK_TOP_LEFT = 1,     /* the window's diagonal begins at query 0 and key 0 */
  HEED_MASK_BOTTOM_RIGHT = 2, /* it ends at the last query and the last key */
  HEED_MASK_RAW = 3           /* left and right are the coordinates y and x */
} heed_mask_kind;

typedef struct heed_mask {
  int32_t kind;     /* a heed_mask_kind */
  int32_t reserved; /* 0 */
  int64_t left;     /* keys before the diagonal that are visible; -1: all */
  int64_t right;    /* keys behind it; -1: all */
  int64_t sink;     /* the first keys, visible though the window has left them */
} heed_mask;

/* The last query sees every key. An initialiser. */
#define HEED_MASK_CAUSAL \
  { HEED_MASK_BOTTOM_RIGHT, 0, -1, 0, 0 }

/* Reads "b", "t:1024,0", "xb:256", "g:3,5" ...: see docs/semantics.md. */
HEED_API heed_status heed_mask_parse(const char* text, heed_mask* mask);
/* Whether heed_mask_parse would read it. */
HEED_API heed_status heed_mask_check(const char* text);

/* ---- threads ---- */

/* One piece of a call. `worker` is in [0, concurrency), and no two pieces with the same worker run at the same time. */
typedef void (*heed_body)(void* body_context, int64_t index, int worker);

/* The caller's threads. parallel_for calls body(body_context, index, worker) once for each index in [0, count), in any
 * order, and returns when all have returned. body does not throw and may be called from any thread. */
typedef struct heed_executor {
  void* user;
  int (*concurrency)(void* user);
  void (*parallel_for)(void* user, int64_t count, heed_body body, void* body_context);
} heed_executor;

/* ---- contexts ---- */

/* Thread pool, plan cache and scratch memory. Contexts share nothing. */
typedef struct heed_context heed_context;

typedef struct heed_context_options {
  size_t struct_size;
  const char* max_cpu_isa; /* baseline, avx2, avx512, avx512bf16, amx; NULL: HEED_MAX_CPU_ISA, else the best here */
  int32_t threads;         /* of the pool; 0: as many as this process may use */
  int32_t reserved;        /* 0 */
  const char* cuda_family; /* hopper, portable, portable_ptx (as PTX for sm_80): only these kernels of the CUDA engine;
                              NULL: HEED_CUDA_FAMILY, else hopper and portable */
  const char* cuda_algo;   /* how its Hopper kernels compute forward passes, "stages:3,tile_k:128", or an error
                              where they cannot; NULL: HEED_CUDA_ALGO, else heed chooses */
  const char* cuda_backward_algo; /* backward passes, "tile_q:64,pipeline:ahead"; NULL: HEED_CUDA_BACKWARD_ALGO, else
                                     heed chooses */
} heed_context_options;

HEED_API heed_status heed_context_create(const heed_context_options* options, heed_context** context);
/* Waits for the pool's threads. Plans made with it stay usable. A CUDA graph that has captured its work needs it, or a
 * plan made with it: kernels and scratch memory go with the last of these. NULL is ignored. */
HEED_API void heed_context_destroy(heed_context* context);

/* ---- forward attention ---- */

typedef enum heed_math {
  HEED_MATH_FAST = 0,    /* the input type's own units where the machine has them: P is rounded to the input type */
  HEED_MATH_ACCURATE = 1 /* every product in f32 */
} heed_math;

typedef enum heed_engine { HEED_ENGINE_AUTO = 0, HEED_ENGINE_CPU = 1, HEED_ENGINE_CUDA = 2 } heed_engine;

/* Only q, k, v and o must be given. Batch mode: as written. Group mode (packed sequences of their own lengths):
 * seqstart_q and seqstart_k are given, and the shapes are those behind the bar. */
typedef struct heed_forward_args {
  size_t struct_size;
  heed_tensor q; /* [b, s_q, h, d]     | [total_q, h, d] */
  heed_tensor k; /* [b, s_k, h_k, d]   | [total_k, h_k, d] */
  heed_tensor v; /* [b, s_k, h_k, d_v] | [total_k, h_k, d_v] */
  heed_tensor o; /* [b, s_q, h, d_v]   | [total_q, h, d_v]      written */

  heed_tensor lse; /* f32 [b, h, s_q]    | [h, total_q]           written: log-sum-exp, natural logarithm */

  heed_mask mask;
  heed_tensor bool_mask;  /* u8, true = keep; broadcasts like bias */
  heed_tensor block_mask; /* u8 [1|b, 1|h, ceil(s_q / block_q), ceil(s_k / block_k)], true = keep */
  int64_t block_q, block_k;
  heed_tensor bias;         /* f32 or the type of q; [b, h, s_q, s_k], each may be 1, the first ones missing */
  heed_tensor alibi_slopes; /* f32 [h] or [b, h] */
  heed_tensor sink;         /* f32 [h]: one more logit in each row's denominator */

  double scale;     /* 0: 1 / sqrt(d) */
  double soft_cap;  /* 0: off */
  double dropout_p; /* probability of losing an entry */
  uint64_t dropout_seed, dropout_offset;
  heed_tensor randval; /* u16 [b, h, s_q, s_k]                    written: the random word of every entry */

  heed_tensor seqstart_q, seqstart_k; /* i32 or i64 [b + 1]: physical row offsets */
  heed_tensor seqlen_q, seqlen_k;     /* i32 or i64 [b]: logical lengths */

  int32_t math;     /* a heed_math */
  int32_t reserved; /* 0 */

  int64_t max_s_q,
      max_s_k; /* group mode: no sequence is longer; 0: the longest of those given, in GPU memory all rows */
  heed_tensor dropout_state; /* i64 [2]: seed and offset, read when it runs instead of the two above */
} heed_forward_args;

typedef struct heed_run_options {
  size_t struct_size;
  const heed_executor* executor; /* NULL: the context's pool */
  int32_t engine;                /* a heed_engine; HEED_ENGINE_AUTO: the one in whose memory q lies */
  int32_t reserved;              /* 0 */
  void* stream;                  /* CUDA engine: a CUstream or cudaStream_t; NULL: the default stream */
} heed_run_options;

/* On the CPU engine it is done when this returns; on the CUDA engine it has been put on the stream. */
HEED_API heed_status heed_forward(heed_context* context, const heed_forward_args* args,
                                  const heed_run_options* options);

/* The contract in fp64, plain loops: slow and right. o and lse may be f64. NULL executor: the calling thread. */
HEED_API heed_status heed_oracle_forward(const heed_forward_args* args, const heed_executor* executor);

/* ---- backward attention ---- */

typedef enum heed_dq_accumulation {
  HEED_DQ_F32 = 0,   /* dQ is summed up in f32 */
  HEED_DQ_16_BIT = 1 /* in the type of q, which must have 16 bits */
} heed_dq_accumulation;

/* The arguments of the forward call as they were, with o and lse as it left them; the gradient of its output; and where
 * the gradients of its inputs go. forward, d_o, dq, dk and dv must be given, and forward->lse. forward->randval is
 * neither read nor written. */
typedef struct heed_backward_args {
  size_t struct_size;
  const heed_forward_args* forward;
  heed_tensor d_o; /* as o */
  heed_tensor dq;  /* as q                                      written */
  heed_tensor dk;  /* as k: h_k heads                           written */
  heed_tensor dv;  /* as v                                      written */

  heed_tensor d_lse;   /* f32, as lse: the gradient of the LSE, where the loss depends on it, too */
  heed_tensor dbias;   /* f32 or the type of bias, of the sizes of bias    written */
  heed_tensor dsink;   /* f32 [h]                                          written */
  heed_tensor dslopes; /* f32, as alibi_slopes                             written */

  int32_t dq_accumulation; /* a heed_dq_accumulation */
  int32_t deterministic;   /* 1: the same bits in every run, or an error */
} heed_backward_args;

/* On the CPU engine it is done when this returns; on the CUDA engine it has been put on the stream. */
HEED_API heed_status heed_backward(heed_context* context, const heed_backward_args* args,
                                   const heed_run_options* options);

/* The gradients in fp64, plain loops. The outputs, and o, lse, d_o and d_lse, may be f64. NULL executor: the calling
 * thread. */
HEED_API heed_status heed_oracle_backward(const heed_backward_args* args, const heed_executor* executor);

/* ---- plans ---- */

/* How one problem will be computed. Making it allocates, running it does not. */
typedef struct heed_plan heed_plan;

typedef struct heed_plan_options {
  size_t struct_size;
  const char* kernel; /* run exactly this one; NULL: the best */
  int32_t engine;     /* a heed_engine */
  int32_t threads;    /* the most workers an executor will bring; 0: as many as the context's pool */
} heed_plan_options;

/* For the problem that these arguments pose. */
HEED_API heed_status heed_plan_create(heed_context* context, const heed_forward_args* args,
                                      const heed_plan_options* options, heed_plan** plan);
/* For a problem as heed_problem_json writes it: no memory need exist yet. */
HEED_API heed_status heed_plan_create_from_json(heed_context* context, const char* problem_json,
                                                const heed_plan_options* options, heed_plan** plan);
/* The same for the backward pass; heed_plan_create_from_json makes both. */
HEED_API heed_status heed_backward_plan_create(heed_context* context, const heed_backward_args* args,
                                               const heed_plan_options* options, heed_plan** plan);
HEED_API void heed_plan_destroy(heed_plan* plan); /* NULL is ignored */

HEED_API size_t heed_plan_workspace_bytes(const heed_plan* plan);
HEED_API int heed_plan_threads(const heed_plan* plan);
HEED_API const char* heed_plan_kernel(const heed_plan* plan); /* name of the main kernel; lives as long as the plan */

/* Where tensors and workspace must be. */
typedef enum heed_memory { HEED_MEMORY_HOST = 0, HEED_MEMORY_GPU = 1 } heed_memory;
HEED_API int heed_plan_memory(const heed_plan* plan); /* a heed_memory */

/* The arguments must pose the plan's problem. The workspace is aligned to 64 bytes and shares none of the plan's bytes
 * with a tensor of the call: it is refused otherwise. NULL executor: the calling thread. */
HEED_API heed_status heed_plan_run(const heed_plan* plan, const heed_forward_args* args, void* workspace,
                                   size_t workspace_bytes, const heed_executor* executor);
HEED_API heed_status heed_backward_plan_run(const heed_plan* plan, const heed_backward_args* args, void* workspace,
                                            size_t workspace_bytes, const heed_executor* executor);

/* For plans of the CUDA engine: puts the work on the stream (a CUstream or cudaStream_t; NULL: the default stream) of
 * the device that holds q. The workspace is memory of that device, all zero before its first use; a run leaves it as
 * the next one needs it. Runs that share a workspace must follow each other. Safe inside graph capture: the graph then
 * needs the workspace and the context, and not the plan. */
HEED_API heed_status heed_plan_run_on_stream(const heed_plan* plan, const heed_forward_args* args, void* workspace,
                                             size_t workspace_bytes, void* stream);
HEED_API heed_status heed_backward_plan_run_on_stream(const heed_plan* plan, const heed_backward_args* args,
                                                      void* workspace, size_t workspace_bytes, void* stream);

/* ---- what there is, and why ---- */

HEED_API void heed_string_free(char* text); /* NULL is ignored */

/* The problem that these arguments pose. */
HEED_API heed_status heed_problem_json(const heed_forward_args* args, char** json);
HEED_API heed_status heed_backward_problem_json(const heed_backward_args* args, char** json);
/* Which kernel would run, and for every other one the rule that excludes it. */
HEED_API heed_status heed_explain_json(heed_context* context, const heed_forward_args* args,
                                       const heed_plan_options* options, char** json);
HEED_API heed_status heed_backward_explain_json(heed_context* context, const heed_backward_args* args,
                                                const heed_plan_options* options, char** json);
HEED_API heed_status heed_explain_problem_json(heed_context* context, const char* problem_json,
                                               const heed_plan_options* options, char** json);
/* Every kernel, or those that match the filter ("d128*causal*"); NULL: all. */
HEED_API heed_status heed_kernels_json(heed_context* context, const char* filter, char** json);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif
