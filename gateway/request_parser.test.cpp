#include "gateway/request_parser.hpp"

#include <gtest/gtest.h>

#include "base/limits.hpp"

namespace outrider::gateway {
namespace {

constexpr auto k_chat = RequestKind::chat;
constexpr auto k_completion = RequestKind::completion;

std::string with(RequestKind kind, const std::string& member) {
  const std::string base =
      kind == k_chat ? R"("messages":[{"role":"user","content":"hi"}])" : R"("prompt":"hi")";
  return "{" + base + (member.empty() ? "" : ",") + member + "}";
}

ParsedRequest parsed(RequestKind kind, const std::string& body) {
  auto result = parse_request_body(kind, body);
  EXPECT_TRUE(result.ok()) << body << (result ? "" : result.error().message);
  return result ? *result : ParsedRequest();
}

/// The field that the error names.
std::string refused(RequestKind kind, const std::string& body) {
  auto result = parse_request_body(kind, body);
  EXPECT_FALSE(result.ok()) << "accepted: " << body.substr(0, 200);
  if (result) return "accepted";
  EXPECT_FALSE(result.error().message.empty());
  return result.error().field;
}

TEST(RequestParser, TakesAMinimalChatRequestWithOpenAiDefaults) {
  const auto r = parsed(k_chat, with(k_chat, ""));
  EXPECT_EQ(r.generation.sampling.temperature, 1.0f);
  EXPECT_EQ(r.generation.choices, 1u);
  EXPECT_EQ(r.generation.logprobs, -1);
  EXPECT_FALSE(r.stream);
  EXPECT_FALSE(r.max_tokens.has_value());
  EXPECT_FALSE(r.seed.has_value());
  EXPECT_EQ(r.messages[0]["content"], "hi");
}

TEST(RequestParser, TakesEverySamplingField) {
  const auto r = parsed(k_completion, with(k_completion, R"("temperature":0.5,"top_p":0.25,
    "top_k":40,"min_p":0.125,"repetition_penalty":1.5,"presence_penalty":-2,"frequency_penalty":2,
    "logit_bias":{"7":1.5,"3":-100},"seed":18446744073709551615,"n":3,"max_tokens":9,"min_tokens":2,
    "ignore_eos":true,"stop":["a","b"],"stop_token_ids":[5,6],"include_stop_str_in_output":true,
    "skip_special_tokens":false,"logprobs":4,"prompt_logprobs":1,"priority":-3,"deadline_ms":1000,
    "echo":true,"return_token_ids":true,"add_special_tokens":false,"user":"u","cache_salt":"s",
    "speculation":"off","kv":{"stop_rule":"best_effort","pin":true,"ttl_s":90},
    "best_of":3,"suffix":"","response_format":{"type":"text"})"));
  const auto& s = r.generation.sampling;
  EXPECT_EQ(s.temperature, 0.5f);
  EXPECT_EQ(s.top_p, 0.25f);
  EXPECT_EQ(s.top_k, 40);
  EXPECT_EQ(s.min_p, 0.125f);
  EXPECT_EQ(s.repetition_penalty, 1.5f);
  EXPECT_EQ(s.presence_penalty, -2.0f);
  EXPECT_EQ(s.frequency_penalty, 2.0f);
  const std::vector<std::pair<int32_t, float>> bias = {{3, -100.0f}, {7, 1.5f}};
  EXPECT_EQ(s.logit_bias, bias);
  EXPECT_EQ(r.seed, UINT64_MAX);
  EXPECT_EQ(r.generation.choices, 3u);
  EXPECT_EQ(r.max_tokens, 9u);
  EXPECT_EQ(r.generation.stop.min_tokens, 2u);
  EXPECT_TRUE(r.generation.stop.ignore_eos);
  EXPECT_EQ(r.generation.stop.stop_strings, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.generation.stop.stop_token_ids, (std::vector<int32_t>{5, 6}));
  EXPECT_TRUE(r.generation.stop.include_stop_str_in_output);
  EXPECT_FALSE(r.generation.stop.skip_special_tokens);
  EXPECT_EQ(r.generation.logprobs, 4);
  EXPECT_EQ(r.generation.prompt_logprobs, 1);
  EXPECT_EQ(r.generation.priority, -3);
  EXPECT_EQ(r.generation.cache_salt, "s");
  EXPECT_EQ(r.generation.kv, (KvParams{KvStopRule::best_effort, true, 90}));
  EXPECT_EQ(r.generation.deadline_ms, 1000u);
  EXPECT_TRUE(r.echo);
  EXPECT_TRUE(r.return_token_ids);
  EXPECT_EQ(r.add_special_tokens, false);
  EXPECT_TRUE(r.unknown_fields.empty());
}

TEST(RequestParser, TakesWhatARequestWantsOfDrafts) {
  const std::pair<const char*, SpeculationParams> cases[] = {
      {R"("auto")", {true, 0}},
      {R"("off")", {false, 0}},
      {"{}", {true, 0}},
      {R"({"depth_max":null,"method":"exact"})", {true, 0}},
      {R"({"method":"reject_sampling"})", {true, 0, SpeculationMethod::reject_sampling}},
      {R"({"depth_max":32})", {true, 32}},
      {R"({"depth_max":0})", {false, 0}}};
  for (const auto& [text, wanted] : cases) {
    const auto r = parsed(k_chat, with(k_chat, R"("speculation":)" + std::string(text)));
    EXPECT_EQ(r.generation.speculation, wanted) << text;
  }
}

TEST(RequestParser, NullCountsAsAbsentForEveryKnownField) {
  for (const auto& name : known_request_fields()) {
    if (name == "prompt" || name == "messages") continue;
    for (const auto kind : {k_chat, k_completion}) {
      parsed(kind, with(kind, "\"" + name + "\":null"));
    }
  }
}

TEST(RequestParser, ListsUnknownFieldsAndGoesOn) {
  const auto r = parsed(k_chat, with(k_chat, R"("wibble":1,"wobble":true)"));
  EXPECT_EQ(r.unknown_fields, (std::vector<std::string>{"wibble", "wobble"}));
}

TEST(RequestParser, TakesOpenAIsFieldsWithoutEffectAsKnown) {
  for (const auto kind : {k_chat, k_completion}) {
    const auto r = parsed(kind, with(kind, R"("store":true,"metadata":{"a":"b"},
        "parallel_tool_calls":false,"service_tier":"auto","safety_identifier":"u-1",
        "prompt_cache_key":"k")"));
    EXPECT_TRUE(r.unknown_fields.empty()) << r.unknown_fields[0];
  }
}

TEST(RequestParser, RefusesByNameWhatWouldHaveConstrainedTheAnswer) {
  for (const char* field : {R"("guided_json":{"type":"object"})",
                            R"("guided_json":{})",
                            R"("n_predict":2)",
                            R"("samplers":["top_k"])",
                            R"("guided_regex":"a+")",
                            R"("guided_choice":["a"])",
                            R"("structured_outputs":{"regex":"a"})",
                            R"("bad_words":["x"])",
                            R"("allowed_token_ids":[1])",
                            R"("truncate_prompt_tokens":5)",
                            R"("continue_final_message":true)",
                            R"("use_beam_search":true)",
                            R"("functions":[{"name":"f"}])",
                            R"("chat_template":"{{ x }}")",
                            R"("documents":[{"text":"d"}])",
                            R"("prompt_embeds":"AAAA")",
                            R"("reasoning_effort":"low")",
                            R"("length_penalty":0.5)",
                            R"("repeat_penalty":1.1)",
                            R"("typical_p":0.9)",
                            R"("mirostat":2)",
                            R"("dry_multiplier":0.8)",
                            R"("xtc_probability":0.5)",
                            R"("modalities":["audio"])",
                            R"("modalities":["text","audio"])",
                            R"("top_n_sigma":1)"}) {
    const auto r = parse_request_body(k_chat, with(k_chat, field));
    ASSERT_FALSE(r.ok()) << field;
    EXPECT_EQ(r.error().code, ErrorCode::unsupported) << field;
    EXPECT_TRUE(std::string_view(field).substr(1).starts_with(r.error().field + "\"")) << field;
  }
}

TEST(RequestParser, TakesUnsupportedFieldsThatAskForNothingAsKnown) {
  const auto r = parsed(k_chat, with(k_chat, R"("guided_json":null,"bad_words":[],
      "continue_final_message":false,"length_penalty":1.0,"repeat_penalty":1,"typical_p":1.0,
      "mirostat":0,"dry_multiplier":0.0,"top_n_sigma":-1,"documents":[],"chat_template":"",
      "modalities":["text"],"reasoning_effort":null)"));
  EXPECT_TRUE(r.unknown_fields.empty()) << r.unknown_fields[0];
  const auto tuning = parsed(k_chat, with(k_chat, R"("dry_base":1.75)"));
  EXPECT_EQ(tuning.unknown_fields, std::vector<std::string>{"dry_base"});
}

TEST(RequestParser, OfAFieldThatStandsTwiceTheLastCounts) {
  const auto r =
      parse_request_body(k_completion, R"({"prompt":"a","seed":1,"prompt":"b","seed":2})");
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->seed, 2u);
  EXPECT_EQ(std::get<std::string>(r->prompts.at(0)), "b");
}

TEST(RequestParser, ATextIsJsonToItsLastByte) {
  using namespace std::string_view_literals;
  for (const auto body : {"{\"prompt\":\"x\"}\0"sv, "{\"prompt\":\"x\"}\0garbage"sv, "\0{}"sv}) {
    const auto r = parse_request_body(k_completion, body);
    ASSERT_FALSE(r.ok());
    EXPECT_TRUE(r.error().message.starts_with("the body is not valid JSON: syntax error at byte"));
  }
}

TEST(RequestParser, ErrorsOfToolArgumentsAreAboutThatText) {
  const auto r = parse_request_body(k_chat, R"({"messages":[{"role":"assistant",
    "tool_calls":[{"function":{"name":"f","arguments":"{"}}]}]})");
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(
      r.error().message,
      "messages[0].tool_calls[0].function.arguments is not valid JSON: syntax error at byte 2");
}

TEST(RequestParser, LastOfDuplicatedKeysWins) {
  EXPECT_EQ(parsed(k_chat, with(k_chat, R"("top_k":1,"top_k":2)")).generation.sampling.top_k, 2);
}

TEST(RequestParser, TakesPromptsInAllFourShapes) {
  EXPECT_EQ(std::get<std::string>(parsed(k_completion, R"({"prompt":"a"})").prompts[0]), "a");
  EXPECT_EQ(std::get<std::vector<int32_t>>(parsed(k_completion, R"({"prompt":[1,2]})").prompts[0]),
            (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(parsed(k_completion, R"({"prompt":["a","b"]})").prompts.size(), 2u);
  EXPECT_EQ(parsed(k_completion, R"({"prompt":[[1],[2,3]]})").prompts.size(), 2u);
}

TEST(RequestParser, JoinsContentPartsAndMapsTheDeveloperRole) {
  const auto r = parsed(k_chat, R"({"messages":[
    {"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})");
  EXPECT_EQ(r.messages[0]["role"], "system");
  EXPECT_EQ(r.messages[0]["content"], "a\nb");
}

TEST(RequestParser, TakesAnAssistantMessageWithoutContentAsEmpty) {
  const auto r = parsed(k_chat, R"({"messages":[{"role":"user","content":"a"},
    {"role":"assistant","content":null},{"role":"user","content":"b"}]})");
  EXPECT_EQ(r.messages[1]["content"], "");
}

TEST(RequestParser, GivesTemplatesToolArgumentsAsObjects) {
  const auto r = parsed(k_chat, R"({"messages":[{"role":"assistant","content":null,"tool_calls":[
    {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},
    {"role":"tool","tool_call_id":"c1","content":"7"}],
    "tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto"})");
  EXPECT_EQ(r.messages[0]["tool_calls"][0]["function"]["arguments"]["x"], 1);
  EXPECT_EQ(r.messages[1]["tool_call_id"], "c1");
  EXPECT_EQ(r.tools.size(), 1u);
}

