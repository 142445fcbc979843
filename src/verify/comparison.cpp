#include "verify/comparison.hpp"

#include "core/float_bits.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace heed::verify {
namespace {

double largest_of(DataType type) {
  switch (type) {
    case DataType::f16:
      return 65504;
    case DataType::bf16:
      return 0x1.FEp127;
    default:
      return static_cast<double>(std::numeric_limits<float>::max());
  }
}

bool never_written(const TensorView& view, std::int64_t at) {
  if (view.type == DataType::f32) return core::load_raw<std::uint32_t>(view.data, at) == 0xFFFFFFFFu;
  return core::load_raw<std::uint16_t>(view.data, at) == 0xFFFFu;
}

}  // namespace

double rounding_unit(DataType type) {
  switch (type) {
    case DataType::bf16:
      return 0x1p-8;
    case DataType::f16:
      return 0x1p-11;
    default:
      return 8 * 0x1p-24;
  }
}

double rounding_at_zero(DataType type) {
  constexpr std::uint64_t kBitsOfSmallest = 1;
  return core::load(&kBitsOfSmallest, type, 0) / 2;
}

void Comparison::compare(std::string_view tensor, Distance& distance, const Position& position, double exact,
                         const TensorView& view, std::int64_t at, double allowed) {
  const double got = core::load(view.data, view.type, at);
  const double limit = largest_of(view.type);
  double error = 0;
  bool wrong = false;
  if (std::isnan(exact) || std::isnan(got)) {
    wrong = std::isnan(exact) != std::isnan(got);
  } else if (std::isinf(exact) || std::isinf(got)) {
    // What is beyond the type's range becomes infinite; near the edge of it, it may.
    wrong = !(std::isinf(got) && std::signbit(got) == std::signbit(exact) && std::abs(exact) + allowed >= limit);
  } else {
    error = std::abs(got - exact);
    wrong = error > allowed;
  }
  if (wrong && element_complaints_ < 4) {
    ++element_complaints_;
    complain(fmt::format("{} at {} is {}, must be {} (allowed error {:.2g}){}", tensor, position.to_string(), got,
                         exact, allowed, never_written(view, at) ? ": it was never written" : ""));
  }
  wrong_elements_ += wrong ? 1 : 0;
  if (wrong && error == 0) error = std::numeric_limits<double>::infinity();  // NaN or infinite in the wrong place
  if (error > distance.max_error || !distance.compared) distance = {true, error, position, allowed, exact, got};
}

void Comparison::complain(std::string text) {
  verdict_.status = Verdict::Status::wrong;
  if (verdict_.complaints.size() < 8) verdict_.complaints.push_back(std::move(text));
}

void Comparison::finish() {
  if (wrong_elements_ > 1) verdict_.complaints.push_back(fmt::format("{} elements are wrong", wrong_elements_));
}

}  // namespace heed::verify
