#pragma once

#include <heed/backward.hpp>
#include <heed/problem.hpp>

#include "core/float_bits.hpp"
#include "core/sequences.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

namespace heed::oracle {

template <class Real>
Real read_real(const TensorView& view, std::int64_t index) {
  return static_cast<Real>(core::load(view.data, view.type, index));
}

/// Some keys of one key/value head, read once into contiguous memory, head dims outermost: loops over the keys are the
/// inner ones, and vectorise.
template <class Real>
struct KeySet {
  std::vector<std::int64_t> keys;  ///< their numbers, in order
  std::vector<Real> k, v;          ///< [d][keys], [d_v][keys]

  void read(const ForwardArgs& args, std::int64_t b, std::int64_t g, const core::Sequence& sequence) {
    k = columns(args.k, b, g, sequence);
    v = columns(args.v, b, g, sequence);
  }
  const Real* k_dim(std::int64_t e) const { return k.data() + static_cast<std::size_t>(e) * keys.size(); }
  const Real* v_dim(std::int64_t e) const { return v.data() + static_cast<std::size_t>(e) * keys.size(); }

 private:
  std::vector<Real> columns(const TensorView& view, std::int64_t b, std::int64_t g, const core::Sequence& sequence) {
    const Strides steps = core::strides_of(view);
    const std::int64_t dim = view.size(view.rank - 1);
    std::vector<Real> result(static_cast<std::size_t>(dim) * keys.size());
    for (std::size_t n = 0; n < keys.size(); ++n)
      for (std::int64_t e = 0; e < dim; ++e)
        result[static_cast<std::size_t>(e) * keys.size() + n] = read_real<Real>(
            view, b * steps.batch + (sequence.k_row + keys[n]) * steps.sequence + g * steps.head + e * steps.dim);
    return result;
  }
};

/// What the backward pass knows of one query row before it looks at any key.
template <class Real>
struct QueryRow {
  std::int64_t b = 0, h = 0, i = 0;
  std::vector<Real> q, d_o;  ///< [d], [d_v]
  Real lse = 0;
  Real delta = 0;       ///< D = rowsum(dO * O) - dLSE
  Real delta_size = 0;  ///< the sizes of its terms added up

  void read(const BackwardArgs& args, const core::Sequence& sequence, std::int64_t batch, std::int64_t head,
            std::int64_t row) {
    b = batch, h = head, i = row;
    const ForwardArgs& forward = args.forward;
    const std::int64_t physical = sequence.q_row + i;
    q = elements(forward.q, physical);
    d_o = elements(args.d_o, physical);
    const std::vector<Real> o = elements(forward.o, physical);
    delta = delta_size = 0;
    for (std::size_t e = 0; e < o.size(); ++e) {
      delta += d_o[e] * o[e];
      delta_size += std::abs(d_o[e] * o[e]);
    }
    const auto at = [&](const TensorView& view) {
      const core::LseStrides steps = core::lse_strides(view);
      return read_real<Real>(view, b * steps.batch + h * steps.head + physical * steps.row);
    };
    lse = at(forward.lse);
    if (args.d_lse.given()) {
      delta -= at(args.d_lse);
      delta_size += std::abs(at(args.d_lse));
    }
  }

 private:
  std::vector<Real> elements(const TensorView& view, std::int64_t physical) const {
    const Strides steps = core::strides_of(view);
    std::vector<Real> row(static_cast<std::size_t>(view.size(view.rank - 1)));
    const std::int64_t at = b * steps.batch + physical * steps.sequence + h * steps.head;
    for (std::size_t e = 0; e < row.size(); ++e)
      row[e] = read_real<Real>(view, at + static_cast<std::int64_t>(e) * steps.dim);
    return row;
  }
};

}  // namespace heed::oracle
