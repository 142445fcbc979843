#include "core/forward_args.hpp"
#include "core/invalid.hpp"
#include "core/sequences.hpp"

#include <algorithm>

namespace heed::core {
namespace {

void check_given(std::string_view name, const TensorView& view) {
  if (!view.given()) throw invalid("{} is not given: attention needs q, k, v and o.", name);
}

void check_types(const ForwardArgs& args) {
  if (args.k.type != args.q.type || args.v.type != args.q.type)
    throw invalid("q, k and v are {}, {} and {}: they must be of one type.", name(args.q.type), name(args.k.type),
                  name(args.v.type));
}

/// Heads and head dims, which follow the rows in both modes: `row` is the place of the row dimension.
void read_heads(const ForwardArgs& args, int row, Problem& problem) {
  const std::int64_t h = args.q.size(row + 1), h_k = args.k.size(row + 1), d = args.q.size(row + 2),
                     d_v = args.v.size(row + 2);
  check_dim("k", args.k, row + 2, d, "head dim d of q");
  check_dim("v", args.v, row, args.k.size(row), "rows of k");
  check_dim("v", args.v, row + 1, h_k, "heads h_k of k");
  check_dim("o", args.o, row, args.q.size(row), "rows of q");
  check_dim("o", args.o, row + 1, h, "heads h of q");
  check_dim("o", args.o, row + 2, d_v, "head dim d_v of v");
  problem.heads(h, h_k).head_dims(d, d_v);
}

void read_batch_mode(const ForwardArgs& args, Problem& problem) {
  check_rank("q", args.q, 4, "[b, s_q, h, d], or [total_q, h, d] with seqstart_q and seqstart_k");
  check_rank("k", args.k, 4, "[b, s_k, h_k, d] like q");
  check_rank("v", args.v, 4, "[b, s_k, h_k, d_v] like q");
  check_rank("o", args.o, 4, "[b, s_q, h, d_v] like q");
  const std::int64_t b = args.q.size(0);
  check_dim("k", args.k, 0, b, "batch b of q (a stride of 0 repeats one entry)");
  check_dim("v", args.v, 0, b, "batch b of q (a stride of 0 repeats one entry)");
  check_dim("o", args.o, 0, b, "batch b of q");
  problem.mode(Mode::batch).batch(b).lengths(args.q.size(1), args.k.size(1));
  read_heads(args, 1, problem);
}

void read_group_mode(const ForwardArgs& args, Problem& problem) {
  check_rank("q", args.q, 3, "[total_q, h, d] where seqstart_q is given");
  check_rank("k", args.k, 3, "[total_k, h_k, d] where seqstart_k is given");
  check_rank("v", args.v, 3, "[total_k, h_k, d_v] where seqstart_k is given");
  check_rank("o", args.o, 3, "[total_q, h, d_v] where seqstart_q is given");
  problem.mode(Mode::group).total_rows(args.q.size(0), args.k.size(0));
  read_heads(args, 0, problem);
}

void check_index_array(std::string_view name, const TensorView& view) {
  check_rank(name, view, 1, "a list of i32 or i64");
  check_type(name, view, {DataType::i32, DataType::i64});
}

/// Names for messages of one side, q or k.
struct Side {
  std::string_view tensor, starts, lengths;
};

/// Offsets that never decrease and stay inside the tensor's rows; they tell the batch.
IndexArray read_starts(const Side& side, const TensorView& view, std::int64_t rows) {
  check_index_array(side.starts, view);
  if (view.size(0) == 0) throw invalid("{} is empty: it holds b + 1 row offsets, at least one.", side.starts);
  const IndexArray starts(view);
  if (starts[0] < 0) throw invalid("{}[0] = {}: row offsets are 0 or more.", side.starts, starts[0]);
  for (std::int64_t i = 1; i < starts.size(); ++i)
    if (starts[i] < starts[i - 1])
      throw invalid("{}[{}] = {} after {}[{}] = {}: row offsets may not decrease.", side.starts, i, starts[i],
                    side.starts, i - 1, starts[i - 1]);
  const std::int64_t end = starts[starts.size() - 1];
  if (end > rows)
    throw invalid("{}[{}] = {} is beyond the {} rows of {}: offsets end at {} or before.", side.starts,
                  starts.size() - 1, end, rows, side.tensor, rows);
  return starts;
}

/// Logical lengths, where given: 0 or more, at most the physical ones. Returns the longest.
/// `starts` is null in batch mode, where every entry has `rows` rows.
std::int64_t read_lengths(const Side& side, const TensorView& view, const IndexArray* starts, std::int64_t rows,
                          std::int64_t batch) {
  IndexArray lengths;
  if (view.given()) {
    check_index_array(side.lengths, view);
    if (view.size(0) != batch)
      throw invalid("{} has {} entries for a batch of {}: one logical length for each.", side.lengths, view.size(0),
                    batch);
    lengths = IndexArray(view);
  } else if (starts == nullptr) {
    return rows;
  }
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < batch; ++i) {
    const std::int64_t physical = starts == nullptr ? rows : (*starts)[i + 1] - (*starts)[i];
    const std::int64_t length = view.given() ? lengths[i] : physical;
    if (length < 0 || length > physical)
      throw invalid("{}[{}] = {}: the entry has {} rows, so its logical length is from 0 to {}.", side.lengths, i,
                    length, physical, physical);
    longest = std::max(longest, length);
  }
  return longest;
}

constexpr Side kQ{"q", "seqstart_q", "seqlen_q"};
constexpr Side kK{"k", "seqstart_k", "seqlen_k"};

/// What the caller says of the longest sequence, or `otherwise` where it says nothing.
std::int64_t read_longest(std::string_view name, std::int64_t said, std::int64_t otherwise) {
  if (said < 0) throw invalid("{} = {}: a length is 0 or more; 0 means that nothing is said.", name, said);
  return said == 0 ? otherwise : said;
}

/// Where the lists are in GPU memory only their shapes can be read.
void read_sequences_by_shape(const ForwardArgs& args, Problem& problem) {
  const auto check_lengths = [&](const Side& side, const TensorView& view) {
    if (!view.given()) return;
    check_index_array(side.lengths, view);
    if (view.size(0) != problem.batch())
      throw invalid("{} has {} entries for a batch of {}: one logical length for each.", side.lengths, view.size(0),
                    problem.batch());
  };
  if (problem.mode() == Mode::group) {
    check_index_array(kQ.starts, args.seqstart_q);
    check_index_array(kK.starts, args.seqstart_k);
    if (args.seqstart_q.size(0) != args.seqstart_k.size(0) || args.seqstart_q.size(0) == 0)
      throw invalid("seqstart_q and seqstart_k have {} and {} entries: both hold b + 1 row offsets.",
                    args.seqstart_q.size(0), args.seqstart_k.size(0));
    problem.batch(args.seqstart_q.size(0) - 1)
        .lengths(read_longest("max_s_q", args.max_s_q, problem.total_q()),
                 read_longest("max_s_k", args.max_s_k, problem.total_k()));
  }
  check_lengths(kQ, args.seqlen_q);
  check_lengths(kK, args.seqlen_k);
}

void check_longest(std::string_view name, std::int64_t said, std::int64_t longest) {
  if (said < longest)
    throw invalid("{} = {}: a sequence has {} rows, so it is {} or more.", name, said, longest, longest);
}

void read_sequences(const ForwardArgs& args, Memory memory, Problem& problem) {
  problem.logical_lengths(args.seqlen_q.given(), args.seqlen_k.given());
  if (problem.mode() == Mode::batch && (args.max_s_q != 0 || args.max_s_k != 0))
    throw invalid("max_s_q = {}, max_s_k = {}: in batch mode the shapes of q and k tell the lengths; leave them 0.",
                  args.max_s_q, args.max_s_k);
  if (memory == Memory::gpu) return read_sequences_by_shape(args, problem);
  if (problem.mode() == Mode::batch) {
    read_lengths(kQ, args.seqlen_q, nullptr, problem.s_q(), problem.batch());
    read_lengths(kK, args.seqlen_k, nullptr, problem.s_k(), problem.batch());
    return;
  }
  const IndexArray starts_q = read_starts(kQ, args.seqstart_q, problem.total_q());
  const IndexArray starts_k = read_starts(kK, args.seqstart_k, problem.total_k());
  if (starts_q.size() != starts_k.size())
    throw invalid("seqstart_q and seqstart_k have {} and {} entries: both hold b + 1 row offsets.", starts_q.size(),
                  starts_k.size());
  const std::int64_t batch = starts_q.size() - 1;
  const std::int64_t longest_q = read_lengths(kQ, args.seqlen_q, &starts_q, 0, batch);
  const std::int64_t longest_k = read_lengths(kK, args.seqlen_k, &starts_k, 0, batch);
  const std::int64_t s_q = read_longest("max_s_q", args.max_s_q, longest_q);
  const std::int64_t s_k = read_longest("max_s_k", args.max_s_k, longest_k);
  check_longest("max_s_q", s_q, longest_q);
  check_longest("max_s_k", s_k, longest_k);
  problem.batch(batch).lengths(s_q, s_k);
}

}  // namespace

void read_operands(const ForwardArgs& args, Memory memory, Problem& problem) {
  check_given("q", args.q);
  check_given("k", args.k);
  check_given("v", args.v);
  check_given("o", args.o);
  if (args.seqstart_q.given() != args.seqstart_k.given())
    throw invalid("{} is given without {}: group mode takes both, batch mode neither.",
                  args.seqstart_q.given() ? "seqstart_q" : "seqstart_k",
                  args.seqstart_q.given() ? "seqstart_k" : "seqstart_q");
  check_types(args);
  problem.type(args.q.type).output_type(args.o.type).math(args.math);
  if (is_group_mode(args)) {
    read_group_mode(args, problem);
  } else {
    read_batch_mode(args, problem);
  }
  read_sequences(args, memory, problem);
  problem.strides(Operand::q, strides_of(args.q)).strides(Operand::k, strides_of(args.k));
  problem.strides(Operand::v, strides_of(args.v)).strides(Operand::o, strides_of(args.o));
}

}  // namespace heed::core
