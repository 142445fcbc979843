#define HEED_ISA amx
#include "cpu/simd/avx512.hpp"

#include "cpu/kernels/amx.hpp"
#include "cpu/kernels/backward.hpp"
#include "cpu/kernels/tile.hpp"

namespace heed::cpu {

// Few rows cannot fill a tile: there the level below is as fast as memory.
const ForwardKernels kForwardAmx = {
    .strip = amx::kStrip,
    .tile_scratch = amx::Tile<amx::AmxUnit>::scratch_bytes,
    .tile_amx = amx::Tile<amx::AmxUnit>::run,
    .combine = amx::combine,
};

const BackwardKernels kBackwardAmx = {
    .strip = amx::kStrip,
    .delta = amx::delta,
    .finish_dq = amx::finish_dq,
    .unit = amx::Backward<amx::AmxUnit>::functions(),
};

}  // namespace heed::cpu
