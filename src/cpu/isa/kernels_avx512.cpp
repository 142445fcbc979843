#define HEED_ISA avx512
#include "cpu/simd/avx512.hpp"

#include "cpu/kernels/backward.hpp"
#include "cpu/kernels/rows.hpp"
#include "cpu/kernels/tile.hpp"

namespace heed::cpu {

const ForwardKernels kForwardAvx512 = {
    .strip = avx512::kStrip,
    .tile_scratch = avx512::Tile<avx512::F32Unit>::scratch_bytes,
    .tile_f32 = avx512::Tile<avx512::F32Unit>::run,
    .max_rows = avx512::kRowsMost,
    .rows_scratch = avx512::Rows<false>::scratch_bytes,
    .rows_f32 = avx512::Rows<false>::run,
    .combine = avx512::combine,
};

const BackwardKernels kBackwardAvx512 = {
    .strip = avx512::kStrip,
    .delta = avx512::delta,
    .finish_dq = avx512::finish_dq,
    .unit = avx512::Backward<avx512::F32Unit>::functions(),
};

}  // namespace heed::cpu
