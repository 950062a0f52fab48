#pragma once

#include <map>
#include <memory>
#include <vector>

#include "model/draft_control.hpp"
#include "model/engine.hpp"
#include "model/engine_request.hpp"
#include "model/fair_share.hpp"
#include "model/kv_cache.hpp"
#include "model/past_outputs.hpp"
#include "model/sampler.hpp"
#include "model/scheduler.hpp"
#include "model/step_costs.hpp"
#include "model/tier_work.hpp"
#include "model/transformer.hpp"

/// What one engine is made of: internal to engine*.cpp.
namespace outrider::model {

struct Engine::State {
  State(std::shared_ptr<const LoadedModel> loaded, const EngineOptions& opts, const Clock& time,
        std::unique_ptr<KvCache> kv, uint32_t context);

  // The stages of a step, in this order.
  void end_early();  ///< Cancelled, over their deadline, or with nothing left to sample.
  StepPlan plan();
  void apply(const StepPlan& plan);
  void build_batch(const StepPlan& plan);
  void read_results();
  void forget_finished();

  // Prefix caching (engine_prefix.cpp).
  void name_blocks(const ActiveRequest& request, Choice& choice);
  void find_cached(ActiveRequest& request, Choice& choice, SequenceView& view);
  void take_cached(ActiveRequest& request, Choice& choice, uint32_t blocks);
  void publish_blocks(const StepPlan& plan);
  void publish(ActiveRequest& request, Choice& choice);
  void pin(ActiveRequest& request, const Choice& choice, uint32_t first);

  // The tier below the pool (engine_tier.cpp).
  bool waits_for_tier(ActiveRequest& request, Choice& choice);
  std::shared_ptr<TierRead> ask_tier(const ActiveRequest& request, const Choice& choice,
                                     uint32_t first, uint32_t end);
  void leave_read(ActiveRequest& request, Choice& choice);
  void offer(const ActiveRequest& request, const Choice& choice, uint32_t first, uint32_t end);

  // Drafting (engine_hints.cpp).
  ActiveRequest* continuable(RequestKey key, std::span<const int32_t> output);
  void set_output(ActiveRequest& request, Choice& choice, std::span<const int32_t> before,
                  std::span<const int32_t> output);
  Drafts& drafts_of(const ActiveRequest& request, Choice& choice);
  uint32_t hints_max(const ActiveRequest& request, const Choice& choice) const;
  void draft_from_texts(const ActiveRequest& request, Drafts& drafts, uint32_t depth);
  void choose_hints();
  PromptRows prompt_rows(uint32_t rows_max) const;
  void count_hints(ActiveRequest& request, const Choice& choice, size_t drawn, size_t used);
  void learn_costs(TimePoint since);

  /// One use of one row's logits, and of those of the hints behind it.
  struct Reading {
    uint32_t row = 0;
    ActiveRequest* request = nullptr;
    Choice* choice = nullptr;
    uint32_t scored = 0;   ///< Prompt index whose logprob it gives; 0: the row samples.
    uint32_t hints = 0;    ///< Rows behind it, of the choice's path.
    uint32_t context = 0;  ///< Tokens before it.
  };
  /// What a row gives, drawn or scored: what it is found from, and the token; behind it those that
  /// the rows of its hints give, as long as the hints come true.
  struct Draw {
    ActiveRequest* request = nullptr;
    Choice* choice = nullptr;
    uint32_t scored = 0;
    uint32_t hints = 0;
    uint32_t row = 0;                      ///< Its first, of those computed together.
    std::optional<size_t> drawn_at = {};   ///< Its first of `row_draws`: the device draws.
    std::span<const float> logits = {};    ///< [1 + hints, vocabulary]
    std::span<const int32_t> chosen = {};  ///< [1 + hints] tokens, by the device.
    std::vector<TokenOut> tokens = {};
    std::vector<DraftDistribution> drawn_from = {};  ///< Of a draft's token.
    std::optional<Error> error = {};                 ///< Of the token after these.

    uint64_t seed() const { return request->request.sampling.seed + choice->index; }
    uint64_t position(size_t ahead) const {
      return uint64_t{request->prompt_size()} + choice->output.size() + ahead;
    }
  };
  /// A view's choice.
  struct Scheduled {
    ActiveRequest* request = nullptr;
    Choice* choice = nullptr;
  };

  void add_rows(const Scheduled& scheduled, uint32_t rows);
  void preempt(const Scheduled& scheduled);
  void add_draws(const Reading& reading, uint32_t row);
  bool wants_token_only(const Draw& draw) const;
  void fetch_results();
  void draw_all();
  void compute(Draw& draw, SampleScratch& scratch) const;
  Result<TokenOut> compute_one(Draw& draw, size_t row, const TokenCounts& counts,
                               SampleScratch& scratch) const;
  Result<int32_t> choose_token(Draw& draw, const SampleRow& row, size_t ahead,
                               SampleScratch& scratch) const;
  void use(Draw& draw);
  void use_score(Draw& draw);
  void fork_choices(ActiveRequest& request);
  void finish(ActiveRequest& request, Choice& choice, Finish finish, std::string error = {});
  void report_prompt_start(ActiveRequest& request, Choice& choice);
  ChoiceUpdate& update_of(ActiveRequest& request, Choice& choice);
  uint32_t running(bool drafts_only) const;

  std::shared_ptr<const LoadedModel> model;
  EngineOptions options;
  const Clock& clock;
  uint32_t context_tokens;
  uint32_t batch_tokens;
  AnswerTraits traits;
  Digest256 fingerprint{};
  Digest256 kv_namespace{};
  BlockHasher hasher;
  std::unique_ptr<KvCache> cache;  ///< Before the requests, whose sequences point to it.
  std::unique_ptr<TierWork> tier;  ///< Null: there is none.
  DraftControl draft_control;      ///< With what steps cost.
  Transformer transformer;
  std::map<RequestKey, std::unique_ptr<ActiveRequest>> requests;
  uint64_t arrivals = uint64_t{1} << 63;  ///< Behind those that were let in elsewhere:
  uint64_t continued = 0;                 ///< so many yet.
  FairShare shares;
  EngineStats counters;
  PastOutputs past_outputs{limits::past_output_scope_tokens_max, limits::past_output_bytes_max};
  TimePoint now{};        ///< Of this step.
  Duration last_step{0};  ///< What it took to compute.

  // Work space of a step.
  std::vector<SampleScratch> scratches;  ///< one for each thread
  std::vector<Draw> draws;
  std::vector<SequenceView> views;
  std::vector<Scheduled> scheduled;  ///< views[i]'s choice
  std::vector<int32_t> block_ids;    ///< [block_tokens] of the block that is named
  std::vector<HintBranch> branches;
  std::vector<DecodingSequence> decoding;
  std::vector<size_t> decoding_views;  ///< decoding[i]'s view
  std::vector<uint32_t> depths;        ///< decoding[i]'s hints
  std::vector<StepShare> shares_of_step;
  std::vector<int32_t> ids;        ///< [rows]
  std::vector<int32_t> positions;  ///< [rows]
  std::vector<kernels::Segment> segments;
  std::vector<Reading> readings;     ///< ascending rows
  std::vector<uint32_t> logit_rows;  ///< of those that are read at a time
  std::vector<uint32_t> host_rows;   ///< of logit_rows, by index: the host looks at them
  std::vector<kernels::RowDraw> row_draws;
  std::vector<ChoiceUpdate> updates;
};

}  // namespace outrider::model
