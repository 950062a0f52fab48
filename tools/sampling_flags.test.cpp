#include "tools/sampling_flags.hpp"

#include <gtest/gtest.h>

namespace outrider::tools {
namespace {

TEST(SamplingFlags, ARequestSaysWhatIsNotTheDefault) {
  EXPECT_EQ(SamplingFlags().to_json().dump(), R"({"temperature":1.0,"seed":0,"max_tokens":64})");
  CLI::App app;
  SamplingFlags flags;
  flags.add(app);
  app.parse("--temperature 0.5 --top-k 3 --seed 7 --stop END --ignore-eos -n 9");
  EXPECT_EQ(flags.to_json().dump(),
            R"({"temperature":0.5,"seed":7,"max_tokens":9,"top_k":3,"ignore_eos":true,)"
            R"("stop":["END"]})");
  GenerationRequest request;
  flags.apply(request);
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_EQ(request.stop.stop_strings, std::vector<std::string>{"END"});
}

}  // namespace
}  // namespace outrider::tools
