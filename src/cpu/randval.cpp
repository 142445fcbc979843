#include "cpu/randval.hpp"

#include "core/dropout_state.hpp"
#include "core/sequences.hpp"

#include <heed/philox.hpp>

#include <algorithm>

namespace heed::cpu {

void write_random_words(const ForwardArgs& args, Executor& executor) {
  constexpr std::int64_t kTileRows = 16;
  const core::Sequences sequences(args);
  const Dropout dropout = core::with_state_read(args.dropout);
  const OutputView& out = dropout.randval;
  const core::ScoreStrides strides = core::broadcast_strides(out);
  const std::int64_t heads = args.q.size(args.q.rank - 2), tiles = (out.size(2) + kTileRows - 1) / kTileRows;
  parallel_for(executor, sequences.size() * heads * tiles, [&](std::int64_t index, int) {
    const std::int64_t tile = index % tiles, h = index / tiles % heads, b = index / tiles / heads;
    const core::Sequence sequence = sequences[b];
    const auto head_index = static_cast<std::uint64_t>(b * heads + h);
    const std::int64_t end = std::min(sequence.s_q, (tile + 1) * kTileRows);
    for (std::int64_t i = tile * kTileRows; i < end; ++i) {
      std::uint16_t* row = static_cast<std::uint16_t*>(out.data) + strides.at(b, h, i, 0);
      for (std::int64_t j = 0; j < sequence.s_k; ++j)
        row[j * strides.key] = dropout_word(dropout.seed, dropout.offset, head_index, static_cast<std::uint64_t>(i),
                                            static_cast<std::uint64_t>(j));
    }
  });
}

}  // namespace heed::cpu
