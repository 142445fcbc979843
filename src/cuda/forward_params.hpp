#pragma once

#include "dispatch/forward_kernel.hpp"
#include "kernels/forward_features.h"
#include "kernels/forward_params.h"

namespace heed::cuda {

/// What of a problem is compiled into a kernel.
kernels::ForwardFeatures features_of(const Problem& problem);

/// A bias that Hopper kernels copy into shared memory: of 16 bits, whole words side by side. What is not would be
/// copied entry by entry, which takes a warp longer than the products.
bool has_narrow_bias(const Problem& problem);

kernels::Element element_of(DataType type);

/// From p's scale and soft cap, the polynomials of the cap.
void set_polynomials_of_cap(kernels::ForwardParams& p);

/// What a kernel is told when it runs; the schedule is left to the family.
kernels::ForwardParams forward_params(const dispatch::ForwardCall& call);

}  // namespace heed::cuda