TEST(RequestParser, ToolChoiceNoneHidesTheTools) {
  const auto r =
      parsed(k_chat, with(k_chat, R"("tools":[{"type":"function","function":{"name":"f"}}],
    "tool_choice":"none")"));
  EXPECT_TRUE(r.tools.is_null());
}

TEST(RequestParser, ReadsChatLogprobs) {
  EXPECT_EQ(parsed(k_chat, with(k_chat, R"("logprobs":true)")).generation.logprobs, 0);
  EXPECT_EQ(parsed(k_chat, with(k_chat, R"("logprobs":true,"top_logprobs":5)")).generation.logprobs,
            5);
  EXPECT_EQ(parsed(k_chat, with(k_chat, R"("logprobs":false)")).generation.logprobs, -1);
  EXPECT_EQ(parsed(k_chat, with(k_chat, R"("top_logprobs":0)")).generation.logprobs, -1);
  const auto null = with(k_chat, R"("logprobs":null,"top_logprobs":0)");
  EXPECT_EQ(parsed(k_chat, null).generation.logprobs, -1);
}

TEST(RequestParser, TakesIntegersWrittenAsFloatsAndNegativeSeeds) {
  EXPECT_EQ(parsed(k_chat, with(k_chat, R"("max_tokens":16.0)")).max_tokens, 16u);
  const auto r = parsed(k_chat, with(k_chat, R"("seed":-5)"));
  EXPECT_EQ(static_cast<int64_t>(*r.seed), -5);
  EXPECT_TRUE(r.seed_is_negative);
}

TEST(RequestParser, EveryFieldRefusesEveryWrongTypeAndNamesItself) {
  const char* numbers[] = {
      "temperature",      "top_p", "min_p", "repetition_penalty", "presence_penalty",
      "frequency_penalty"};
  const char* integers[] = {"top_k",      "n",          "max_tokens",      "max_completion_tokens",
                            "seed",       "min_tokens", "prompt_logprobs", "priority",
                            "deadline_ms"};
  const char* flags[] = {"ignore_eos",
                         "stream",
                         "include_stop_str_in_output",
                         "skip_special_tokens",
                         "return_token_ids",
                         "add_special_tokens",
                         "echo"};
  int cases = 0;
  for (const auto kind : {k_chat, k_completion}) {
    const auto each = [&](auto& names, std::initializer_list<const char*> values) {
      for (const char* name : names) {
        for (const char* value : values) {
          const std::string member = "\"" + std::string(name) + "\":" + value;
          EXPECT_EQ(refused(kind, with(kind, member)), name) << member;
          ++cases;
        }
      }
    };
    each(numbers, {"\"1\"", "true", "[]", "{}", "1e300", "-1e300", "-3"});
    each(integers, {"\"1\"", "true", "[1]", "{}", "0.5", "1e300"});
    each(flags, {"\"true\"", "1", "[]", "{}"});
  }
  EXPECT_GE(cases, 200);
}

struct BadCase {
  RequestKind kind;
  const char* body;
  const char* field;
};

class BadRequest : public testing::TestWithParam<BadCase> {};

TEST_P(BadRequest, IsRefusedByName) {
  EXPECT_EQ(refused(GetParam().kind, GetParam().body), GetParam().field) << GetParam().body;
}

#define CHAT(member) R"({"messages":[{"role":"user","content":"hi"}],)" member "}"
#define TEXT(member) R"({"prompt":"hi",)" member "}"

const BadCase k_bad_bodies[] = {
    {k_chat, "", ""},
    {k_chat, " ", ""},
    {k_chat, "{", ""},
    {k_chat, "}", ""},
    {k_chat, "[", ""},
    {k_chat, "nul", ""},
    {k_chat, "null", ""},
    {k_chat, "true", ""},
    {k_chat, "1", ""},
    {k_chat, "\"x\"", ""},
    {k_chat, "[]", ""},
    {k_chat, "{} {}", ""},
    {k_chat, "{\"messages\":}", ""},
    {k_chat, "{'messages':[]}", ""},
    {k_chat, "{\"messages\":[],}", ""},
    {k_chat, "{\"messages\"", ""},
    {k_chat, "{\"a\":01}", ""},
    {k_chat, "{\"a\":NaN}", ""},
    {k_chat, "{\"a\":Infinity}", ""},
    {k_chat, "{\"a\":1e999}", ""},
    {k_chat, "{\"a\":-1e999}", ""},
    {k_chat, "{\"a\":\"\\ud800\"}", ""},
    {k_chat, "{\"a\":\"\\x41\"}", ""},
    {k_chat, "{\"a\":\"\n\"}", ""},
    {k_chat, "{\"a\":\"\xff\"}", ""},
    {k_chat, "{\"a\":\"\xc0\xaf\"}", ""},
    {k_chat, "{\"a\":\"\xed\xa0\x80\"}", ""},
    {k_chat, "{\"a\":\"\xf4\x90\x80\x80\"}", ""},
    {k_chat, "\xef\xbb", ""},
};
INSTANTIATE_TEST_SUITE_P(Bodies, BadRequest, testing::ValuesIn(k_bad_bodies));

const BadCase k_bad_inputs[] = {
    {k_chat, "{}", "messages"},
    {k_chat, R"({"prompt":"hi"})", "messages"},
    {k_chat, R"({"messages":null})", "messages"},
    {k_chat, R"({"messages":[]})", "messages"},
    {k_chat, R"({"messages":{}})", "messages"},
    {k_chat, R"({"messages":"hi"})", "messages"},
    {k_chat, R"({"messages":[1]})", "messages[0]"},
    {k_chat, R"({"messages":[{}]})", "messages[0].role"},
    {k_chat, R"({"messages":[{"role":1,"content":"x"}]})", "messages[0].role"},
    {k_chat, R"({"messages":[{"role":"","content":"x"}]})", "messages[0].role"},
    {k_chat, R"({"messages":[{"role":"robot","content":"x"}]})", "messages[0].role"},
    {k_chat, R"({"messages":[{"role":"user"}]})", "messages[0].content"},
    {k_chat, R"({"messages":[{"role":"user","content":1}]})", "messages[0].content"},
    {k_chat, R"({"messages":[{"role":"user","content":{}}]})", "messages[0].content"},
    {k_chat, R"({"messages":[{"role":"user","content":[1]}]})", "messages[0].content[0]"},
    {k_chat, R"({"messages":[{"role":"user","content":[{}]}]})", "messages[0].content[0].type"},
    {k_chat, R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
     "messages[0].content[0].text"},
    {k_chat, R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})",
     "messages[0].content[0].type"},
    {k_chat, R"({"messages":[{"role":"user","content":"x"},{"role":"user","content":null}]})",
     "messages[1].content"},
    {k_chat, R"({"messages":[{"role":"user","content":"x","name":7}]})", "messages[0].name"},
    {k_chat, R"({"messages":[{"role":"tool","content":"x","tool_call_id":[]}]})",
     "messages[0].tool_call_id"},
    {k_chat, R"({"messages":[{"role":"assistant","tool_calls":{"a":1}}]})",
     "messages[0].tool_calls"},
    {k_chat, R"({"messages":[{"role":"assistant","tool_calls":[1]}]})",
     "messages[0].tool_calls[0]"},
    {k_chat, R"({"messages":[{"role":"assistant","tool_calls":[{}]}]})",
     "messages[0].tool_calls[0].function"},
    {k_chat, R"({"messages":[{"role":"assistant","tool_calls":[{"function":{}}]}]})",
     "messages[0].tool_calls[0].function.name"},
    {k_chat,
     R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}]})",
     "messages[0].tool_calls[0].function.arguments"},
    {k_chat, CHAT(R"("tools":{})"), "tools"},
    {k_chat, CHAT(R"("tools":[1])"), "tools[0]"},
    {k_chat, CHAT(R"("tools":[{"type":"web"}])"), "tools[0].type"},
    {k_chat, CHAT(R"("tools":[{"type":"function"}])"), "tools[0].function"},
    {k_chat, CHAT(R"("tools":[{"type":"function","function":{}}])"), "tools[0].function.name"},
    {k_chat, CHAT(R"("tool_choice":"required")"), "tool_choice"},
    {k_chat, CHAT(R"("tool_choice":{"type":"function"})"), "tool_choice"},
    {k_chat, CHAT(R"("tool_choice":1)"), "tool_choice"},
    {k_chat, CHAT(R"("chat_template_kwargs":[])"), "chat_template_kwargs"},
    {k_chat, CHAT(R"("chat_template_kwargs":{"a":1,"messages":[]})"), "chat_template_kwargs"},
    {k_chat, CHAT(R"("chat_template_kwargs":{"tools":null})"), "chat_template_kwargs"},
    {k_chat, CHAT(R"("chat_template_kwargs":{"add_generation_prompt":false})"),
     "chat_template_kwargs"},
    {k_chat, CHAT(R"("chat_template_kwargs":{"eos_token":""})"), "chat_template_kwargs"},
    {k_chat, CHAT(R"("response_format":"json")"), "response_format"},
    {k_chat, CHAT(R"("response_format":{})"), "response_format"},
    {k_chat, CHAT(R"("response_format":{"type":"json_object"})"), "response_format"},
    {k_chat, CHAT(R"("response_format":{"type":"json_schema"})"), "response_format"},
    {k_chat, CHAT(R"("stream_options":{"include_usage":true})"), "stream_options"},
    {k_chat, CHAT(R"("stream":true,"stream_options":1)"), "stream_options"},
    {k_chat, CHAT(R"("stream":true,"stream_options":{"include_usage":1})"),
     "stream_options.include_usage"},
    {k_chat, CHAT(R"("stream":true,"prompt_logprobs":1)"), "prompt_logprobs"},
    {k_chat, CHAT(R"("logprobs":1)"), "logprobs"},
    {k_chat, CHAT(R"("top_logprobs":3)"), "top_logprobs"},
    {k_chat, CHAT(R"("logprobs":false,"top_logprobs":3)"), "top_logprobs"},
    {k_chat, CHAT(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs"},
    {k_chat, CHAT(R"("logprobs":true,"top_logprobs":-1)"), "top_logprobs"},
    {k_chat, CHAT(R"("echo":true)"), "echo"},
    {k_chat, CHAT(R"("model":"")"), "model"},
    {k_chat, CHAT(R"("model":7)"), "model"},
    {k_chat, CHAT(R"("max_tokens":0)"), "max_tokens"},
    {k_chat, CHAT(R"("max_tokens":-1)"), "max_tokens"},
    {k_chat, CHAT(R"("max_tokens":3000000000)"), "max_tokens"},
    {k_chat, CHAT(R"("max_completion_tokens":0)"), "max_completion_tokens"},
    {k_chat, CHAT(R"("max_tokens":2,"min_tokens":3)"), "min_tokens"},
    {k_chat, CHAT(R"("temperature":2.01)"), "temperature"},
    {k_chat, CHAT(R"("temperature":-0.01)"), "temperature"},
    {k_chat, CHAT(R"("top_p":0)"), "top_p"},
    {k_chat, CHAT(R"("top_p":1e-60)"), "top_p"},
    {k_chat, CHAT(R"("top_p":1.01)"), "top_p"},
    {k_chat, CHAT(R"("top_k":-2)"), "top_k"},
    {k_chat, CHAT(R"("top_k":2147483648)"), "top_k"},
    {k_chat, CHAT(R"("min_p":1.5)"), "min_p"},
    {k_chat, CHAT(R"("repetition_penalty":0)"), "repetition_penalty"},
    {k_chat, CHAT(R"("repetition_penalty":1e-38)"), "repetition_penalty"},
    {k_chat, CHAT(R"("repetition_penalty":11)"), "repetition_penalty"},
    {k_chat, CHAT(R"("presence_penalty":2.5)"), "presence_penalty"},
    {k_chat, CHAT(R"("frequency_penalty":-2.5)"), "frequency_penalty"},
    {k_chat, CHAT(R"("n":0)"), "n"},
    {k_chat, CHAT(R"("n":17)"), "n"},
    {k_chat, CHAT(R"("n":18446744073709551615)"), "n"},
    {k_chat, CHAT(R"("seed":18446744073709551616)"), "seed"},
    {k_chat, CHAT(R"("seed":1.5)"), "seed"},
    {k_chat, CHAT(R"("stop":1)"), "stop"},
    {k_chat, CHAT(R"("stop":"")"), "stop"},
    {k_chat, CHAT(R"("stop":[""])"), "stop[0]"},
    {k_chat, CHAT(R"("stop":["a",1])"), "stop[1]"},
    {k_chat,
     CHAT(R"("stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])"),
     "stop"},
    {k_chat, CHAT(R"("stop_token_ids":1)"), "stop_token_ids"},
    {k_chat, CHAT(R"("stop_token_ids":["1"])"), "stop_token_ids[0]"},
    {k_chat, CHAT(R"("stop_token_ids":[1,-1])"), "stop_token_ids[1]"},
    {k_chat, CHAT(R"("logit_bias":[])"), "logit_bias"},
    {k_chat, CHAT(R"("logit_bias":{"x":1})"), "logit_bias"},
    {k_chat, CHAT(R"("logit_bias":{"-1":1})"), "logit_bias"},
    {k_chat, CHAT(R"("logit_bias":{"":1})"), "logit_bias"},
    {k_chat, CHAT(R"("logit_bias":{"00":1,"0":2})"), "logit_bias"},
    {k_chat, CHAT(R"("logit_bias":{"99999999":1})"), "logit_bias"},
    {k_chat, CHAT(R"("logit_bias":{"1":101})"), "logit_bias.1"},
    {k_chat, CHAT(R"("logit_bias":{"1":"2"})"), "logit_bias.1"},
    {k_chat, CHAT(R"("deadline_ms":0)"), "deadline_ms"},
    {k_chat, CHAT(R"("user":1)"), "user"},
    {k_chat, CHAT(R"("cache_salt":"")"), "cache_salt"},
    {k_chat, CHAT(R"("cache_salt":1)"), "cache_salt"},
    {k_chat, CHAT(R"("speculation":"on")"), "speculation"},
    {k_chat, CHAT(R"("speculation":1)"), "speculation"},
    {k_chat, CHAT(R"("speculation":{"method":"ngram"})"), "speculation.method"},
    {k_chat, CHAT(R"("speculation":{"method":1})"), "speculation.method"},
    {k_chat, CHAT(R"("speculation":{"depth_max":33})"), "speculation.depth_max"},
    {k_chat, CHAT(R"("speculation":{"depth_max":-1})"), "speculation.depth_max"},
    {k_chat, CHAT(R"("speculation":{"depth_max":"4"})"), "speculation.depth_max"},
    {k_chat, CHAT(R"("speculation":{"rows":4})"), "speculation.rows"},
    {k_chat, CHAT(R"("kv":1)"), "kv"},
    {k_chat, CHAT(R"("kv":{"stop_rule":"soon"})"), "kv.stop_rule"},
    {k_chat, CHAT(R"("kv":{"stop_rule":1})"), "kv.stop_rule"},
    {k_chat, CHAT(R"("kv":{"pin":1})"), "kv.pin"},
    {k_chat, CHAT(R"("kv":{"ttl_s":-1})"), "kv.ttl_s"},
    {k_chat, CHAT(R"("kv":{"ttl_s":315360001})"), "kv.ttl_s"},
    {k_chat, CHAT(R"("kv":{"tier":"cold"})"), "kv.tier"},
    {k_chat, R"({"messages":[{"role":"assistant","content":null,"function_call":{"name":"f"}}]})",
     "messages[0].function_call"},
    {k_completion, "{}", "prompt"},
    {k_completion, R"({"prompt":null})", "prompt"},
    {k_completion, R"({"prompt":1})", "prompt"},
    {k_completion, R"({"prompt":{}})", "prompt"},
    {k_completion, R"({"prompt":[]})", "prompt"},
    {k_completion, R"({"prompt":[true]})", "prompt[0]"},
    {k_completion, R"({"prompt":["a",1]})", "prompt[1]"},
    {k_completion, R"({"prompt":[1,"a"]})", "prompt[1]"},
    {k_completion, R"({"prompt":[1,-1]})", "prompt[1]"},
    {k_completion, R"({"prompt":[1.5]})", "prompt[0]"},
    {k_completion, R"({"prompt":[99999999999]})", "prompt[0]"},
    {k_completion, R"({"prompt":[[1],[[2]]]})", "prompt[1][0]"},
    {k_completion, R"({"prompt":[[1],null]})", "prompt[1]"},
    {k_completion, TEXT(R"("logprobs":true)"), "logprobs"},
    {k_completion, TEXT(R"("logprobs":21)"), "logprobs"},
    {k_completion, TEXT(R"("best_of":2)"), "best_of"},
    {k_completion, TEXT(R"("suffix":"x")"), "suffix"},
    {k_completion, TEXT(R"("echo":1)"), "echo"},
    {k_completion, R"({"prompt":["a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p",
       "q"],"n":16})",
     "n"},
};
INSTANTIATE_TEST_SUITE_P(Inputs, BadRequest, testing::ValuesIn(k_bad_inputs));

