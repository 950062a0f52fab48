#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "base/system.hpp"
#include "tools/chat_backend.hpp"
#include "tools/chat_commands.hpp"
#include "tools/command.hpp"
#include "tools/engine_options.hpp"
#include "tools/interrupt.hpp"

namespace outrider::tools {
namespace {

struct ChatFlags {
  SettingFlags settings;
  SamplingFlags sampling;
  std::string url;
  std::string api_key;
  std::string served_model;  ///< With a URL.
  std::string system;
};

/// Lines from the person: with editing and history on a terminal, plain otherwise.
class LineReader {
 public:
  LineReader() {
    if (isatty(STDIN_FILENO) != 1) return;
    // In any other locale libedit drops what is not ASCII.
    const char* locale = std::setlocale(LC_CTYPE, "");
    if (locale == nullptr || std::string_view(nl_langinfo(CODESET)) != "UTF-8") {
      std::setlocale(LC_CTYPE, "C.UTF-8");
    }
    editor_ = el_init("outrider", stdin, stdout, stderr);
    history_ = history_init();
    history_path_ = history_path(std::getenv("OUTRIDER_HISTORY"), std::getenv("HOME"));
    HistEvent event;
    history(history_, &event, H_SETSIZE, 1000);
    if (!history_path_.empty()) history(history_, &event, H_LOAD, history_path_.c_str());
    el_set(
        editor_, EL_PROMPT, +[](EditLine*) -> char* {
          static char prompt[] = "> ";
          return prompt;
        });
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_HIST, history, history_);
    el_set(editor_, EL_SIGNAL, 1);
  }
  ~LineReader() {
    if (editor_ == nullptr) return;
    HistEvent event;
    if (!history_path_.empty()) history(history_, &event, H_SAVE, history_path_.c_str());
    history_end(history_);
    el_end(editor_);
  }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// False at the end of input. Ctrl-C gives an empty line.
  bool read(std::string& line) {
    line.clear();
    if (editor_ == nullptr) return static_cast<bool>(std::getline(std::cin, line));
    Interrupt interrupt;
    int length = 0;
    const char* text = el_gets(editor_, &length);
    if (interrupt.raised()) {
      el_reset(editor_);
      std::cout << '\n';
      return true;
    }
    if (text == nullptr || length <= 0) return false;
    line.assign(text, static_cast<size_t>(length));
    while (!line.empty() && line.back() == '\n') line.pop_back();
    HistEvent event;
    if (!line.empty()) history(history_, &event, H_ENTER, line.c_str());
    return true;
  }

 private:
  EditLine* editor_ = nullptr;
  History* history_ = nullptr;
  std::string history_path_;
};

/// One turn: streams the answer and adds it to the conversation. Ctrl-C ends the answer only.
Result<void> take_turn(ChatBackend& backend, Conversation& conversation, const std::string& line) {
  conversation.add_user(line);
  Interrupt interrupt;
  std::string text;
  const auto stats = backend.answer(
      conversation.messages, conversation.sampling,
      [&](std::string_view piece) {
        text += piece;
        std::cout << piece << std::flush;
      },
      [&] { return interrupt.raised(); });
  const bool cut = stats && stats->finish_reason == to_string(FinishReason::length);
  std::cout << (interrupt.raised() ? " [stopped]\n\n"
                : cut              ? " [cut off: max_tokens, or the context is full]\n\n"
                                   : "\n\n");
  if (stats && !(interrupt.raised() && text.empty())) {
    conversation.add_answer(text, *stats);
    return {};
  }
  conversation.drop_last();
  if (!stats) return stats.error();
  return {};
}

int chat(const ChatFlags& flags) {
  const auto settings = flags.settings.resolve();
  if (!settings) return report(settings.error());
  auto backend = flags.url.empty() ? local_chat(*settings)
                                   : remote_chat(flags.url, flags.api_key, flags.served_model);
  if (!backend) return report(backend.error());
  Conversation conversation(flags.system, flags.sampling);
  const bool terminal = isatty(STDIN_FILENO) == 1;
  if (terminal) {
    std::cout << (*backend)->description() << "\nType a message; /help lists the commands.\n\n";
  }
  LineReader reader;
  std::string line;
  while (reader.read(line)) {
    if (line.empty()) continue;
    if (line.front() == '/') {
      const auto reply = conversation.command(line);
      if (reply.quit) break;
      std::cout << reply.text << '\n';
      continue;
    }
    if (const auto turn = take_turn(**backend, conversation, line); !turn) {
      if (!terminal) return report(turn.error());
      std::cout << "error: " << turn.error().message << "\n\n";
    }
  }
  return k_exit_done;
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("chat", "Talk to a model, here or on a server");
  auto flags = std::make_shared<ChatFlags>();
  flags->sampling.stop.max_tokens = 0;
  flags->sampling.params.temperature = 0.7f;
  auto* url =
      command
          ->add_option(
              "--url", flags->url,
              "a running server, http://host:port, in place of a model here; --model is then\n"
              "one that it serves")
          ->type_name("URL");
  command->add_option("--api-key", flags->api_key, "API key, when the server wants one")
      ->type_name("KEY")
      ->needs(url);
  command->add_option("--system", flags->system, "system message")->type_name("TEXT");
  flags->sampling.add(*command);
  flags->settings.add(*command, engine_setting_names());
  command->footer(
      "Inside, /help lists the commands (/set, /stats, /reset, /quit). OUTRIDER_HISTORY names the\n"
      "file that keeps the lines [~/.outrider_history]; empty: none.\n"
      "Example: outrider chat --model smollm2-135m --temperature 0.7");
  command->callback([flags, command, &action] {
    // Not by CLI11's excludes(), which lists every pair in --help.
    std::vector<std::string> of_the_engine = engine_setting_names();
    std::erase(of_the_engine, "model");
    of_the_engine.push_back("config");
    for (const std::string& name : of_the_engine) {
      if (!flags->url.empty() && command->count("--" + name) > 0) {
        throw CLI::ExcludesError("--url", "--" + name);
      }
    }
    if (command->count("--model") > 0) {
      flags->served_model = command->get_option("--model")->as<std::string>();
    }
    uint64_t& seed = flags->sampling.params.seed;
    if (command->count("--seed") == 0) seed = random_bits() >> 12;  // exact in any JSON number
    action = [flags] { return chat(*flags); };
  });
}

}  // namespace outrider::tools
