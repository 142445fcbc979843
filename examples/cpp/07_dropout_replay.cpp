// Dropout that can be replayed: whether an entry (b, h, i, j) is kept depends on (seed, offset, b, h, i, j) and nothing
// else, by a map that is part of the interface (heed/philox.hpp). So a backward pass, another engine or a test can find
// the same entries again.
#include "example.hpp"

using example::Floats;

int main() {
  constexpr std::int64_t b = 2, h = 3, s = 64, d = 16;
  const Floats q = example::random_floats(b * s * h * d, 1), k = example::random_floats(b * s * h * d, 2);
  // V = the identity for every head (d_v = s), so that O is the matrix of weights itself.
  Floats v(b * s * h * s, 0.0F);
  for (std::int64_t n = 0; n < b * s * h; ++n) v[static_cast<std::size_t>(n * s + n / h % s)] = 1;

  std::vector<std::uint16_t> words(b * h * s * s);
  const auto run = [&](const heed::Dropout& dropout) {
    Floats o = example::unwritten(b * s * h * s);
    heed::forward({.q = {q.data(), heed::f32, {b, s, h, d}},
                   .k = {k.data(), heed::f32, {b, s, h, d}},
                   .v = {v.data(), heed::f32, {b, s, h, s}},
                   .o = {o.data(), heed::f32, {b, s, h, s}},
                   .dropout = dropout});
    return o;
  };
  const double p = 0.25;
  const std::uint64_t seed = 1234, offset = 7;
  const Floats weights = run({});
  const Floats dropped =
      run({.p = p, .seed = seed, .offset = offset, .randval = {words.data(), heed::u16, {b, h, s, s}}});
  const Floats again = run({.p = p, .seed = seed, .offset = offset});
  const Floats next_step = run({.p = p, .seed = seed, .offset = offset + 1});

  example::Checks checks;
  checks.expect(dropped == again, "the same seed and offset drop the same entries, to the bit");
  checks.expect(dropped != next_step, "another offset drops others");

  // Replay: from the words that were written out, and from the map.
  bool words_are_the_map = true;
  Floats replayed(weights.size());
  std::int64_t kept = 0;
  for (std::int64_t n = 0; n < b * h * s * s; ++n) {
    const std::int64_t j = n % s, i = n / s % s, head_index = n / (s * s);  // head_index = batch * h + head
    const std::uint16_t word = words[static_cast<std::size_t>(n)];
    words_are_the_map =
        words_are_the_map && word == heed::dropout_word(seed, offset, static_cast<std::uint64_t>(head_index),
                                                        static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j));
    if (word < heed::dropout_threshold(p)) continue;
    const auto at = static_cast<std::size_t>(((head_index / h * s + i) * h + head_index % h) * s + j);
    replayed[at] = weights[at] / static_cast<float>(1 - p);  // what is kept grows, so that the mean stays
    ++kept;
  }
  checks.expect(words_are_the_map, "randval holds the words of heed::dropout_word");
  checks.expect_close(dropped, replayed, "O is what the words say");
  const double share = static_cast<double>(kept) / static_cast<double>(words.size());
  checks.expect(std::abs(share - (1 - p)) < 0.01, "kept " + std::to_string(share) + " of all entries");
  return checks.exit_code();
}
