#include "tools/inspect_model.hpp"

#include <gtest/gtest.h>

namespace outrider::tools {
namespace {

constexpr char k_model[] = "tests/support/models/tiny-llama.gguf";

TEST(InspectModel, JsonHasMetadataTensorsAndWhatOutriderMakesOfIt) {
  const auto file = model::GgufFile::open(k_model);
  ASSERT_TRUE(file.ok());
  const auto json = model_json(*file);
  EXPECT_EQ(json["file"], k_model);
  EXPECT_EQ(json["bytes"], file->file_bytes());
  EXPECT_EQ(json["metadata"]["general.architecture"], "llama");
  EXPECT_TRUE(json["metadata"]["llama.context_length"].is_number_unsigned());
  EXPECT_EQ(json["config"]["context_length"], json["metadata"]["llama.context_length"]);
  EXPECT_EQ(json["metadata"]["tokenizer.ggml.tokens"]["array_of"], "string");
  EXPECT_EQ(json["metadata"].size(), file->metadata().size());
  ASSERT_EQ(json["tensors"].size(), file->tensors().size());
  uint64_t elements = 1;
  for (const auto& extent : json["tensors"][0]["shape"]) elements *= extent.get<uint64_t>();
  EXPECT_EQ(elements, file->tensors()[0].elements());
}

TEST(InspectModel, TheCommandPrintsOneJsonObject) {
  CLI::App app;
  Action action;
  add_inspect_model(app, action);
  app.parse(std::string("model --json ") + k_model);
  testing::internal::CaptureStdout();
  EXPECT_EQ(action(), k_exit_done);
  EXPECT_TRUE(nlohmann::json::parse(testing::internal::GetCapturedStdout()).is_object());
}

}  // namespace
}  // namespace outrider::tools
