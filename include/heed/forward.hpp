#pragma once

#include <heed/mask.hpp>
#include <heed/tensor.hpp>

#include <cstdint>

namespace heed {

class Executor;

/// How the two products are computed. Accumulation and softmax are f32 in both.
enum class Math : std::uint8_t {
  fast,      ///< the input type's own units where the machine has them (bf16 dot, AMX): P is rounded to the input type
  accurate,  ///< every product in f32
};

/// A mask of blocks: keep[.., .., i / block_q, j / block_k] says whether query i may see key j.
struct BlockMask {
  TensorView keep = {};  ///< u8 [1|b, 1|h, ceil(s_q / block_q), ceil(s_k / block_k)]
  std::int64_t block_q = 0;
  std::int64_t block_k = 0;
};

struct Dropout {
  double p = 0;  ///< probability of losing an entry, 0 <= p < 1
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  OutputView randval = {};  ///< u16 [b, h, s_q, s_k]: the random word of every entry (kept where >= p * 65536)
  /// i64 [2]: {seed, offset}, read when the call runs instead of the two values above, so that a replayed CUDA graph
  /// draws anew. In GPU memory on the CUDA engine.
  TensorView state = {};
};

/// Everything forward attention can be told. Only q, k, v and o must be given.
///
/// Batch mode: q, o are [b, s_q, h, d], k, v are [b, s_k, h_k, d]. Group mode (sequences of their own lengths, packed):
/// seqstart_q and seqstart_k are given, and the tensors are [total rows, heads, d].
struct ForwardArgs {
  TensorView q;  ///< [b, s_q, h, d]      or [total_q, h, d]
  TensorView k;  ///< [b, s_k, h_k, d]    or [total_k, h_k, d]
  TensorView v;  ///< [b, s_k, h_k, d_v]  or [total_k, h_k, d_v]
  OutputView o;  ///< [b, s_q, h, d_v]    or [total_q, h, d_v]

  OutputView lse = {};  ///< f32 [b, h, s_q] or [h, total_q]: log-sum-exp, natural logarithm

  Mask mask = {};
  TensorView bool_mask = {};     ///< u8, true = keep; broadcasts like bias
  BlockMask block_mask = {};     ///< blocks to keep
  TensorView bias = {};          ///< f32 or the type of q; [b, h, s_q, s_k], each may be 1, the first ones missing
  TensorView alibi_slopes = {};  ///< f32 [h] or [b, h]
  TensorView sink = {};          ///< f32 [h]: one more logit in each row's denominator

  double scale = 0;     ///< 0: 1 / sqrt(d)
  double soft_cap = 0;  ///< 0: off
  Dropout dropout = {};

  TensorView seqstart_q = {};  ///< i32 or i64 [b + 1]: physical row offsets
  TensorView seqstart_k = {};
  TensorView seqlen_q = {};  ///< i32 or i64 [b]: logical lengths, at most the physical ones
  TensorView seqlen_k = {};

  /// Group mode: no sequence is longer than this. 0: the longest of those given; on the CUDA engine, where the lists
  /// above lie in GPU memory and nobody reads them before the kernel does, as many as the tensor has rows.
  std::int64_t max_s_q = 0, max_s_k = 0;

  Math math = Math::fast;
};

/// Where the tensors of a call are.
enum class Memory : std::uint8_t { host, gpu };

/// Which engine may run a call.
enum class EngineChoice : std::uint8_t { automatic, cpu, cuda };

struct RunOptions {
  EngineChoice engine = EngineChoice::automatic;  ///< automatic: the one in whose memory q lies
  Executor* executor = nullptr;                   ///< threads for the CPU engine; null: the context's own pool
  void* stream = nullptr;                         ///< CUDA engine: a CUstream or cudaStream_t; null: the default stream
};

/// Computes attention. On the CPU engine it is done when this returns; on the CUDA engine it has been put on the
/// stream. Throws Error before anything is written.
HEED_API void forward(const ForwardArgs& args, const RunOptions& options = {});

}  // namespace heed
