#pragma once

#include <heed/executor.hpp>
#include <heed/forward.hpp>

#include "core/float_bits.hpp"
#include "core/sequences.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace heed::oracle {

/// Keys [first, last) of one key/value head, read once into contiguous memory.
template <class Real>
struct KeyValueHead {
  std::int64_t first = 0, last = 0, d_v = 0;
  std::vector<Real> k_transposed;  ///< [d, last - first]: the loop over the keys is the inner one, and vectorises
  std::vector<Real> v;             ///< [last - first, d_v]
  std::vector<Real> k_norms;       ///< [last - first]: the length of each row of K

  const Real* k_dim(std::int64_t e) const { return k_transposed.data() + e * (last - first); }
  const Real* v_row(std::int64_t j) const { return v.data() + (j - first) * d_v; }

  /// Reads head g of batch entry b.
  void read(const ForwardArgs& args, std::int64_t b, std::int64_t g, const core::Sequence& sequence,
            Executor& executor) {
    const std::int64_t keys = last - first, d = args.k.size(args.k.rank - 1);
    d_v = args.v.size(args.v.rank - 1);
    k_transposed.resize(static_cast<std::size_t>(keys * d));
    v.resize(static_cast<std::size_t>(keys * d_v));
    k_norms.resize(static_cast<std::size_t>(keys));

    const Strides k_steps = core::strides_of(args.k), v_steps = core::strides_of(args.v);
    constexpr std::int64_t kElementsPerPiece = 1 << 17;
    const std::int64_t piece = std::max<std::int64_t>(1, kElementsPerPiece / (d + d_v));
    parallel_for(executor, (keys + piece - 1) / piece, [&](std::int64_t index, int) {
      for (std::int64_t j = index * piece; j < std::min((index + 1) * piece, keys); ++j) {
        const std::int64_t row = sequence.k_row + first + j;
        const std::int64_t k_at = b * k_steps.batch + row * k_steps.sequence + g * k_steps.head;
        const std::int64_t v_at = b * v_steps.batch + row * v_steps.sequence + g * v_steps.head;
        Real squares = 0;
        for (std::int64_t e = 0; e < d; ++e) {
          const Real x = read_element(args.k, k_at + e * k_steps.dim);
          k_transposed[static_cast<std::size_t>(e * keys + j)] = x;
          squares += x * x;
        }
        k_norms[static_cast<std::size_t>(j)] = std::sqrt(squares);
        for (std::int64_t e = 0; e < d_v; ++e)
          v[static_cast<std::size_t>(j * d_v + e)] = read_element(args.v, v_at + e * v_steps.dim);
      }
    });
  }

  static Real read_element(const TensorView& view, std::int64_t index) {
    return static_cast<Real>(core::load(view.data, view.type, index));
  }
};

}  // namespace heed::oracle
