#pragma once

#include <heed/forward.hpp>
#include <heed/problem.hpp>

#include "core/float_bits.hpp"

#include <array>
#include <cstdint>

/// Where the rows of each batch entry are and how many of them count: the one place that knows batch mode from group
/// mode. Nothing here checks anything: the arguments have passed Problem::of.
namespace heed::core {

/// One entry of the batch. Element (i, head, e) of q is at
///   batch_index * strides.batch + (q_row + i) * strides.sequence + head * strides.head + e * strides.dim
/// in both modes, with strides_of(args.q); likewise o with q_row, and k and v with k_row.
struct Sequence {
  std::int64_t q_row = 0;  ///< first physical row in q and o; 0 in batch mode
  std::int64_t k_row = 0;  ///< first physical row in k and v; 0 in batch mode
  std::int64_t s_q = 0;    ///< logical length
  std::int64_t s_k = 0;    ///< logical length

  friend bool operator==(const Sequence&, const Sequence&) = default;
};

/// Reads an index array of i32 or i64, with any stride and alignment.
class IndexArray {
 public:
  IndexArray() = default;
  explicit IndexArray(const TensorView& view)
      : data_(view.data), size_(view.sizes[0]), stride_(view.strides[0]), wide_(view.type == DataType::i64) {}

  std::int64_t size() const { return size_; }
  std::int64_t operator[](std::int64_t index) const {
    return wide_ ? load_raw<std::int64_t>(data_, index * stride_) : load_raw<std::int32_t>(data_, index * stride_);
  }

 private:
  const void* data_ = nullptr;
  std::int64_t size_ = 0;
  std::int64_t stride_ = 0;
  bool wide_ = false;
};

/// All entries of the batch. Holds no memory of its own: it reads the caller's arrays when asked.
class Sequences {
 public:
  explicit Sequences(const ForwardArgs& args);

  std::int64_t size() const { return batch_; }
  Sequence operator[](std::int64_t batch_index) const;

 private:
  std::int64_t batch_ = 0;
  std::int64_t s_q_ = 0, s_k_ = 0;  ///< physical, batch mode only
  bool group_ = false, logical_q_ = false, logical_k_ = false;
  IndexArray start_q_, start_k_, length_q_, length_k_;
};

inline bool is_group_mode(const ForwardArgs& args) { return args.seqstart_q.given(); }

/// Steps of q, k, v or o: rank 4 in batch mode, rank 3 (batch step 0) in group mode.
/// As the view tells them: Problem::strides() is the same with 0 for the dimensions of size 0 and 1.
inline Strides strides_of(const TensorView& view) {
  if (view.rank == 3) return {0, view.strides[0], view.strides[1], view.strides[2]};
  return {view.strides[0], view.strides[1], view.strides[2], view.strides[3]};
}

/// Steps over (batch, head, query, key), with i and j counted inside the sequence.
struct ScoreStrides {
  std::int64_t batch = 0, head = 0, query = 0, key = 0;

  constexpr std::int64_t at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return b * batch + h * head + i * query + j * key;
  }
  friend bool operator==(const ScoreStrides&, const ScoreStrides&) = default;
};

/// Steps of a bias, a boolean mask, the randval output, or (over blocks of queries and keys) a block mask: dimensions
/// are aligned from the right, missing ones and ones of size 1 have step 0.
inline ScoreStrides broadcast_strides(const TensorView& view) {
  std::array<std::int64_t, 4> steps{};
  for (int i = 0; i < view.rank; ++i) {
    const int to = 4 - view.rank + i;
    if (view.size(i) != 1) steps[static_cast<std::size_t>(to)] = view.stride(i);
  }
  return {steps[0], steps[1], steps[2], steps[3]};
}

/// Steps of the LSE [b, h, s_q] or [h, total_q] and of ALiBi slopes [b, h] or [h].
/// Element (b, h, row) of the LSE is at b * batch + h * head + row * row_step, where row counts from Sequence::q_row.
struct LseStrides {
  std::int64_t batch = 0, head = 0, row = 0;
};
inline LseStrides lse_strides(const TensorView& view) {
  if (view.rank == 2) return {0, view.strides[0], view.strides[1]};
  return {view.strides[0], view.strides[1], view.strides[2]};
}

struct SlopeStrides {
  std::int64_t batch = 0, head = 0;
};
inline SlopeStrides alibi_strides(const TensorView& view) {
  if (view.rank == 1) return {0, view.strides[0]};
  return {view.strides[0], view.strides[1]};
}

}  // namespace heed::core
