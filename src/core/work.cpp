#include <heed/work.hpp>

#include "core/invalid.hpp"
#include "core/sequences.hpp"
#include "core/visible_pairs.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace heed {
namespace {

/// Rows or entries of the batch added up: once each, or, where they lie at one place (stride 0), the most of any.
class Extent {
 public:
  explicit Extent(bool shared) : shared_(shared) {}
  void add(double size, double times) { total_ = shared_ ? std::max(total_, size) : total_ + size * times; }
  double total() const { return total_; }

 private:
  bool shared_;
  double total_ = 0;
};

/// Counts the elements of each tensor that one entry of the batch after the other makes use of.
class Counter {
 public:
  explicit Counter(const Problem& p) : p_(p) {
    for (const Operand operand : p.operands()) {
      const bool shared = p.mode() == Mode::batch && p.batch() > 1 && p.strides(operand).batch == 0;
      tensors_[static_cast<std::size_t>(operand)] = Extent(shared);
    }
    bias_ = Extent(!p.bias() || !p.bias()->shape.batch);
  }

  /// A number of entries of these lengths.
  void add(std::int64_t s_q, std::int64_t s_k, std::int64_t entries) {
    const auto times = static_cast<double>(entries);
    pairs_ += times * core::visible_pairs(p_.mask().bounds(s_q, s_k), s_q) * static_cast<double>(p_.heads_q());
    lse_rows_ += times * static_cast<double>(s_q);
    for (const Operand operand : p_.operands())
      tensors_[static_cast<std::size_t>(operand)].add(elements(operand, s_q, s_k), times);
    if (p_.bias()) {
      const Broadcast& own = p_.bias()->shape;
      bias_.add((own.head ? static_cast<double>(p_.heads_q()) : 1) * (own.query ? static_cast<double>(s_q) : 1) *
                    (own.key ? static_cast<double>(s_k) : 1),
                times);
    }
  }

  Work work() const {
    double total_bits = 0;
    for (const Operand operand : p_.operands()) {
      const DataType type = shape_of(operand) == Operand::o ? p_.output_type()
                            : operand < Operand::dq         ? p_.type()
                                                            : p_.gradient_type();
      total_bits += tensors_[static_cast<std::size_t>(operand)].total() * bits(type);
    }
    const double rows = lse_rows_ * static_cast<double>(p_.heads_q());
    if (p_.lse()) total_bits += rows * bits(DataType::f32);
    if (p_.d_lse()) total_bits += rows * bits(DataType::f32);
    if (p_.bias()) total_bits += bias_.total() * bits(p_.bias()->type);
    if (p_.dbias()) total_bits += bias_.total() * bits(*p_.dbias());
    // Backward: S = Q K^T again, dP = dO V^T, and three products that sum up gradients.
    const auto d = static_cast<double>(p_.d()), d_v = static_cast<double>(p_.d_v());
    const double flops = 2 * pairs_ * (p_.operation() == Operation::forward ? d + d_v : 3 * d + 2 * d_v);
    return {pairs_, flops, total_bits / 8};
  }

 private:
  /// Of one entry of the batch.
  double elements(Operand which, std::int64_t s_q, std::int64_t s_k) const {
    const Operand shape = shape_of(which);
    const bool of_q = shape == Operand::q || shape == Operand::o;
    const std::int64_t rows = of_q ? s_q : s_k;
    const std::int64_t heads = of_q ? p_.heads_q() : p_.heads_k();
    const std::int64_t dim = shape == Operand::q || shape == Operand::k ? p_.d() : p_.d_v();
    const Strides strides = p_.strides(which);
    return static_cast<double>(strides.sequence == 0 ? std::min<std::int64_t>(rows, 1) : rows) *
           static_cast<double>(strides.head == 0 ? std::min<std::int64_t>(heads, 1) : heads) * static_cast<double>(dim);
  }

  const Problem& p_;
  std::vector<Extent> tensors_{kOperandCount, Extent(false)};
  Extent bias_{false};
  double pairs_ = 0, lse_rows_ = 0;
};

}  // namespace

namespace {

Work work_of(const Problem& problem, const core::Sequences& sequences) {
  Counter counter(problem);
  for (std::int64_t b = 0; b < sequences.size(); ++b) {
    const core::Sequence sequence = sequences[b];
    counter.add(sequence.s_q, sequence.s_k, 1);
  }
  return counter.work();
}

}  // namespace

Work work_of(const ForwardArgs& args) { return work_of(Problem::of(args), core::Sequences(args)); }
Work work_of(const BackwardArgs& args) { return work_of(Problem::of(args), core::Sequences(args.forward)); }

Work work_of(const Problem& problem) {
  if (auto error = problem.validate()) throw *std::move(error);
  if (problem.mode() == Mode::group || problem.logical_q() || problem.logical_k())
    throw core::invalid(
        "the work of a problem whose sequences have lengths of their own depends on them: call work_of(args), or pose "
        "the "
        "problem in batch mode without logical lengths.");
  Counter counter(problem);
  if (problem.batch() > 0) counter.add(problem.s_q(), problem.s_k(), problem.batch());
  return counter.work();
}

}  // namespace heed
