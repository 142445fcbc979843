#define HEED_ISA baseline
#include "cpu/simd/portable.hpp"

#include "cpu/kernels/backward.hpp"
#include "cpu/kernels/rows.hpp"
#include "cpu/kernels/tile.hpp"

namespace heed::cpu {

const ForwardKernels kForwardBaseline = {
    .strip = baseline::kStrip,
    .tile_scratch = baseline::Tile<baseline::F32Unit>::scratch_bytes,
    .tile_f32 = baseline::Tile<baseline::F32Unit>::run,
    .max_rows = baseline::kRowsMost,
    .rows_scratch = baseline::Rows<false>::scratch_bytes,
    .rows_f32 = baseline::Rows<false>::run,
    .combine = baseline::combine,
};

const BackwardKernels kBackwardBaseline = {
    .strip = baseline::kStrip,
    .delta = baseline::delta,
    .finish_dq = baseline::finish_dq,
    .unit = baseline::Backward<baseline::F32Unit>::functions(),
};

}  // namespace heed::cpu
