#pragma once

#include "dispatch/engine.hpp"

#include <memory>
#include <string>

namespace heed::cuda {

struct CudaEngineOptions {
  /// "hopper" or "portable": only its kernels; "portable_ptx": those as PTX for sm_80. Checked by Context.
  std::string family = {};
  /// Knobs that the Hopper kernels of a pass are forced to; then no others of that pass run.
  std::string forward_algo = {}, backward_algo = {};
};

std::unique_ptr<dispatch::Engine> make_cuda_engine(const CudaEngineOptions& options);

}  // namespace heed::cuda
