#include "cuda/kernel_text.hpp"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace heed::cuda {
namespace {

using kernels::BiasType;
using kernels::Element;
using kernels::ForwardFeatures;
using kernels::MaskShape;
using kernels::Persistence;
using kernels::Turns;

constexpr std::array<std::string_view, 3> kElements{"f32", "f16", "bf16"};
constexpr std::array<std::string_view, 3> kMasks{"none", "right", "window"};
constexpr std::array<std::string_view, 3> kBiases{"none", "f32", "as_input"};
constexpr std::array<std::string_view, 3> kTurns{"free", "products", "softmax"};
constexpr std::array<std::string_view, 3> kPersistences{"one_tile", "fixed", "dynamic"};
constexpr std::array<std::string_view, 2> kBiasRoutes{"in_step", "copied"};
constexpr std::array<std::string_view, 2> kPipelines{"in_step", "ahead"};
constexpr std::array<std::string_view, 10> kBackwardParts{"rows", "together", "gather", "keys_values", "values",
                                                          "keys", "queries",  "bias",   "bias_sum",    "sums"};

template <class Enum, std::size_t N>
std::string_view text(const std::array<std::string_view, N>& names, Enum value) {
  return names.at(static_cast<std::size_t>(value));
}

/// "{.mask = MaskShape::right, .own_lengths = false, ...}"
std::string initializer(const ForwardFeatures& f) {
  return fmt::format(
      "{{.mask = MaskShape::{}, .own_lengths = {}, .keep = {}, .blocks = {}, .negative_scale = {}, .soft_cap = {}, "
      ".bias = BiasType::{}, .alibi = {}, .sink = {}, .dropout = {}, .packed = {}}}",
      text(kMasks, f.mask), f.own_lengths, f.keep, f.blocks, f.negative_scale, f.soft_cap, text(kBiases, f.bias),
      f.alibi, f.sink, f.dropout, f.packed);
}

/// "_right_lengths_alibi": what of the features a name tells.
std::string suffix(const ForwardFeatures& f) {
  std::string words;
  const auto add = [&](bool has, std::string_view word) {
    if (has) words.append("_").append(word);
  };
  add(f.mask == MaskShape::right, "right");
  add(f.mask == MaskShape::window, "window");
  add(f.own_lengths, "lengths");
  add(f.keep, "keep");
  add(f.blocks, "blocks");
  add(f.negative_scale, "negative");
  add(f.soft_cap, "softcap");
  add(f.bias == BiasType::f32, "bias32");
  add(f.bias == BiasType::as_input, "bias");
  add(f.alibi, "alibi");
  add(f.sink, "sink");
  add(f.dropout, "dropout");
  add(f.packed, "packed");
  return words;
}

/// One of the kernels of a Hopper backward pass, whose configuration is written out as `config`. dbias: the main one
/// stores it.
KernelSource hopper_backward_source(const std::string& name, std::string_view main, const std::string& config,
                                    HopperBackwardPart part, bool dbias = false) {
  if (part == HopperBackwardPart::main)
    return {name, fmt::format(R"(#include "{0}.cuh"
using namespace heed::kernels;

{1}
extern "C" __global__ void __launch_bounds__(kConfig.threads(), 1)
    heed_kernel(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap d_o,
                const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v,
                const __grid_constant__ BackwardParams p{2}) {{
  {0}<kConfig>(q, d_o, k, v, p{3});
}}
)",
                              main, config, dbias ? ", const __grid_constant__ TensorMap dbias" : "",
                              dbias ? ", &dbias" : "")};
  const bool of_keys = part == HopperBackwardPart::parts;
  const std::string_view stage = of_keys ? "parts" : part == HopperBackwardPart::before ? "before" : "after";
  return {fmt::format("{}_{}", name, stage), fmt::format(R"(#include "hopper_backward_{}.cuh"
using namespace heed::kernels;

{}
extern "C" __global__ void __launch_bounds__(kRowThreads, 1) heed_kernel(const __grid_constant__ BackwardParams p) {{
  hopper_backward_{}<kConfig>(p);
}}
)",
                                                         of_keys ? "parts" : "rows", config, stage)};
}

/// A kernel of Q, dO, K and V that is named as its file, and has so many threads as this member of its configuration
/// says.
std::string text_of_four_tensors(std::string_view kernel, std::string_view threads, const std::string& config) {
  return fmt::format(R"(#include "{0}.cuh"
using namespace heed::kernels;

{1}
extern "C" __global__ void __launch_bounds__(kConfig.{2}(), 1)
    heed_kernel(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap d_o,
                const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v,
                const __grid_constant__ BackwardParams p) {{
  {0}<kConfig>(q, d_o, k, v, p);
}}
)",
                     kernel, config, threads);
}

/// What the kernel of this part is told.
template <class Config>
Config config_of(const Config& c, HopperBackwardPart part) {
  if (part == HopperBackwardPart::main) return c;
  return part == HopperBackwardPart::before ? config_before(c) : config_after(c);
}

