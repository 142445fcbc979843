#include "verify/case.hpp"

#include "core/invalid.hpp"

#include <algorithm>
#include <numeric>

namespace heed::verify {
namespace {

std::int64_t at(const std::vector<std::int64_t>& list, std::int64_t entry) {
  return list[static_cast<std::size_t>(entry)];
}

std::int64_t longest(const std::vector<std::int64_t>& list) {
  return list.empty() ? 0 : *std::max_element(list.begin(), list.end());
}

std::int64_t sum(const std::vector<std::int64_t>& list) {
  return std::accumulate(list.begin(), list.end(), std::int64_t{0});
}

void check_count(std::string_view what, const std::vector<std::int64_t>& list, std::int64_t count) {
  if (static_cast<std::int64_t>(list.size()) != count)
    throw core::invalid("{} has {} lengths; there must be {}.", what, list.size(), count);
  for (const std::int64_t each : list)
    if (each < 0) throw core::invalid("{} holds {}; a length is 0 or more.", what, each);
}

/// A length of 0 cannot be told: where there are rows but none that counts, it is 1.
std::int64_t told(std::int64_t max_s, std::int64_t longest, std::int64_t rows) {
  return max_s == Case::kExactly ? std::max(longest, std::min<std::int64_t>(rows, 1)) : max_s;
}

void check_bound(std::string_view what, std::int64_t told, bool group, std::int64_t longest, std::int64_t rows) {
  if (told == Case::kExactly) return;
  if (!group) throw core::invalid("{} = {}: in batch mode the lengths tell it; leave it out.", what, told);
  if (told != 0 && (told < longest || told > rows))
    throw core::invalid("{} = {}: the longest of the sequences has {} rows, all of them {}; 0, -1 or a number between.",
                        what, told, longest, rows);
}

void check_group_only(std::string_view what, std::int64_t first, std::int64_t second, bool group) {
  if (first < 0 || second < 0) throw core::invalid("{} = {},{}: both are 0 or more.", what, first, second);
  if (!group && (first != 0 || second != 0))
    throw core::invalid("{} = {},{}: for group mode, where sequences lie in longer tensors.", what, first, second);
}

void check_fits(std::string_view what, const std::vector<std::int64_t>& logical, std::string_view physical_name,
                const std::vector<std::int64_t>& physical) {
  for (std::size_t i = 0; i < logical.size(); ++i) {
    const std::int64_t room = physical.size() == 1 ? physical[0] : physical[i];
    if (logical[i] > room)
      throw core::invalid("{} of sequence {} is {}, but {} gives it {} rows; at most {} can count.", what, i,
                          logical[i], physical_name, room, room);
  }
}

}  // namespace

std::int64_t Case::physical_q(std::int64_t e) const {
  return !group() ? s_q[0] : s_qpad.empty() ? at(s_q, e) : at(s_qpad, e);
}
std::int64_t Case::physical_k(std::int64_t e) const {
  return !group() ? s_k[0] : s_kpad.empty() ? at(s_k, e) : at(s_kpad, e);
}

std::int64_t Case::logical_q(std::int64_t e) const {
  return group() ? at(s_q, e) : q_eff_lens.empty() ? s_q[0] : at(q_eff_lens, e);
}
std::int64_t Case::logical_k(std::int64_t e) const {
  return group() ? at(s_k, e) : kv_eff_lens.empty() ? s_k[0] : at(kv_eff_lens, e);
}

std::int64_t Case::longest_q() const { return longest(s_q); }
std::int64_t Case::longest_k() const { return longest(s_k); }
std::int64_t Case::told_q() const { return !group() ? 0 : told(max_s_q, longest_q(), total_q()); }
std::int64_t Case::told_k() const { return !group() ? 0 : told(max_s_k, longest_k(), total_k()); }
std::int64_t Case::bound_q(Memory memory) const {
  return told_q() != 0 ? told_q() : group() && memory == Memory::gpu ? total_q() : longest_q();
}
std::int64_t Case::bound_k(Memory memory) const {
  return told_k() != 0 ? told_k() : group() && memory == Memory::gpu ? total_k() : longest_k();
}
std::int64_t Case::total_q() const { return q_around.before + sum(s_qpad.empty() ? s_q : s_qpad) + q_around.behind; }
std::int64_t Case::total_k() const { return k_around.before + sum(s_kpad.empty() ? s_k : s_kpad) + k_around.behind; }

void Case::check() const {
  for (const auto& [what, size] : {std::pair{"b", b}, std::pair{"h", h}, std::pair{"h_k", h_k}})
    if (size < 0) throw core::invalid("{} = {}: a size is 0 or more.", what, size);
  check_count("s", s_q, group() ? b : 1);
  check_count("s_k", s_k, group() ? b : 1);
  if (!s_qpad.empty()) check_count("s_qpad", s_qpad, group() ? b : 0);
  if (!s_kpad.empty()) check_count("s_kpad", s_kpad, group() ? b : 0);
  if (!q_eff_lens.empty()) check_count("q_eff_lens", q_eff_lens, group() ? 0 : b);
  if (!kv_eff_lens.empty()) check_count("kv_eff_lens", kv_eff_lens, group() ? 0 : b);
  if (!s_qpad.empty()) check_fits("s", s_q, "s_qpad", s_qpad);
  if (!s_kpad.empty()) check_fits("s_k", s_k, "s_kpad", s_kpad);
  check_bound("max_s_q", max_s_q, group(), longest_q(), total_q());
  check_bound("max_s_k", max_s_k, group(), longest_k(), total_k());
  check_group_only("q_around", q_around.before, q_around.behind, group());
  check_group_only("k_around", k_around.before, k_around.behind, group());
  check_group_only("table_more", table_more_q, table_more_k, group());
  check_fits("q_eff_lens", q_eff_lens, "s", s_q);
  check_fits("kv_eff_lens", kv_eff_lens, "s_k", s_k);

  if (!backward() && (d_lse || dbias || dsink || dslopes || dq_in_16_bits || deterministic))
    throw core::invalid("gradients are of the backward pass: 'heed bwd'.");
  if (backward() && randval) throw core::invalid("randval: the forward pass writes the random words, not backward.");
  if (dbias && !bias) throw core::invalid("dbias=1: there is no bias; give -bias=e, too.");
  if (dsink && sink == SinkInit::none) throw core::invalid("sink_grad=1: there is no sink; give -init_sink, too.");
  if (dslopes && alibi == Alibi::none) throw core::invalid("slope_grad=1: there is no ALiBi; give -bias=a, too.");

  if (packing != Packing::none && v_column_major) throw core::invalid("vlayout=c: a packed v has its rows contiguous.");
  for (const ZeroStride& zero : zero_strides) {
    if (packing != Packing::none && zero.tensor <= ZeroStride::Tensor::v)
      throw core::invalid("zero_strides: a packed tensor has a place for each of its elements.");
    if (!backward() && zero.tensor == ZeroStride::Tensor::d_o)
      throw core::invalid("zero_strides=d_o.{}: a tensor of the backward pass.", zero.dim);
    if (zero.tensor == ZeroStride::Tensor::bias && !bias)
      throw core::invalid("zero_strides=bias.{}: there is no bias; give -bias=e, too.", zero.dim);
    if (zero.tensor == ZeroStride::Tensor::bool_mask && !bool_mask)
      throw core::invalid("zero_strides=bool_mask.{}: there is no boolean mask; give -bool_mask=e, too.", zero.dim);
  }
  for (const Reversed& each : reversed) {
    if (each.tensor == Operand::v && each.dim == 's' && v_column_major)
      throw core::invalid("reversed=v.s: of a v by columns the stride of the sequence is 1.");
    if (!backward() && each.tensor > Operand::o)
      throw core::invalid("reversed={}.{}: a tensor of the backward pass.", name(each.tensor), each.dim);
  }
  if (packing != Packing::none && d != d_v)
    throw core::invalid("d = {} and d_v = {}: tensors packed into one have the same head dim.", d, d_v);
  if (packing == Packing::qkv) {
    if (h != h_k) throw core::invalid("h = {} and h_k = {}: layout=qkvpacked needs as many.", h, h_k);
    for (std::int64_t e = 0; e < (group() ? b : 1); ++e)
      if (physical_q(e) != physical_k(e))
        throw core::invalid("s = {} and s_k = {}: layout=qkvpacked needs as many rows of q as of k.", physical_q(e),
                            physical_k(e));
    if (q_around != k_around) throw core::invalid("q_around and k_around differ: layout=qkvpacked has rows of both.");
  }
}

}  // namespace heed::verify
