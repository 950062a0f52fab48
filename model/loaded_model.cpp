#include "model/loaded_model.hpp"

#include <filesystem>
#include <new>
#include <utility>

#include "model/gguf.hpp"

namespace outrider::model {
namespace {

/// Bytes of a token, or nothing where the model has none.
std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  return tokenizer.contains(id) ? std::string(tokenizer.token_bytes(id)) : std::string();
}

Result<ModelText> read_text(const GgufFile& file, const std::string& path) {
  auto config = ModelConfig::from_gguf(file);
  if (!config) return config.error();
  auto tokenizer = Tokenizer::from_gguf(file);
  if (!tokenizer) return tokenizer.error();
  if ((*tokenizer)->size() != config->vocab) {
    return fail(ErrorCode::corrupt,
                "the tokenizer has " + std::to_string((*tokenizer)->size()) +
                    " tokens, the embedding " + std::to_string(config->vocab) + " rows",
                "tokenizer.ggml.tokens");
  }
  const auto source = file.find_string("tokenizer.chat_template");
  if (!source) return source.error();
  const std::string bos = token_text(**tokenizer, (*tokenizer)->bos());
  const std::string eos = token_text(**tokenizer, (*tokenizer)->eos());
  Result<ChatTemplate> chat = source->has_value() ? ChatTemplate::parse(**source, bos, eos)
                                                  : ChatTemplate::chatml(bos, eos);
  if (!chat) return chat.error();
  return ModelText{std::filesystem::path(path).stem().string(), std::move(config).value(),
                   std::move(tokenizer).value(),
                   std::make_shared<const ChatTemplate>(std::move(chat).value())};
}

}  // namespace

Result<std::shared_ptr<const LoadedModel>> load_model(const std::string& path,
                                                      std::shared_ptr<kernels::Ops> ops,
                                                      const LoadOptions& options) try {
  const auto file = GgufFile::open(path);
  if (!file) return file.error();
  auto text = read_text(*file, path);
  if (!text) return text.error();
  auto model = std::make_shared<LoadedModel>();
  OUTRIDER_ASSIGN(model->weights, load_weights(*file, text->config, *ops, options));
  model->name = std::move(text->name);
  model->path = path;
  model->config = std::move(text->config);
  model->tokenizer = std::move(text->tokenizer);
  model->chat_template = std::move(text->chat_template);
  model->ops = std::move(ops);
  return std::shared_ptr<const LoadedModel>(std::move(model));
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::io, "no memory for the weights of " + path, "model");
}

Result<ModelText> load_model_text(const std::string& path) {
  const auto file = GgufFile::open(path);
  if (!file) return file.error();
  return read_text(*file, path);
}

}  // namespace outrider::model