/// "_cluster2_pshared": what of the knobs a name tells.
std::string knob_suffix(const kernels::HopperConfig& c) {
  return fmt::format("{}{}{}{}{}{}{}", c.specialised ? "" : "_alike", c.cluster == 1 ? "" : "_cluster2",
                     c.p_in_shared ? "_pshared" : "", c.scores_in_f16 ? "_scores16" : "",
                     c.sums_in_f16 ? "_sums16" : "", c.bias_copied() ? "_copied" : "",
                     c.v_by_columns ? "_columns" : "");
}

}  // namespace

KernelSource kernel_source(const kernels::HopperConfig& c) {
  return {fmt::format("hopper_fwd_{}_d{}_{}_{}x{}{}{}", text(kElements, c.type), c.d, c.d_v, c.tile_q(), c.tile_k,
                      knob_suffix(c), suffix(c.features)),
          fmt::format(
              R"(#include "hopper_forward.cuh"
using namespace heed::kernels;

constexpr HopperConfig kConfig{{
    .type = Element::{}, .d = {}, .d_v = {}, .tile_k = {}, .warpgroups = {}, .k_stages = {}, .v_stages = {},
    .q_buffers = {}, .turns = Turns::{}, .persistence = Persistence::{}, .lazy_maximum = {}, .rescale_threshold = {},
    .q_in_registers = {}, .own_o_memory = {}, .specialised = {}, .cluster = {}, .p_in_shared = {}, .scores_in_f16 = {},
    .sums_in_f16 = {}, .bias_route = BiasRoute::{}, .bias_stages = {}, .v_by_columns = {},
    .features = {}}};

extern "C" __global__ void __launch_bounds__(kConfig.threads(), 1){}
    heed_kernel(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap o,
                const __grid_constant__ ForwardParams p) {{
  hopper_forward<kConfig>(q, k, v, o, p);
}}
)",
              text(kElements, c.type), c.d, c.d_v, c.tile_k, c.warpgroups, c.k_stages, c.v_stages, c.q_buffers,
              text(kTurns, c.turns), text(kPersistences, c.persistence), c.lazy_maximum, c.rescale_threshold,
              c.q_in_registers, c.own_o_memory, c.specialised, c.cluster, c.p_in_shared, c.scores_in_f16, c.sums_in_f16,
              text(kBiasRoutes, c.bias_route), c.bias_stages, c.v_by_columns, initializer(c.features),
              c.cluster == 1 ? "" : " __cluster_dims__(kConfig.cluster, 1, 1)")};
}

KernelSource kernel_source(const kernels::PortableConfig& c) {
  return {
      fmt::format("portable_fwd_{}{}_{}_d{}_{}_{}x{}{}{}{}", text(kElements, c.input),
                  c.type == c.input ? "" : "_accurate", text(kElements, c.output), c.d, c.d_v, c.tile_q(), c.tile_k,
                  c.pairs ? "_pairs" : "", c.row_bytes == 16 ? "" : fmt::format("_by{}", c.row_bytes),
                  suffix(c.features)),
      fmt::format(
          R"(#include "portable_forward.cuh"
using namespace heed::kernels;

constexpr PortableConfig kConfig{{
    .type = Element::{}, .input = Element::{}, .output = Element::{}, .d = {}, .d_v = {}, .tile_k = {}, .warps = {},
    .warp_rows = {}, .stages = {}, .ctas = {}, .q_held = {}, .k_pieces = {}, .pairs = {},
    .row_bytes = {},
    .features = {}}};

extern "C" __global__ void __launch_bounds__(kConfig.threads(), kConfig.ctas)
    heed_kernel(const __grid_constant__ ForwardParams p) {{
  portable_forward<kConfig>(p);
}}
)",
          text(kElements, c.type), text(kElements, c.input), text(kElements, c.output), c.d, c.d_v, c.tile_k, c.warps,
          c.warp_rows, c.stages, c.ctas, c.q_held, c.k_pieces, c.pairs, c.row_bytes, initializer(c.features))};
}

KernelSource kernel_source(const kernels::HopperBackwardConfig& config, HopperBackwardPart part) {
  const kernels::HopperBackwardConfig c = config_of(config, part);
  // Without a bias that can be copied a kernel need not be told how.
  const kernels::BiasRoute route = c.bias_copied() ? kernels::BiasRoute::copied : kernels::BiasRoute::in_step;
  return hopper_backward_source(
      fmt::format("hopper_bwd_{}_d{}_{}x{}{}{}{}{}{}{}{}", text(kElements, c.type), c.d, c.tile_q, c.kTileK,
                  c.pipeline == kernels::BackwardPipeline::ahead ? "_ahead" : "", c.ordered ? "_ordered" : "",
                  c.in_parts ? "_in_parts" : "", c.dq_in_16_bits ? "_sum16" : "", c.bias_copied() ? "_copied" : "",
                  c.stores_dbias ? "_dbias" : "", suffix(c.features)),
      "hopper_backward",
      fmt::format(
          "constexpr HopperBackwardConfig kConfig{{\n    .type = Element::{}, .d = {}, .tile_q = {}, .pipeline = "
          "BackwardPipeline::{}, .ordered = {}, .in_parts = {},\n    .dq_in_16_bits = {}, .bias_route = BiasRoute::{}, "
          ".stores_dbias = {}, "
          ".features = {}}};\n",
          text(kElements, c.type), c.d, c.tile_q, text(kPipelines, c.pipeline), c.ordered, c.in_parts, c.dq_in_16_bits,
          text(kBiasRoutes, route), c.stores_dbias, initializer(c.features)),
      part, c.stores_dbias);
}

