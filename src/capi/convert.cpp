#include "capi/convert.hpp"

#include "capi/status.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace heed::capi {
namespace {

static_assert(static_cast<int>(DataType::f32) == HEED_F32 && static_cast<int>(DataType::f16) == HEED_F16);
static_assert(static_cast<int>(DataType::bf16) == HEED_BF16 && static_cast<int>(DataType::fp8_e4m3) == HEED_FP8_E4M3);
static_assert(static_cast<int>(DataType::fp8_e5m2) == HEED_FP8_E5M2 && static_cast<int>(DataType::int8) == HEED_INT8);
static_assert(static_cast<int>(DataType::int4) == HEED_INT4 && static_cast<int>(DataType::f64) == HEED_F64);
static_assert(static_cast<int>(DataType::i32) == HEED_I32 && static_cast<int>(DataType::i64) == HEED_I64);
static_assert(static_cast<int>(DataType::u8) == HEED_U8 && static_cast<int>(DataType::u16) == HEED_U16);
static_assert(static_cast<int>(Mask::Kind::none) == HEED_MASK_NONE &&
              static_cast<int>(Mask::Kind::top_left) == HEED_MASK_TOP_LEFT);
static_assert(static_cast<int>(Mask::Kind::bottom_right) == HEED_MASK_BOTTOM_RIGHT &&
              static_cast<int>(Mask::Kind::raw) == HEED_MASK_RAW);
static_assert(static_cast<int>(Math::fast) == HEED_MATH_FAST && static_cast<int>(Math::accurate) == HEED_MATH_ACCURATE);
static_assert(static_cast<int>(EngineChoice::automatic) == HEED_ENGINE_AUTO &&
              static_cast<int>(EngineChoice::cpu) == HEED_ENGINE_CPU &&
              static_cast<int>(EngineChoice::cuda) == HEED_ENGINE_CUDA);

/// What each struct measured when it was first released: no program was built with less.
constexpr std::size_t kFirstForwardArgs = 1304;
constexpr std::size_t kFirstBackwardArgs = 664;
constexpr std::size_t kFirstOptions = 24;
static_assert(sizeof(heed_forward_args) >= kFirstForwardArgs && sizeof(heed_backward_args) >= kFirstBackwardArgs);
static_assert(sizeof(heed_context_options) >= kFirstOptions && sizeof(heed_plan_options) >= kFirstOptions &&
              sizeof(heed_run_options) >= kFirstOptions);

/// The caller's struct as this library knows it. An older caller's lacks the last fields: they are zero. A newer one's
/// has fields unknown here: they must be zero, since what they ask for would be ignored.
template <class T>
T read(const T& given, std::size_t first_size, std::string_view name) {
  const std::size_t size = given.struct_size;
  if (size < first_size)
    throw invalid("{0}: struct_size = {1} : it must be sizeof({0}), {2} in this version and never less than {3}.", name,
                  size, sizeof(T), first_size);
  T known{};
  std::memcpy(&known, &given, std::min(size, sizeof(T)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(&given);
  if (size > sizeof(T) && std::any_of(bytes + sizeof(T), bytes + size, [](unsigned char b) { return b != 0; }))
    throw invalid("{}: a field behind byte {} is set; this library (version {}) does not know it.", name, sizeof(T),
                  HEED_VERSION_STRING);
  return known;
}

template <class Enum>
Enum enumerator(std::int32_t value, int last, std::string_view field, std::string_view type) {
  if (value < 0 || value > last) throw invalid("{} = {} : a {} is 0 to {}.", field, value, type, last);
  return static_cast<Enum>(value);
}

void must_be_zero(std::int32_t reserved, std::string_view field) {
  if (reserved != 0) throw invalid("{} = {} : it must be 0.", field, reserved);
}

OutputView view(const heed_tensor& tensor, std::string_view name) {
  if (tensor.rank < 0 || tensor.rank > OutputView::kMaxRank)
    throw invalid("{}.rank = {} : it must be 0 (not given) to {}.", name, tensor.rank, OutputView::kMaxRank);
  OutputView result;
  result.data = tensor.data;
  if (tensor.rank == 0) return result;  // with a pointer it is refused: a forgotten rank is not "not given"
  result.type = enumerator<DataType>(tensor.type, HEED_U16, fmt::format("{}.type", name), "heed_type");
  result.rank = tensor.rank;
  std::copy_n(tensor.sizes, tensor.rank, result.sizes.begin());
  std::copy_n(tensor.strides, tensor.rank, result.strides.begin());
  return result;
}

Mask mask_of(const heed_mask& mask) {
  must_be_zero(mask.reserved, "mask.reserved");
  switch (enumerator<Mask::Kind>(mask.kind, HEED_MASK_RAW, "mask.kind", "heed_mask_kind")) {
    case Mask::Kind::none:
      break;
    case Mask::Kind::top_left:
      return Mask::window_top_left(mask.left, mask.right, mask.sink);
    case Mask::Kind::bottom_right:
      return Mask::window(mask.left, mask.right, mask.sink);
    case Mask::Kind::raw:
      if (mask.sink != 0) throw invalid("mask.sink = {} : raw coordinates have no sink.", mask.sink);
      return Mask::raw(mask.left, mask.right);
  }
  if (mask.left != 0 || mask.right != 0 || mask.sink != 0)
    throw invalid("mask.kind is HEED_MASK_NONE, but left, right or sink is set ({}, {}, {}).", mask.left, mask.right,
                  mask.sink);
  return Mask::none();
}

EngineChoice engine_of(std::int32_t engine, std::string_view field) {
  return enumerator<EngineChoice>(engine, HEED_ENGINE_CUDA, field, "heed_engine");
}

}  // namespace

ForwardArgs forward_args(const heed_forward_args* args) {
  const heed_forward_args c = read(required(args, "args"), kFirstForwardArgs, "heed_forward_args");
  must_be_zero(c.reserved, "args.reserved");
  return {.q = view(c.q, "q"),
          .k = view(c.k, "k"),
          .v = view(c.v, "v"),
          .o = view(c.o, "o"),
          .lse = view(c.lse, "lse"),
          .mask = mask_of(c.mask),
          .bool_mask = view(c.bool_mask, "bool_mask"),
          .block_mask = {.keep = view(c.block_mask, "block_mask"), .block_q = c.block_q, .block_k = c.block_k},
          .bias = view(c.bias, "bias"),
          .alibi_slopes = view(c.alibi_slopes, "alibi_slopes"),
          .sink = view(c.sink, "sink"),
          .scale = c.scale,
          .soft_cap = c.soft_cap,
          .dropout = {.p = c.dropout_p,
                      .seed = c.dropout_seed,
                      .offset = c.dropout_offset,
                      .randval = view(c.randval, "randval"),
                      .state = view(c.dropout_state, "dropout_state")},
          .seqstart_q = view(c.seqstart_q, "seqstart_q"),
          .seqstart_k = view(c.seqstart_k, "seqstart_k"),
          .seqlen_q = view(c.seqlen_q, "seqlen_q"),
          .seqlen_k = view(c.seqlen_k, "seqlen_k"),
          .max_s_q = c.max_s_q,
          .max_s_k = c.max_s_k,
          .math = enumerator<Math>(c.math, HEED_MATH_ACCURATE, "math", "heed_math")};
}

BackwardArgs backward_args(const heed_backward_args* args) {
  const heed_backward_args c = read(required(args, "args"), kFirstBackwardArgs, "heed_backward_args");
  BackwardArgs result{.forward = forward_args(&required(c.forward, "args.forward")),
                      .d_o = view(c.d_o, "d_o"),
                      .dq = view(c.dq, "dq"),
                      .dk = view(c.dk, "dk"),
                      .dv = view(c.dv, "dv"),
                      .d_lse = view(c.d_lse, "d_lse"),
                      .dbias = view(c.dbias, "dbias"),
                      .dsink = view(c.dsink, "dsink"),
                      .dslopes = view(c.dslopes, "dslopes"),
                      .deterministic = enumerator<int>(c.deterministic, 1, "deterministic", "truth value") != 0};
  if (enumerator<heed_dq_accumulation>(c.dq_accumulation, HEED_DQ_16_BIT, "dq_accumulation", "heed_dq_accumulation") ==
      HEED_DQ_16_BIT) {
    if (result.forward.q.type == DataType::f32)
      throw invalid("dq_accumulation = HEED_DQ_16_BIT : q is f32, and its dQ is summed up in f32.");
    result.dq_accumulation = result.forward.q.type;
  }
  return result;
}

Context::Options context_options(const heed_context_options* options) {
  if (options == nullptr) return {};
  const auto c = read(*options, kFirstOptions, "heed_context_options");
  must_be_zero(c.reserved, "options.reserved");
  const auto text = [](const char* given) { return given == nullptr ? "" : given; };
  return {.threads = c.threads,
          .max_cpu_isa = text(c.max_cpu_isa),
          .cuda_family = text(c.cuda_family),
          .cuda_algo = text(c.cuda_algo),
          .cuda_backward_algo = text(c.cuda_backward_algo)};
}

PlanOptions plan_options(const heed_plan_options* options) {
  if (options == nullptr) return {};
  const auto c = read(*options, kFirstOptions, "heed_plan_options");
  return {.engine = engine_of(c.engine, "options.engine"),
          .threads = c.threads,
          .kernel = c.kernel == nullptr ? "" : c.kernel};
}

RunOptions run_options(const heed_run_options* options) {
  if (options == nullptr) return {};
  const auto c = read(*options, kFirstOptions, "heed_run_options");
  must_be_zero(c.reserved, "options.reserved");
  return {.engine = engine_of(c.engine, "options.engine"), .stream = c.stream};
}

heed_mask c_mask(const Mask& mask) {
  if (mask.kind() == Mask::Kind::none) return {};
  return {static_cast<std::int32_t>(mask.kind()), 0, mask.left(), mask.right(), mask.sink()};
}

}  // namespace heed::capi
