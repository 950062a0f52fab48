#include "tests/golden/golden_run.hpp"

#include <utility>

#include "base/limits.hpp"

namespace outrider::golden {
namespace {

GenerationRequest greedy_request(const std::vector<int32_t>& prompt, size_t tokens) {
  GenerationRequest request;
  request.id = "golden";
  request.prompt = prompt;
  request.sampling.temperature = 0;
  request.stop.max_tokens = static_cast<uint32_t>(tokens);
  request.stop.ignore_eos = true;
  return request;
}

Result<std::vector<TokenLogprob>> score(model::Generator& generator, const Window& window) {
  GenerationRequest request = greedy_request(window.ids, 1);
  request.prompt_logprobs = limits::top_logprobs_max;
  auto answer = generator.generate(std::move(request));
  if (!answer) {
    return answer.error();
  }
  std::vector<TokenLogprob> scored;
  const std::vector<TokenOut>& tokens = answer->front().prompt_tokens;
  for (size_t i = 1; i < tokens.size(); ++i) {  // nothing predicts the first token
    if (!tokens[i].logprob || i >= window.ids.size() || tokens[i].id != window.ids[i]) {
      return fail(ErrorCode::internal, "prompt token without its logprob", window.name);
    }
    scored.push_back(*tokens[i].logprob);
  }
  return scored;
}

}  // namespace

Result<Report> run_golden(model::Generator& generator, const GoldenFile& file) {
  Report report;
  for (const Window& window : file.windows) {
    const auto scored = score(generator, window);
    if (!scored) {
      return scored.error();
    }
    compare_window(window, *scored, report);
  }
  for (const GreedyPath& path : file.greedy) {
    GenerationRequest request = greedy_request(path.prompt, path.ids.size());
    request.logprobs = 0;
    const auto answer = generator.generate(std::move(request));
    if (!answer) {
      return answer.error();
    }
    compare_path(path, answer->front().tokens, report);
  }
  return report;
}

}  // namespace outrider::golden
