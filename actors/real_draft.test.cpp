#include <gtest/gtest.h>

#include "actors/draft_actor.hpp"
#include "actors/real_world.test.hpp"
#include "base/limits.hpp"

/// Drafting by a model through the real actors, threads and messages: whoever drafts, and whatever
/// it sends, answers are those of an engine that runs alone.
namespace outrider::actors {
namespace {

class RealDraft : public RealWorld {
 protected:
  static model::SpeculationOptions drafting(bool ngram = false) {
    return {.ngram = ngram, .depth_max = 6, .fixed_depth = true};
  }
  /// A draft of the same model, which is always right; with a window it errs now and then. What it
  /// is served as, if it is.
  DraftActor add_draft(uint32_t local_window = 0, const std::string& name = {}) {
    auto engine = make_engine(clock_, {.depth_max = 0}, local_window);
    DraftSetup setup;
    setup.announce.worker = ++worker_;
    setup.announce.model = name;
    setup.announce.fingerprint = to_hex(engine->fingerprint());
    setup.announce.tokenizer = "tokens";
    setup.announce.context_tokens = engine->context_tokens();
    setup.announce.sequences = 8;
    setup.router = router_;
    const DraftRuns::Options options{.tokenizer = "tokens",
                                     .context_tokens = engine->context_tokens()};
    const auto loop = std::make_shared<DraftLoop>(make_stepper(std::move(engine)), options, clock_);
    draft_loop_ = loop;
    setup.engine = [loop](DraftListener listener) {
      loop->report_drafts_to(std::move(listener));
      return loop;
    };
    if (!name.empty()) add_target_of(loop, setup.announce);
    auto draft = system_.spawn(draft_actor, std::move(setup));
    drafts_.push_back(caf::actor_cast<caf::actor>(draft));
    return draft;
  }
  void add_target_of(const std::shared_ptr<DraftLoop>& loop, schema::Announce announce) {
    TargetSetup setup;
    setup.announce = std::move(announce);
    setup.announce.worker = ++worker_;
    setup.router = router_;
    setup.engine = [loop](EngineListener listener) {
      loop->report_answers_to(std::move(listener));
      return loop;
    };
    targets_.push_back(system_.spawn(target_actor, std::move(setup)));
  }
  void wait_until_the_draft_holds_nothing() {
    while (true) {
      const EngineSnapshot engine = draft_loop_.lock()->snapshot();
      const model::EngineStats& stats = engine.stats;
      const uint32_t held = stats.running + stats.waiting + stats.parked + engine.inbox;
      if (stats.blocks_free == stats.blocks_total && held == 0) return;
      std::this_thread::yield();
    }
  }
  GenerationRequest long_request(uint64_t seed) {
    GenerationRequest asked = request(seed);
    asked.stop.max_tokens = 40 + static_cast<uint32_t>(seed % 30);
    asked.stop.ignore_eos = true;
    return asked;
  }
  /// Many at once, each with its own answer.
  void ask_many(uint64_t first_seed, uint64_t count) {
    std::vector<std::shared_ptr<Client>> clients;
    for (uint64_t i = 0; i < count; ++i) clients.push_back(open(long_request(first_seed + i)));
    for (uint64_t i = 0; i < count; ++i) {
      compare(clients[i]->wait(), long_request(first_seed + i), first_seed + i);
    }
  }
  HintCounters hints() {
    while (loop_ == nullptr) std::this_thread::yield();  // The target has not begun.
    return loop_.load()->snapshot().stats.hints;
  }
  static uint64_t of(const HintCounters& hints, HintOutcome outcome) {
    return hints.hints[static_cast<size_t>(outcome)];
  }

