/// The CUDA engine, where there is a GPU it can use: as it chooses its kernels itself, and with the portable ones
/// alone.

#include "conformance/engines.hpp"
#include "cuda/device.hpp"

namespace heed::conformance {
namespace {

[[maybe_unused]] const bool g_cuda_joined = [] {
  if (cuda::devices().empty()) return false;
  for (const std::string family : {"", "portable"})
    engines().push_back(
        {.name = family.empty() ? "cuda" : "cuda_" + family, .choice = EngineChoice::cuda, .make_context = [family] {
           return std::make_unique<Context>(Context::Options{.cuda_family = family});
         }});
  return true;
}();

}  // namespace
}  // namespace heed::conformance
