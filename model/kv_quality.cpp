#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "base/check.hpp"
#include "base/fmath.hpp"
#include "model/kv_cache.hpp"
#include "model/kv_probe.hpp"
#include "model/kv_probe_text.hpp"
#include "model/transformer.hpp"

namespace outrider::model {
namespace {

constexpr uint32_t k_chunk_rows = 128;
constexpr uint32_t k_logit_rows = 16;
constexpr size_t k_lanes = 16;

/// What is read in one go. Row i predicts ids[i + 1].
struct ProbeText {
  struct Row {
    uint32_t row = 0;
    bool is_answer = false;
  };
  std::vector<int32_t> ids;
  std::vector<Row> scored;  ///< ascending

  /// Appends tokens; the first `count` of them are predicted, but for the first where nothing
  /// before it leads to it.
  void add(std::span<const int32_t> tokens, size_t count, bool is_answer) {
    for (size_t i = is_answer ? 0 : 1; i < std::min(count, tokens.size()); ++i) {
      scored.push_back({static_cast<uint32_t>(ids.size() + i) - 1, is_answer});
    }
    ids.insert(ids.end(), tokens.begin(), tokens.end());
  }
};

std::vector<int32_t> encode(const LoadedModel& model, std::string_view text) {
  return model.tokenizer->encode(text, {.add_special = false});
}

/// What the tokenizer puts before each text.
std::vector<int32_t> text_start(const LoadedModel& model) {
  const int32_t bos = model.tokenizer->bos();
  const auto ids = model.tokenizer->encode("a");
  return bos >= 0 && ids.front() == bos ? std::vector<int32_t>{bos} : std::vector<int32_t>{};
}

/// Passages from even distances of the text, each but the last with a fact behind it, then the
/// questions with their answers. Passages are shorter where the model's context is short.
Result<ProbeText> probe_text(const LoadedModel& model, const KvProbeOptions& options) {
  constexpr size_t k_passages = k_kv_needles + 1;
  const auto all = encode(model, kv_probe_text());
  ProbeText text;
  text.add(text_start(model), 0, false);
  size_t fixed = text.ids.size();
  for (const KvNeedle& needle : kv_needles()) {
    for (const auto part : {needle.fact, needle.question, needle.answer}) {
      fixed += encode(model, part).size();
    }
  }
  const size_t context = model.config.context_length;
  const size_t room = context < fixed ? 0 : (context - fixed) / k_passages;
  const size_t length = std::min({size_t{options.prompt_tokens}, all.size(), room});
  if (length < 2) {
    return fail(ErrorCode::unsupported,
                "a context of " + std::to_string(context) + " tokens is too short for the probe",
                "kv-kind");
  }
  for (size_t n = 0; n < k_passages; ++n) {
    const size_t first = n * (all.size() - length) / (k_passages - 1);
    text.add(std::span(all).subspan(first, length), length, false);
    if (n < k_kv_needles) text.add(encode(model, kv_needles()[n].fact), 0, false);
  }
  for (const KvNeedle& needle : kv_needles()) {
    text.add(encode(model, needle.question), 0, false);
    text.add(encode(model, needle.answer), options.decode_tokens, true);
  }
  return text;
}

struct RowScore {
  double nll = 0;
  double kl = 0;
};

/// Sums of many numbers in a written order: lane = index mod 16.
class Lanes {
 public:
  template <class At>
  static double sum(size_t n, const At& at) {
    double lanes[k_lanes] = {};
    size_t i = 0;
    for (; i + k_lanes <= n; i += k_lanes) {
      for (size_t lane = 0; lane < k_lanes; ++lane) lanes[lane] += at(i + lane);
    }
    for (; i < n; ++i) lanes[i % k_lanes] += at(i);
    return std::accumulate(std::begin(lanes), std::end(lanes), 0.0);
  }
};

/// out = exp(row - its highest). The logarithm of the sum of exp(row), and the sum of `out`.
struct LogSum {
  double log_sum = 0;
  double sum = 0;
};
LogSum exponentials(std::span<const float> row, std::vector<float>& out) {
  out.resize(row.size());
  const float highest = *std::max_element(row.begin(), row.end());
  for (size_t i = 0; i < row.size(); ++i) out[i] = row[i] - highest;
  exp_f32_n(out.data(), out.size(), out.data());
  const double sum = Lanes::sum(out.size(), [&](size_t i) { return double{out[i]}; });
  // At least the highest's own 1; anything else comes of a NaN or an infinity among the logits.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  return {sum >= 1 && sum <= 1e30 ? highest + log_f64(sum) : nan, sum};
}

RowScore score_row(std::span<const float> base, std::span<const float> own, int32_t next) {
  std::vector<float> exps;
  RowScore score;
  const LogSum mine = exponentials(own, exps);
  score.nll = mine.log_sum - double{own[static_cast<size_t>(next)]};
  const LogSum theirs = exponentials(base, exps);
  const double sum = Lanes::sum(
      base.size(), [&](size_t i) { return double{exps[i]} * (double{base[i]} - double{own[i]}); });
  score.kl = sum / theirs.sum - theirs.log_sum + mine.log_sum;
  return score;
}

using SeeLogits = std::function<void(size_t first, std::span<const float> logits)>;

/// Computes a text; `see` gets the logits of its scored rows, some at a time: those from the
/// `first` on.
Result<void> read_text(const std::shared_ptr<const LoadedModel>& model,
                       const kernels::KvGeometry& geometry, const ProbeText& text,
                       const SeeLogits& see) {
  const auto length = static_cast<uint32_t>(text.ids.size());
  auto cache = KvCache::create(model->ops, geometry,
                               (length + geometry.block_tokens - 1) / geometry.block_tokens);
  if (!cache) return cache.error();
  Transformer transformer(model, geometry,
                          {.rows = std::min(length, k_chunk_rows),
                           .logit_rows = k_logit_rows,
                           .sequences = 1,
                           .positions = length});
  KvSequence sequence(**cache);
  std::vector<int32_t> positions(length);
  std::iota(positions.begin(), positions.end(), 0);
  size_t seen = 0;
  for (uint32_t first = 0; first < length; first += k_chunk_rows) {
    const uint32_t rows = std::min(k_chunk_rows, length - first);
    OUTRIDER_CHECK(sequence.append(rows), length);
    const kernels::Segment segment{.block_table = sequence.table().data(),
                                   .first_row = 0,
                                   .rows = rows,
                                   .first_position = first};
    transformer.forward({std::span(text.ids).subspan(first, rows),
                         std::span(positions).subspan(first, rows),
                         {&segment, 1}},
                        (*cache)->memory());
    while (seen < text.scored.size() && text.scored[seen].row < first + rows) {
      std::vector<uint32_t> read;
      while (read.size() < k_logit_rows && seen + read.size() < text.scored.size() &&
             text.scored[seen + read.size()].row < first + rows) {
        read.push_back(text.scored[seen + read.size()].row - first);
      }
      see(seen, transformer.logits(read));
      seen += read.size();
    }
  }
  return {};
}

KvQuality mean_of(const ProbeText& text, std::span<const RowScore> scores) {
  KvQuality mean;
  double plain = 0;
  double answers = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (text.scored[i].is_answer) {
      mean.needle_kl += scores[i].kl;
      answers += 1;
    } else {
      mean.nll += scores[i].nll;
      mean.mean_kl += scores[i].kl;
      plain += 1;
    }
  }
  mean.nll /= plain;
  mean.mean_kl /= plain;
  mean.needle_kl /= answers;
  return mean;
}

}  // namespace

