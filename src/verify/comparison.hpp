#pragma once

#include "verify/judge.hpp"

#include <heed/tensor.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace heed::verify {

/// Compares elements with what they must be, and writes what it finds into a Verdict.
class Comparison {
 public:
  explicit Comparison(Verdict& verdict) : verdict_(verdict) {}

  /// Keeps the largest error in `distance`, and complains about what is not allowed.
  void compare(std::string_view tensor, Distance& distance, const Position& position, double exact,
               const TensorView& view, std::int64_t at, double allowed);

  void complain(std::string text);
  void count_wrong() { ++wrong_elements_; }
  /// After the last element.
  void finish();

 private:
  Verdict& verdict_;
  std::int64_t wrong_elements_ = 0;
  int element_complaints_ = 0;
};

/// How much an element of a type is off after rounding, the u of the contract for tolerances.
double rounding_unit(DataType type);
/// What rounding may take from a number however small it is, or add to it: half the step between numbers around 0.
double rounding_at_zero(DataType type);

}  // namespace heed::verify
