#include <gtest/gtest.h>

#include "base/block_id.hpp"
#include "base/check.hpp"
#include "tests/exactness/harness.hpp"

/// The names of blocks, with one mistake: only the first half of a block's tokens counts. A block
/// is then matched by prompts that part in its second half.
namespace outrider {

FieldDigest& FieldDigest::field(std::string_view name, std::string_view value) {
  hash_.update(name).update(value);
  return *this;
}

FieldDigest& FieldDigest::field(std::string_view name, uint64_t value) {
  hash_.update(name).update(value);
  return *this;
}

BlockId root_block_id(std::string_view secret, const Digest256& kv_namespace,
                      const SharingScope& scope) {
  return Sha256()
      .update(secret)
      .update(std::as_bytes(std::span(kv_namespace)))
      .update(scope.tenant)
      .update(scope.salt)
      .finish();
}

BlockId BlockHasher::child(const BlockId& parent, std::span<const int32_t> tokens,
                           std::string_view extras) {
  hash_.restart();
  hash_.update(std::as_bytes(std::span(parent)))
      .update(std::as_bytes(tokens.first(tokens.size() / 2)))
      .update(extras);
  return hash_.finish();
}

namespace exactness {
namespace {

TEST(Exactness, AWrongBlockThatIsMatchedIsCaught) {
  Options options;
  options.model = "tests/support/models/tiny-llama.gguf";
  options.seed = 4;
  options.count = 64;
  options.isas = {kernels::default_isa()};
  const auto report = run(options, nullptr);
  OUTRIDER_CHECK(report.ok(), report.error().message);
  EXPECT_GT(report->disturbances.cached_tokens, 0u);
  EXPECT_GT(report->tally.differing_logprobs, 0u);
  EXPECT_FALSE(report->failures.empty());
}

}  // namespace
}  // namespace exactness
}  // namespace outrider
