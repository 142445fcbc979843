#include "verify/fuzz.hpp"
#include "verify/random.hpp"

#include <algorithm>
#include <initializer_list>
#include <type_traits>

namespace heed::verify {
namespace {

class Chooser {
 public:
  Chooser(std::uint64_t seed, std::int64_t number, Operation operation, std::int64_t kinds)
      : own_(seed, static_cast<std::uint64_t>(number)),
        of_kind_(~seed, static_cast<std::uint64_t>(kinds > 0 ? number % kinds : number)),
        kinds_(kinds) {
    c_.operation = operation;
  }
  Chooser(const Chooser&) = delete;
  Chooser& operator=(const Chooser&) = delete;

  Case make() {
    choose_sizes();
    choose_lengths();
    of_kind([&] { choose_types(); });
    of_kind([&] { choose_memory(); });
    of_kind([&] { choose_features(); });
    choose_data();
    choose_what_is_told();
    if (c_.backward()) of_kind([&] { choose_gradients(); });
    return c_;
  }

 private:
  /// What kernels are compiled for: the same for all cases of a kind.
  template <class Choose>
  std::invoke_result_t<Choose> of_kind(const Choose& choose) {
    struct Back {
      Random*& random;
      Random* before;
      ~Back() { random = before; }
    } back{random_, random_};
    if (kinds_ > 0) random_ = &of_kind_;
    return choose();
  }
  bool chance(double probability) { return random_->chance(probability); }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[random_->integer(0, static_cast<std::int64_t>(list.size()) - 1)];
  }

  /// Lengths around the edges of tiles, and any others.
  std::int64_t length(std::int64_t most) {
    const double kind = random_->real();
    std::int64_t result = 0;
    if (kind < 0.12)
      result = 1;
    else if (kind < 0.3)
      result = random_->integer(2, 9);
    else if (kind < 0.65)
      result = one_of<std::int64_t>({16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512}) + random_->integer(-1, 1);
    else
      result = random_->integer(1, 300);
    return std::min(result, most);
  }

  std::int64_t head_dim() {
    const double kind = random_->real();
    if (kind < 0.45) return one_of<std::int64_t>({16, 32, 64, 64, 80, 96, 128, 128});
    if (kind < 0.95) return random_->integer(1, 100);
    return one_of<std::int64_t>({160, 192, 256, 320, 511, 512});
  }

  void choose_sizes() {
    c_.b = chance(0.01) ? 0 : one_of<std::int64_t>({1, 1, 1, 2, 2, 3, 5});
    c_.h_k = one_of<std::int64_t>({1, 1, 2, 3});
    c_.h = c_.h_k * (chance(0.5) ? 1 : one_of<std::int64_t>({2, 3, 4, 5, 7, 8, 10, 16}));
    if (chance(0.01)) {
      c_.h = 0;
      if (chance(0.5)) c_.h_k = 0;  // otherwise there are keys that nobody sees
    }
    of_kind([&] {
      c_.d = head_dim();
      c_.d_v = chance(0.65) ? c_.d : head_dim();
    });
    s_q_ = length(600);
    s_k_ = chance(0.35) ? s_q_ : length(1000);
    if (chance(0.08)) {  // few queries against many keys
      s_q_ = random_->integer(1, 9);
      s_k_ = chance(0.5) ? random_->integer(900, 5000)
                         : one_of<std::int64_t>({1024, 2048, 4096}) + random_->integer(-1, 1);
      c_.d = std::min<std::int64_t>(c_.d, 32);
      c_.d_v = std::min<std::int64_t>(c_.d_v, 32);
    }
    // Multiplications that the oracle may spend on it.
    const double size = random_->real();
    // Of a backward problem the oracle computes everything several times over, and some are outside of any budget.
    const double large = c_.backward() ? 0.99 : 0.98;
    const double budget = (size < 0.85 ? 1.0e6 : size < large ? 6e6 : 4e7) * (c_.backward() ? 0.3 : 1.0);
    const auto cost = [&] {
      return static_cast<double>(c_.b * c_.h * s_q_ * s_k_) * static_cast<double>(c_.d + c_.d_v);
    };
    const bool outside = c_.backward() && choose_outside_the_budget();
    while (!outside && cost() > budget) {
      const bool decoding = s_k_ > 500 && s_q_ < 10 && c_.d + c_.d_v <= 64 && !c_.backward();
      switch (random_->integer(0, decoding ? 2 : kinds_ > 0 ? 3 : 4)) {
        case 0:
          c_.b = std::max<std::int64_t>(c_.b - 1, 1);
          break;
        case 1: {
          std::int64_t ratio = c_.h / c_.h_k;
          if (c_.h_k > 1)
            --c_.h_k;
          else if (chance(0.3))
            ratio = std::max<std::int64_t>(ratio - 1, 1);
          c_.h = c_.h_k * ratio;
          break;
        }
        case 2:
          s_q_ = std::max<std::int64_t>(s_q_ * 2 / 3, 1);
          break;
        case 3:
          s_k_ = std::max<std::int64_t>(s_k_ * 2 / 3, 1);
          break;
        default:
          c_.d = std::max<std::int64_t>(c_.d * 2 / 3, 8);
          c_.d_v = std::max<std::int64_t>(c_.d_v * 2 / 3, 8);
      }
    }
    if (chance(0.02)) s_q_ = 0;
    if (chance(0.03)) s_k_ = 0;
  }

