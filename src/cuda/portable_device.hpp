#pragma once

#include "cuda/device.hpp"
#include "kernels/portable_config.h"

namespace heed::cuda {

/// What the configurations of the portable family depend on.
inline kernels::PortableDevice portable_device(const Device& device) { return {device.sm, device.max_shared_memory}; }

}  // namespace heed::cuda
