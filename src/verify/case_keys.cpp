#include "verify/case_args.hpp"

#include <array>

namespace heed::verify {
namespace {

constexpr std::string_view kSizes = "Sizes", kMeaning = "What is computed", kGradients = "Gradients",
                           kMemory = "Types and memory", kData = "Data",
                           kLater = "Not built yet: read, and refused with the reason";

constexpr std::array kKeys{
    CaseKey{"mode", "0", "0: batch, one length for all; 1: group, each sequence has its own", kSizes},
    CaseKey{"b", "2", "batch", kSizes},
    CaseKey{"h", "8", "query heads", kSizes},
    CaseKey{"h_k", "-1", "key/value heads, a divisor of h; -1 or 0: as h", kSizes},
    CaseKey{"s", "3328", "query length; group: s0,s1,... or their average", kSizes},
    CaseKey{"s_k", "-1", "key length, likewise; -1: as s", kSizes},
    CaseKey{"s_qpad", "-1", "group: query rows in memory, a number or a list; -1: as s", kSizes},
    CaseKey{"s_kpad", "-1", "group: key rows in memory, likewise; -1: as s_k", kSizes},
    CaseKey{"q_eff_lens", "", "batch: rows of q that count, l0,l1,...; a short list repeats its last number", kSizes},
    CaseKey{"kv_eff_lens", "", "batch: rows of k and v that count, likewise", kSizes},
    CaseKey{"max_s_q", "-1", "group: what is told of the longest query sequence; -1: its length, 0: nothing", kSizes},
    CaseKey{"max_s_k", "-1", "group: of the longest key sequence, likewise", kSizes},
    CaseKey{"q_around", "0", "group: rows of q before the first and behind the last sequence, 3,5 or one number",
            kSizes},
    CaseKey{"k_around", "0", "group: of k and v, likewise", kSizes},
    CaseKey{"table_more", "0", "group: queries,keys that bias, masks and randval have beyond any sequence", kSizes},
    CaseKey{"d", "128", "head dim of q and k", kSizes},
    CaseKey{"d_v", "-1", "head dim of v and o; -1 or 0: as d", kSizes},

    CaseKey{"scale_s", "0", "softmax scale; 0: 1 / sqrt(d)", kMeaning},
    CaseKey{"mask", "0", "0, 1|t, 2|b, t:l,r[,sink], b:l,r[,sink], xt:w, xb:w, g:y,x; 'heed mask' draws them",
            kMeaning},
    CaseKey{
        "bias", "n",
        "n; e: [1,1,s,s_k], e:1 [1,h,s,s_k], e:2 [b,h,s,s_k], e:<letters of bhq, or k>, e:<letters>-k [..,1]; a: ALiBi "
        "[h], a:1 [b,h]",
        kMeaning},
    CaseKey{"bias_inf", "0", "1: rows, blocks and single entries of the bias are -inf", kMeaning},
    CaseKey{"alibi", "n", "n, h or bh: ALiBi slopes beside a bias", kMeaning},
    CaseKey{"bool_mask", "n", "boolean mask, shapes as for bias: n, e, e:1, e:2, e:<letters>[-k]", kMeaning},
    CaseKey{"block_mask", "n", "block mask: block_q,block_k[:letters of bh]", kMeaning},
    CaseKey{"init_sink", "0",
            "1: a sink logit per head, whole numbers in [30, 60]; 2: as large as the logits; 3: likewise, half of them "
            "-inf",
            kMeaning},
    CaseKey{"logits_soft_cap", "0", "S = cap * tanh(S / cap); 0: off", kMeaning},
    CaseKey{"p_drop", "0", "dropout probability, 0 <= p < 1", kMeaning},
    CaseKey{"drop_seed", "1", "Philox seed", kMeaning},
    CaseKey{"drop_offset", "0", "Philox offset", kMeaning},
    CaseKey{"drop_prefs", "0", "1: seed and offset are read from memory when it runs", kMeaning},
    CaseKey{"randval", "0", "1: write out the random words", kMeaning, Operation::forward},
    CaseKey{"lse", "0", "1: write out the log-sum-exp", kMeaning, Operation::forward},

    CaseKey{"dbias", "0", "1: dBias, in the type of the bias; fp32: in fp32. Needs -bias=e", kGradients,
            Operation::backward},
    CaseKey{"sink_grad", "0",
            "1: dSink, with -init_sink=1 unless that is given (those take all weight; of -init_sink=2 dSink says more)",
            kGradients, Operation::backward},
    CaseKey{"slope_grad", "0", "1: dSlopes of ALiBi. Needs -bias=a or -alibi", kGradients, Operation::backward},
    CaseKey{"dlse", "0", "1: the LSE has a gradient, too", kGradients, Operation::backward},
    CaseKey{"dq_acc", "32", "dQ is summed up in f32; 16: in the type of q", kGradients, Operation::backward},
    CaseKey{"deterministic", "0", "1: the same bits in every run", kGradients, Operation::backward},

    CaseKey{"prec", "fp16", "fp32, fp16, bf16", kMemory},
    CaseKey{"o_prec", "same", "type of o: fp32, fp16, bf16; same: as prec", kMemory},
    CaseKey{"bias_prec", "same", "type of the bias: fp32; same: as prec", kMemory},
    CaseKey{"math", "fast", "fast: the type's own units; accurate: every product in f32", kMemory},
    CaseKey{"iperm", "1", "q, k, v stored as 1: bhsd, 0: bshd", kMemory},
    CaseKey{"operm", "1", "o likewise", kMemory},
    CaseKey{"layout", "", "q, k, v: bhsd, bshd, qkvpacked [b,s,3,h,d], kvpacked [b,s,2,h,d]; empty: by iperm", kMemory},
    CaseKey{"k_layout", "", "k and v: bhsd, bshd; empty: as layout", kMemory},
    CaseKey{"do_layout", "", "d_o: bhsd, bshd; empty: as o", kMemory, Operation::backward},
    CaseKey{"grad_layout", "", "dq, dk, dv: bhsd, bshd; empty: as q, k and v", kMemory, Operation::backward},
    CaseKey{"vlayout", "r", "r: a row of v is contiguous; c: a column is", kMemory},
    CaseKey{"row_gap", "0", "unused elements after each row of each tensor", kMemory},
    CaseKey{"align", "0", "elements from a 64-byte boundary to the start of each tensor", kMemory},
    CaseKey{"absurd_strides", "0", "1: dimensions of size 1 have a huge stride", kMemory},
    CaseKey{"zero_strides", "", "dimensions with stride 0: k.b,v.h,q.s,bias.b,bool_mask.q ...", kMemory},
    CaseKey{"reversed", "", "dimensions stored backwards: q.h,dk.s,o.b ...", kMemory},
    CaseKey{"squeeze", "0", "1: leave leading dimensions of size 1 out of bias and masks", kMemory},
    CaseKey{"index_prec", "i32", "type of offsets and lengths: i32, i64", kMemory},

    CaseKey{"init", "nf", "ui|0, ni, uf|1, nf, tf|2, 3: uniform ints, normal ints, uniform, normal, cos, extreme",
            kData},
    CaseKey{"dist", "",
            "normal, uniform_int, normal_int, uniform, trig, extreme, sparse_int, offset, hot_key, const_v, equal, "
            "one_nan; empty: by init",
            kData},
    CaseKey{"seed", "11939", "of the data; 0: a new one each time", kData},

    CaseKey{"s_knew", "0", "new keys appended to a cache", kLater, Operation::forward},
    CaseKey{"qscale", "n", "scales of quantised inputs: n, pt, bs, kvbs, mx", kLater, Operation::forward},
    CaseKey{"rotary_dim", "0", "rotary embedding of new keys and queries", kLater, Operation::forward},
    CaseKey{"rotary_interleaved", "1", "its kind: 1 interleaved, 0 half rotated", kLater, Operation::forward},
    CaseKey{"num_splits", "1", "splits of the keys; 0: chosen by heed", kLater, Operation::forward},
    CaseKey{"page_block_size", "0", "keys in pages of a cache", kLater, Operation::forward},
    CaseKey{"cache_batch_idx", "0", "1: a map from batch to cache slot", kLater, Operation::forward},
    CaseKey{"pack_gqa", "1", "0: do not fold the query heads of a group together", kLater, Operation::forward},
};

constexpr std::array<std::pair<std::string_view, std::string_view>, 1> kAliases{{{"scale", "scale_s"}}};

}  // namespace

std::vector<CaseKey> case_keys(Operation operation) {
  std::vector<CaseKey> keys;
  for (const CaseKey& key : kKeys)
    if (!key.only || *key.only == operation) keys.push_back(key);
  return keys;
}
std::span<const std::pair<std::string_view, std::string_view>> case_key_aliases() { return kAliases; }

}  // namespace heed::verify