  std::weak_ptr<DraftLoop> draft_loop_;  ///< Of the newest draft.
};

TEST_F(RealDraft, ARightDraftIsUsedAndChangesNoBit) {
  add_draft();
  add_target({}, drafting());
  // How much is used is a matter of time; that nothing ever is would be an error.
  for (uint64_t seed = 0; hints().accepted_tokens < 50; seed += 8) {
    ask_many(seed, 8);
    ASSERT_LT(seed, 2000u);
  }
  wait_until_all_blocks_are_free();
}

TEST_F(RealDraft, ADraftAnswersForItsOwnModelWhileItDraftsForAnother) {
  constexpr uint32_t k_window = 24;  // Its own answers are others.
  add_draft(k_window, "small");
  add_target({}, drafting());
  const auto small = make_engine(clock_, {}, k_window);
  uint32_t others = 0;
  for (uint64_t seed = 0; hints().accepted_tokens < 50; seed += 8) {
    std::vector<std::shared_ptr<Client>> of_target;
    std::vector<std::shared_ptr<Client>> of_draft;
    for (uint64_t i = 0; i < 8; ++i) {
      of_draft.push_back(open(long_request(seed + i), std::make_shared<Client>(), "small"));
      of_target.push_back(open(long_request(seed + i)));
    }
    for (uint64_t i = 0; i < 8; ++i) {
      const Answer answer = of_target[i]->wait();
      const Answer draft = of_draft[i]->wait();
      compare(answer, long_request(seed + i), seed + i);
      compare(draft, long_request(seed + i), seed + i, *small);
      others += draft.choices != answer.choices ? 1 : 0;
    }
    ASSERT_LT(seed, 2000u);
  }
  EXPECT_GT(others, 0u) << "both are one model";
  wait_until_all_blocks_are_free();
  wait_until_the_draft_holds_nothing();
}

TEST_F(RealDraft, ADraftThatNobodyDraftsWithAnyMoreStillAnswers) {
  const DraftActor draft = add_draft(24, "small");
  add_target({}, drafting());
  const auto small = make_engine(clock_, {}, 24);
  ask_many(0, 4);
  kill(draft);
  const auto client = open(long_request(7), std::make_shared<Client>(), "small");
  compare(client->wait(), long_request(7), 7, *small);
  ask_many(20, 4);
  wait_until_the_draft_holds_nothing();
}

TEST_F(RealDraft, WhoAsksForItGetsDraftsVerifiedByRejection) {
  add_draft();
  add_target({}, drafting());
  for (uint64_t seed = 0; hints().accepted_tokens < 50; seed += 8) {
    std::vector<std::shared_ptr<Client>> clients;
    for (uint64_t i = 0; i < 8; ++i) {
      GenerationRequest asked = long_request(seed + i);
      asked.choices = 1;
      asked.sampling.temperature = i % 4 == 0 ? 0.0f : 0.8f;
      asked.sampling.top_k = 20;  // A draft draws from 64, of which the tiny model thinks alike.
      asked.speculation.method = SpeculationMethod::reject_sampling;
      clients.push_back(open(asked));
    }
    for (uint64_t i = 0; i < 8; ++i) {
      GenerationRequest asked = long_request(seed + i);
      asked.choices = 1;
      asked.sampling.temperature = i % 4 == 0 ? 0.0f : 0.8f;
      asked.sampling.top_k = 20;  // A draft draws from 64, of which the tiny model thinks alike.
      const Answer answer = clients[i]->wait();
      if (i % 4 == 0) {
        compare(answer, asked, seed + i);
      } else {
        EXPECT_EQ(answer.choices.at(0).size(), asked.stop.max_tokens);
      }
    }
    ASSERT_LT(seed, 2000u);
  }
  EXPECT_EQ(of(hints(), HintOutcome::malformed), 0u);
  wait_until_all_blocks_are_free();
}

TEST_F(RealDraft, ADraftThatErrsChangesNoBit) {
  add_draft(24);
  add_target({}, drafting());
  for (uint64_t seed = 0; hints().draft_tokens - hints().accepted_tokens < 4; seed += 8) {
    ask_many(seed, 8);
    ASSERT_LT(seed, 8000u);
  }
}

TEST_F(RealDraft, BothDraftersTogetherChangeNoBit) {
  add_draft(4);
  add_target({}, drafting(true));
  ask_many(0, 40);
  EXPECT_GT(hints().accepted_tokens, 0u);
}

TEST_F(RealDraft, ADraftThatDiesInTheMiddleChangesNoBitAndAnotherTakesOver) {
  for (uint64_t round = 0; round < 6; ++round) {
    const DraftActor doomed = add_draft();
    if (round % 2 == 0) add_draft(4);
    if (round == 0) add_target({}, drafting());
    std::vector<std::shared_ptr<Client>> clients;
    for (uint64_t i = 0; i < 6; ++i) {
      auto client = std::make_shared<Client>();
      client->kill_after = 3 + i;
      client->kill = [doomed] { kill(doomed); };
      clients.push_back(open(long_request(100 * round + i), client));
    }
    for (uint64_t i = 0; i < 6; ++i) {
      compare(clients[i]->wait(), long_request(100 * round + i), 100 * round + i);
    }
    for (const caf::actor& draft : drafts_) kill(draft);
  }
  wait_until_all_blocks_are_free();
}

/// A drafter that answers each message with anything: right and wrong keys, old generations,
/// endless, malformed and repeated hints, resyncs and closes from nowhere.
schema::DraftHandle::behavior_type hostile_draft(
    schema::DraftHandle::stateful_pointer<caf::none_t> self, uint64_t seed,
    std::shared_ptr<std::atomic<uint64_t>> said) {
  auto random = std::make_shared<Random>(seed);
  auto targets = std::make_shared<std::map<uint64_t, schema::TargetHandle>>();
  auto last = std::make_shared<schema::DraftHints>();
  const auto lie = [self, random, targets, last, said](schema::DraftKey key, uint32_t length,
                                                       uint64_t hash) {
    const schema::TargetHandle& target = (*targets)[key.target];
    if (!target) return;
    ++*said;
    if (random->chance(0.1f)) key.generation += random->below(3) - 1;
    if (random->chance(0.1f)) key.choice += random->below(4);
    if (random->chance(0.05f)) key.request.session += random->below(3);
    if (random->chance(0.1f)) self->send(target, schema::DraftResync{key, random->below(200)});
    if (random->chance(0.02f)) {
      self->send(target, schema::DraftClose{key, schema::DraftEnd::unknown});
    }
    if (random->chance(0.2f)) self->send(target, *last);  // late, and once more
    schema::DraftHint hint{key, length + random->below(3), hash, {}};
    if (random->chance(0.2f)) hint.base_hash = random->next_u64();
    const bool is_broken = random->chance(0.2f);
    const uint32_t count = random->below(random->chance(0.1f) ? 400 : 12);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t parent = random->below(is_broken ? 16 : i + 1);
      hint.branches.push_back({static_cast<int32_t>(parent) - (is_broken ? 3 : 1),
                               static_cast<int32_t>(random->below(64)) - (is_broken ? 2 : 0),
                               static_cast<uint8_t>(random->below(256))});
    }
    *last = schema::DraftHints{{hint}};
    self->send(target, *last);
  };
  auto texts = std::make_shared<std::map<schema::DraftKey, std::vector<int32_t>>>();
  return {[targets](const schema::DraftOpen& open) { (*targets)[open.key.target] = open.target; },
          [texts, lie](const schema::DraftCommits& commits) {
            for (const schema::DraftCommit& commit : commits.commits) {
              std::vector<int32_t>& text = (*texts)[commit.key];
              text.resize(std::min<size_t>(text.size(), commit.base_length));
              text.insert(text.end(), commit.tokens.begin(), commit.tokens.end());
              lie(commit.key, static_cast<uint32_t>(text.size()),
                  model::text_hash(model::k_empty_text, text));
            }
          },
          [](const schema::DraftClose&) {}, [](const schema::AnnounceAgain&) {},
          [](const schema::WorkerRefused&) {}};
}

TEST_F(RealDraft, AHostileDraftChangesNoBit) {
  const auto said = std::make_shared<std::atomic<uint64_t>>(0);
  auto hostile = system_.spawn(hostile_draft, 5, said);
  drafts_.push_back(caf::actor_cast<caf::actor>(hostile));
  schema::Announce announce;
  announce.role = schema::Role::draft;
  announce.worker = ++worker_;
  announce.draft = hostile;
  caf::anon_send(router_, announce);
  add_target({}, drafting());
  for (uint64_t seed = 0;
       of(hints(), HintOutcome::malformed) < 20 || of(hints(), HintOutcome::used) < 20 ||
       of(hints(), HintOutcome::no_lease) < 20;
       seed += 10) {
    ask_many(seed, 10);
    ASSERT_LT(seed, 1000u);
  }
  EXPECT_GT(said->load(), 100u);
  wait_until_all_blocks_are_free();
}

}  // namespace
}  // namespace outrider::actors
