#include "tests/exactness/harness.hpp"

#include <algorithm>
#include <map>
#include <ostream>
#include <utility>

namespace outrider::exactness {
namespace {

constexpr size_t k_failures_kept = 10;
/// So many requests with far prompts run under one window, so that they meet in batches.
constexpr uint32_t k_far_group = 4;

/// What an engine has one of, and so has a request's answer.
struct Numerics {
  kernels::KvKinds kv_kinds;
  uint32_t window = 0;  ///< 0: none

  friend bool operator==(const Numerics&, const Numerics&) = default;
};

class Harness {
 public:
  Harness(const Options& options, std::ostream* progress)
      : options_(options), progress_(progress), random_(options.seed) {
    if (options_.isas.empty()) {
      auto all = kernels::available_isas();
      if (all.size() > 1) all = all.subspan(1);
      options_.isas.assign(all.begin(), all.end());
    }
    if (!options_.make_ops) {
      options_.make_ops = [](kernels::Isa isa) {
        return std::shared_ptr<kernels::Ops>(kernels::make_cpu_ops(1, isa));
      };
    }
  }

  Result<Report> run() {
    for (const kernels::Isa isa : options_.isas) {
      auto model = model::load_model(options_.model, options_.make_ops(isa));
      if (!model) return model.error();
      models_[isa] = std::move(model).value();
    }
    const uint32_t context = models_.begin()->second->config.context_length;
    CaseLimits& limits = options_.limits;
    limits.far_prompt_tokens =
        std::min(limits.far_prompt_tokens, context - std::min(context, limits.output_tokens));
    if (limits.far_prompt_tokens <= k_chunk_tokens + k_far_slack ||
        limits.far_prompt_tokens < limits.long_prompt_tokens) {
      return fail(ErrorCode::invalid_argument,
                  "a context of " + std::to_string(context) + " tokens is too short for this",
                  "model");
    }
    make_requests();
    run_alone();
    for (uint32_t round = 0; round < options_.rounds; ++round) run_round();
    return std::move(report_);
  }

 private:
  void make_requests() {
    const model::LoadedModel& model = *models_[options_.isas.back()];
    options_.limits.vocab = model.config.vocab;
    options_.limits.family_seed = random_.next_u64();
    const uint32_t window = 1 + random_.below(options_.limits.long_prompt_tokens / 2);
    // Rows at the end of each far prompt begin behind the first chunk.
    const uint32_t far_window_max =
        options_.limits.far_prompt_tokens - k_far_slack - k_chunk_tokens;
    Numerics far;
    for (uint32_t i = 0; i < options_.count; ++i) {
      const bool is_far = i % options_.limits.far_every == 0;
      requests_.push_back(random_request(random_, options_.limits,
                                         is_far ? PromptLength::far : PromptLength::usual,
                                         *model.tokenizer));
      if (i % (options_.limits.far_every * k_far_group) == 0) {
        far = {random_kinds(0.5f), 1 + random_.below(far_window_max)};
      }
      const Numerics usual = {random_kinds(0.7f), random_.chance(0.25f) ? window : 0};
      numerics_.push_back(is_far ? far : usual);
    }
  }

  /// fp16 with that probability, or else any.
  kernels::KvKinds random_kinds(float probability) {
    const auto all = all_kv_kinds();
    if (random_.chance(probability)) return {};
    return all[random_.below(static_cast<uint32_t>(all.size()))];
  }

  Scene scene_of(std::span<const uint32_t> indices, bool known) const {
    Scene scene;
    scene.store = store_;
    scene.context_tokens = options_.limits.context_tokens();  // a far one has a larger pool
    for (const uint32_t i : indices) {
      const GenerationRequest& request = requests_[i];
      scene.context_tokens =
          std::max(scene.context_tokens,
                   static_cast<uint32_t>(request.prompt.size()) + request.stop.max_tokens);
      scene.requests.push_back(&request);
      if (known) scene.known.push_back(&expected_[i]);
    }
    return scene;
  }

  void run_alone() {
    const kernels::Isa isa = options_.isas.back();
    Disturbances none;
    for (uint32_t i = 0; i < requests_.size(); ++i) {
      const Axes axes = reference_axes(isa, numerics_[i].kv_kinds, numerics_[i].window);
      auto outcomes = play(models_[isa], axes, scene_of({&i, 1}, false), random_, none);
      expected_.push_back(std::move(outcomes.front()));
    }
    if (progress_ != nullptr) *progress_ << requests_.size() << " requests ran alone" << std::endl;
  }

  void run_round() {
    std::vector<uint32_t> order(requests_.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    for (uint32_t i = static_cast<uint32_t>(order.size()); i > 1; --i) {
      std::swap(order[i - 1], order[random_.below(i)]);
    }
    while (!order.empty()) {
      const Numerics& one = numerics_[order.front()];
      const auto rest = std::stable_partition(order.begin(), order.end(),
                                              [&](uint32_t i) { return numerics_[i] == one; });
      run_batches({order.begin(), rest});
      order.erase(order.begin(), rest);
    }
  }

  void run_batches(std::span<const uint32_t> order) {
    while (!order.empty()) {
      const size_t most = std::min<size_t>(options_.batch, order.size());
      const size_t size = 1 + random_.below(static_cast<uint32_t>(most));
      run_batch(order.first(size));
      order = order.subspan(size);
    }
  }

  void run_batch(std::span<const uint32_t> indices) {
    const Numerics& numerics = numerics_[indices.front()];
    const Axes axes = random_axes(random_, options_.isas, numerics.kv_kinds, numerics.window);
    const auto outcomes =
        play(models_[axes.isa], axes, scene_of(indices, true), random_, report_.disturbances);
    Tally batch;
    for (size_t i = 0; i < indices.size(); ++i) {
      ++batch.requests;
      const std::vector<Outcome>& expected = expected_[indices[i]];
      for (size_t c = 0; c < expected.size(); ++c) {
        const Tally one = compare(expected[c], outcomes[i][c]);
        batch += one;
        if (!one.exact() && report_.failures.size() < k_failures_kept) {
          report_.failures.push_back("seed " + std::to_string(options_.seed) + ", request " +
                                     std::to_string(indices[i]) + ", choice " + std::to_string(c) +
                                     ": " + to_string(one) + "; " + describe(axes));
        }
      }
    }
    if (progress_ != nullptr) *progress_ << to_string(batch) << "; " << describe(axes) << std::endl;
    report_.tally += batch;
  }

  Options options_;
  std::ostream* progress_;
  Random random_;
  std::shared_ptr<HarnessStore> store_ = std::make_shared<HarnessStore>();
  std::map<kernels::Isa, std::shared_ptr<const model::LoadedModel>> models_;
  std::vector<GenerationRequest> requests_;
  std::vector<Numerics> numerics_;              ///< [request]
  std::vector<std::vector<Outcome>> expected_;  ///< [request][choice]
  Report report_;
};

}  // namespace

Result<Report> run(const Options& options, std::ostream* progress) {
  return Harness(options, progress).run();
}

}  // namespace outrider::exactness