Result<std::vector<KvQuality>> measure_kv_quality(const std::shared_ptr<const LoadedModel>& model,
                                                  const std::vector<kernels::KvKinds>& kinds,
                                                  const KvProbeOptions& options,
                                                  uint32_t block_tokens,
                                                  const std::function<bool()>& go_on) {
  const auto text = probe_text(*model, options);
  if (!text) return text.error();
  const size_t vocab = model->config.vocab;
  std::vector<float> base(text->scored.size() * vocab);
  std::vector<KvQuality> all;
  for (size_t k = 0; k < kinds.size(); ++k) {
    if (go_on && !go_on()) return fail(ErrorCode::cancelled, "the probe was stopped");
    std::vector<RowScore> scores(text->scored.size());
    const auto see = [&](size_t first, std::span<const float> logits) {
      float* own_base = base.data() + first * vocab;
      if (k == 0) std::copy(logits.begin(), logits.end(), own_base);
      model->ops->parallel_for(logits.size() / vocab, [&](size_t i) {
        const int32_t next = text->ids[text->scored[first + i].row + 1];
        scores[first + i] =
            score_row({own_base + i * vocab, vocab}, logits.subspan(i * vocab, vocab), next);
      });
    };
    auto geometry = kv_geometry(model->config, block_tokens, kinds[k]);
    geometry.window = options.local_window;
    OUTRIDER_TRY(read_text(model, geometry, *text, see));
    all.push_back(mean_of(*text, scores));
  }
  return all;
}

}  // namespace outrider::model
