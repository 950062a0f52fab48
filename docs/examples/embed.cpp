// Embeds Outrider as a library: a model in your own process, no server, no actors.
//
//   embed models/smollm2-135m.gguf
//
// Shown: one streamed answer, a batch with different settings, a conversation, and that the same
// seed gives the same answer in any company.

#include <cstdio>
#include <string>

#include "model/generator.hpp"

namespace {

using outrider::GenerationRequest;
using outrider::Result;
using outrider::TokenOut;
using outrider::model::Generation;
using outrider::model::Generator;

bool print(std::string_view text, std::span<const TokenOut>) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  return true;  // false would stop the answer
}

Result<void> tour(Generator& generator) {
  std::puts("-- streamed");
  GenerationRequest request = generator.request("The capital of France is");
  request.sampling.temperature = 0;  // greedy
  request.stop.max_tokens = 16;
  const auto streamed = generator.generate(request, print);
  if (!streamed) return streamed.error();

  std::puts("\n-- a batch: three seeds of one prompt, computed together");
  request.sampling.temperature = 0.9f;
  request.sampling.top_p = 0.95f;
  std::vector<GenerationRequest> requests;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    request.sampling.seed = seed;
    requests.push_back(request);
  }
  const auto batch = generator.generate_batch(requests);
  if (!batch) return batch.error();
  for (size_t i = 0; i < batch->size(); ++i) {
    std::printf("seed %zu:%s\n", i + 1, (*batch)[i].front().text.c_str());
  }

  std::puts("-- the third of them again, alone: the same tokens");
  const auto alone = generator.generate(requests[2]);
  if (!alone) return alone.error();
  const bool same = alone->front().tokens == batch->at(2).front().tokens;
  std::printf("%s\n", same ? "identical" : "DIFFERENT");

  std::puts("-- a conversation");
  GenerationRequest settings;
  settings.sampling.temperature = 0;
  settings.stop.max_tokens = 40;
  for (const char* question : {"My name is Ada. Who are you?", "What is my name?"}) {
    std::printf("> %s\n", question);
    const auto answer = generator.chat(question, settings, print);
    if (!answer) return answer.error();
    std::printf("\n");
  }
  generator.reset();
  return same ? Result<void>() : outrider::fail(outrider::ErrorCode::internal, "not exact");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: embed MODEL.gguf\n");
    return 2;
  }
  outrider::model::EngineOptions options;
  options.kv_memory_bytes = uint64_t{64} << 20;
  const auto generator = Generator::open(argv[1], options);
  if (!generator) {
    std::fprintf(stderr, "%s\n", generator.error().message.c_str());
    return 1;
  }
  const auto done = tour(**generator);
  if (!done) {
    std::fprintf(stderr, "%s\n", done.error().message.c_str());
    return 1;
  }
  return 0;
}
