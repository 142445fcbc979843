#include "cuda/portable_forward.hpp"

#include "cuda/expected_work.hpp"
#include "cuda/kernel_text.hpp"
#include "cuda/portable_device.hpp"
#include "cuda/tile_order.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

namespace heed::cuda {
namespace {

using dispatch::ForwardAlgorithm;
using dispatch::ForwardKernelSpec;
using dispatch::ForwardSignature;
using dispatch::MathUnit;
using dispatch::Sm;
using dispatch::up_to;

constexpr std::int64_t kMaxHeadDim = 1024;

constexpr ForwardSignature signature(dispatch::Set<DataType> types, dispatch::Set<Math> math) {
  return {.types = types,
          .d = up_to(kMaxHeadDim),
          .d_v = up_to(kMaxHeadDim),
          .math = math,
          .lengths = {0, std::int64_t{1} << 28, 1}};
}

constexpr std::array kSpecs{
    ForwardKernelSpec{"portable_fwd_16bit", signature({DataType::f16, DataType::bf16}, {Math::fast}),
                      ForwardAlgorithm{.arch = Sm{80},
                                       .unit = MathUnit::mma,
                                       .tile_q = 128,
                                       .tile_k = 64,
                                       .notes = "any stride and address; tiles by head dim"}},
    ForwardKernelSpec{"portable_fwd_accurate", signature({DataType::f16, DataType::bf16}, {Math::accurate}),
                      ForwardAlgorithm{.arch = Sm{80},
                                       .unit = MathUnit::f32_fma,
                                       .tile_q = 128,
                                       .tile_k = 64,
                                       .notes = "16-bit elements, f32 products; any stride and address"}},
    ForwardKernelSpec{"portable_fwd_f32", signature({DataType::f32}, dispatch::any),
                      ForwardAlgorithm{.arch = Sm{80},
                                       .unit = MathUnit::f32_fma,
                                       .tile_q = 128,
                                       .tile_k = 64,
                                       .notes = "true f32 products; any stride and address"}},
};

/// See PortableConfig::row_bytes.
int row_bytes(const Problem& problem) {
  const std::int64_t element = bits(problem.type()) / 8;
  if (!problem.aligned()) return static_cast<int>(element);
  std::int64_t bytes = 16;
  for (const Operand which : {Operand::q, Operand::k, Operand::v}) {
    const Strides s = problem.strides(which);
    if (s.dim != 1) return static_cast<int>(element);
    for (const std::int64_t step : {s.sequence, s.head, s.batch}) bytes = std::gcd(bytes, step * element);
  }
  return static_cast<int>(bytes);
}

/// What products are computed in.
kernels::Element product_type(const Problem& problem) {
  return problem.math() == Math::accurate ? kernels::Element::f32 : element_of(problem.type());
}

class PortableForward final : public CudaForwardKernel {
 public:
  PortableForward(const ForwardKernelSpec& spec, std::shared_ptr<EngineState> state)
      : CudaForwardKernel(spec, std::move(state)) {}

  double expected_seconds(const Problem& problem) const override {
    const double rate = product_type(problem) == kernels::Element::f32 ? 25e12 : 250e12;
    return 4e-6 + 2 * expected_pairs(problem) * static_cast<double>(problem.d() + problem.d_v()) / rate;
  }

  Compilation compilation(const Problem& problem, const Device& device) const override {
    const kernels::PortableConfig config = portable_config(problem, portable_device(device));
    return {kernel_source(config), has_state() ? state().portable_arch() : "sm_" + std::to_string(device.sm),
            config.shared_bytes()};
  }

 private:
  void launch(const dispatch::ForwardCall& call, const Compiled& compiled, int device) const override {
    const Problem& problem = call.problem;
    const kernels::PortableConfig config = portable_config(problem, portable_device(state().device));
    kernels::ForwardParams p = forward_params(call);
    p.row_tiles = static_cast<int>((problem.s_q() + config.tile_q() - 1) / config.tile_q());
    p.section = tile_order(problem, p.row_tiles).section;
    const std::int64_t tiles = p.row_tiles * problem.heads_q() * problem.batch();
    if (tiles == 0) return;
    void* parameters[] = {&p};
    compiled.main->launch(
        device, static_cast<unsigned>(std::min<std::int64_t>(tiles, std::numeric_limits<std::int32_t>::max())),
        static_cast<unsigned>(config.threads()), static_cast<CUstream>(call.stream), parameters);
  }
};

}  // namespace

std::span<const ForwardKernelSpec> portable_specs() { return kSpecs; }

kernels::PortableConfig portable_config(const Problem& problem, const kernels::PortableDevice& device) {
  return kernels::portable_config(product_type(problem), element_of(problem.type()), element_of(problem.output_type()),
                                  static_cast<int>(problem.d()), static_cast<int>(problem.d_v()), row_bytes(problem),
                                  features_of(problem), device);
}

std::shared_ptr<const dispatch::ForwardKernel> make_portable_forward(const ForwardKernelSpec& spec,
                                                                     std::shared_ptr<EngineState> state) {
  return std::make_shared<PortableForward>(spec, std::move(state));
}

}  // namespace heed::cuda