KernelSource kernel_source(const kernels::HopperWideBackwardConfig& config, HopperBackwardPart part) {
  const kernels::HopperWideBackwardConfig c = config_of(config, part);
  return hopper_backward_source(
      fmt::format("hopper_bwd_{}_d{}_{}x{}_rings{}{}{}{}{}{}", text(kElements, c.type), c.d, c.tile_q, c.kTileK,
                  c.q_ring, c.o_ring, c.owned_dq ? "_keys" : "", c.in_parts ? "_in_parts" : "",
                  c.dq_in_16_bits ? "_sum16" : "", suffix(c.features)),
      "hopper_backward_wide",
      fmt::format("constexpr HopperWideBackwardConfig kConfig{{\n    .type = Element::{}, .d = {}, .q_ring = {}, "
                  ".o_ring = {}, .owned_dq = {}, .in_parts = {},\n    .dq_in_16_bits = {}, .features = {}}};\n",
                  text(kElements, c.type), c.d, c.q_ring, c.o_ring, c.owned_dq, c.in_parts, c.dq_in_16_bits,
                  initializer(c.features)),
      part);
}

KernelSource kernel_source(const kernels::HopperQueriesConfig& c) {
  return {fmt::format("hopper_bwd_{}_d{}_{}x{}_queries{}", text(kElements, c.type), c.d, c.kRows, c.kKeys,
                      suffix(c.features)),
          text_of_four_tensors("hopper_backward_queries", "threads",
                               fmt::format("constexpr HopperQueriesConfig kConfig{{.type = Element::{}, .d = {}, "
                                           ".features = {}}};\n",
                                           text(kElements, c.type), c.d, initializer(c.features)))};
}

KernelSource kernel_source(const kernels::PortableBackwardConfig& c) {
  // Three parts are one kernel's, one has two; two files have two kernels.
  const std::string_view entry = c.is_narrow() ? "narrow" : c.owns_keys() ? "keys" : text(kBackwardParts, c.part);
  const std::string_view file = c.part == kernels::BackwardPart::sums       ? "rows"
                                : c.part == kernels::BackwardPart::bias_sum ? "bias"
                                                                            : entry;
  const std::string config = fmt::format(
      R"(constexpr PortableBackwardConfig kConfig{{
    .part = BackwardPart::{}, .type = Element::{}, .input = Element::{}, .output = Element::{}, .d_bias = Element::{},
    .d = {}, .d_v = {}, .warps = {}, .warp_rows = {}, .block = {}, .step = {}, .across = {}, .by_wgmma = {}, .stages = {},
    .piece = {}, .pass = {}, .row_bytes = {}, .held_v = {}, .in_turns = {},
    .features = {}}};
)",
      text(kBackwardParts, c.part), text(kElements, c.type), text(kElements, c.input), text(kElements, c.output),
      text(kElements, c.d_bias), c.d, c.d_v, c.warps, c.warp_rows, c.block, c.step, c.across, c.by_wgmma, c.stages,
      c.piece, c.pass, c.row_bytes, c.held_v, c.in_turns, initializer(c.features));
  if (c.by_wgmma)
    return {fmt::format("hopper_bwd_bias_{}_d{}_{}x{}{}", text(kElements, c.type), c.d, c.tile(), c.block,
                        suffix(c.features)),
            text_of_four_tensors("hopper_backward_bias", "launched_threads", config)};
  const std::string head_dims = c.d == 0 && c.d_v == 0   ? ""
                                : c.d == 0 || c.d_v == 0 ? fmt::format("_d{}", c.d + c.d_v)
                                                         : fmt::format("_d{}_{}", c.d, c.d_v);
  return {fmt::format("portable_bwd_{}_{}{}{}_{}x{}{}{}", text(kBackwardParts, c.part), text(kElements, c.input),
                      c.type == c.input ? "" : "_accurate", head_dims, c.tile(), c.block,
                      c.row_bytes == 16 ? "" : fmt::format("_by{}", c.row_bytes), suffix(c.features)),
          fmt::format(
              R"(#include "portable_backward_{}.cuh"
using namespace heed::kernels;

{}
extern "C" __global__ void __launch_bounds__(kConfig.threads(), kConfig.least_blocks())
    heed_kernel(const __grid_constant__ BackwardParams p) {{
  portable_backward_{}<kConfig>(p);
}}
)",
              file, config, entry)};
}

KernelSource randval_source() {
  return {"randval", R"(#include "randval.cuh"

extern "C" __global__ void __launch_bounds__(256)
    heed_kernel(const __grid_constant__ heed::kernels::ForwardParams p) {
  heed::kernels::randval(p);
}
)"};
}

}  // namespace heed::cuda
