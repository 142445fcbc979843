#include "kernels/forward_params.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace {

/// The largest error of an odd polynomial, as a part of tanh, for 0 < x < upto.
template <std::size_t kTerms>
double largest_error(const float (&terms)[kTerms], float upto) {
  double largest = 0;
  for (int i = 1; i < 10000; ++i) {
    const double x = upto * i / 10000.0;
    double poly = 0;
    for (std::size_t k = kTerms; k-- > 0;) poly = poly * x * x + static_cast<double>(terms[k]);
    largest = std::max(largest, std::abs(poly * x / std::tanh(x) - 1));
  }
  return largest;
}

TEST(PolynomialsOfTanh, are_as_good_as_they_say) {
  EXPECT_LT(largest_error(heed::kernels::kTanhTerm, heed::kernels::kTanhNear), 1.2e-7);
  EXPECT_LT(largest_error(heed::kernels::kTanhSmallTerm, heed::kernels::kTanhSmall), 1.3e-7);
}

}  // namespace
