#pragma once

#include <heed/types.hpp>

#include <array>
#include <cstdint>
#include <initializer_list>

namespace heed {

/// A view over memory the caller owns: pointer, type, sizes, and strides in elements. Up to four dimensions.
///
///   TensorView q{pointer, heed::bf16, {b, s, h, d}};                                // dense, the last size innermost
///   TensorView k{pointer, heed::bf16, {b, s, h_k, d}, {s * h_k * d, d, s * d, 1}};  // stored as [b, h, s, d]
///   TensorView same = TensorView::bhsd(pointer, heed::bf16, b, h_k, s, d);          // the same, by name
///
/// What each dimension means is told by whoever takes the view. A view of rank 0 means "not given".
template <class Pointer>
struct BasicView {
  static constexpr int kMaxRank = 4;

  Pointer data = nullptr;
  DataType type = DataType::f32;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> sizes{};
  std::array<std::int64_t, kMaxRank> strides{};

  constexpr BasicView() = default;

  constexpr BasicView(Pointer pointer, DataType element, std::initializer_list<std::int64_t> dims)
      : data(pointer), type(element) {
    for (std::int64_t size : dims) {
      if (rank < kMaxRank) sizes[static_cast<std::size_t>(rank)] = size;
      ++rank;  // a rank over kMaxRank is reported by whoever takes the view
    }
    std::int64_t stride = 1;
    for (int i = (rank < kMaxRank ? rank : kMaxRank) - 1; i >= 0; --i) {
      strides[static_cast<std::size_t>(i)] = stride;
      // Unsigned: sizes that no memory has wrap here, and are reported by whoever takes the view.
      stride = static_cast<std::int64_t>(static_cast<std::uint64_t>(stride) *
                                         static_cast<std::uint64_t>(sizes[static_cast<std::size_t>(i)]));
    }
  }

  constexpr BasicView(Pointer pointer, DataType element, std::initializer_list<std::int64_t> dims,
                      std::initializer_list<std::int64_t> steps)
      : BasicView(pointer, element, dims) {
    std::size_t i = 0;
    for (std::int64_t step : steps)
      if (i < kMaxRank) strides[i++] = step;
    if (steps.size() != dims.size()) rank = kMaxRank + 1;  // likewise reported by whoever takes the view
  }

  /// An output can be read as an input.
  template <class Other>
  constexpr BasicView(const BasicView<Other>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), type(other.type), rank(other.rank), sizes(other.sizes), strides(other.strides) {}

  /// [b, s, h, d] over memory laid out as [b, h, s, d].
  static constexpr BasicView bhsd(Pointer pointer, DataType element, std::int64_t b, std::int64_t h, std::int64_t s,
                                  std::int64_t d) {
    return {pointer, element, {b, s, h, d}, {h * s * d, d, s * d, 1}};
  }

  constexpr bool given() const { return rank != 0; }
  constexpr std::int64_t size(int dim) const { return sizes[static_cast<std::size_t>(dim)]; }
  constexpr std::int64_t stride(int dim) const { return strides[static_cast<std::size_t>(dim)]; }
};

using TensorView = BasicView<const void*>;
using OutputView = BasicView<void*>;

}  // namespace heed
