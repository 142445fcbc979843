#include "field_table.hpp"

#include <array>

namespace heed::python {
namespace {

constexpr std::uint32_t bit(heed_type type) { return 1U << static_cast<std::uint32_t>(type); }
constexpr Types kFloats{bit(HEED_F32) | bit(HEED_F16) | bit(HEED_BF16) | bit(HEED_FP8_E4M3) | bit(HEED_FP8_E5M2) |
                            bit(HEED_INT8) | bit(HEED_INT4),
                        "float32, float16 or bfloat16"};
constexpr Types kOutputs{kFloats.set | bit(HEED_F64), "float32, float16 or bfloat16"};  // the oracle's are f64
constexpr Types kBias{bit(HEED_F32) | bit(HEED_F16) | bit(HEED_BF16), "float32 or the type of q"};
constexpr Types kF32{bit(HEED_F32), "float32"};
constexpr Types kLse{bit(HEED_F32) | bit(HEED_F64), "float32"};
constexpr Types kBool{bit(HEED_U8), "bool or uint8, true where a key is visible (numbers to be added go into bias)"};
constexpr Types kLengths{bit(HEED_I32) | bit(HEED_I64), "int32 or int64"};
constexpr Types kI64{bit(HEED_I64), "int64"};
constexpr Types kU16{bit(HEED_U16), "uint16"};
constexpr Types kGradients{kBias.set | bit(HEED_F64), "float32, float16 or bfloat16"};  // the oracle's are f64

constexpr ArrayField kForwardArrays[] = {
    {"q", offsetof(heed_forward_args, q), kFloats, false, true},
    {"k", offsetof(heed_forward_args, k), kFloats, false, true},
    {"v", offsetof(heed_forward_args, v), kFloats, false, true},
    {"o", offsetof(heed_forward_args, o), kOutputs, true, true},
    {"lse", offsetof(heed_forward_args, lse), kLse, true},
    {"bool_mask", offsetof(heed_forward_args, bool_mask), kBool},
    {"block_mask", offsetof(heed_forward_args, block_mask), kBool},
    {"bias", offsetof(heed_forward_args, bias), kBias},
    {"alibi_slopes", offsetof(heed_forward_args, alibi_slopes), kF32},
    {"sink", offsetof(heed_forward_args, sink), kF32},
    {"randval", offsetof(heed_forward_args, randval), kU16, true},
    {"seqstart_q", offsetof(heed_forward_args, seqstart_q), kLengths},
    {"seqstart_k", offsetof(heed_forward_args, seqstart_k), kLengths},
    {"seqlen_q", offsetof(heed_forward_args, seqlen_q), kLengths},
    {"seqlen_k", offsetof(heed_forward_args, seqlen_k), kLengths},
    {"dropout_state", offsetof(heed_forward_args, dropout_state), kI64},
};

constexpr NumberField kForwardNumbers[] = {
    {"mask_kind", offsetof(heed_forward_args, mask) + offsetof(heed_mask, kind), NumberKind::i32},
    {"mask_left", offsetof(heed_forward_args, mask) + offsetof(heed_mask, left), NumberKind::i64},
    {"mask_right", offsetof(heed_forward_args, mask) + offsetof(heed_mask, right), NumberKind::i64},
    {"mask_sink", offsetof(heed_forward_args, mask) + offsetof(heed_mask, sink), NumberKind::i64},
    {"block_q", offsetof(heed_forward_args, block_q), NumberKind::i64},
    {"block_k", offsetof(heed_forward_args, block_k), NumberKind::i64},
    {"scale", offsetof(heed_forward_args, scale), NumberKind::f64},
    {"soft_cap", offsetof(heed_forward_args, soft_cap), NumberKind::f64},
    {"dropout_p", offsetof(heed_forward_args, dropout_p), NumberKind::f64},
    {"dropout_seed", offsetof(heed_forward_args, dropout_seed), NumberKind::u64},
    {"dropout_offset", offsetof(heed_forward_args, dropout_offset), NumberKind::u64},
    {"math", offsetof(heed_forward_args, math), NumberKind::i32},
    {"max_s_q", offsetof(heed_forward_args, max_s_q), NumberKind::i64},
    {"max_s_k", offsetof(heed_forward_args, max_s_k), NumberKind::i64},
};

constexpr ArrayField kBackwardArrays[] = {
    {"d_o", offsetof(heed_backward_args, d_o), kGradients, false, true},
    {"dq", offsetof(heed_backward_args, dq), kGradients, true, true},
    {"dk", offsetof(heed_backward_args, dk), kGradients, true, true},
    {"dv", offsetof(heed_backward_args, dv), kGradients, true, true},
    {"d_lse", offsetof(heed_backward_args, d_lse), kLse},
    {"dbias", offsetof(heed_backward_args, dbias), kGradients, true},
    {"dsink", offsetof(heed_backward_args, dsink), kLse, true},
    {"dslopes", offsetof(heed_backward_args, dslopes), kLse, true},
};
constexpr NumberField kBackwardNumbers[] = {
    {"dq_accumulation", offsetof(heed_backward_args, dq_accumulation), NumberKind::i32},
    {"deterministic", offsetof(heed_backward_args, deterministic), NumberKind::i32},
};

}  // namespace

FieldTable g_forward_fields{kForwardArrays, kForwardNumbers};
FieldTable g_backward_fields{kBackwardArrays, kBackwardNumbers};

bool FieldTable::prepare() {
  if (indices != nullptr) return true;
  Ref made(PyDict_New());
  if (!made) return false;
  for (std::size_t i = 0; i < arrays.size() + numbers.size(); ++i) {
    const Ref name(PyUnicode_InternFromString(i < arrays.size() ? arrays[i].name : numbers[i - arrays.size()].name));
    const Ref index(PyLong_FromSize_t(i));
    if (!name || !index || PyDict_SetItem(made.get(), name.get(), index.get()) != 0) return false;
  }
  indices = made.release();
  return true;
}

const char* name_of_type(std::int32_t type) {
  constexpr std::array kNames{"float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2",   "int8",
                              "int4",    "float64", "int32",    "int64",       "bool or uint8", "uint16"};
  return kNames.at(static_cast<std::size_t>(type));
}

}  // namespace heed::python
