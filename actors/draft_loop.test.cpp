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

/// What requests are told, as it comes.
class RequestAnswers {
 public:
  EngineListener listener() {
    return [this](EngineEvents events) {
      {
        const std::lock_guard lock(mutex_);
        for (const auto& [key, error] : events.rejected) rejected_[key] = error;
        for (const model::ChoiceUpdate& update : events.updates) {
          for (const TokenOut& token : update.tokens) tokens_[update.key].push_back(token.id);
          if (update.finish) finished_[update.key] = update.finish->reason;
        }
      }
      changed_.notify_all();
    };
  }
  /// All tokens, once the request has ended.
  std::vector<int32_t> wait(RequestKey key) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finished_.contains(key); });
    return tokens_[key];
  }
  Error wait_rejected(RequestKey key) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return rejected_.contains(key); });
    return rejected_[key];
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return tokens_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestKey, std::vector<int32_t>> tokens_;
  std::map<RequestKey, FinishReason> finished_;
  std::map<RequestKey, Error> rejected_;
};

schema::DraftOpen draft_open_of(const schema::DraftKey& key) {
  schema::DraftOpen open;
  open.key = key;
  open.tokenizer = "tokens";
  open.prompt_tokens = 2;
  return open;
}

constexpr uint32_t k_loop_context = 256;

DraftRuns::Options loop_options() {
  return {.tokenizer = "tokens", .context_tokens = k_loop_context};
}

TEST(DraftLoop, AnswersRequestsBesideItsDraftsAndTellsEachItsOwn) {
  Heard heard;
  RequestAnswers answers;
  const SteadyClock clock;
  DraftLoop loop(std::make_unique<ScriptedDraft>(k_loop_context), loop_options(), clock);
  loop.report_drafts_to(heard.listener());
  loop.report_answers_to(answers.listener());
  // A target's request and one of the draft's own may have the same number.
  const schema::DraftKey key{1, {1, 1}, 0, 1};
  loop.give(draft_open_of(key));
  loop.give(schema::DraftCommits{{{key, 0, {4, 7}, 3, 0}}});
  GenerationRequest request;
  request.prompt = {5, 7};
  ASSERT_TRUE(loop.submit({1, 1}, request).ok());
  EXPECT_EQ(heard.wait(1, 2, 5), truth_behind({4, 7}, 5));
  EXPECT_EQ(answers.wait({1, 1}), truth_behind({5, 7}, k_loop_context - 2));

  ASSERT_TRUE(loop.submit({DraftRuns::k_sessions + 1, 1}, request).ok());
  EXPECT_EQ(answers.wait_rejected({DraftRuns::k_sessions + 1, 1}).code, ErrorCode::invalid_argument)
      << "that number is a run's";
  loop.set_parked({DraftRuns::k_sessions + 1, 1}, true);
  loop.cancel({DraftRuns::k_sessions + 1, 1});
  loop.give(schema::DraftCommits{{{key, 2, {1000}, 3, 0}}});
  EXPECT_EQ(heard.wait(1, 3, 5), truth_behind({4, 7, 1000}, 5)) << "the run goes on";
  loop.give(schema::DraftClose{key, schema::DraftEnd::finished});
  loop.wait_idle();
  EXPECT_EQ(answers.count(), 1u);
}

TEST(DraftLoop, DraftsForManyThreadsAtOnceAndEndsIdle) {
  Heard heard;
  const SteadyClock clock;
  DraftLoop loop(std::make_unique<ScriptedDraft>(k_loop_context), loop_options(), clock);
  loop.report_drafts_to(heard.listener());
  std::vector<std::thread> targets;
  for (uint64_t session = 1; session <= 4; ++session) {
    targets.emplace_back([&, session] {
      const schema::DraftKey key{1, {session, 1}, 0, 1};
      loop.give(draft_open_of(key));
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
