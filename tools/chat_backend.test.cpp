#include "tools/chat_backend.hpp"

#include <gtest/gtest.h>

#include "tools/canned_server.test.hpp"

namespace outrider::tools {
namespace {

const CannedServer::Reply k_models{200, R"({"data":[{"id":"m"}]})"};

/// One turn with a server that answers so.
Result<ChatStats> answer_of(const CannedServer::Reply& reply, std::string* text = nullptr) {
  const CannedServer server({k_models, reply});
  auto chat = remote_chat(server.url(), "");
  if (!chat) return chat.error();
  return (*chat)->answer(
      nlohmann::ordered_json::array(), {},
      [&](std::string_view piece) {
        if (text != nullptr) text->append(piece);
      },
      [] { return false; });
}

TEST(RemoteChat, TakesAnAnswerWhoseOtherMembersHaveAnyType) {
  std::string text;
  const auto stats = answer_of(
      {200,
       "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":null,\"error\":null}\n\n"
       "data: {\"choices\":[{\"delta\":null,\"finish_reason\":\"stop\"}]}\n\n"
       "data: {\"choices\":null,\"usage\":{\"prompt_tokens\":null,\"completion_tokens\":2,"
       "\"prompt_tokens_details\":{\"cached_tokens\":16}},"
       "\"timings\":{\"prefill_ms\":null}}\n\n"
       "data: [DONE]\n\n"},
      &text);
  ASSERT_TRUE(stats.ok()) << stats.error().message;
  EXPECT_EQ(text, "hi");
  EXPECT_EQ(stats->finish_reason, "stop");
  EXPECT_EQ(stats->prompt_tokens, 0u);
  EXPECT_EQ(stats->cached_tokens, 16u);
  EXPECT_EQ(stats->answer_tokens, 2u);
}

/// As a server does it: what nobody asked for is the rest of the context, what somebody asked for
/// and does not fit is an error.
TEST(LocalChat, AnAnswerTakesTheRestOfTheContextOrIsRefused) {
  Settings settings;
  ASSERT_TRUE(settings.set("model", "tests/support/models/tiny-llama.gguf", "test"));
  ASSERT_TRUE(settings.set("ctx", "96", "test"));
  ASSERT_TRUE(settings.set("kv-memory-mb", "4", "test"));
  const auto chat = local_chat(settings);
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  const auto messages = nlohmann::ordered_json::array({{{"role", "user"}, {"content", "hi"}}});
  SamplingFlags sampling;
  const auto answer = [&] {
    return (*chat)->answer(
        messages, sampling, [](std::string_view) {}, [] { return false; });
  };
  sampling.stop.max_tokens = 0;
  sampling.stop.ignore_eos = true;
  const auto whole = answer();
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(whole->prompt_tokens + whole->answer_tokens, 96u);
  EXPECT_EQ(whole->finish_reason, "length");
  sampling.stop.max_tokens = 96;
  const auto refused = answer();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
}

TEST(RemoteChat, TellsAnErrorInAnyForm) {
  const auto words = [](const CannedServer::Reply& reply) {
    const auto stats = answer_of(reply);
    return stats.ok() ? "" : stats.error().message;
  };
  EXPECT_EQ(words({200, "data: {\"error\":\"lost\"}\n\n"}), "lost");
  EXPECT_EQ(words({200, "data: {\"error\":{\"message\":\"lost\"}}\n\n"}), "lost");
  EXPECT_EQ(words({429, R"({"error":"slow down"})"}), "slow down");
  EXPECT_EQ(words({502, "<html>"}), "HTTP 502 <html>");
}

TEST(RemoteChat, TakesAModelWithoutAName) {
  for (const char* list : {R"({"data":[{"id":null}]})", R"({"data":[7]})"}) {
    const CannedServer server({{200, list}});
    const auto chat = remote_chat(server.url(), "");
    ASSERT_TRUE(chat.ok()) << list;
    EXPECT_EQ((*chat)->description(), "default at " + server.url());
  }
}

TEST(RemoteChat, TakesTheModelThatItIsToldIfItIsServed) {
  const CannedServer::Reply two{200, R"({"data":[{"id":"m"},{"id":"d"}]})"};
  for (const auto& [wanted, got] : {std::pair("", "m"), std::pair("m", "m"), std::pair("d", "d")}) {
    const CannedServer server({two});
    const auto chat = remote_chat(server.url(), "", wanted);
    ASSERT_TRUE(chat.ok()) << wanted;
    EXPECT_EQ((*chat)->description(), got + (" at " + server.url()));
  }
  const CannedServer server({two});
  const auto chat = remote_chat(server.url(), "", "e");
  ASSERT_FALSE(chat.ok());
  EXPECT_EQ(chat.error().field, "model");
  EXPECT_EQ(chat.error().message, "model: " + server.url() + " serves m, d, not e");
}

}  // namespace
}  // namespace outrider::tools
