#include "actors/draft_loop.hpp"

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "actors/draft_engine.test.hpp"

/// Knows no CAF runtime, so that TSan can judge it.
namespace outrider::actors {
namespace {

/// Hints as they come, by session.
class Heard {
 public:
  DraftListener listener() {
    return [this](DraftReplies replies) {
      {
        const std::lock_guard lock(mutex_);
        for (const schema::DraftHint& hint : replies.hints) {
          std::vector<int32_t>& tokens = hints_[{hint.key.request.session, hint.base_length}];
          tokens.clear();
          for (const schema::DraftBranch& branch : hint.branches) tokens.push_back(branch.token);
        }
      }
      changed_.notify_all();
    };
  }
  /// Waits for a hint of `count` tokens behind so many.
  std::vector<int32_t> wait(uint64_t session, uint32_t base, size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return hints_[{session, base}].size() >= count; });
    return hints_[{session, base}];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<uint64_t, uint32_t>, std::vector<int32_t>> hints_;
};

TEST(DraftLoop, DraftsForManyThreadsAtOnceAndEndsIdle) {
  Heard heard;
  const SteadyClock clock;
  DraftLoop loop(std::make_unique<ScriptedDraft>(), {.tokenizer = "tokens", .context_tokens = 256},
                 heard.listener(), clock);
  std::vector<std::thread> targets;
  for (uint64_t session = 1; session <= 4; ++session) {
    targets.emplace_back([&, session] {
      const schema::DraftKey key{1, {session, 1}, 0, 1};
      schema::DraftOpen open;
      open.key = key;
      open.tokenizer = "tokens";
      open.prompt_tokens = 2;
      loop.give(open);
      std::vector<int32_t> text = {static_cast<int32_t>(session), 7};
      uint32_t told = 0;
      for (uint32_t step = 0; step < 20; ++step) {
        const std::vector<int32_t> news(text.begin() + told, text.end());
        loop.give(schema::DraftCommits{{{key, told, news, 3, 0}}});
        told = static_cast<uint32_t>(text.size());
        // Far enough ahead that the next commit still leaves something to be drafted.
        const auto expected = heard.wait(session, told, 5);
        EXPECT_EQ(expected, truth_behind(text, 5));
        const int32_t next = step % 3 == 0 ? 1000 : expected[0];
        text.push_back(next);
      }
      loop.give(schema::DraftClose{key, schema::DraftEnd::finished});
    });
  }
  for (std::thread& target : targets) target.join();
  loop.forget_cached("ann");
  loop.wait_idle();
  EXPECT_EQ(loop.snapshot().stats.running + loop.snapshot().stats.parked, 0u);
}

}  // namespace
}  // namespace outrider::actors
