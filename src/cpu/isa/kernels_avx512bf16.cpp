#define HEED_ISA avx512bf16
#include "cpu/simd/avx512.hpp"

#include "cpu/kernels/backward.hpp"
#include "cpu/kernels/rows.hpp"
#include "cpu/kernels/tile.hpp"

namespace heed::cpu {

const ForwardKernels kForwardAvx512Bf16 = {
    .strip = avx512bf16::kStrip,
    .tile_scratch = avx512bf16::Tile<avx512bf16::VectorUnit<true>>::scratch_bytes,
    .tile_dot = avx512bf16::Tile<avx512bf16::VectorUnit<true>>::run,
    .max_rows = avx512bf16::kRowsMost,
    .rows_scratch = avx512bf16::Rows<true>::scratch_bytes,
    .rows_dot = avx512bf16::Rows<true>::run,
    .combine = avx512bf16::combine,
};

const BackwardKernels kBackwardAvx512Bf16 = {
    .strip = avx512bf16::kStrip,
    .delta = avx512bf16::delta,
    .finish_dq = avx512bf16::finish_dq,
    .unit = avx512bf16::Backward<avx512bf16::VectorUnit<true>>::functions(),
};

}  // namespace heed::cpu
