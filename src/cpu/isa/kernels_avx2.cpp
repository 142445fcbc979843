#define HEED_ISA avx2
#include "cpu/simd/avx2.hpp"

#include "cpu/kernels/backward.hpp"
#include "cpu/kernels/rows.hpp"
#include "cpu/kernels/tile.hpp"

namespace heed::cpu {

const ForwardKernels kForwardAvx2 = {
    .strip = avx2::kStrip,
    .tile_scratch = avx2::Tile<avx2::F32Unit>::scratch_bytes,
    .tile_f32 = avx2::Tile<avx2::F32Unit>::run,
    .max_rows = avx2::kRowsMost,
    .rows_scratch = avx2::Rows<false>::scratch_bytes,
    .rows_f32 = avx2::Rows<false>::run,
    .combine = avx2::combine,
};

const BackwardKernels kBackwardAvx2 = {
    .strip = avx2::kStrip,
    .delta = avx2::delta,
    .finish_dq = avx2::finish_dq,
    .unit = avx2::Backward<avx2::F32Unit>::functions(),
};

}  // namespace heed::cpu
