#include "tools/sampling_flags.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace outrider::tools {
namespace {

/// Inside every range, and no default.
std::string value_for(const std::string& name) {
  return name == "max-tokens" || name == "top-k" || name == "seed" ? " 7" : " 0.5";
}

SamplingFlags parse(const std::string& line) {
  CLI::App app;
  SamplingFlags flags;
  flags.add(app);
  app.parse(line);
  return flags;
}

TEST(SamplingFlags, ARequestSaysWhatIsNotTheDefault) {
  EXPECT_EQ(SamplingFlags().to_json().dump(), R"({"temperature":1.0,"seed":0,"max_tokens":64})");
  SamplingFlags all;
  all.stop.max_tokens = 0;
  EXPECT_FALSE(all.to_json().contains("max_tokens")) << "the server fills the context";
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

TEST(SamplingFlags, EveryFlagReachesTheWire) {
  CLI::App app;
  SamplingFlags flags;
  flags.add(app);
  std::string line;
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_single_name();
    if (name == "help") continue;
    line += " --" + name + (option->get_expected_max() == 0 ? "" : value_for(name));
    names.push_back(name);
  }
  app.parse(line);
  const auto json = flags.to_json();
  for (std::string name : names) {
    std::replace(name.begin(), name.end(), '-', '_');
    EXPECT_TRUE(json.contains(name)) << name;
  }
  EXPECT_TRUE(json["ignore_eos"].get<bool>());
}

TEST(SamplingFlags, RefusesWhatIsNoNumberInsideItsRange) {
  for (const char* line :
       {"--temperature nan", "--temperature -nan", "--temperature inf", "--temperature -0.1",
        "--top-p 1.01", "--min-p NaN", "--top-p x", "--repetition-penalty 0",
        "--repetition-penalty 1e-38", "--presence-penalty nan", "--frequency-penalty 2.5", "-n 0",
        "--max-tokens -1", "--seed -1", "--seed 18446744073709551616"}) {
    EXPECT_THROW(parse(line), CLI::ParseError) << line;
  }
  EXPECT_FLOAT_EQ(parse("--temperature 0.25").params.temperature, 0.25f);
  EXPECT_EQ(parse("--seed 18446744073709551615").params.seed, UINT64_MAX);
}

}  // namespace
}  // namespace outrider::tools
