#include "dlpack.hpp"

#include <array>

namespace heed::python {
namespace {

struct CodeAndBits {
  std::uint8_t code, bits;
  heed_type type;
};
constexpr std::array kTypes{
    CodeAndBits{dlpack::kFloat, 32, HEED_F32},    CodeAndBits{dlpack::kFloat, 16, HEED_F16},
    CodeAndBits{dlpack::kBfloat, 16, HEED_BF16},  CodeAndBits{dlpack::kFloat, 64, HEED_F64},
    CodeAndBits{dlpack::kInt, 32, HEED_I32},      CodeAndBits{dlpack::kInt, 64, HEED_I64},
    CodeAndBits{dlpack::kBool, 8, HEED_U8},       CodeAndBits{dlpack::kUnsigned, 8, HEED_U8},
    CodeAndBits{dlpack::kUnsigned, 16, HEED_U16}, CodeAndBits{dlpack::kInt, 8, HEED_INT8},
};

}  // namespace

bool type_of(const dlpack::DataType& from, std::int32_t& type) {
  for (const CodeAndBits& each : kTypes)
    if (from.code == each.code && from.bits == each.bits && from.lanes == 1) {
      type = each.type;
      return true;
    }
  return false;
}

void read_dlpack_memory(const dlpack::Tensor& from, heed_tensor& tensor) {
  tensor.rank = from.rank;
  tensor.data = static_cast<char*>(from.data) + from.byte_offset;
  std::int64_t dense = 1;
  for (int i = from.rank - 1; i >= 0; --i) {
    tensor.sizes[i] = from.sizes[i];
    tensor.strides[i] = from.strides == nullptr ? dense : from.strides[i];
    dense *= from.sizes[i];
  }
}

}  // namespace heed::python