TEST(RequestParser, RefusesDepthWithoutTouchingTheStack) {
  for (const size_t depth : {limits::json_depth_max + 1, 100'000u, 4'000'000u}) {
    EXPECT_EQ(refused(k_chat, std::string(depth, '[')), "");
    std::string object;
    for (size_t i = 0; i < std::min<size_t>(depth, 1'000'000); ++i) object += "{\"a\":";
    EXPECT_EQ(refused(k_chat, object), "");
  }
}

TEST(RequestParser, RefusesObjectsThatAreSlowToSearch) {
  std::string body = "{";
  for (int i = 0; i < 300'000; ++i) body += "\"k" + std::to_string(i) + "\":0,";
  EXPECT_EQ(refused(k_chat, body + "\"z\":0}"), "");
}

TEST(RequestParser, LongKeysCostMoreThanShortOnes) {
  const auto object = [](int keys, size_t key_bytes) {
    std::string body = R"({"prompt":"hi")";
    for (int i = 0; i < keys; ++i) {
      std::string key = std::to_string(10'000 + i);
      body += ",\"" + std::string(key_bytes - key.size(), 'x') + key + "\":0";
    }
    return body + "}";
  };
  parsed(k_completion, object(2'000, 8));
  EXPECT_EQ(refused(k_completion, object(2'000, 2'000)), "");
}

/// An object of `keys` members, quoted as JSON in a string.
std::string wide_object(int keys) {
  Json object = Json::object();
  for (int i = 0; i < keys; ++i) object["k" + std::to_string(i)] = 0;
  return to_text(Json(to_text(object)));
}

TEST(RequestParser, AllJsonInStringsDrawsOnOneBudget) {
  const auto body = [](int calls) {
    std::string list;
    for (int i = 0; i < calls; ++i) {
      list += std::string(i ? "," : "") + R"({"function":{"name":"f","arguments":)" +
              wide_object(3'000) + "}}";
    }
    return R"({"messages":[{"role":"assistant","tool_calls":[)" + list + "]}]}";
  };
  parsed(k_chat, body(1));
  EXPECT_EQ(refused(k_chat, body(2)), "messages[0].tool_calls[1].function.arguments");
}

TEST(RequestParser, RefusesWhatIsOverALimit) {
  EXPECT_EQ(refused(k_chat, std::string(limits::http_body_bytes_max + 1, ' ')), "");
  const auto quoted = [](size_t bytes) { return "\"" + std::string(bytes, 'x') + "\""; };
  EXPECT_EQ(refused(k_chat, with(k_chat, "\"stop\":" + quoted(257))), "stop");
  EXPECT_EQ(refused(k_chat, with(k_chat, "\"user\":" + quoted(257))), "user");
  EXPECT_EQ(refused(k_chat, with(k_chat, "\"model\":" + quoted(257))), "model");
  std::string messages;
  for (uint32_t i = 0; i <= limits::messages_max; ++i) {
    messages += std::string(i ? "," : "") + R"({"role":"user","content":""})";
  }
  EXPECT_EQ(refused(k_chat, "{\"messages\":[" + messages + "]}"), "messages");
  std::string prompts = "\"a\"";
  for (uint32_t i = 0; i < limits::prompts_max; ++i) prompts += ",\"a\"";
  EXPECT_EQ(refused(k_completion, "{\"prompt\":[" + prompts + "]}"), "prompt");
  std::string bias = "\"0\":0";
  for (uint32_t i = 1; i <= limits::logit_bias_entries_max; ++i) {
    bias += ",\"" + std::to_string(i) + "\":0";
  }
  EXPECT_EQ(refused(k_chat, with(k_chat, "\"logit_bias\":{" + bias + "}")), "logit_bias");
}

}  // namespace
}  // namespace outrider::gateway
