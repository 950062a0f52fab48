#include <gtest/gtest.h>

#include "base/limits.hpp"
#include "model/jinja/lexer.hpp"
#include "model/jinja/template.hpp"

// What Python's jinja2 has no answer for: bounds and hostile templates. What both can do is
// compared in chat_template.test.cpp.
namespace outrider::model::jinja {
namespace {

using Json = nlohmann::ordered_json;

Result<std::string> render(std::string_view source, const Json& variables = Json::object(),
                           const RenderLimits& limits = default_limits()) {
  const auto program = Template::parse(source);
  if (!program) return program.error();
  return (*program)->render(variables, std::chrono::sys_seconds(), limits);
}

std::string repeat(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

ErrorCode code_of(const Result<std::string>& result) {
  EXPECT_FALSE(result.ok()) << result.value();
  return result.ok() ? ErrorCode::internal : result.error().code;
}

TEST(Jinja, BoundsEachKindOfWork) {
  RenderLimits limits = default_limits();
  limits.work >>= 6;  // what counts is that nothing escapes, not how long the whole budget lasts
  const std::string grow = "{% set ns = namespace(x='ab') %}{% for i in range(90) %}";
  for (const std::string& source : {
           std::string("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
                       "{% endfor %}"),
           grow + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
           grow + "{% set ns.x = ns.x + ns.x %}{% endfor %}",
           grow + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
           grow + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
           grow + "{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} }}",
           grow + "{% set ns.x = ns.x.replace('a', ns.x) %}{% endfor %}",
           grow + "{% set ns.x = ns.x.join(ns.x) %}{% endfor %}",
           std::string("{{ 'a' * 9223372036854775807 }}"),
           std::string("{{ [1] * 9223372036854775807 }}"),
           std::string("{{ 'a'.ljust(9223372036854775807, 'é') }}"),
           std::string("{{ 'a' | center(9223372036854775807) }}"),
           std::string("{{ 'a' | indent(9223372036854775807) }}"),
           std::string("{{ [] | tojson(indent=9223372036854775807) }}"),
           std::string("{{ [1] | batch(9223372036854775807, 0) | list }}"),
           std::string("{{ '%2147483646d' % 1 }}"),
           std::string("{{ '%.2147483646d' % 1 }}"),
       }) {
    EXPECT_EQ(code_of(render(source, Json::object(), limits)), ErrorCode::too_large) << source;
  }
}

TEST(Jinja, BoundsTheText) {
  RenderLimits limits = default_limits();
  limits.output_bytes = 10;
  EXPECT_EQ(render("0123456789", Json::object(), limits).value(), "0123456789");
  EXPECT_EQ(code_of(render("01234567890", Json::object(), limits)), ErrorCode::too_large);
}

TEST(Jinja, BoundsTheDepthOfTheSource) {
  const size_t beyond = limits::template_syntax_depth_max + 1;
  for (const std::string& source : {
           "{{ " + repeat("(", beyond) + "1" + repeat(")", beyond) + " }}",
           "{{ " + repeat("[", beyond) + repeat("]", beyond) + " }}",
           "{{ " + repeat("{1: ", beyond) + "1" + repeat("}", beyond) + " }}",
           "{{ " + repeat("-", beyond) + "1 }}",
           "{{ " + repeat("not ", beyond) + "1 }}",
           "{{ 1" + repeat(" + 1", beyond) + " }}",
           "{{ 1" + repeat(" ** 1", beyond) + " }}",
           "{{ 1" + repeat(" and 1", beyond) + " }}",
           "{{ 1" + repeat(" if 1 else 1", beyond) + " }}",
           "{{ x" + repeat(".x", beyond) + " }}",
           "{{ x" + repeat("[0]", beyond) + " }}",
           "{{ x" + repeat("()", beyond) + " }}",
           "{{ x" + repeat("|upper", beyond) + " }}",
           "{{ x" + repeat("[x", beyond) + repeat("]", beyond) + " }}",
           repeat("{% if 1 %}", beyond) + repeat("{% endif %}", beyond),
           repeat("{% for x in y %}", beyond) + repeat("{% endfor %}", beyond),
           repeat("{% set x %}", beyond) + repeat("{% endset %}", beyond),
           "{% set " + repeat("(", beyond) + "x" + repeat(")", beyond) + " = 1 %}",
       }) {
    EXPECT_EQ(code_of(render(source)), ErrorCode::too_large) << source.substr(0, 40);
  }
}

TEST(Jinja, RunsTheDeepestSourceThatItReads) {
  const size_t depth = limits::template_syntax_depth_max / 2 - 2;
  EXPECT_EQ(render("{{ " + repeat("(", depth) + "1" + repeat(")", depth) + " }}").value(), "1");
  EXPECT_EQ(render("{{ 1" + repeat(" + 1", 2 * depth) + " }}").value(),
            std::to_string(2 * depth + 1));
}

TEST(Jinja, BoundsRecursionAtRunTime) {
  for (const char* source : {
           "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
           "{% macro f(x) %}{{ caller(x) }}{% endmacro %}"
           "{% macro g(x) %}{% call(y) f(x) %}{{ g(y) }}{% endcall %}{% endmacro %}{{ g(1) }}",
           "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
           "{% macro f(x=f()) %}{% endmacro %}{{ f() }}",
       }) {
    EXPECT_EQ(code_of(render(source)), ErrorCode::too_large) << source;
  }
}

TEST(Jinja, BoundsTheDepthOfValues) {
  for (const char* step : {"[ns.x]", "{'a': ns.x}", "(ns.x,)", "[ns.x].index", "joiner(ns.x)"}) {
    const std::string source =
        "{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% set ns.x = " +
        std::string(step) + " %}{% endfor %}";
    EXPECT_EQ(code_of(render(source)), ErrorCode::too_large) << step;
  }
  EXPECT_EQ(code_of(render("{{ x }}", {{"x", Json::parse(repeat("[", 200) + repeat("]", 200))}})),
            ErrorCode::too_large);
}

TEST(Jinja, LeavesNothingBehindWhenValuesHoldThemselves) {
  // The leak check of the sanitizer build is the judge here.
  const auto text = render(
      "{% set ns = namespace(n=1) %}{% set ns.me = [ns, {'a': ns}] %}"
      "{% macro m() %}{{ ns.n }}{% endmacro %}{% set ns.m = m %}"
      "{% for x in [ns] %}{% set ns.loop = loop %}{{ loop.changed(loop, loop.changed) }}"
      "{% set ns.cycle = loop.cycle %}{% endfor %}{{ ns.m() }}");
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(*text, "True1");
}

TEST(Jinja, LetsMacrosOutliveTheirLoop) {
  EXPECT_EQ(render("{% set ns = namespace() %}{% for x in [1, 2] %}{% macro m() %}{{ x }}"
                   "{% endmacro %}{% if loop.first %}{% set ns.m = m %}{% endif %}{% endfor %}"
                   "{{ ns.m() }}")
                .value(),
            "1");
}

TEST(Jinja, RefusesIntegersBeyond64Bits) {
  for (const char* source :
       {"{{ 9223372036854775808 }}", "{{ 9223372036854775807 + 1 }}", "{{ 2 ** 63 }}",
        "{{ -9223372036854775807 - 2 }}", "{{ 3037000500 * 3037000500 }}",
        "{{ (-9223372036854775807 - 1) // -1 }}", "{{ -(-9223372036854775807 - 1) }}",
        "{{ (-9223372036854775807 - 1) | abs }}", "{{ 1e300 | int }}",
        "{{ '9223372036854775808' | int }}", "{{ '%d' % 1e300 }}"}) {
    EXPECT_FALSE(render(source).ok()) << source;
  }
  EXPECT_EQ(render("{{ (-9223372036854775807 - 1) % -1 }}").value(), "0");
  EXPECT_EQ(render("{{ range(-9223372036854775807, 9223372036854775807, 4611686018427387904) "
                   "| list | length }}")
                .value(),
            "4");
}

TEST(Jinja, TellsTheLineOfAnError) {
  EXPECT_EQ(render("a\n\n{{ 1 +\n none }}").error().message.substr(0, 22),
            "chat template, line 4:");
  EXPECT_EQ(render("\n{% if x %}\n").error().message.substr(0, 22), "chat template, line 2:");
}

TEST(Jinja, ReadsNumbersOfJsonAsPythonDoes) {
  const Json values = Json::parse("[1, -1, 1.0, 1e5, true, 18446744073709551615]");
  EXPECT_EQ(render("{{ x | tojson }}", {{"x", values}}).value(),
            "[1, -1, 1.0, 100000.0, true, 1.8446744073709552e+19]");
}

TEST(Jinja, SplitsATemplateIntoTokensWithTheirLines) {
  const std::vector<Token> tokens = tokenize("a\n{%- if x == 'b' %}\n{{ 1.5 }}");
  std::string kinds;
  for (const Token& token : tokens) kinds += std::to_string(static_cast<int>(token.kind));
  EXPECT_EQ(kinds, "035596418210");  // data, tag, if, x, ==, 'b', end of tag, print …
  EXPECT_EQ(tokens[0].text, "a");
  EXPECT_EQ(tokens[2].text, "if");
  EXPECT_EQ(tokens[2].line, 2u);
}

}  // namespace
}  // namespace outrider::model::jinja
