#include "core/sequences.hpp"

namespace heed::core {

Sequences::Sequences(const ForwardArgs& args)
    : group_(is_group_mode(args)), logical_q_(args.seqlen_q.given()), logical_k_(args.seqlen_k.given()) {
  if (group_) {
    batch_ = args.seqstart_q.size(0) - 1;
    start_q_ = IndexArray(args.seqstart_q);
    start_k_ = IndexArray(args.seqstart_k);
  } else {
    batch_ = args.q.size(0);
    s_q_ = args.q.size(1);
    s_k_ = args.k.size(1);
  }
  if (logical_q_) length_q_ = IndexArray(args.seqlen_q);
  if (logical_k_) length_k_ = IndexArray(args.seqlen_k);
}

Sequence Sequences::operator[](std::int64_t batch_index) const {
  Sequence sequence{0, 0, s_q_, s_k_};
  if (group_) {
    sequence.q_row = start_q_[batch_index];
    sequence.k_row = start_k_[batch_index];
    // Where logical lengths are given they are all that is wanted of the physical ones.
    if (!logical_q_) sequence.s_q = start_q_[batch_index + 1] - sequence.q_row;
    if (!logical_k_) sequence.s_k = start_k_[batch_index + 1] - sequence.k_row;
  }
  if (logical_q_) sequence.s_q = length_q_[batch_index];
  if (logical_k_) sequence.s_k = length_k_[batch_index];
  return sequence;
}

}  // namespace heed::core