  /// What the budget would always cut down: gradients that several tiles of queries and several long blocks of keys add
  /// up together, and wide heads with more rows than a tile has. Few of them, with all else small.
  bool choose_outside_the_budget() {
    const bool many_tiles = chance(0.025), wide = c_.d > 128 && chance(0.1);
    if (!many_tiles && !wide) return false;
    c_.b = 1;
    if (c_.h > 2) {
      c_.h = one_of<std::int64_t>({1, 2, 2});
      c_.h_k = chance(0.5) ? 1 : c_.h;
    }
    if (many_tiles) {
      s_q_ = random_->integer(65, 200);
      s_k_ = std::min(random_->integer(513, 1700), random_->integer(513, 1700));
      c_.d = std::min<std::int64_t>(c_.d, 16);
      c_.d_v = std::min<std::int64_t>(c_.d_v, 16);
    } else {
      s_q_ = random_->integer(65, 140);
      s_k_ = random_->integer(65, 140);
    }
    return true;
  }

  std::vector<std::int64_t> lengths_up_to(std::int64_t most) {
    std::vector<std::int64_t> list(static_cast<std::size_t>(c_.b));
    for (std::int64_t& each : list) each = chance(0.1) ? 0 : chance(0.4) ? most : random_->integer(0, most);
    return list;
  }

  void choose_lengths() {
    c_.s_q = {s_q_};
    c_.s_k = {s_k_};
    c_.index_type = chance(0.3) ? i64 : i32;
    if (of_kind([&] { return chance(0.35); })) {
      c_.mode = Mode::group;
      c_.s_q = lengths_up_to(s_q_);
      c_.s_k = chance(0.2) ? c_.s_q : lengths_up_to(s_k_);
      const auto padded = [&](std::vector<std::int64_t> list) {
        for (std::int64_t& each : list) each += chance(0.5) ? 0 : random_->integer(1, 20);
        return list;
      };
      if (chance(0.4)) c_.s_qpad = padded(c_.s_q);
      if (chance(0.4)) c_.s_kpad = padded(c_.s_k);
      const auto around = [&] { return Around{random_->integer(0, 9), random_->integer(0, 9)}; };
      if (chance(0.15)) c_.q_around = around();
      if (chance(0.15)) c_.k_around = around();
      return;
    }
    if (of_kind([&] { return chance(0.2); })) c_.q_eff_lens = lengths_up_to(s_q_);
    if (of_kind([&] { return chance(0.3); })) c_.kv_eff_lens = lengths_up_to(s_k_);
  }

  void choose_types() {
    c_.type = one_of({f32, f32, f16, bf16, bf16});
    if (chance(0.15)) c_.output_type = one_of({f32, f16, bf16});
    if (c_.output_type == c_.type) c_.output_type.reset();
    if (chance(0.15)) c_.math = Math::accurate;
  }

  void choose_memory() {
    const auto layout = [&] { return chance(0.5) ? Layout::bhsd : Layout::bshd; };
    c_.q_layout = layout();
    c_.k_layout = c_.v_layout = layout();
    c_.o_layout = layout();
    if (chance(0.12)) {
      c_.packing = chance(0.5) ? Packing::qkv : Packing::kv;
      c_.q_layout = c_.k_layout = c_.v_layout = Layout::bshd;
      c_.d_v = c_.d;
      if (c_.packing == Packing::qkv) {
        c_.h_k = c_.h;
        c_.s_k = c_.s_q;
        c_.s_kpad = c_.s_qpad;
        c_.k_around = c_.q_around;
        c_.kv_eff_lens = c_.kv_eff_lens.empty() ? c_.kv_eff_lens : lengths_up_to(s_q_);
      }
    } else {
      c_.v_column_major = chance(0.15);
      if (chance(0.1)) choose_zero_strides();
    }
    if (chance(0.25)) c_.row_gap = random_->integer(1, 20);
    if (chance(0.25)) c_.align = random_->integer(1, 15);
    c_.absurd_strides = chance(0.1);
    if (chance(0.08)) choose_reversed();
  }

