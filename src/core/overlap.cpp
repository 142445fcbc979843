#include "core/overlap.hpp"

#include <algorithm>
#include <cstddef>

namespace heed::core {
namespace {

/// count * step with count free in [low, high].
struct Term {
  std::int64_t step = 0, low = 0, high = 0;
};

constexpr std::int64_t floor_div(std::int64_t a, std::int64_t positive) {
  return a / positive - (a % positive < 0 ? 1 : 0);
}
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t positive) { return -floor_div(-a, positive); }

/// Can a sum of terms fall into a window? Depth first from the largest step down; at each, only the counts that the
/// smaller steps can still make up for are tried: one or two where dimensions nest.
class Search {
 public:
  /// A negative step is the positive one with the counts negated.
  void add(std::int64_t step, std::int64_t low, std::int64_t high) {
    if (low == high) return;
    if (step < 0) {
      step = -step;
      std::swap(low, high);
      low = -low;
      high = -high;
    }
    // Equal steps are one term: in packed buffers q and o differ only in their base.
    for (std::size_t i = 0; i < count_; ++i) {
      if (terms_[i].step != step) continue;
      terms_[i].low += low;
      terms_[i].high += high;
      return;
    }
    terms_[count_++] = {step, low, high};
  }

  /// Is there a sum in [low, high]? With `nontrivial`, not all counts may be 0.
  bool reaches(std::int64_t low, std::int64_t high, bool nontrivial) {
    std::sort(terms_.begin(), terms_.begin() + static_cast<std::ptrdiff_t>(count_),
              [](const Term& a, const Term& b) { return a.step > b.step; });
    for (std::size_t i = count_; i-- > 0;) {
      rest_low_[i] = rest_low_[i + 1] + terms_[i].low * terms_[i].step;
      rest_high_[i] = rest_high_[i + 1] + terms_[i].high * terms_[i].step;
    }
    steps_left_ = 4096;
    return descend(0, low, high, nontrivial);
  }

 private:
  bool descend(std::size_t depth, std::int64_t low, std::int64_t high, bool nontrivial) {
    if (--steps_left_ < 0) return true;
    if (depth == count_) return low <= 0 && 0 <= high && !nontrivial;
    const Term& term = terms_[depth];
    const std::int64_t first = std::max(term.low, ceil_div(low - rest_high_[depth + 1], term.step));
    const std::int64_t last = std::min(term.high, floor_div(high - rest_low_[depth + 1], term.step));
    for (std::int64_t n = first; n <= last; ++n)
      if (descend(depth + 1, low - n * term.step, high - n * term.step, nontrivial && n == 0)) return true;
    return false;
  }

  std::array<Term, 8> terms_{};
  std::size_t count_ = 0;
  std::array<std::int64_t, 9> rest_low_{}, rest_high_{};  ///< what the terms from i on can sum to
  int steps_left_ = 0;
};

}  // namespace

std::int64_t span(const std::array<std::int64_t, 4>& sizes, const std::array<std::int64_t, 4>& steps) {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    if (sizes[i] <= 1) continue;
    if (steps[i] > kMaxSpan || steps[i] < -kMaxSpan) return kMaxSpan + 1;
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(sizes[i] - 1, steps[i] < 0 ? -steps[i] : steps[i], &reach)) return kMaxSpan + 1;
    if (reach > kMaxSpan - total) return kMaxSpan + 1;
    total += reach;
  }
  return total;
}

Footprint footprint(const TensorView& view) {
  Footprint result;
  result.base = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data));
  result.element = (bits(view.type) + 7) / 8;
  result.low = result.high = result.base;
  for (int i = 0; i < view.rank; ++i) {
    const auto at = static_cast<std::size_t>(i);
    result.sizes[at] = view.size(i);
    if (view.size(i) == 0) result.empty = true;
    if (view.size(i) <= 1) continue;
    result.steps[at] = view.stride(i) * result.element;
    const std::int64_t reach = (view.size(i) - 1) * result.steps[at];
    (reach < 0 ? result.low : result.high) += reach;
  }
  result.high += result.element;
  return result;
}

bool self_overlaps(const std::array<std::int64_t, 4>& sizes, const std::array<std::int64_t, 4>& steps) {
  // Equal steps may not be merged here: (1, -1) is a different element from (0, 0) at the same address.
  std::array<Term, 4> terms{};
  std::size_t count = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    if (sizes[i] == 0) return false;
    if (sizes[i] > 1) terms[count++] = {steps[i] < 0 ? -steps[i] : steps[i], 0, sizes[i] - 1};
  }
  const auto end = terms.begin() + static_cast<std::ptrdiff_t>(count);
  std::sort(terms.begin(), end, [](const Term& a, const Term& b) { return a.step < b.step; });
  bool nested = true;
  std::int64_t reach = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (terms[i].step == 0 || (i > 0 && terms[i].step == terms[i - 1].step)) return true;
    nested = nested && terms[i].step > reach;
    reach += terms[i].high * terms[i].step;
  }
  if (nested) return false;
  Search search;
  for (std::size_t i = 0; i < count; ++i) search.add(terms[i].step, -terms[i].high, terms[i].high);
  return search.reaches(0, 0, true);
}

bool overlap_within_range(const Footprint& a, const Footprint& b) {
  Search search;
  for (std::size_t i = 0; i < 4; ++i) {
    if (a.steps[i] != 0) search.add(a.steps[i], 0, a.sizes[i] - 1);
    if (b.steps[i] != 0) search.add(-b.steps[i], 0, b.sizes[i] - 1);
  }
  // The elements at a.base + x and b.base + y share a byte when neither begins behind the other's end.
  const std::int64_t distance = b.base - a.base;
  return search.reaches(distance - a.element + 1, distance + b.element - 1, false);
}

}  // namespace heed::core
