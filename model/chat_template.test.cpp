#include "model/chat_template.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "base/limits.hpp"
#include "model/jinja/template.hpp"

namespace outrider::model {
namespace {

using Json = nlohmann::ordered_json;

// Run from the repository's root.
Json read_golden(const std::string& name) {
  std::ifstream file("tests/golden/chat_template/" + name);
  EXPECT_TRUE(file.good()) << name;
  return Json::parse(file);
}

ChatTemplate::WallTime wall_time(int64_t seconds) {
  return ChatTemplate::WallTime(std::chrono::seconds(seconds));
}

std::string field_or_empty(const Json& object, const char* name) {
  return object.contains(name) ? object[name].get<std::string>() : std::string();
}

/// Where two texts part, with some of what follows.
std::string difference(const std::string& got, const std::string& expected) {
  const auto at = static_cast<size_t>(
      std::mismatch(got.begin(), got.end(), expected.begin(), expected.end()).first - got.begin());
  return "at byte " + std::to_string(at) + "\n  got      …" + got.substr(at, 120) +
         "\n  expected …" + expected.substr(at, 120);
}

/// Counts a case that differs from Python's and prints the first one.
class Differences {
 public:
  void check(const std::string& name, const Result<std::string>& got, const Json& expected) {
    ++cases_;
    const bool fails = expected.is_null();
    if (fails ? !got.ok() : got.ok() && got.value() == expected.get<std::string>()) return;
    if (differences_++ > 0) return;
    ADD_FAILURE() << name << ": "
                  << (fails      ? "renders, but Python raises: " + got.value()
                      : got.ok() ? difference(got.value(), expected.get<std::string>())
                                 : "fails, but Python renders: " + got.error().message);
  }
  size_t cases() const { return cases_; }
  ~Differences() { EXPECT_EQ(differences_, 0u) << "of " << cases_ << " cases"; }

 private:
  size_t cases_ = 0;
  size_t differences_ = 0;
};

TEST(ChatTemplate, RendersEachModelsConversationsAsPythonDoes) {
  const Json golden = read_golden("models.json");
  for (const Json& model : golden["models"]) {
    Differences differences;
    auto chat =
        ChatTemplate::parse(model["template"].get<std::string>(),
                            field_or_empty(model, "bos_token"), field_or_empty(model, "eos_token"));
    ASSERT_TRUE(chat) << chat.error().message;
    for (size_t i = 0; i < golden["conversations"].size(); ++i) {
      const Json& c = golden["conversations"][i];
      const auto got = chat->render(c["messages"], c.value("tools", Json()),
                                    c.value("add_generation_prompt", true),
                                    c.value("extra", Json()), wall_time(0));
      differences.check(model["name"].get<std::string>() + ", " + c["name"].get<std::string>(), got,
                        model["expected"][i]);
    }
    EXPECT_GE(differences.cases(), 40u);
  }
}

TEST(ChatTemplate, RendersEachFeatureAsPythonDoes) {
  const Json golden = read_golden("snippets.json");
  Differences differences;
  for (const Json& snippet : golden["snippets"]) {
    const auto program = jinja::Template::parse(snippet["source"].get<std::string>());
    const auto got =
        program ? (*program)->render(golden["variables"], wall_time(golden["now"].get<int64_t>()),
                                     jinja::default_limits())
                : Result<std::string>(program.error());
    differences.check(snippet["name"].get<std::string>(), got, snippet["expected"]);
  }
  EXPECT_GE(differences.cases(), 60u);
}

const Json k_hello = Json::parse(R"([{"role": "user", "content": "hi"}])");

TEST(ChatTemplate, FallsBackToChatml) {
  const auto text = ChatTemplate::chatml().render(k_hello, Json(), true, Json(), wall_time(0));
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, GivesTheSpecialTokensAndLetsExtraVariablesWin) {
  const auto chat = ChatTemplate::parse("{{ bos_token }}{{ eos_token }}{{ mode }}", "<s>", "</s>");
  ASSERT_TRUE(chat);
  const Json extra = {{"mode", "think"}, {"eos_token", "!"}};
  const auto text = chat->render(k_hello, Json(), false, extra, wall_time(0));
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, "<s>!think");
}

TEST(ChatTemplate, NamesTheFieldWhenATemplateRefusesTheMessages) {
  const auto chat =
      ChatTemplate::parse("\n\n{{ raise_exception('roles must alternate') }}", "", "");
  ASSERT_TRUE(chat);
  const auto text = chat->render(k_hello, Json(), false, Json(), wall_time(0));
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(text.error().field, "messages");
  EXPECT_EQ(text.error().message, "chat template, line 3: roles must alternate");
}

TEST(ChatTemplate, RefusesWhatIsNoConversation) {
  const ChatTemplate chat = ChatTemplate::chatml();
  EXPECT_EQ(chat.render(Json("hi"), Json(), true, Json(), wall_time(0)).error().field, "messages");
  EXPECT_EQ(chat.render(k_hello, Json(), true, Json(1), wall_time(0)).error().field,
            "chat_template_kwargs");
}

TEST(ChatTemplate, SaysWhatItCannotDo) {
  const auto include = ChatTemplate::parse("a\n{% include 'x' %}", "", "");
  ASSERT_FALSE(include);
  EXPECT_EQ(include.error().code, ErrorCode::unsupported);
  EXPECT_NE(include.error().message.find("line 2"), std::string::npos);
  EXPECT_EQ(ChatTemplate::parse("{{ 1 | nope }}", "", "").error().code, ErrorCode::unsupported);
  EXPECT_EQ(ChatTemplate::parse("{% if %}", "", "").error().code, ErrorCode::corrupt);
  const std::string large(limits::template_source_bytes_max + 1, 'x');
  EXPECT_EQ(ChatTemplate::parse(large, "", "").error().code, ErrorCode::too_large);
}

TEST(ChatTemplate, ReplacesInvalidUtf8) {
  const auto chat = ChatTemplate::parse("\xFF{{ messages[0].content[0] }}", "", "");
  ASSERT_TRUE(chat);
  Json messages = k_hello;
  messages[0]["content"] = "\xC3(";
  const auto text = chat->render(messages, Json(), false, Json(), wall_time(0));
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(ChatTemplate, RendersFromManyThreadsAtOnce) {
  const auto chat = ChatTemplate::parse(
      "{% for m in messages %}{{ m.content | upper }}{{ loop.index }}{% endfor %}", "", "");
  ASSERT_TRUE(chat);
  std::vector<std::string> texts(4);
  {
    std::vector<std::jthread> threads;
    for (std::string& text : texts) {
      threads.emplace_back([&chat, &text] {
        for (int i = 0; i < 200; ++i) {
          text = chat->render(k_hello, Json(), true, Json(), wall_time(0)).value();
        }
      });
    }
  }
  for (const std::string& text : texts) EXPECT_EQ(text, "HI1");
}

}  // namespace
}  // namespace outrider::model