  void choose_reversed() {
    const std::int64_t last = static_cast<std::int64_t>(c_.backward() ? Operand::dv : Operand::o);
    do {
      const Reversed each{static_cast<Operand>(random_->integer(0, last)), one_of({'b', 's', 'h', 'h'})};
      const bool there = std::find(c_.reversed.begin(), c_.reversed.end(), each) != c_.reversed.end();
      const bool column = each.tensor == Operand::v && each.dim == 's' && c_.v_column_major;
      if (!there && !column) c_.reversed.push_back(each);
    } while (chance(0.5));
  }

  void choose_zero_strides() {
    using enum ZeroStride::Tensor;
    const auto tensor = one_of({q, k, v});
    const char dim = one_of({'b', 'h', 's'});
    if (tensor == v && dim == 's' && c_.v_column_major) return;
    c_.zero_strides = {{tensor, dim}};
    if (tensor == k && chance(0.5) && !(dim == 's' && c_.v_column_major)) c_.zero_strides.push_back({v, dim});
  }

  Broadcast shape() { return {.batch = chance(0.5), .head = chance(0.5), .query = chance(0.7), .key = !chance(0.08)}; }

  Mask random_mask() {
    const auto distance = [&](std::int64_t s) {
      return chance(0.25) ? -1 : random_->integer(0, std::max<std::int64_t>(s + 2, 4) / (chance(0.5) ? 4 : 1));
    };
    const std::int64_t left = distance(s_k_), right = distance(s_k_), sink = chance(0.3) ? random_->integer(1, 70) : 0;
    const double kind = random_->real();
    if (kind < 0.3) return Mask::none();
    if (kind < 0.38) return Mask::causal_top_left();
    if (kind < 0.55) return Mask::causal();
    if (kind < 0.68) return Mask::window_top_left(left, chance(0.4) ? 0 : right, sink);
    if (kind < 0.86) return Mask::window(left, chance(0.4) ? 0 : right, sink);
    if (kind < 0.92) return Mask::parse((chance(0.5) ? "xt:" : "xb:") + std::to_string(random_->integer(0, s_k_ + 2)));
    return Mask::raw(random_->integer(-5, s_q_ + 5), random_->integer(-5, s_k_ + 5));
  }

  void choose_features() {
    c_.mask = random_mask();
    if (chance(0.2)) {
      c_.bias = BiasSpec{chance(0.5) ? f32 : c_.type, shape()};
      c_.bias_inf = chance(0.4);
      if (chance(0.2)) c_.zero_strides.push_back({ZeroStride::Tensor::bias, one_of({'b', 'h', 'q', 'k'})});
    }
    if (chance(0.15)) {
      c_.bool_mask = shape();
      if (chance(0.2)) c_.zero_strides.push_back({ZeroStride::Tensor::bool_mask, one_of({'b', 'h', 'q', 'k'})});
    }
    if (chance(0.1))
      c_.block_mask = BlockMaskSpec{one_of<std::int64_t>({1, 3, 16, 64, 128}),
                                    one_of<std::int64_t>({1, 5, 32, 64, 100}),
                                    {.batch = chance(0.5), .head = chance(0.5), .query = true}};
    c_.squeeze = chance(0.5) && (c_.bias || c_.bool_mask || c_.block_mask);
    if (chance(0.15)) c_.alibi = chance(0.5) ? Alibi::per_head : Alibi::per_batch_and_head;
    if (chance(0.15)) c_.sink = one_of({SinkInit::large, SinkInit::normal, SinkInit::normal, SinkInit::holes});
    if (chance(0.15)) c_.soft_cap = one_of({0.5, 5.0, 30.0, 50.0});
    if (chance(0.15)) {
      c_.p_drop = one_of({1e-6, 0.1, 0.25, 0.5, 0.9, 0.99});
      c_.drop_seed = random_->word();
      c_.drop_offset = chance(0.5) ? random_->word() : static_cast<std::uint64_t>(random_->integer(0, 100));
      c_.randval = chance(0.5);
    }
    c_.lse = chance(0.7);
    if (chance(0.3)) c_.scale = one_of({1.0, 0.3, -0.25, 2.0, 1e-3});
  }

