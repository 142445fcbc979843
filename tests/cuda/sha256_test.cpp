#include "cuda/sha256.hpp"

#include <gtest/gtest.h>

namespace heed::cuda {
namespace {

TEST(Sha256, gives_the_digests_of_the_standard) {
  EXPECT_EQ(to_hex(Sha256().digest()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(Sha256().add("abc").digest()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(Sha256().add("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq").digest()),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(to_hex(Sha256().add(std::string(1'000'000, 'a')).digest()),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, does_not_depend_on_how_a_text_is_cut) {
  const std::string text(300, 'x');
  const std::string whole = to_hex(Sha256().add(text).digest());
  for (std::size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(to_hex(Sha256().add(text.substr(0, cut)).add(text.substr(cut)).digest()), whole) << cut;
}

}  // namespace
}  // namespace heed::cuda