  void choose_data() {
    using enum Distribution;
    c_.seed = random_->word() >> 1 | 1;
    c_.distribution = chance(0.4) ? normal
                                  : one_of({uniform_int, normal_int, uniform, trig, extreme, sparse_int, sparse_int,
                                            offset, offset, hot_key, hot_key, const_v, equal, one_nan});
    // Beside logits of 10^30 a bias is lost in f32, and yet decides between equal keys in f64.
    if (c_.distribution == extreme && (c_.bias || c_.alibi != Alibi::none)) c_.distribution = normal;
  }

  void choose_gradients() {
    c_.lse = true;
    c_.randval = false;
    c_.d_lse = chance(0.25);
    if (c_.bias && chance(0.6)) c_.dbias = chance(0.5) ? f32 : c_.bias->type;
    c_.dsink = c_.sink != SinkInit::none && chance(0.7);
    c_.dslopes = c_.alibi != Alibi::none && chance(0.5);
    c_.deterministic = chance(0.3);
    c_.dq_in_16_bits = c_.type != f32 && chance(0.1);
    const auto layout = [&] { return chance(0.5) ? Layout::bhsd : Layout::bshd; };
    if (chance(0.25)) c_.d_o_layout = layout();
    if (chance(0.25)) c_.grad_layout = layout();
    if (chance(0.05)) c_.zero_strides.push_back({ZeroStride::Tensor::d_o, one_of({'b', 'h', 's'})});
    // Where logits are 10^30 one key has all the weight, and gradients are differences of its huge numbers.
    if (c_.distribution == Distribution::extreme) c_.distribution = Distribution::hot_key;
    // What a NaN makes of pairs that a bias or dropout leaves without a weight is not promised.
    if (c_.distribution == Distribution::one_nan && (c_.bias_inf || c_.p_drop > 0))
      c_.distribution = Distribution::normal;
    if (chance(0.4)) choose_own_bias();
  }

  /// A bias that nobody shares, beside masks by coordinates alone, in memory of whole vectors: kernels may write its
  /// gradient where they make dS. By chance all of that hardly ever comes together.
  void choose_own_bias() {
    const bool alone = !c_.bool_mask && !c_.block_mask && c_.alibi == Alibi::none && c_.soft_cap == 0 && c_.p_drop == 0;
    if (!c_.bias || !alone || c_.group() || c_.packing != Packing::none) return;
    static constexpr std::int64_t kVector = 8;
    const auto whole = [](std::int64_t size) { return std::max(size / kVector * kVector, kVector); };
    c_.bias = BiasSpec{c_.type, {.batch = true, .head = true, .query = true}};
    c_.dbias = c_.type;
    c_.q_eff_lens.clear(), c_.kv_eff_lens.clear(), c_.zero_strides.clear();
    c_.s_k = {whole(s_k_)}, c_.d = whole(c_.d), c_.d_v = whole(c_.d_v);
    c_.row_gap = c_.align = 0;
    c_.v_column_major = c_.absurd_strides = false;
    c_.reversed.clear();
  }

  /// Of the longest sequences: their lengths, a larger bound, or nothing. Where the lists lie in GPU memory and nothing
  /// is told, the tensors' rows are the bound, which a bias of the longest sequence's size would not fit.
  void choose_what_is_told() {
    c_.drop_state = c_.p_drop > 0 && chance(0.4);
    if (!c_.group()) return;
    const bool bounds_show = c_.bias || c_.bool_mask || c_.block_mask || c_.randval;
    if (bounds_show && chance(0.2)) c_.table_more_q = random_->integer(0, 9), c_.table_more_k = random_->integer(0, 70);
    const auto choose = [&](std::int64_t& told, std::int64_t longest, std::int64_t rows) {
      const double kind = random_->real();
      if (kind < 0.25 && !bounds_show)
        told = 0;
      else if (kind < 0.5 && rows > longest)
        told = std::min(longest + random_->integer(1, 40), rows);
    };
    choose(c_.max_s_q, c_.longest_q(), c_.total_q());
    choose(c_.max_s_k, c_.longest_k(), c_.total_k());
  }

  Random own_, of_kind_;
  Random* random_ = &own_;
  std::int64_t kinds_;
  Case c_;
  std::int64_t s_q_ = 1, s_k_ = 1;
};

}  // namespace

Case random_case(std::uint64_t seed, std::int64_t number, Operation operation, std::int64_t kinds) {
  return Chooser(seed, number, operation, kinds).make();
}

}  // namespace heed::verify
